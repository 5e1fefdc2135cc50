"""Differences between two texts, as HTML.

Lines keep their `+` and `-`, so that nothing is said by colour alone. Their classes, which
code.css defines: `d-add`, `d-del`, `d-hunk`, `d-file`, `d-note`.
"""

import re
from collections.abc import Iterable
from difflib import unified_diff

from markupsafe import Markup

from lettaspace.page import code
from lettaspace.page.inert import inert_block

MAX_LINES = 5_000
"""With more lines than this, two texts are shown as they are: comparing takes quadratic time."""

_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_FILE = re.compile(
    r"diff |index |(old|new|deleted file|new file) mode |(dis)?similarity index |(copy|rename) "
    r"(from|to) |Binary files |GIT binary patch$|--- |\+\+\+ |\*\*\* "
)
_COMMIT = re.compile(
    r"(commit [0-9a-f]{7,64}\b|(Author|AuthorDate|Commit|CommitDate|Date|Merge):|    |$)"
)
_CLASS = {"+": "d-add", "-": "d-del", "\\": "d-note"}
_NO_NEWLINE = "\\ No newline at end of file"


def unified(old: str, new: str, filename: str | None = None) -> Markup:
    """What changed from one text to the other, with three lines around each change."""
    if "\r\n" in old and "\r\n" in new:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    before, after = old.split("\n"), new.split("\n")
    if len(before) + len(after) > MAX_LINES:
        return code.highlight(old, filename=filename) + code.highlight(new, filename=filename)
    lines = list(unified_diff(before, after, lineterm=""))[2:]
    return _block(lines)


def highlight(text: str) -> Markup:
    """A text that is a unified diff, or a patch in the form `*** Begin Patch`."""
    return _block(inert_block(text).split("\n"))


def looks_like_diff(text: str) -> bool:
    """Whether a text is a whole unified diff, maybe with git's lines around it."""
    return _HUNK.search(text) is not None


def _block(lines: Iterable[str]) -> Markup:
    return code.plain("\n".join(lines), "code diff")
