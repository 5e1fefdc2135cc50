"""Grapheme clusters: what people call characters, for Lexicon's `maxGraphemes`.

The main rules of Unicode Standard Annex 29, as far as the standard library's character data
carries them: line ends, combining marks, Hangul, emoji sequences, flags. Prepended marks, the
conjuncts of Indic scripts and old Hangul count as more clusters than in the annex. None of our
own lexicons counts graphemes.
"""

import unicodedata

_CONTROLS = frozenset(("Cc", "Cf", "Zl", "Zp"))
_MARKS = frozenset(("Mn", "Me", "Mc"))
# What emoji are, new ones that the character data does not know yet included.
_SYMBOLS = frozenset(("So", "Sm", "Cn"))

_JOINER = "\u200d"

_LONGEST = 32
"""Characters in one cluster."""


def count(text: str) -> int:
    """The number of grapheme clusters in a text."""
    if text.isascii():
        return len(text) - text.count("\r\n")
    clusters = 0
    previous = ""
    joinable = False  # nothing joins a control character
    symbol = False  # whether the cluster so far is a symbol, perhaps with marks
    flags = 0  # how many letters of flags came directly before
    # Composition joins the parts of Hangul syllables.
    for character in unicodedata.normalize("NFC", text.replace("\r\n", "\n")):
        category = unicodedata.category(character)
        extends = _extends(character, category)
        flag = "\U0001f1e6" <= character <= "\U0001f1ff"
        joins = joinable and (
            extends
            or (flag and flags % 2 == 1)
            or (symbol and previous == _JOINER and category in _SYMBOLS and not flag)
        )
        clusters += not joins
        symbol = (joins and symbol) or (category in _SYMBOLS and not flag)
        flags = flags + 1 if flag else 0
        joinable = extends or category not in _CONTROLS
        previous = character
    return clusters


def clip(text: str, most: int) -> str:
    """The first `most` clusters of a text. One of very many characters is cut all the same."""
    end = 0
    for _ in range(most):
        if end >= len(text):
            return text
        start, end = end, end + 1
        while end < len(text) and end - start < _LONGEST and count(text[start : end + 1]) == 1:
            end += 1
    return text[:end]


def _extends(character: str, category: str) -> bool:
    return (
        category in _MARKS
        or character in "\u200c\u200d\uff9e\uff9f"
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= character <= "\U000e007f"  # tags, in some flags
    )
