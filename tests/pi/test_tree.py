"""What the model is given, and what becomes of entries on the way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings

from lettaspace.pi.tree import replay
from tests.pi.model import context
from tests.pi.sessions import Writer, session, writers


@settings(max_examples=100)
@given(writers())
def test_the_window_is_what_pi_gives_the_model(made: Writer) -> None:
    found = replay(made.session())
    expected = context(made.rows)
    assert [found.entries[at].id for at in found.window] == [id_ for id_, _, _ in expected]


@settings(max_examples=100)
@given(writers())
def test_the_marks_agree_with_the_window(made: Writer) -> None:
    found = replay(made.session())
    assert all(found.seqs[one] < found.seqs[two] for one, two in pairwise(found.window))
    numbers = [seq for seq in found.seqs if seq]
    assert len(set(numbers)) == len(numbers)
    listed = [each for covered in found.covers.values() for each in covered]
    assert len(set(listed)) == len(listed)
    assert not set(listed) & set(found.window)
    for summary, covered in found.covers.items():
        assert [found.seqs[at] for at in covered] == sorted(found.seqs[at] for at in covered)
        assert summary not in covered


@settings(max_examples=100)
@given(writers())
def test_what_changes_later_says_when(made: Writer) -> None:
    """A record is another only where the entry that made it so is named."""
    before: dict[int, Any] = {}
    for count in range(1, len(made.rows) + 1):
        found = replay(session(made.rows[:count]))
        window = set(found.window)
        now = {
            at: (found.seqs[at], at in window, found.edits.get(at), found.covers.get(at))
            for at in range(len(found.entries))
        }
        for at, marks in before.items():
            if now[at][:3] != marks[:3] or now[at][3] != marks[3]:
                assert found.touched_by[at] is not None
        before = now


def test_a_kept_tail_stands_behind_the_summary() -> None:
    made = Writer()
    made.user("one")
    kept = made.says("two")
    summary = made.compact("sum", kept)
    made.user("three")
    found = replay(made.session())
    assert [found.entries[at].id for at in found.window][:2] == [summary, kept]
    assert found.seqs == [1, 4, 3, 5]
    assert found.touched_by == [2, 2, None, None]
    assert found.covers == {2: [0]}


def test_a_second_summary_covers_the_first() -> None:
    made = Writer()
    made.user("one")
    made.compact("first")
    made.user("two")
    kept = made.user("three")
    made.compact("second", kept)
    found = replay(made.session())
    assert found.covers == {1: [0], 4: [1, 2]}
    assert found.window == [4, 3]


def test_other_branches_are_outside() -> None:
    made = Writer()
    fork = made.user("one")
    made.says("left behind")
    made.compact("a summary there")
    made.leaf = fork
    made.says("here")
    found = replay(made.session())
    assert found.window == [0, 3]
    assert found.covers == {2: [1]}  # not the message that both branches have
    assert found.touched_by == [3, 3, 3, None]


def test_going_back_to_a_branch() -> None:
    made = Writer()
    fork = made.user("one")
    back = made.says("there")
    made.leaf = fork
    made.says("here")
    made.leaf = back
    made.user("again")
    found = replay(made.session())
    assert found.window == [0, 1, 3]
    assert found.touched_by == [None, 3, 3, None]


def test_edits_are_of_their_branch() -> None:
    made = Writer()
    one = made.user("one")
    two = made.user("two")
    made.add("context_edit", targetId=one, replacement={"content": "instead"})
    made.add("context_edit", targetId=two, replacement=None)
    found = replay(made.session())
    assert (found.window, found.edits) == ([0], {0: "instead", 1: None})
    made.leaf = two
    made.user("three")
    found = replay(made.session())
    assert (found.window, found.edits) == ([0, 1, 4], {})


def test_the_first_form_of_sessions_is_a_line() -> None:
    made = Writer(version=1)
    for said in ("one", "two", "three"):
        made.user(said)
    made.add("compaction", summary="sum", tokensBefore=1, firstKeptEntryIndex=3)
    for row in made.rows[1:]:
        del row["id"], row["parentId"]
    found = replay(made.session())
    assert found.window == [3, 2]
    assert found.covers == {3: [0, 1]}


def test_parents_that_are_not_there() -> None:
    made = Writer()
    made.user("one")
    made.leaf = "nowhere"
    made.user("two")
    found = replay(made.session())
    assert found.window == [1]
    assert [each.kind for each in found.findings] == ["missingParent"]
    made.rows[1]["parentId"] = made.rows[1]["id"]  # its own parent
    assert replay(made.session()).path(0) == [0]
