"""Text in which every character is visible and does nothing.

Stored text is anybody's. Shown as it is, it could drive a terminal (move the cursor, set the
clipboard, rename the window), hide words, or make the text beside it read in another order. So
whatever is not a visible character is shown as one.
"""

import re

# C0, DEL and C1; characters that reorder, break or hide text; tags, which spell out invisible
# words; lone surrogates, which no encoding has. The joiners U+200C and U+200D are needed:
# Persian is written with the one, families of emoji with the other.
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e007f\ud800-\udfff"
)
_in_field = re.compile(f"[{_UNSAFE}\t\n]")
_in_lines = re.compile(f"[{_UNSAFE}]")


def inert(text: str) -> str:
    """One line of text in which every character is visible and does nothing."""
    return text if text.isascii() and text.isprintable() else _in_field.sub(_mark, text)


def inert_block(text: str) -> str:
    """The same of a longer text: line breaks and tabs stay."""
    return _in_lines.sub(_mark, text.replace("\r\n", "\n"))


def _mark(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
