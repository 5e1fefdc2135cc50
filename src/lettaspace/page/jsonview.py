"""JSON values and the arguments of tools, as HTML.

Classes, which code.css defines: `j-key`, `j-str`, `j-num`, `j-lit`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from markupsafe import Markup, escape

from lettaspace.conversation import jsontext
from lettaspace.errors import InvalidInput
from lettaspace.page import code, diff
from lettaspace.page.inert import inert

MAX_INDENTED = 32
"""Values nested deeper than this are shown on one line, for indents grow with the depth."""

MAX_COLOURED = 200_000
"""Longer JSON texts (in characters) are shown without colours and folds."""

MAX_STRING = 600
"""Of a longer string (in characters of JSON text) the rest is folded."""

SHOWN_STRING = 200
"""This much of such a string stays visible."""

MAX_INLINE = 200
"""Longer arguments stand in a block of their own."""

MAX_ARGUMENTS = 100
"""More arguments than this, or edits, are shown as JSON."""

_TOKEN = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|-?[0-9][0-9.eE+-]*+|true|false|null|[^"0-9tfn-]++|.', re.DOTALL
)
_START = re.compile(rf'"(?>[^"\\]|\\u[0-9a-f]{{4}}|\\.){{{SHOWN_STRING}}}', re.DOTALL)
_BEYOND_ASCII = re.compile(r"[^\n\x20-\x7e]")
_LIKE_JSON = re.compile(r'["\[{].*|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null', re.S)

_EDITS = (
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("old_content", "new_content"),
    ("oldString", "newString"),
    ("oldText", "newText"),
)
_FILES = ("file_path", "path", "filePath", "filename", "file_name", "file")
_CONTENTS = frozenset({"content", "contents", "file_text", "text", "code", "source", "fileText"})
_SHELL = frozenset({"command", "cmd"})
_PATCHES = frozenset({"patch", "diff", "input"})


def render(value: Any) -> Markup:
    """A JSON value, as `jsontext.loads` gives it, as indented JSON.

    The text content is what `jsontext.dumps` gives, with characters that hide or reorder text
    as JSON escapes: it can be copied as JSON, and numbers keep their source text. A long
    string is a `<details>`, whose summary is the start of the string.
    """
    try:
        text = _visible(jsontext.dumps(value, indent=2 if _indentable(value) else None))
    except InvalidInput as error:
        return Markup('<p class="note">This cannot be shown as JSON: {}.</p>').format(
            inert(str(error))
        )
    content = escape(text)
    if len(text) <= MAX_COLOURED:
        content = Markup().join(_coloured(text))
    return Markup('<div class="code json" tabindex="0">{}</div>').format(content)


def arguments(name: str, value: Any) -> Markup:
    """The arguments of a call of the tool `name`: `<dl class="arguments">`, names and values.

    Edits and patches are shown as diffs, a file's content in the colours of its language,
    commands as shell code, other texts as blocks; anything else is JSON. What is not an
    object is shown as it is.
    """
    if isinstance(value, str):
        return _text(name, "", value)
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_ARGUMENTS:
        return render(value)
    return _list(name, value)


def _list(
    tool: str, value: dict[str, Any], file: str | None = None, nested: bool = False
) -> Markup:
    file = next((value[key] for key in _FILES if isinstance(value.get(key), str)), file)
    language = value.get("language")
    shown: set[str] = set()
    parts: list[Markup] = []
    for key, item in value.items():
        if key in shown:
            continue
        label = inert(key)
        if pair := _pair(key, value):
            shown.update(pair)
            label = " → ".join(pair)
            content = diff.unified(value[pair[0]], value[pair[1]])
        elif isinstance(item, str):
            content = _text(tool, key, item, file, language)
        elif not nested and _are_edits(item):
            content = Markup("\n").join(_list(tool, edit, file, nested=True) for edit in item)
        elif isinstance(item, dict | list) and item:
            content = render(item)
        else:
            content = _scalar(item)
        parts.append(Markup("<dt>{}</dt><dd>{}</dd>").format(label, content))
    return Markup('<dl class="arguments">{}</dl>').format(Markup("\n").join(parts))


def _pair(key: str, value: dict[str, Any]) -> tuple[str, str] | None:
    """The two arguments of an edit, if `key` is one of them."""
    for pair in _EDITS:
        if key in pair and all(isinstance(value.get(name), str) for name in pair):
            return pair
    return None


def _are_edits(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= MAX_ARGUMENTS
        and all(
            isinstance(edit, dict)
            and len(edit) <= MAX_ARGUMENTS
            and any(_pair(key, edit) for key in edit)
            for edit in value
        )
    )


def _text(tool: str, key: str, text: str, file: str | None = None, language: Any = None) -> Markup:
    if diff.looks_like_diff(text) or (key in _PATCHES and text.startswith("*** Begin Patch")):
        return diff.highlight(text)
    if key in _SHELL:
        return code.highlight(text, "bash")
    if "\n" not in text and len(text) <= MAX_INLINE:
        return _scalar(text)
    if key not in _CONTENTS:
        return code.highlight(text, "sql" if key == "sql" else None)
    if not isinstance(language, str):
        language = "python" if key == "code" and "python" in tool.casefold() else None
    return code.highlight(text, language, file)


def _scalar(value: Any) -> Markup:
    """A short value; a string without quotes, unless they tell it from something else."""
    if (
        isinstance(value, str)
        and value
        and value == value.strip()
        and not _LIKE_JSON.fullmatch(value)
    ):
        return Markup('<code dir="auto">{}</code>').format(inert(value))
    text = _visible(jsontext.dumps(value))
    return Markup("<code>{}</code>").format(Markup().join(_coloured(text)))


def _coloured(text: str) -> Iterator[Markup]:
    """The parts of a JSON text."""
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token[0] == '"':
            if text.startswith(":", found.end()):
                yield code.span("j-key", token)
            elif len(token) > MAX_STRING and (start := _START.match(token)):
                yield _folded(start[0], token[start.end() :])
            else:
                yield code.span("j-str", token)
        elif token[0] in "-0123456789":
            yield code.span("j-num", token)
        else:
            yield code.span("j-lit" if token[0] in "tfn" else "", token)


def _folded(start: str, rest: str) -> Markup:
    # The count is no text, so that the text stays JSON; the style sheet shows it.
    return Markup(
        '<details class="j-str"><summary data-more="{:,}">{}</summary>{}</details>'
    ).format(len(rest) - 1, start, rest)


def _visible(text: str) -> str:
    """JSON text in which what would hide or reorder text is escaped."""
    return _BEYOND_ASCII.sub(lambda found: _visible_character(found[0]), text)


@lru_cache(maxsize=4096)
def _visible_character(character: str) -> str:
    if inert(character) == character:
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _indentable(value: Any) -> bool:
    rest = [(value, 1)]
    while rest:
        item, depth = rest.pop()
        if isinstance(item, dict | list):
            if depth > MAX_INDENTED:
                return False
            rest += (
                (each, depth + 1) for each in (item.values() if isinstance(item, dict) else item)
            )
    return True
