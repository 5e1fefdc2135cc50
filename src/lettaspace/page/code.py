"""Code, and what a terminal showed, as HTML.

Text comes out as it went in, made inert; colours are classes, which code.css defines: `s-…`
for syntax, by Pygments' short names, and `t-…` for a terminal's colours.
"""

import re
from functools import lru_cache
from time import thread_time
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from lettaspace.page.inert import inert_block

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]

MAX_HIGHLIGHTED = 100_000
"""Longer texts (in characters) are shown without colours."""

MAX_LINE = 2_000
"""So are texts with a longer line, for which many lexers take quadratic time."""

MAX_SECONDS = 2.0
"""So are texts for which a lexer takes more of the processor's time. Ordinary texts of the
greatest length take a fifth of it; others were made to take hours."""

MAX_NAME = 100
"""Of a file's name, this much of the end is looked at."""

_UNCOLOURED = frozenset({"w", "n", "nx", "p"})  # white space, other names, punctuation
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_SGR = re.compile(r"\x1b\[([0-9;:]{0,64})m")


def highlight(text: str, language: str | None = None, filename: str | None = None) -> Markup:
    """A block of code: `<pre class="code" tabindex="0"><code>…</code></pre>`.

    The language is what `language` names, else what the file's name says; it is never guessed
    from the text. The text content of the result is the text, made inert.
    """
    return block("code", _coloured(inert_block(text), language, filename))


def plain(text: str, kind: str = "code") -> Markup:
    """A block of text without colours; `kind` is the class of its `<pre>`."""
    return block(kind, escape(inert_block(text)))


def terminal(text: str) -> Markup:
    """A terminal's output: `<pre class="code terminal" tabindex="0"><code>…</code></pre>`.

    Of the escape sequences only those that style text (SGR) are interpreted: bold and the 16
    foreground colours. Backgrounds, other colours and concealment are left out, so that all
    text can be read. Every other sequence is shown.
    """
    parts: list[Markup] = []
    style: dict[str, str] = {}
    pieces = _SGR.split(text)
    for index, piece in enumerate(pieces):
        if index % 2:
            _apply(style, piece)
        elif piece:
            parts.append(span(" ".join(style.values()), inert_block(piece)))
    return block("code terminal", Markup().join(parts))


def knows(language: str) -> bool:
    """Whether a language of this name would be coloured."""
    return language.lower() in _languages()


def block(kind: str, content: Markup) -> Markup:
    """A block with these classes."""
    return Markup('<pre class="{}" tabindex="0"><code>{}</code></pre>').format(kind, content)


def span(classes: str, text: str) -> Markup:
    """A piece of text that is inert already, with these classes if any."""
    if not classes:
        return escape(text)
    # Markup.format takes ten times as long, and a page has thousands of these.
    return Markup(f'<span class="{escape(classes)}">{escape(text)}</span>')  # noqa: S704


def _coloured(text: str, language: str | None, filename: str | None) -> Markup:
    if len(text) > MAX_HIGHLIGHTED or max(map(len, text.split("\n"))) > MAX_LINE:
        return escape(text)
    lexer = _lexer_of(language, filename)
    if lexer is None:
        return escape(text)
    # Lexers expect whole lines.
    whole = text if text.endswith("\n") else text + "\n"
    tokens = _tokens(lexer, whole)
    if "".join(piece for _, piece in tokens) != whole:
        return escape(text)
    if whole is not text:
        tokens[-1] = (tokens[-1][0], tokens[-1][1][:-1])
    return Markup().join(span(kind and f"s-{kind}", piece) for kind, piece in tokens if piece)


def _tokens(lexer: "Lexer", text: str) -> list[tuple[str, str]]:
    """Runs of one kind: its short name (empty for plain text) and the text.

    Empty or incomplete where the lexer fails or takes too long.
    """
    runs: list[tuple[str, list[str]]] = []
    end = thread_time() + MAX_SECONDS
    try:
        for token, piece in lexer.get_tokens(text):
            kind = _short_name(token)
            if runs and runs[-1][0] == kind:
                runs[-1][1].append(piece)
            else:
                runs.append((kind, [piece]))
            if thread_time() > end:
                break
    except Exception:  # noqa: S110 - hundreds of lexers, some of which fail for odd text
        pass
    return [(kind, "".join(pieces)) for kind, pieces in runs]


@lru_cache(maxsize=512)
def _short_name(token: Any) -> str:
    from pygments.token import STANDARD_TYPES  # type: ignore[import-untyped]

    while token not in STANDARD_TYPES:
        token = token.parent
    name: str = STANDARD_TYPES[token]
    return "" if name in _UNCOLOURED else name


@lru_cache(maxsize=1)
def _languages() -> dict[str, str]:
    """Every name of a language, to the one by which Pygments finds it without a search."""
    from pygments.lexers import get_all_lexers  # type: ignore[import-untyped]

    return {
        alias.lower(): aliases[0]
        for _, aliases, _, _ in get_all_lexers(plugins=False)
        for alias in aliases
    }


def _lexer_of(language: str | None, filename: str | None) -> "Lexer | None":
    # Classes are kept, not lexers: some of these have state, and threads run beside each other.
    name = _languages().get(language.lower()) if language else None
    found = _class_by_name(name) if name else None
    if found is None and filename:
        found = _class_by_file(re.split(r"[/\\]", filename)[-1][-MAX_NAME:])
    return found(stripnl=False) if found else None


@lru_cache(maxsize=256)
def _class_by_name(name: str) -> "type[Lexer] | None":
    from pygments.lexers import find_lexer_class_by_name

    found: type[Lexer] | None = find_lexer_class_by_name(name)
    return found


@lru_cache(maxsize=256)
def _class_by_file(name: str) -> "type[Lexer] | None":
    from pygments.lexers import find_lexer_class_for_filename

    found: type[Lexer] | None = find_lexer_class_for_filename(name)
    return found


def _apply(style: dict[str, str], parameters: str) -> None:
    """Changes the style as one SGR sequence says."""
    codes = [int(code) if code else 0 for code in re.split("[;:]", parameters)]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style.clear()
        elif code == 1:
            style["weight"] = "t-bold"
        elif code == 22:
            style.pop("weight", None)
        elif code == 39:
            style.pop("colour", None)
        elif 30 <= code <= 37:
            style["colour"] = f"t-{_COLOURS[code - 30]}"
        elif 90 <= code <= 97:
            style["colour"] = f"t-bright-{_COLOURS[code - 90]}"
        elif code in (38, 48, 58):  # a colour of 256, or of red, green and blue
            if code == 38:
                style.pop("colour", None)
            del codes[: {5: 2, 2: 4}.get(codes[0], 1) if codes else 0]
