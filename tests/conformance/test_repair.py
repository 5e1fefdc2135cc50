"""`repair` from every state that a crash, or a writer that does less, may leave."""

import itertools

import pytest

from tests.conformance.kit import TIME, check, check_readable, user

TAIL = "cdef"


@pytest.mark.parametrize("marked", [(), ("a",), ("b",), ("a", "b")], ids="".join)
@pytest.mark.parametrize(
    "moved",
    [some for size in range(5) for some in itertools.combinations(TAIL, size)],
    ids=lambda some: "".join(some) or "none",
)
def test_any_part_of_a_compaction(talk, marked, moved):
    rkeys = {letter: talk.foreign(seq, user(letter)) for seq, letter in enumerate("abcdef", 1)}
    talk.foreign(7, user("S"), compactedMessageIds=[rkeys["a"], rkeys["b"]])
    for letter in marked:
        talk.remark(rkeys[letter], status="compacted", updatedAt=TIME)
    for letter in moved:
        talk.remark(rkeys[letter], seq=8 + TAIL.index(letter), updatedAt=TIME)
    # In whatever order the rest came: what is not moved yet stands before what is.
    if list(moved) == list(TAIL[len(TAIL) - len(moved) :]):
        assert talk.window == ["S", *TAIL]
    check_readable(talk)
    before = talk.window
    talk.handle.repair()
    assert talk.window == before
    check(talk)


def test_it_writes_no_more_than_it_must(talk):
    rkeys = [talk.foreign(seq, user(letter)) for seq, letter in enumerate("abcdef", 1)]
    talk.foreign(7, user("S"), compactedMessageIds=rkeys[:2])
    assert talk.handle.repair() == 2 + 4
    talk.users("g")
    assert talk.handle.repair() == 0
    assert talk.seqs == [7, 8, 9, 10, 11, 12]


def test_of_what_is_whole_already(talk):
    assert talk.handle.repair() == 0
    talk.users("abc")
    talk.compact(2)
    assert talk.handle.repair() == 0


def test_a_shared_seq(talk):
    talk.foreign(1, user("a"), rkey="3mmmmmmmmmaa2")
    talk.foreign(1, user("b"), rkey="3mmmmmmmmmbb2")
    talk.foreign(2, user("c"))
    assert talk.window == ["a", "b", "c"]
    assert [problem.kind for problem in talk.space.verify()] == ["seq"]
    talk.handle.repair()
    assert talk.window == ["a", "b", "c"]
    check(talk)


def test_two_summaries_with_lists_of_their_own(talk):
    # As two machines may have written them, each for itself.
    rkeys = [talk.foreign(seq, user(letter)) for seq, letter in enumerate("abcdefg", 1)]
    talk.foreign(8, user("S"), compactedMessageIds=rkeys[:2])
    talk.foreign(9, user("T"), compactedMessageIds=rkeys[3:5])
    assert talk.window == ["S", "c", "T", "f", "g"]
    assert talk.transcript == ["a", "b", "S", "c", "d", "e", "T", "f", "g"]
    talk.handle.repair()
    assert sorted(talk.window) == sorted(["S", "c", "T", "f", "g"])
    check(talk)


def test_a_summary_whose_messages_are_not_there_yet(talk):
    rkeys = [talk.foreign(seq, user(letter)) for seq, letter in ((2, "b"), (3, "c"))]
    talk.foreign(4, user("S"), compactedMessageIds=["3zzzzzzzzzzz2", rkeys[0]])
    assert talk.window == ["S", "c"]
    talk.handle.repair()
    assert talk.plain() == [message.rkey for message in talk.handle.window().messages]
    talk.foreign(1, user("a"), rkey="3zzzzzzzzzzz2")
    assert talk.window == ["S", "c"]
    talk.handle.repair()
    assert talk.transcript == ["a", "b", "S", "c"]
    check(talk)
