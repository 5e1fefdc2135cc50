"""Differences between texts, line by line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.conversation import linediff
from lettaspace.conversation.linediff import LineDiff, LineKind, line_diff

texts = st.lists(st.sampled_from(["", "a", "b", "c\r", "-x", "@@ y"]), max_size=30).map("\n".join)


def applied(old: str, diff: LineDiff) -> str:
    """The old text with a difference applied to it, by the line numbers of the hunks."""
    before = old.split("\n")
    after: list[str] = []
    at = 0
    for kind, text in diff.lines:
        if kind is LineKind.HUNK:
            found = re.fullmatch(r"@@ -(\d+),\d+ \+(\d+),\d+ @@", text)
            assert found is not None
            start = int(found[1]) - 1
            after += before[at:start]
            at = start
            assert len(after) == int(found[2]) - 1
        elif kind is LineKind.ADDED:
            after.append(text)
        else:
            assert before[at] == text
            at += 1
            after += [text] if kind is LineKind.CONTEXT else []
    return "\n".join(after + before[at:])


@given(texts, texts)
def test_a_difference_is_what_leads_from_one_to_the_other(old: str, new: str) -> None:
    diff = line_diff(old, new)
    assert applied(old, diff) == new
    assert (diff.lines == ()) is (old == new)
    kinds = [kind for kind, _ in diff.lines]
    assert (kinds.count(LineKind.ADDED), kinds.count(LineKind.REMOVED)) == (
        diff.added,
        diff.removed,
    )
    assert diff.left_out == 0


@given(texts, texts)
def test_too_much_to_compare_is_replaced_whole(old: str, new: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linediff, "MAX_COMPARED", 2)
        assert applied(old, line_diff(old, new)) == new


def test_unified() -> None:
    old = "\n".join("abcdefghijklmnop")
    new = old.replace("b", "B").replace("o", "O\nOO")
    assert line_diff(old, new).unified() == "\n".join(
        ["@@ -1,5 +1,5 @@", " a", "-b", "+B", " c", " d", " e",
         "@@ -12,5 +12,6 @@", " l", " m", " n", "-o", "+O", "+OO", " p"]
    )  # fmt: skip
    assert line_diff("a", "a").unified() == ""


def test_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linediff, "MAX_LINES", 5)
    diff = line_diff("a", "\n".join("bcdefgh"))
    assert [kind for kind, _ in diff.lines] == ["@", "-", "+", "+", "+"]
    assert (diff.added, diff.removed, diff.left_out) == (7, 1, 4)


def test_texts_that_take_quadratic_time_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never:
        def __init__(self, *_: object, **__: object) -> None:
            raise AssertionError("compared")

    monkeypatch.setattr(linediff, "SequenceMatcher", Never)
    lines = [str(number) for number in range(linediff.MAX_COMPARED)]
    diff = line_diff("\n".join(lines), "\n".join(reversed(lines)))
    assert diff.removed == diff.added == len(lines)
