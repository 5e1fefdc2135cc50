"""Sorts names as JavaScript's `localeCompare` does in English.

Letta Code sorts memory labels that way, and the compiled prompt must not depend on who sorted
them. This is the collation root of CLDR 47/48 as ICU has it, without its 100 KB of weights:

- exact for printable ASCII, for the Latin, Greek and Cyrillic letters in use with and without
  accents (not ŀ, ŉ, ſ), and for Hangul;
- other scripts come after those letters by code point, Han too, which ICU sorts by radical and
  stroke (nearly the same order); other signs come after the known ones.

`git` shows Letta only ASCII names unless `core.quotePath` is off, so the first half of the
first line is nearly always all that counts. Strings that compare as equal keep their order.
"""

import unicodedata

Key = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""What decides first, second (accents) and third (capitals)."""

_SIGNS = " _-‐–—,;:!¡?¿.·'‘’‚\"“”„‹›«»()[]{}§¶@*/\\&#%‰†‡•`^°©®+±÷×<=>¬|¦~"
_CURRENCY = "¤¢$£¥₩€₹₽"
_LATIN = "abcdefghiıjklmnŋopqĸrstŧuvwxyzþ"
_GREEK = "αβγδεζηθικλμνξοπρστυφχψω"
_CYRILLIC = "аәӕбвгғҕдђҙеєжзѕӡиійјкқҡҟҝлљмнңҥњоөпҧрсҫтҭћуүұфхҳһцҵчҷҹҽҿџшщъыьэюяҩ"

# Letters that no decomposition knows: the letters they count as, and a mark.
_STROKE = "\u0338"
_LATE = "\u033b"  # any mark that comes after those of the list below
_AS = {
    "æ": f"a{_LATE}e", "œ": f"o{_LATE}e", "ß": f"s{_LATE}s", "ς": "σ",
    "ø": f"o{_STROKE}", "đ": f"d{_STROKE}", "ħ": f"h{_STROKE}", "ґ": f"г{_STROKE}",
    "ð": f"d{_LATE}", "ł": f"l{_LATE}",
}  # fmt: skip

# The order of accents; those that are not here follow by code point.
_MARKS = [
    0x301, 0x300, 0x306, 0x302, 0x30C, 0x30A, 0x308, 0x30B, 0x303, 0x307,
    0x338, 0x327, 0x328, 0x304,
]  # fmt: skip
_MARK = {chr(code): rank for rank, code in enumerate(_MARKS, 2)}

_UNKNOWN_SIGN = 1 << 21
_DIGIT = 1 << 22
_LETTER = 1 << 23
_UNKNOWN_LETTER = 1 << 24

_PRIMARY = (
    {sign: rank for rank, sign in enumerate(_SIGNS, 1)}
    | {sign: _UNKNOWN_SIGN * 3 // 2 + rank for rank, sign in enumerate(_CURRENCY)}
    | {digit: _DIGIT + rank for rank, digit in enumerate("0123456789")}
    | {letter: _LETTER + rank for rank, letter in enumerate(_LATIN + _GREEK + _CYRILLIC)}
)


def collation_key(text: str) -> Key:
    """A key that sorts strings as `localeCompare` would."""
    first: list[int] = []
    second: list[int] = []
    third: list[int] = []
    for whole in unicodedata.normalize("NFC", text):
        variant = int(whole != unicodedata.normalize("NFC", unicodedata.normalize("NFKC", whole)))
        for char in _letters(whole):
            lower = char.lower()
            if len(lower) > 1:
                lower = char
            for part in _AS.get(lower, lower):
                mark = part in _MARK or unicodedata.category(part) == "Mn"
                if mark:
                    second.append(_MARK.get(part, 0x1000 + ord(part)))
                elif weight := _primary(part):
                    first.append(weight)
                    second.append(1)
                else:
                    continue
                third.append(3 if char == "ς" else 2 * (lower != char) + variant)
    return tuple(first), tuple(second), tuple(third)


def _letters(char: str) -> str:
    # The one Cyrillic accent that makes another letter.
    return char if char in "йЙ" else unicodedata.normalize("NFKD", char)


def _primary(char: str) -> int:
    known = _PRIMARY.get(char)
    if known is not None:
        return known
    category = unicodedata.category(char)
    if category[0] == "C":
        return 0  # control characters count for nothing
    if category == "Nd":
        return _DIGIT + unicodedata.digit(char, 9)
    return (_UNKNOWN_LETTER if category[0] in "LN" else _UNKNOWN_SIGN // 2) + ord(char)
