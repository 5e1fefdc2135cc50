"""Settling tool calls, and the real results that turn up after all."""

import pytest

from lettaspace.conversation.settling import Settle
from lettaspace.errors import NotFound
from tests.conformance.kit import Talk, check, check_readable, result, says, user, words


def test_one_call_at_the_end(talk):
    talk.add(user("u"), says("A", "c1"))
    (settled,) = talk.handle.settle()
    assert talk.window == ["u", "A", "!c1"]
    assert (settled.role, settled.seq) == ("toolResult", 3)
    payload = settled.payload()
    assert (payload["toolCallId"], payload["toolName"], payload["isError"]) == ("c1", "ls", True)
    assert talk.handle.pending() == []
    assert talk.seqs == [1, 2, 3]
    check(talk)


def test_it_stands_directly_behind_its_call(talk):
    before = talk.add(user("u"), says("A", "c1"), user("v"), user("w"))
    talk.handle.settle()
    assert talk.window == talk.transcript == ["u", "A", "!c1", "v", "w"]
    assert talk.seqs == [1, 2, 5, 6, 7]
    now = {each.rkey: each for each in talk.handle.transcript()}
    first, call, *rest = before
    assert now[first.rkey] == first
    assert (now[call.rkey].seq, now[call.rkey].updated_at is not None) == (2, True)
    assert now[call.rkey].payload() == call.payload()
    for each in rest:
        assert now[each.rkey].payload() == each.payload()
        assert now[each.rkey].updated_at is not None
    check(talk)


def test_the_wording_blames_nobody(talk):
    talk.add(says("A", "c1"))
    (settled,) = talk.handle.settle()
    text = settled.payload()["content"][0]["text"].lower()
    assert not any(word in text for word in ("user", "cancel", "abort", "stopped", "person"))


def test_a_text_of_one_s_own(talk):
    talk.add(says("A", "c1"))
    (settled,) = talk.handle.settle(text="The power went out.")
    assert settled.payload()["content"] == [{"type": "text", "text": "The power went out."}]


def test_twice_changes_nothing(make_space, talk):
    talk.add(user("u"), says("A", "c1"), user("v"))
    assert len(talk.handle.settle()) == 1
    before = talk.ops()
    assert talk.handle.settle() == []
    assert talk.handle.settle(["c1"]) == []
    assert talk.seen_by(make_space()).handle.settle() == []
    assert talk.ops() == before


def test_nothing_to_settle(talk):
    assert talk.handle.settle() == []
    talk.add(user("u"), says("A", "c1"), result("r", "c1"))
    before = talk.ops()
    assert talk.handle.settle() == []
    assert talk.ops() == before


def test_free_seqs_are_used(talk):
    talk.foreign(1, says("A", "c1"))
    talk.foreign(9, user("u"))
    talk.foreign(10, says("B", "c2"))
    talk.foreign(15, user("v"))
    talk.handle.settle(["c2"])
    assert talk.seqs == [1, 9, 10, 14, 15]
    talk.handle.settle(["c1"])
    assert talk.window == ["A", "!c1", "u", "B", "!c2", "v"]
    assert talk.seqs == [1, 8, 9, 10, 14, 15]
    check(talk)


def test_seqs_of_compacted_messages_are_never_used_again(talk):
    talk.foreign(1, says("A", "c1"))
    talk.foreign(8, user("z"), status="compacted")
    talk.foreign(9, user("u"))
    talk.handle.settle()
    assert talk.window == ["A", "!c1", "u"]
    assert talk.seqs == [1, 10, 11]
    check(talk)


class TestParallelCalls:
    def test_only_those_without_a_result(self, talk):
        talk.add(user("u"), says("A", "c1", "c2", "c3"))
        first, third = talk.add(result("r1", "c1"), result("r3", "c3"))
        talk.add(user("v"))
        assert words(talk.handle.settle()) == ["!c2"]
        assert talk.window == ["u", "A", "r1", "r3", "!c2", "v"]
        assert talk.handle.message(first.rkey) == first
        assert talk.handle.message(third.rkey) == third
        check(talk)

    def test_all_of_them_in_their_order(self, talk):
        talk.add(says("A", "c3", "c1", "c2"), user("v"))
        assert words(talk.handle.settle()) == ["!c3", "!c1", "!c2"]
        assert talk.window == ["A", "!c3", "!c1", "!c2", "v"]
        # The calling message is rewritten once.
        updates = [op for op in talk.ops() if op.prev is not None]
        assert len(updates) == 2
        check(talk)

    def test_in_several_messages(self, talk):
        talk.add(user("u"), says("A", "a1", "a2"), result("r", "a2"), user("v"))
        talk.add(says("B", "b1"), says("C", "c1"), user("w"))
        assert words(talk.handle.settle()) == ["!a1", "!b1", "!c1"]
        assert talk.window == ["u", "A", "r", "!a1", "v", "B", "!b1", "C", "!c1", "w"]
        keys = [(op.rev, op.collection, op.rkey) for op in talk.ops()]
        assert len(set(keys)) == len(keys), "a record is written once in a batch"
        check(talk)

    def test_an_id_that_comes_again(self, talk):
        talk.add(says("A", "call_0"), user("u"), says("B", "call_0"), result("r", "call_0"))
        talk.handle.settle()
        assert talk.window == ["A", "!call_0", "u", "B", "r"]
        check(talk)

    def test_two_results_of_two_calls_with_one_id(self, talk):
        talk.add(says("A", "c"), says("B", "c"), result("r", "c"))
        assert talk.handle.pending() == ["c"]
        talk.add(result("s", "c"))
        assert talk.handle.pending() == []
        assert talk.handle.settle() == []
        assert talk.compact(3) is None
        assert talk.window == ["A", "B", "r", "s"]

    def test_the_same_id_twice_in_one_message(self, talk):
        talk.add(says("A", "c1", "c1"))
        talk.handle.settle()
        assert talk.window == ["A", "!c1"]


class TestNamed:
    def test_those_and_no_others(self, talk):
        talk.add(says("A", "c1", "c2"), says("B", "c3"))
        assert words(talk.handle.settle(["c3", "c1"])) == ["!c1", "!c3"]
        assert talk.handle.pending() == ["c2"]
        assert talk.window == ["A", "!c1", "B", "!c3"]
        check(talk)

    @pytest.mark.parametrize("wrong", ["ui-msg-7", "c9", ""])
    def test_an_unknown_id_is_refused_and_nothing_written(self, talk, wrong):
        talk.add(says("A", "c1", id="ui-msg-7"))
        before = talk.ops()
        with pytest.raises(NotFound):
            talk.handle.settle(["c1", wrong])
        assert talk.ops() == before
        assert talk.handle.pending() == ["c1"]

    def test_none_at_all(self, talk):
        talk.add(says("A", "c1"))
        assert talk.handle.settle([]) == []
        assert talk.handle.pending() == ["c1"]

    def test_a_call_outside_the_window_is_unknown(self, talk):
        talk.add(says("A", "c1"), result("r", "c1"))
        talk.compact(2)
        with pytest.raises(NotFound):
            talk.handle.settle(["c1"])


class TestLateResults:
    @pytest.fixture
    def settled(self, talk):
        talk.add(user("u"), says("A", "c1", "c2"), user("v"))
        talk.handle.settle()
        return talk

    def test_they_take_the_placeholder_s_place(self, settled):
        before = settled.of("!c1")
        (late,) = settled.add(result("real", "c1"))
        assert (late.rkey, late.seq, late.created_at) == (
            before.rkey,
            before.seq,
            before.created_at,
        )
        assert late.updated_at is not None
        assert settled.window == settled.transcript == ["u", "A", "real", "!c2", "v"]
        assert settled.handle.settle() == []
        check(settled)

    def test_they_may_be_large_and_carry_any_json(self, settled):
        payload = result("x" * 300_000, "c2", details={"b": 1.5, "a": 1 << 60})
        (late,) = settled.add(payload)
        assert late.payload() == payload
        check(settled)

    def test_only_the_first_takes_the_place(self, settled):
        settled.add(result("real", "c1"), result("again", "c1"))
        assert settled.window == ["u", "A", "real", "!c2", "v", "again"]
        check(settled)

    def test_after_the_placeholder_was_compacted(self, settled):
        settled.compact(4)
        (late,) = settled.add(result("real", "c1"))
        assert late.status == "compacted"
        assert settled.window == ["S", "v"]
        assert settled.transcript == ["u", "A", "real", "!c2", "S", "v"]
        check(settled)

    def test_after_the_placeholder_was_moved(self, settled):
        settled.compact(1)
        settled.add(result("real", "c2"))
        assert settled.window == ["S", "A", "!c1", "real", "v"]
        check(settled)

    def test_of_another_conversation(self, space, settled):
        other = Talk.new(space)
        other.add(says("B", "c1"), result("theirs", "c1"))
        assert settled.window == ["u", "A", "!c1", "!c2", "v"]
        assert other.window == ["B", "theirs"]

    def test_of_an_id_in_two_halves(self, talk):
        talk.add(says("A", "c1|x"), user("v"))
        talk.handle.settle()
        talk.add(result("real", "c1"))
        assert talk.window == ["A", "real", "v"]

    def test_whole_ids_decide(self, talk):
        talk.add(says("A", "c|1"), says("B", "c|2"))
        talk.handle.settle()
        assert talk.window == ["A", "!c|1", "B", "!c|2"]
        talk.add(result("one", "c|1"))
        assert talk.window == ["A", "one", "B", "!c|2"]
        check(talk)

    def test_the_result_of_a_new_call_with_an_old_id(self, talk):
        talk.add(says("A", "call_0"), user("u"))
        talk.handle.settle()
        talk.add(says("B", "call_0"), result("of B", "call_0"))
        assert talk.window == ["A", "!call_0", "u", "B", "of B"]
        assert talk.handle.pending() == []
        check(talk)

    def test_the_newest_placeholder_first(self, talk):
        talk.add(says("A", "call_0"), says("B", "call_0"))
        talk.handle.settle()
        talk.add(result("late", "call_0"))
        assert talk.window == ["A", "!call_0", "B", "late"]

    def test_a_placeholder_is_no_real_result(self, settled):
        own = settled.of("!c1").payload()
        settled.add({**own, "id": "settled-again"})
        assert settled.window == ["u", "A", "!c1", "!c2", "v", "!c1"]


class TestWithCompaction:
    def test_settled_calls_can_be_summarised(self, talk):
        talk.add(user("u"), says("A", "c1"), user("v"))
        assert talk.compact(3).boundary == 1
        talk.handle.settle()
        assert talk.compact(3, "T").boundary == 3
        assert talk.window == ["T", "v"]
        assert talk.transcript == ["u", "S", "A", "!c1", "T", "v"]
        check(talk)

    def test_while_a_compaction_is_unfinished(self, talk):
        rkeys = [talk.foreign(seq, user(letter)) for seq, letter in enumerate("abc", 1)]
        talk.foreign(4, says("A", "c1"))
        talk.foreign(5, user("d"))
        talk.foreign(6, user("S"), compactedMessageIds=rkeys[:2])
        talk.foreign(7, says("B", "c2"))
        assert talk.window == ["S", "c", "A", "d", "B"]
        talk.handle.settle()
        assert talk.window == ["S", "c", "A", "!c1", "d", "B", "!c2"]
        check_readable(talk)
        talk.handle.repair()
        assert talk.window == ["S", "c", "A", "!c1", "d", "B", "!c2"]
        check(talk)


class TestManyBatches:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch):
        monkeypatch.setattr("lettaspace.conversation.settling.MAX_WRITES", 4)

    def steps(self, talk, expected):
        plan = Settle(
            talk.space.repo,
            talk.handle.uri,
            talk.handle.agent,
            call_ids=None,
            text="gone",
            at=talk.space.now(),
        )
        others = [each for each in expected if not each.startswith("!")]
        count = 0
        while not plan.done:
            assert talk.space.repo.transact(plan)
            count += 1
            assert count < 100
            assert [each for each in talk.window if not each.startswith("!")] == others
            check_readable(talk)
            assert talk.handle.repair() == 0, "every part leaves seq order right"
        assert talk.window == expected
        assert len(plan.rkeys) == len(set(plan.rkeys)) == len(expected) - len(others)
        check(talk)
        return count

    def test_a_long_tail(self, talk):
        talk.add(says("A", "c1"))
        talk.users("abcdefghijk")
        assert self.steps(talk, ["A", "!c1", *"abcdefghijk"]) == 4

    def test_a_call_at_each_end(self, talk):
        # What stands last is a call itself, with nothing behind it to move.
        talk.add(says("A", "c1"))
        talk.users("abcdefgh")
        talk.add(says("B", "c2"))
        self.steps(talk, ["A", "!c1", *"abcdefgh", "B", "!c2"])

    def test_many_calls_in_one_message(self, talk):
        calls = [f"c{number}" for number in range(9)]
        talk.add(user("u"), says("A", *calls))
        talk.users("abcde")
        steps = self.steps(talk, ["u", "A", *(f"!{each}" for each in calls), *"abcde"])
        # The tail moves once; after that, three results a batch with their calling message.
        assert steps <= 2 + 3

    def test_calls_all_over(self, talk):
        expected = []
        for number, letter in enumerate("abcdefg"):
            talk.add(says(letter, f"c{number}"), user(letter.upper()))
            expected += [letter, f"!c{number}", letter.upper()]
        self.steps(talk, expected)

    def test_through_the_face(self, talk):
        talk.add(says("A", "c1"))
        talk.users("abcdefgh")
        talk.add(says("B", "c2", "c3"))
        assert words(talk.handle.settle()) == ["!c1", "!c2", "!c3"]
        assert talk.window == ["A", "!c1", *"abcdefgh", "B", "!c2", "!c3"]

    def test_somebody_appends_between_the_batches(self, make_space, talk):
        talk.add(says("A", "c1"))
        talk.users("abcdefgh")
        other = talk.seen_by(make_space())
        plan = Settle(
            talk.space.repo,
            talk.handle.uri,
            talk.handle.agent,
            call_ids=["c1"],
            text="gone",
            at=talk.space.now(),
        )
        more = iter("ijklmnopqrstuvwxyz")
        expected = ["A", "!c1", *"abcdefgh"]
        while not plan.done:
            talk.space.repo.transact(plan)
            letter = next(more)
            other.users(letter)
            expected.append(letter)
            check_readable(talk)
        assert talk.window == expected
        check(talk)

    def test_cut_off_and_begun_again(self, talk):
        talk.add(says("A", "c1"))
        talk.users("abcdefgh")
        plan = Settle(
            talk.space.repo,
            talk.handle.uri,
            talk.handle.agent,
            call_ids=None,
            text="gone",
            at=talk.space.now(),
        )
        talk.space.repo.transact(plan)
        assert not plan.done
        talk.handle.repair()
        assert talk.window == ["A", *"abcdefgh"]
        talk.users("i")
        talk.handle.settle()
        assert talk.window == ["A", "!c1", *"abcdefghi"]
        check(talk)


def test_a_tail_beyond_a_batch(talk):
    talk.add(user("u"), says("A", "c1"))
    for number in range(450):
        talk.foreign(3 + number, user(f"m{number}"))
    talk.add(says("B", "c2"))
    ops = len(talk.ops())
    talk.handle.settle()
    assert talk.window == ["u", "A", "!c1", *(f"m{n}" for n in range(450)), "B", "!c2"]
    # Each record behind the first result once, both results, the first calling message; the
    # second is rewritten with its result and moved, which may be in two batches.
    assert len(talk.ops()) - ops <= 450 + 2 + 1 + 2
    check(talk)
