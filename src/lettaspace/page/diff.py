"""Differences between two texts, as HTML.

Lines keep their `+` and `-`, so that nothing is said by colour alone. Their classes, which
code.css defines, are `d-add`, `d-del`, `d-hunk` for what a hunk starts with, and `d-file` for
the lines around hunks.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import unified_diff

from markupsafe import Markup

from lettaspace.page import code
from lettaspace.page.inert import inert, inert_block

MAX_LINES = 5_000
"""Two texts with more lines than this in all are shown one after the other, uncompared."""

MAX_PAIRS = 200_000
"""So are texts with more pairs of equal lines: each is looked at many times."""

_HUNK = re.compile(r"@@ -[0-9]{1,9}(?:,([0-9]{1,9}))? \+[0-9]{1,9}(?:,([0-9]{1,9}))? @@")
_ABOUT_FILE = re.compile(
    r"diff |index |(?:old|new|deleted file|new file) mode |(?:dis)?similarity index |"
    r"(?:copy|rename) (?:from|to) |Binary files |--- |\+\+\+ "
)
_ABOUT_COMMIT = re.compile(
    r"commit [0-9a-f]{7,64}\b|(?:Author|AuthorDate|Commit|CommitDate|Date|Merge):|    |\Z"
)
_PATCH = "*** Begin Patch"
_NO_NEWLINE = "\n\\ No newline at end of file"
_KINDS = {"+": "d-add", "-": "d-del", "\\": "d-file"}
_LEFT = {"-": (1, 0), "+": (0, 1), " ": (1, 1), "": (1, 1), "\\": (0, 0)}
"""How many lines of the old and the new text a line of a hunk stands for, by its first
character. An empty line is a context line that lost its space."""


def unified(old: str, new: str, filename: str | None = None) -> Markup:
    """What changed from one text to the other, with three lines around each change.

    A diff of one hunk has no line for it: the texts may be excerpts, whose line numbers
    mean nothing. `filename` stands above the diff.
    """
    if "\r\n" in old and "\r\n" in new:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    before, after = _lines(old), _lines(new)
    if not _comparable(before, after):
        return Markup("\n").join(code.highlight(text, filename=filename) for text in (old, new))
    if before and after and old.endswith("\n") != new.endswith("\n"):
        (after if old.endswith("\n") else before)[-1] += _NO_NEWLINE
    rows = [(_kind(line), line) for line in list(unified_diff(before, after, lineterm=""))[2:]]
    if not rows:
        rows = [("", " " + line) for line in before]
    elif sum(kind == "d-hunk" for kind, _ in rows) == 1:
        del rows[0]
    if filename:
        rows[:0] = [("d-file", f"--- {inert(filename)}"), ("d-file", f"+++ {inert(filename)}")]
    return _block(rows)


def highlight(text: str) -> Markup:
    """A text that is a diff already; the text content of the result is the text, made inert."""
    return _block(_rows(text.replace("\r\n", "\n").split("\n")))


def looks_like_diff(text: str) -> bool:
    """Whether a text is unified diffs and nothing else, every hunk of the length it claims.

    What git writes around them may be there too. So may one whole `*** Begin Patch`.
    """
    lines = _lines(text.replace("\r\n", "\n"))
    if lines[:1] == [_PATCH]:
        return lines[-1] == "*** End Patch"
    if not any(line.startswith("@@ -") for line in lines):
        return False
    removed = added = hunks = 0
    in_file = False
    for line in lines:
        if removed or added:
            if line[:1] not in _LEFT:
                return False
            removed, added = _left(line, removed, added)
            if removed < 0 or added < 0:
                return False
        elif found := _HUNK.match(line):
            if not in_file:
                return False
            removed, added = _lengths(found)
            hunks += 1
        elif not line.startswith("\\ "):
            if not _ABOUT_FILE.match(line) and not _ABOUT_COMMIT.match(line):
                return False
            in_file = line.startswith("+++ ")
    return hunks > 0 and not removed and not added


def _rows(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Lines of a diff and their classes. Hunks may be longer or shorter than they claim."""
    removed = added = 0
    for line in lines:
        if (removed > 0 or added > 0) and line[:1] in _LEFT:
            removed, added = _left(line, removed, added)
            yield _kind(line), line
        elif found := _HUNK.match(line):
            removed, added = _lengths(found)
            yield "d-hunk", line
        elif _ABOUT_FILE.match(line) or line.startswith("*** "):
            removed = added = 0
            yield "d-file", line
        else:
            yield _kind(line), line


def _left(line: str, removed: int, added: int) -> tuple[int, int]:
    """How many lines of either side a hunk has left after this one."""
    one = _LEFT[line[:1]]
    return removed - one[0], added - one[1]


def _lengths(hunk: re.Match[str]) -> tuple[int, int]:
    return int(hunk[1] or 1), int(hunk[2] or 1)


def _kind(line: str) -> str:
    return "d-hunk" if line.startswith("@@") else _KINDS.get(line[:1], "")


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _comparable(before: list[str], after: list[str]) -> bool:
    if len(before) + len(after) > MAX_LINES:
        return False
    there = Counter(after)
    return sum(count * there[line] for line, count in Counter(before).items()) <= MAX_PAIRS


def _block(rows: Iterable[tuple[str, str]]) -> Markup:
    lines = [(kind, inert_block(line)) for kind, line in rows]
    last = len(lines) - 1
    return code.block(
        "code diff",
        Markup().join(
            code.span(kind, line if index == last else line + "\n")
            for index, (kind, line) in enumerate(lines)
        ),
    )
