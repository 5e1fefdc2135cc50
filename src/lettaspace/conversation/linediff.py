"""What changed between two texts, line by line, in bounded time and size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

MAX_COMPARED = 4_000
"""Of more lines than this (of both texts, the equal ones at either end left out) it is only said
that they were replaced: comparing takes quadratic time."""

MAX_LINES = 2_000
"""The most lines of a difference."""

CONTEXT = 3
"""Equal lines around each change."""

_Block = tuple[int, int, int, int]


class LineKind(StrEnum):
    """What a line of a difference is; the value is its mark in a unified diff."""

    HUNK = "@"
    CONTEXT = " "
    REMOVED = "-"
    ADDED = "+"


@dataclass(frozen=True, slots=True)
class LineDiff:
    """A difference. Nothing was changed where there are no lines."""

    lines: tuple[tuple[LineKind, str], ...]
    added: int
    removed: int
    left_out: int = 0
    """Lines beyond `MAX_LINES`."""

    def unified(self) -> str:
        """The lines as a unified diff has them, without a header."""
        return "\n".join(
            text if kind is LineKind.HUNK else f"{kind}{text}" for kind, text in self.lines
        )


def line_diff(old: str, new: str) -> LineDiff:
    """The difference between two texts. Lines end with LF alone."""
    before, after = old.split("\n"), new.split("\n")
    changes = _changes(before, after)
    lines = list(_lines(before, after, changes))
    return LineDiff(
        tuple(lines[:MAX_LINES]),
        added=sum(end - start for _, _, start, end in changes),
        removed=sum(end - start for start, end, _, _ in changes),
        left_out=max(0, len(lines) - MAX_LINES),
    )


def _changes(before: Sequence[str], after: Sequence[str]) -> list[_Block]:
    """Where the texts differ: the lines of the one, and those of the other in their place."""
    limit = min(len(before), len(after))
    head = 0
    while head < limit and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < limit - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if not old and not new:
        return []
    if len(old) + len(new) > MAX_COMPARED:
        return [(head, head + len(old), head, head + len(new))]
    return [
        (head + i1, head + i2, head + j1, head + j2)
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


def _lines(
    before: Sequence[str], after: Sequence[str], changes: Sequence[_Block]
) -> Iterator[tuple[LineKind, str]]:
    for hunk in _hunks(changes):
        i1 = max(0, hunk[0][0] - CONTEXT)
        j1 = hunk[0][2] - (hunk[0][0] - i1)
        i2 = min(len(before), hunk[-1][1] + CONTEXT)
        j2 = hunk[-1][3] + (i2 - hunk[-1][1])
        yield LineKind.HUNK, f"@@ -{i1 + 1},{i2 - i1} +{j1 + 1},{j2 - j1} @@"
        at = i1
        for old_start, old_end, new_start, new_end in hunk:
            yield from ((LineKind.CONTEXT, line) for line in before[at:old_start])
            yield from ((LineKind.REMOVED, line) for line in before[old_start:old_end])
            yield from ((LineKind.ADDED, line) for line in after[new_start:new_end])
            at = old_end
        yield from ((LineKind.CONTEXT, line) for line in before[at:i2])


def _hunks(changes: Sequence[_Block]) -> Iterator[list[_Block]]:
    """Changes whose context would touch belong together."""
    hunk: list[_Block] = []
    for change in changes:
        if hunk and change[0] - hunk[-1][1] > 2 * CONTEXT:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk
