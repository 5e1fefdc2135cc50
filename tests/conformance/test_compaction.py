"""Compaction: what it covers, where it cuts, what becomes of the rest."""

import pytest

from lettaspace.conversation import compaction
from lettaspace.errors import Conflict, InvalidInput
from tests.conformance.kit import (
    Talk,
    check,
    check_readable,
    fails,
    result,
    says,
    user,
    word,
    words,
)


class Cut(BaseException):
    """Stands for the end of the process: nothing in between may take it for an error."""


@pytest.fixture
def cut_off(monkeypatch):
    """Ends a compaction after its first batch."""

    def start(talk, count, summary="S", **more):
        def stop(*_arguments):
            raise Cut

        with monkeypatch.context() as patch:
            patch.setattr("lettaspace.conversation.compaction.MAX_WRITES", 1)
            patch.setattr("lettaspace.conversation.compaction.repair", stop)
            with pytest.raises(Cut):
                talk.compact(count, summary, **more)

    return start


def test_the_summary_takes_the_first_messages_place(talk):
    before = talk.users("abcdef")
    done = talk.compact(2)
    assert (done.covered, done.asked, done.boundary) == (2, 2, 2)
    assert talk.window == ["S", "c", "d", "e", "f"]
    assert talk.seqs == [7, 8, 9, 10, 11]
    assert talk.transcript == ["a", "b", "S", "c", "d", "e", "f"]
    summary = done.summary
    assert summary.role == "user"
    assert summary.compacted_message_ids == [each.rkey for each in before[:2]]
    assert summary.payload()["metadata"]["compaction"]["summary"] == "S"
    for each in before:
        now = talk.handle.message(each.rkey)
        covered = each.seq <= 2
        assert (now.seq == each.seq) == covered
        assert now.updated_at is not None
        assert (now.value.get("status"), now.covered_by) == (
            ("compacted", summary.rkey) if covered else (None, None)
        )
        assert now.payload() == each.payload()
        assert now.created_at == each.created_at
    check(talk)
    talk.users("g")
    assert talk.seqs[-1] == 12


def test_all_of_it(talk):
    talk.users("abc")
    assert talk.handle.compact(lambda covered: " ".join(words(covered))).covered == 3
    assert talk.window == ["a b c"]
    check(talk)


@pytest.mark.parametrize("count", [0, -1])
def test_nothing_to_summarise(talk, count):
    talk.users("ab")
    assert talk.handle.compact(fails(AssertionError()), lambda _window: count) is None
    assert Talk.new(talk.space).handle.compact(fails(AssertionError())) is None
    assert talk.window == ["a", "b"]


def test_more_than_there_is(talk):
    talk.users("ab")
    assert talk.compact(99).boundary == 2
    assert talk.window == ["S"]


def test_older_summaries_are_covered(talk):
    for summary, letters in zip("STU", ("abc", "def", "ghi"), strict=True):
        talk.users(letters)
        talk.compact(len(talk.window) - 1, summary)
        check(talk)
    assert talk.window == ["U", "i"]
    assert talk.transcript == ["a", "b", "S", "c", "d", "e", "T", "f", "g", "h", "U", "i"]
    listed = [talk.handle.message(each) for each in talk.of("U").compacted_message_ids]
    assert words(listed) == ["T", "f", "g", "h"]
    assert talk.of("S").covered_by == talk.of("T").rkey


def test_a_summary_alone_is_summarised_again(talk):
    talk.users("ab")
    talk.compact(2, "S")
    talk.compact(1, "T")
    assert talk.window == ["T"]
    assert talk.transcript == ["a", "b", "S", "T"]
    check(talk)


def test_the_caller_chooses_and_is_given_what_is_covered(talk):
    talk.users("abcd")
    shown = []

    def choose(window):
        shown.append(words(window))
        return 3

    def summarize(covered):
        shown.append(words(covered))
        return user("sum", model="m")

    done = talk.handle.compact(summarize, choose)
    assert shown == [["a", "b", "c", "d"], ["a", "b", "c"]]
    assert done.summary.payload() == user("sum", model="m")
    assert talk.window == ["sum", "d"]


@pytest.mark.parametrize(
    "payload", [says("S", "c9"), says("S"), result("S", "c1"), {"content": []}]
)
def test_a_summary_is_a_user_s_message(talk, payload):
    talk.users("ab")
    with pytest.raises(InvalidInput):
        talk.handle.compact(lambda _covered: payload)
    assert talk.window == ["a", "b"]
    assert len(talk.records()) == 2


def test_a_summariser_that_fails_has_changed_nothing(talk):
    talk.users("abc")
    before = talk.records()
    with pytest.raises(ConnectionError, match="429"):
        talk.handle.compact(fails(ConnectionError("429")), key="k")
    assert talk.records() == before
    assert talk.compact(2, key="k").covered == 2
    check(talk)


class TestBoundary:
    @pytest.fixture
    def parallel(self, talk):
        talk.add(user("u"), says("A", "c1", "c2"), result("r1", "c1"), result("r2", "c2"))
        talk.add(says("end"))
        return talk

    @pytest.mark.parametrize(
        ("asked", "boundary"), [(1, 1), (2, 1), (3, 1), (4, 4), (5, 5), (50, 5)]
    )
    def test_calls_stay_with_their_results(self, parallel, asked, boundary):
        done = parallel.compact(asked)
        assert (done.asked, done.boundary, done.covered) == (asked, boundary, boundary)
        assert (
            parallel.window
            == ["S", "A", "r1", "r2", "end"][:1]
            + [
                "u",
                "A",
                "r1",
                "r2",
                "end",
            ][boundary:]
        )
        check(parallel)

    def test_a_call_in_flight_stays_and_what_follows_it(self, talk):
        talk.add(user("u"), says("A", "c1", "c2"), result("r1", "c1"), user("v"))
        done = talk.compact(4)
        assert (done.asked, done.boundary) == (4, 1)
        assert talk.window == ["S", "A", "r1", "v"]
        assert talk.handle.pending() == ["c2"]
        # Its result comes, and is no orphan.
        talk.add(result("r2", "c2"))
        assert talk.window == ["S", "A", "r1", "v", "r2"]
        check(talk)
        assert talk.compact(5, "T").boundary == 5
        check(talk)

    def test_nothing_but_a_call_in_flight(self, talk):
        talk.add(says("A", "c1"), user("v"))
        assert talk.compact(2) is None
        assert talk.window == ["A", "v"]

    def test_results_that_stand_elsewhere(self, talk):
        talk.add(user("u"), says("A", "c1"), user("v"), says("B", "c2"), result("r1", "c1"))
        talk.add(user("w"), result("r2", "c2"), user("x"))
        # Between r1 and r2 the cut parts c2; before c2 it parts c1.
        assert talk.compact(6).boundary == 1
        check(talk)
        assert talk.window == ["S", "A", "v", "B", "r1", "w", "r2", "x"]
        assert talk.compact(7, "T").boundary == 7
        check(talk)

    def test_an_id_that_comes_again(self, talk):
        # As with models that number the calls of every turn.
        for turn in "123":
            talk.add(user("u" + turn), says("A" + turn, "call_0"), result("r" + turn, "call_0"))
        assert talk.compact(2).boundary == 1
        assert talk.window == ["S", "A1", "r1", "u2", "A2", "r2", "u3", "A3", "r3"]
        assert talk.compact(5, "T").boundary == 4
        assert talk.window == ["T", "A2", "r2", "u3", "A3", "r3"]
        check(talk)

    def test_an_id_that_comes_again_before_it_was_answered(self, talk):
        talk.add(says("A1", "call_0"), user("u"), says("A2", "call_0"), result("r2", "call_0"))
        assert talk.compact(4) is None
        assert talk.handle.pending() == ["call_0"]

    def test_two_results_of_one_call(self, talk):
        talk.add(user("u"), says("A", "c1"), result("r", "c1"), user("v"), result("again", "c1"))
        assert talk.compact(4).boundary == 1
        check(talk)

    def test_ids_in_two_halves(self, talk):
        talk.add(user("u"), says("A", "c1|item_7"), user("v"), result("r", "c1"), user("w"))
        assert talk.handle.pending() == []
        assert talk.compact(3).boundary == 1
        assert talk.compact(5, "T").boundary == 5
        check(talk)


class TestUnknownFormats:
    def test_they_stay_for_those_who_know_them(self, talk):
        talk.users("a")
        talk.unknown("x")
        talk.users("bc")
        done = talk.compact(3)
        assert (done.boundary, done.covered) == (3, 2)
        assert talk.window == ["S", "c"]
        assert words(talk.handle.window().left_out) == ["?x"]
        assert talk.transcript == ["a", "b", "S", "?x", "c"]
        check(talk)

    def test_alone_they_are_nothing_to_summarise(self, talk):
        talk.unknown("x")
        talk.users("a")
        assert talk.compact(1) is None

    @pytest.mark.parametrize("batches", [1, 2])
    def test_what_stands_before_all_that_is_covered_stays_there(self, talk, cut_off, batches):
        talk.unknown("x")
        talk.users("abc")
        if batches == 1:
            talk.compact(3)
        else:
            cut_off(talk, 3)
            talk.handle.repair()
        assert words(talk.space.active(talk.handle.uri)) == ["?x", "S", "c"]
        assert talk.transcript == ["?x", "a", "b", "S", "c"]
        assert talk.of("?x").seq == 1
        check(talk)


class TestManyBatches:
    @pytest.mark.parametrize(("count", "kept"), [(198, 1), (199, 1), (150, 300), (450, 10)])
    def test_at_and_beyond_the_size_of_a_batch(self, talk, count, kept):
        for number in range(count + kept):
            talk.foreign(number + 1, user(f"m{number}"))
        ops = len(talk.ops())
        done = talk.compact(count)
        assert done.covered == count
        assert talk.window == ["S", *(f"m{number}" for number in range(count, count + kept))]
        top = count + kept
        assert talk.seqs == list(range(top + 1, top + kept + 2))
        assert len(talk.ops()) - ops == 1 + count + kept, "each record was written once"
        check(talk)

    def test_readers_are_right_after_every_batch(self, talk, cut_off, monkeypatch):
        monkeypatch.setattr("lettaspace.conversation.compaction.MAX_WRITES", 3)
        talk.users("abcdefghijklmnop")
        cut_off(talk, 5)
        expected = ["S", *"fghijklmnop"]
        finish = compaction.Finish(talk.handle.uri, talk.space.now())
        steps = 0
        while talk.space.repo.transact(finish):
            assert talk.window == expected
            assert talk.transcript == [*"abcde", *expected]
            check_readable(talk)
            steps += 1
        assert steps == 1 + 4
        check(talk)

    def test_more_is_appended_between_the_batches(self, talk, cut_off, monkeypatch):
        monkeypatch.setattr("lettaspace.conversation.compaction.MAX_WRITES", 3)
        talk.users("abcdefghijkl")
        cut_off(talk, 4)
        finish = compaction.Finish(talk.handle.uri, talk.space.now())
        expected = ["S", *"efghijkl"]
        for letter in "mnopqrstuv":
            talk.users(letter)
            expected.append(letter)
            talk.space.repo.transact(finish)
            assert talk.window == expected
            check_readable(talk)
        talk.handle.repair()
        check(talk)


class TestChains:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch):
        monkeypatch.setattr("lettaspace.conversation.compaction.MAX_COVERED", 3)

    @pytest.mark.parametrize(("count", "summaries"), [(3, 1), (4, 2), (5, 2), (6, 3), (9, 4)])
    def test_a_long_list_is_split(self, talk, count, summaries):
        talk.users("abcdefghijk")
        ops = len(talk.ops())
        done = talk.compact(count)
        assert done.covered == count
        assert len(talk.ops()) - ops == 11 + summaries, "each record was written once"
        kept = list("abcdefghijk"[count:])
        assert talk.window == ["S", *kept]
        assert len(talk.records()) == 11 + summaries
        lists = [
            each.value["compactedMessageIds"]
            for each in talk.records()
            if "compactedMessageIds" in each.value
        ]
        assert all(len(each) <= 3 for each in lists)
        listed = [rkey for each in lists for rkey in each]
        assert len(set(listed)) == len(listed) == count + summaries - 1
        originals = [each for each in talk.transcript if each != "S"]
        assert originals == list("abcdefghijk")
        assert talk.seqs == list(range(11 + summaries, 11 + summaries + len(kept) + 1))
        check(talk)

    def test_chains_of_chains(self, talk):
        for summary in "STU":
            talk.users("abcdefgh")
            talk.compact(len(talk.window) - 2, summary)
            check(talk)
        assert talk.window == ["U", "g", "h"]
        assert "".join(each for each in talk.transcript if each.islower()) == "abcdefgh" * 3

    def test_cut_off(self, talk, cut_off):
        talk.users("abcdefgh")
        cut_off(talk, 6)
        assert talk.window == ["S", "g", "h"]
        check_readable(talk)
        talk.handle.repair()
        assert talk.window == ["S", "g", "h"]
        check(talk)


class TestMeanwhile:
    """What happens while the summariser works."""

    def during(self, talk, count, act):
        def summarize(_covered):
            act()
            return "S"

        return talk.handle.compact(summarize, lambda _window: count)

    def test_appended_messages_are_kept(self, make_space, talk):
        talk.users("abcd")
        other = talk.seen_by(make_space())
        self.during(talk, 3, lambda: other.users("ef"))
        assert talk.window == ["S", "d", "e", "f"]
        check(talk)

    def test_even_where_all_was_to_be_summarised(self, make_space, talk):
        talk.users("abcd")
        other = talk.seen_by(make_space())
        done = self.during(talk, 4, lambda: other.users("e"))
        assert done.covered == 4
        assert talk.window == ["S", "e"]
        check(talk)

    def test_a_rewritten_message_is_not_summarised_unread(self, make_space, talk):
        talk.users("abcd")
        other = talk.seen_by(make_space())
        with pytest.raises(Conflict, match="rewritten"):
            self.during(talk, 3, lambda: other.handle.rewrite(talk.of("b").rkey, user("b2")))
        assert talk.window == ["a", "b2", "c", "d"]
        assert len(talk.records()) == 4
        check(talk)

    def test_a_late_result_is_not_summarised_unread(self, talk):
        talk.add(user("u"), says("A", "c1"), user("v"))
        talk.handle.settle()
        with pytest.raises(Conflict):
            self.during(talk, 4, lambda: talk.add(result("real", "c1")))
        assert talk.window == ["u", "A", "real", "v"]
        check(talk)

    def test_two_at_once_end_in_one_summary(self, make_space, talk):
        talk.users("abcdef")
        other = talk.seen_by(make_space())
        with pytest.raises(Conflict, match="compacted"):
            self.during(talk, 4, lambda: other.compact(2, "T"))
        assert talk.window == ["T", "c", "d", "e", "f"]
        check(talk)

    def test_a_message_rewritten_in_the_kept_tail(self, make_space, talk):
        talk.users("abcd")
        other = talk.seen_by(make_space())
        self.during(talk, 2, lambda: other.handle.rewrite(talk.of("d").rkey, user("d2")))
        assert talk.window == ["S", "c", "d2"]
        check(talk)

    def test_calls_settled_in_the_kept_tail(self, make_space, talk):
        talk.add(user("u"), says("A", "c1"), user("v"))
        other = talk.seen_by(make_space())
        self.during(talk, 3, other.handle.settle)
        assert talk.window == ["S", "A", "!c1", "v"]
        check(talk)

    def test_a_retry_under_a_key_that_was_used_meanwhile(self, make_space, talk):
        talk.users("abcd")
        other = talk.seen_by(make_space())

        def summarize(_covered):
            other.compact(2, "T", key="k")
            return "S"

        done = talk.handle.compact(summarize, lambda _window: 2, key="k")
        assert word(done.summary) == "T"
        assert talk.window == ["T", "c", "d"]
        check(talk)


class TestKeys:
    def test_the_same_again_is_the_same_compaction(self, talk):
        talk.users("abcd")
        first = talk.compact(2, key="k")
        before = talk.ops()
        again = talk.handle.compact(fails(AssertionError()), key="k")
        assert again.summary == first.summary
        assert again.covered == 2
        assert talk.ops() == before

    def test_a_retry_finishes_what_was_cut_off(self, talk, cut_off):
        talk.users("abcd")
        cut_off(talk, 2, key="k")
        again = talk.handle.compact(fails(AssertionError()), key="k")
        assert word(again.summary) == "S"
        assert talk.window == ["S", "c", "d"]
        check(talk)
        assert talk.seqs == [5, 6, 7]

    def test_after_it_was_summarised_itself(self, talk):
        talk.users("abcd")
        first = talk.compact(2, "S", key="k")
        talk.compact(2, "T")
        again = talk.handle.compact(fails(AssertionError()), key="k")
        assert again.summary.rkey == first.summary.rkey
        assert talk.window == ["T", "d"]


def test_images_and_large_texts_are_kept_where_they_are(talk):
    talk.add(user("x" * 300_000), user("b"))
    before = talk.of("x" * 300_000)
    talk.compact(1)
    after = talk.of("x" * 300_000)
    assert after.value["message"] == before.value["message"]
    check(talk)
