"""Grapheme clusters: what people call characters, for Lexicon's `maxGraphemes`.

The rules of Unicode Standard Annex 29 as far as the standard library's character data carries
them: combining marks, emoji sequences, flags, Hangul syllables, line ends. Not covered are
prepended marks and the conjuncts of Indic scripts, which are counted as more clusters than the
annex has, and which characters are pictographs is taken from blocks. None of our own lexicons
counts graphemes.
"""

import unicodedata

_ZWJ = 0x200D
_EXTENDING_CATEGORIES = frozenset(("Mn", "Me", "Mc"))


def count(text: str) -> int:
    """The number of grapheme clusters in a text."""
    if text.isascii():
        return len(text) - text.count("\r\n")
    clusters = 0
    previous = -1
    flags = 0  # regional indicators directly before
    pictograph = False  # whether the cluster so far is an emoji, perhaps with marks
    for character in text:
        code = ord(character)
        if not _joins(previous, code, flags, pictograph):
            clusters += 1
            pictograph = False
        flags = flags + 1 if _is_regional(code) else 0
        pictograph = (pictograph and _extends(code)) or _is_pictograph(code)
        previous = code
    return clusters


def _joins(previous: int, code: int, flags: int, pictograph: bool) -> bool:
    # Whether there is no boundary between the two; the names are those of the annex.
    if previous < 0:
        return False
    if previous == 0x0D and code == 0x0A:  # GB3
        return True
    if _is_control(previous) or _is_control(code):  # GB4, GB5
        return False
    if _extends(code):  # GB9, GB9a
        return True
    if previous == _ZWJ and pictograph and _is_pictograph(code):  # GB11
        return True
    if _is_regional(code):  # GB12, GB13
        return flags % 2 == 1
    return _hangul_joins(previous, code)  # GB6 to GB8


def _extends(code: int) -> bool:
    return (
        code == _ZWJ
        or code == 0x200C
        or 0x1F3FB <= code <= 0x1F3FF  # skin tones
        or 0xE0020 <= code <= 0xE007F  # tags, in some flags
        or 0xFF9E <= code <= 0xFF9F  # halfwidth voicing marks
        or unicodedata.category(chr(code)) in _EXTENDING_CATEGORIES
    )


def _is_control(code: int) -> bool:
    return unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp") and not _extends(code)


def _is_regional(code: int) -> bool:
    return 0x1F1E6 <= code <= 0x1F1FF


def _is_pictograph(code: int) -> bool:
    # Where emoji are. Some neighbours are not, but they do not stand beside a joiner.
    return (
        (0x1F000 <= code <= 0x1FAFF and not _is_regional(code) and not 0x1F3FB <= code <= 0x1F3FF)
        or 0x2190 <= code <= 0x2BFF
        or code in (0xA9, 0xAE, 0x203C, 0x2049, 0x2122, 0x2139, 0x3030, 0x303D, 0x3297, 0x3299)
    )


def _hangul_joins(previous: int, code: int) -> bool:
    leading = 0x1100 <= previous <= 0x115F or 0xA960 <= previous <= 0xA97C
    syllable = 0xAC00 <= previous <= 0xD7A3
    open_syllable = syllable and (previous - 0xAC00) % 28 == 0
    vowel = 0x1160 <= previous <= 0x11A7 or 0xD7B0 <= previous <= 0xD7C6
    trailing = 0x11A8 <= previous <= 0x11FF or 0xD7CB <= previous <= 0xD7FB
    if 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C or 0xAC00 <= code <= 0xD7A3:
        return leading
    if 0x1160 <= code <= 0x11A7 or 0xD7B0 <= code <= 0xD7C6:
        return leading or vowel or open_syllable
    if 0x11A8 <= code <= 0x11FF or 0xD7CB <= code <= 0xD7FB:
        return vowel or trailing or syllable
    return False
