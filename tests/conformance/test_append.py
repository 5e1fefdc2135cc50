"""Appending: seq, keys, what may be given; and rewriting."""

import pytest

from lettaspace.atproto import tid
from lettaspace.atproto.cid import CID
from lettaspace.conversation.records import MESSAGE
from lettaspace.errors import Conflict, InvalidInput, InvalidRecord, NotFound
from tests.conformance.kit import TIME, Talk, check, result, says, user, words


def test_a_message_is_stored_as_it_was_given(talk):
    payload = says("hello", "c1", usage={"input": 1, "cost": {"total": 0.25}}, extra=None)
    message = talk.handle.append(payload, created_at=TIME)
    assert message.payload() == payload
    assert (message.role, message.seq, message.status) == ("assistant", 1, "active")
    assert (message.created_at, message.updated_at) == (TIME, None)
    assert talk.handle.message(message.rkey) == message
    assert message.value["agent"] == talk.handle.agent
    check(talk)


def test_seqs_count_up_and_tids_rise(talk):
    messages = talk.users("abcdefghij")
    assert [message.seq for message in messages] == list(range(1, 11))
    rkeys = [message.rkey for message in messages]
    assert rkeys == sorted(set(rkeys))
    assert talk.window == talk.transcript == list("abcdefghij")
    check(talk)


def test_conversations_count_for_themselves(space, talk):
    other = Talk.new(space)
    talk.users("ab")
    other.users("xyz")
    talk.users("c")
    assert (talk.seqs, other.seqs) == ([1, 2, 3], [1, 2, 3])
    assert (talk.window, other.window) == (["a", "b", "c"], ["x", "y", "z"])


def test_any_role_and_any_format(talk):
    talk.add(user("a"))
    message = talk.unknown("hm")
    assert (message.role, message.seq, message.format) == ("observer", 2, "acme.msg")
    window = talk.handle.window()
    assert (words(window.messages), words(window.left_out)) == (["a"], ["?hm"])
    assert talk.handle.append({"role": "user", "content": []}, role="critic").role == "critic"


@pytest.mark.parametrize("payload", [{"content": []}, {"role": ""}, {"role": 7}])
def test_a_role_is_needed(talk, payload):
    with pytest.raises(InvalidInput, match="role"):
        talk.handle.append(payload)
    assert talk.transcript == []


def test_what_the_lexicon_refuses_leaves_nothing(talk):
    before = talk.ops()
    with pytest.raises(InvalidRecord):
        talk.handle.append(user("a"), created_at="yesterday", key="k")
    assert talk.ops() == before
    # Nor was the key used up.
    assert talk.handle.append(user("b"), key="k").seq == 1


@pytest.mark.parametrize("last", ["unknown", "summary", "compacted", "float", "far", "settled"])
def test_seq_after_a_reopen_whatever_came_last(make_space, talk, last):
    talk.users("ab")
    if last == "unknown":
        talk.unknown("x")
    elif last == "summary":
        talk.compact(2)
    elif last == "compacted":
        talk.foreign(9, user("z"), status="compacted")
    elif last == "float":
        talk.add({**user("f"), "temperature": 0.1})
    elif last == "far":
        talk.foreign(1 << 40, user("far"))
    else:
        talk.add(says("c", "c1"), user("d"))
        talk.handle.settle()
    top = talk.records()[-1].value["seq"]
    again = talk.seen_by(make_space())
    assert again.handle.append(user("next")).seq == top + 1
    assert talk.handle.append(user("after")).seq == top + 2
    assert talk.window[-2:] == ["next", "after"]
    check(talk)


def test_new_tids_stand_above_stored_ones_unless_those_are_from_a_wrong_clock(talk):
    micros, _ = tid.decode(talk.users("a")[0].rkey)
    hours, years = 3_600_000_000, 50 * 365 * 86_400_000_000
    ahead = tid.encode(micros + 10 * hours, 7)
    talk.foreign(2, user("ahead"), rkey=ahead)
    assert talk.users("b")[0].rkey > ahead
    wild = tid.encode(micros + years, 7)
    talk.foreign(4, user("wild"), rkey=wild)
    first, second = talk.users("cd")
    assert first.rkey < second.rkey < wild
    # Order is by seq, so none of this shows.
    assert talk.window == ["a", "ahead", "b", "wild", "c", "d"]
    talk.compact(3)
    assert talk.window == ["S", "wild", "c", "d"]
    check(talk)


class TestKeys:
    def test_the_same_again_is_the_same_message(self, talk):
        first = talk.handle.append(user("go"), key="k1")
        talk.users("x")
        before = talk.ops()
        again = talk.handle.append(user("go"), key="k1")
        assert (again.rkey, again.seq, again.cid) == (first.rkey, 1, first.cid)
        assert talk.ops() == before
        assert talk.window == ["go", "x"]

    def test_without_a_key_the_same_again_is_another(self, talk):
        talk.add(user("go"), user("go"))
        assert talk.window == ["go", "go"]

    @pytest.mark.parametrize("other", [user("stop"), says("go"), user("go", id="x")])
    def test_other_content_is_refused(self, talk, other):
        talk.handle.append(user("go"), key="k1")
        before = talk.ops()
        with pytest.raises(Conflict, match="k1"):
            talk.handle.append(other, key="k1")
        assert talk.ops() == before

    def test_keys_are_a_conversation_s_own(self, space, talk):
        other = Talk.new(space)
        talk.handle.append(user("a"), key="k")
        assert other.handle.append(user("b"), key="k").seq == 1

    def test_through_another_handle(self, make_space, talk):
        first = talk.handle.append(user("go"), key="k1")
        again = talk.seen_by(make_space()).handle.append(user("go"), key="k1")
        assert again.rkey == first.rkey

    def test_after_it_was_compacted_or_rewritten(self, talk):
        talk.handle.append(user("go"), key="k1")
        talk.handle.append(user("on"), key="k2")
        talk.compact(1)
        assert talk.handle.append(user("go"), key="k1").status == "compacted"
        talk.handle.rewrite(talk.of("on").rkey, user("on!"))
        assert talk.handle.append(user("on"), key="k2").payload() == user("on!")
        assert talk.window == ["S", "on!"]

    def test_a_late_result_appended_twice(self, talk):
        talk.add(says("calls", "c1"), user("next"))
        talk.handle.settle()
        first = talk.handle.append(result("real", "c1"), key="k1")
        before = talk.ops()
        again = talk.handle.append(result("real", "c1"), key="k1")
        assert again == first
        assert talk.ops() == before
        with pytest.raises(Conflict):
            talk.handle.append(result("other", "c1"), key="k1")
        assert talk.window == ["calls", "real", "next"]

    def test_a_compaction_s_key_is_no_append_s(self, talk):
        talk.users("abc")
        talk.compact(2, key="k")
        with pytest.raises(Conflict):
            talk.handle.append(user("S"), key="k")
        talk.handle.append(user("d"), key="a")
        with pytest.raises(Conflict):
            talk.compact(2, key="a")
        assert talk.window == ["S", "c", "d"]


class TestRewrite:
    def test_new_payload_at_the_same_place(self, talk):
        first, second = talk.users("ab")
        rewritten = talk.handle.rewrite(first.rkey, user("a2"))
        assert (rewritten.rkey, rewritten.seq) == (first.rkey, 1)
        assert rewritten.created_at == first.created_at
        assert rewritten.updated_at is not None
        assert rewritten.cid != first.cid
        assert talk.window == talk.transcript == ["a2", "b"]
        assert talk.handle.message(second.rkey) == second
        check(talk)

    def test_expected(self, talk):
        (first,) = talk.users("a")
        second = talk.handle.rewrite(first.rkey, user("b"), expected=first.cid)
        before = talk.ops()
        with pytest.raises(Conflict) as caught:
            talk.handle.rewrite(first.rkey, user("c"), expected=first.cid)
        assert str(first.cid) in str(caught.value)
        assert str(second.cid) in str(caught.value)
        assert talk.ops() == before
        talk.handle.rewrite(first.rkey, user("c"), expected=second.cid)
        assert talk.window == ["c"]

    def test_only_what_is_there(self, space, talk):
        other = Talk.new(space)
        (theirs,) = other.users("x")
        for rkey in (theirs.rkey, "3zzzzzzzzzzzz"):
            with pytest.raises(NotFound):
                talk.handle.rewrite(rkey, user("y"))
        assert other.window == ["x"]

    def test_of_a_compacted_message_and_of_a_summary(self, talk):
        talk.users("abc")
        done = talk.compact(2)
        talk.handle.rewrite(talk.of("a").rkey, user("a2"))
        talk.handle.rewrite(done.summary.rkey, user("S2"))
        assert talk.window == ["S2", "c"]
        assert talk.transcript == ["a2", "b", "S2", "c"]
        assert talk.of("S2").compacted_message_ids == done.summary.compacted_message_ids
        check(talk)

    def test_leaves_what_it_does_not_know(self, talk):
        rkey = talk.foreign(1, user("a"), someday="kept", status="active")
        talk.handle.rewrite(rkey, user("b"))
        stored = talk.space.repo.get(MESSAGE, rkey).value
        assert (stored["someday"], stored["status"]) == ("kept", "active")

    def test_large_content_and_back(self, talk):
        (message,) = talk.users("a")
        large = user("x" * 400_000)
        assert talk.handle.rewrite(message.rkey, large).payload() == large
        assert talk.handle.rewrite(message.rkey, user("b")).payload() == user("b")
        assert isinstance(talk.of("b").cid, CID)
        check(talk)
