"""Text made fit for a terminal: inert, isolated, measured, clipped.

Stored text is anybody's. Printed as it is, it could drive the terminal (move the cursor, set
the clipboard, rename the window) or make the text beside it read in another order. So whatever
is not a visible character is shown as one, and right-to-left text stays within its field.
"""

import unicodedata
from collections.abc import Iterator

from lettaspace.atproto import graphemes
from lettaspace.page.inert import inert, inert_block

ELLIPSIS = "…"

_FSI, _PDI = "\u2068", "\u2069"
_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN"))

_EMOJI_STYLE = "\ufe0f"
_WIDE = frozenset(("W", "F"))
_NO_WIDTH = frozenset(("Mn", "Me", "Cf"))

_POINTS_PER_COLUMN = 8
"""More code points than this in a column are marks heaped on one another."""


def inert_lines(text: str) -> list[str]:
    """The lines of a longer text, each inert; tabs stay. Each is isolated, too."""
    lines = inert_block(text).split("\n")
    return [isolated(line) for line in lines]


def isolated(text: str) -> str:
    """Inert text that cannot reorder what stands beside it."""
    if text.isascii() or not any(map(_is_right_to_left, text)):
        return text
    return f"{_FSI}{text}{_PDI}"


def field(text: str, columns: int = 0) -> str:
    """A text from outside as part of a line; clipped to a number of columns, if there is one."""
    text = inert(text)
    return isolated(clip(text, columns) if columns else text)


def clip(text: str, columns: int) -> str:
    """Inert text cut to a width, between the characters that people see, never within one."""
    if text.isascii() and len(text) <= columns:
        return text
    kept, used = 0, 0
    fits = 0  # how much of the text leaves room for the ellipsis
    for cluster in _clusters(text):
        used += _cluster_width(cluster)
        kept += len(cluster)
        if used > columns or kept > columns * _POINTS_PER_COLUMN:
            return text[:fits].rstrip("\u200d\u200c ") + ELLIPSIS
        if used < columns:
            fits = kept
    return text


def width(text: str) -> int:
    """The columns that inert text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_cluster_width, _clusters(text)))


def _clusters(text: str) -> Iterator[str]:
    cluster = ""
    for character in text:
        if not cluster or (
            len(cluster) < 4 * _POINTS_PER_COLUMN and graphemes.count(cluster + character) == 1
        ):
            cluster += character
        else:
            yield cluster
            cluster = character
    if cluster:
        yield cluster


def _cluster_width(cluster: str) -> int:
    if cluster.isascii():
        return len(cluster)
    if _EMOJI_STYLE in cluster or (len(cluster) == 2 and _is_flag(cluster)):
        return 2
    return max(map(_character_width, cluster))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def _is_flag(cluster: str) -> bool:
    return all("\U0001f1e6" <= character <= "\U0001f1ff" for character in cluster)


def _is_right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in _RIGHT_TO_LEFT


def counted(number: int, thing: str) -> str:
    """`1 agent`, `2 agents`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
