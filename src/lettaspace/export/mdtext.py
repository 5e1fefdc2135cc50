"""Texts as parts of a Markdown file whose structure they cannot break.

What was said is quoted, so that its own Markdown shows and its headings, lists and unclosed
blocks end with it. What would do more where the file is shown (HTML, pictures to be fetched,
links that run something, definitions that reach into other messages) is fenced, as it stands.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

from lettaspace.page.inert import inert, inert_block

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_PARSED = 200_000
"""Longer texts (in characters) are fenced unread."""

MAX_PARAGRAPH = 10_000
"""So are those with a longer paragraph: parsing one takes quadratic time."""

MAX_NESTING = 60
"""So are those with blocks nested deeper, which the parser leaves out."""

_SCHEMES = ("http", "https", "mailto")

_SCHEME = re.compile(r"\s*([^/?#]*?):")
_BLANK = re.compile(r"\n>[ \t]*\n")
_BACKTICKS = re.compile("`+")
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&!$^])")
# HTML, links, pictures and definitions all begin so.
_OPENING = re.compile(r"[<\[]|\{=")
_TAG = re.compile("<[A-Za-z/!?]")
# Footnotes, and what pandoc takes for HTML: other readers' Markdown has more than CommonMark.
_BEYOND = re.compile(r"\[\^|\{=")


def quoted(text: str) -> str:
    """What somebody said: its Markdown within a quotation, or all of it fenced."""
    text = inert_block(text)
    lines = text.strip("\n").split("\n")
    quotation = "\n".join(f"> {line}" if line else ">" for line in lines)
    # Only there it is clear what a text is: a tab is narrower within a quotation.
    return quotation if _harmless(quotation) else _fenced(text, "text")


def fenced(text: str, language: str = "text") -> str:
    """A text as it stands, made inert, between fences longer than any in it."""
    return _fenced(inert_block(text), language)


def escaped(text: str) -> str:
    """One line of text, of which nothing is Markdown."""
    return _MARKS.sub(r"\\\1", inert(text).strip())


def code(text: str) -> str:
    """One line of text as code."""
    text = inert(text)
    if not text.strip():
        return "(empty)"
    mark = "`" * (_longest(text) + 1)
    edge = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{mark}{edge}{text}{edge}{mark}"


def _fenced(text: str, language: str) -> str:
    fence = "`" * max(3, _longest(text) + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}"


def _longest(text: str) -> int:
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def _harmless(text: str) -> bool:
    if not _OPENING.search(text):
        return True
    if len(text) > MAX_PARSED or _BEYOND.search(text):
        return False
    if max(map(len, _BLANK.split(text))) > MAX_PARAGRAPH:
        return False
    env: dict[str, object] = {}
    tokens = _parser().parse(text, env)
    if env.get("references") or env.get("duplicate_refs"):
        return False
    return all(map(_is_harmless, tokens))


def _is_harmless(token: "Token") -> bool:
    if token.type in ("html_block", "html_inline", "image") or token.level >= MAX_NESTING:
        return False
    if token.type == "text" and _TAG.search(token.content):
        return False  # no HTML by the book, but not everybody reads by it
    if token.type == "link_open":
        scheme = _SCHEME.match(str(token.attrGet("href") or ""))
        if scheme is not None and scheme[1].lower() not in _SCHEMES:
            return False
    return all(map(_is_harmless, token.children or ()))


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    class Permissive(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802
            return True  # what another reader may take for a link has to be seen

    parser = Permissive("commonmark", {"maxNesting": MAX_NESTING + 20})
    return parser.enable(["table", "strikethrough"])
