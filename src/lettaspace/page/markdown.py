"""Markdown as HTML that can do nothing, and hides nothing.

CommonMark with tables, strikethrough and task lists. HTML is shown as text. Nothing is
fetched: an image becomes a link. Elements and attributes are those written here; a text can
choose no class, id or style. What Markdown leaves out (definitions of links, words beside a
code block's language, cells beyond a table's last column) is shown too.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from lettaspace.page import code, links
from lettaspace.page.inert import inert, inert_block

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

MAX_PARSED = 100_000
"""Longer texts (in characters) are shown as they are."""

MAX_PARAGRAPH = 10_000
"""So are longer paragraphs: parsing one may take quadratic time."""

MAX_NESTING = 50
"""Texts with blocks nested deeper are shown as they are."""

_TASK = re.compile(r"\[([ xX])\]\s")
_CELL_END = re.compile(r"(?<!\\)\|")

_AUTO = ' dir="auto"'
_OPEN = {
    "paragraph_open": f"<p{_AUTO}>",
    "blockquote_open": "<blockquote>",
    "bullet_list_open": "<ul>",
    "list_item_open": f"<li{_AUTO}>",
    "table_open": '<div class="scroll" tabindex="0"><table>',
    "thead_open": "<thead>",
    "tbody_open": "<tbody>",
    "tr_open": "<tr>",
    "em_open": "<em>",
    "strong_open": "<strong>",
    "s_open": "<s>",
    "hr": "<hr>\n",
    "softbreak": "\n",
    "hardbreak": "<br>\n",
}
_CLOSE = {
    "paragraph_close": "</p>\n",
    "blockquote_close": "</blockquote>\n",
    "bullet_list_close": "</ul>\n",
    "ordered_list_close": "</ol>\n",
    "list_item_close": "</li>\n",
    "table_close": "</table></div>\n",
    "thead_close": "</thead>\n",
    "tbody_close": "</tbody>\n",
    "tr_close": "</tr>\n",
    "th_close": "</th>",
    "td_close": "</td>",
    "em_close": "</em>",
    "strong_close": "</strong>",
    "s_close": "</s>",
}
_FIXED = {kind: Markup(html) for kind, html in (_OPEN | _CLOSE).items()}  # noqa: S704 - ours


def render(text: str) -> Markup:
    """A text in Markdown: blocks, without an element around them.

    Headings start at `<h3>`; text has `dir="auto"`. Line breaks inside a paragraph stay line
    breaks of the HTML, for the style sheet to show or not. Only the empty text gives nothing.
    """
    if text.isspace():
        return Markup('<p class="note">White space only.</p>\n')
    text = inert_block(text)
    if len(text) > MAX_PARSED:
        return code.plain(text)
    env: dict[str, Any] = {}
    tokens = _parser().parse(text, env)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return code.plain(text)  # the parser drops what is deeper
    lines = text.split("\n")
    html = _blocks(tokens, lines) + _definitions(env, lines)
    return html if html or not text else code.plain(text)


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    class Parser(MarkdownIt):
        """Leaves addresses as they are: `links` decides what becomes of them."""

        def validateLink(self, url: str) -> bool:  # noqa: ARG002, N802
            return True

        def normalizeLink(self, url: str) -> str:  # noqa: N802
            return url

        def normalizeLinkText(self, link: str) -> str:  # noqa: N802
            return link

    parser = Parser("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.at("inline", _parse_inline)
    return parser


def _parse_inline(state: "StateCore") -> None:
    from markdown_it.token import Token

    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = []
        if len(token.content) > MAX_PARAGRAPH:
            token.children.append(Token("text", "", 0, content=token.content))
        else:
            state.md.inline.parse(token.content, state.md, state.env, token.children)


def _blocks(tokens: Sequence["Token"], lines: Sequence[str]) -> Markup:
    parts: list[Markup] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.type == "inline":
            parts.append(_task(tokens, index) + _inline(token.children or []))
        elif token.type in ("fence", "code_block"):
            parts.append(_code(token))
        elif token.type == "table_open" and (source := _overfull(tokens, index, lines)):
            parts.append(code.plain(source) + "\n")
            while tokens[index].type != "table_close":
                index += 1
        elif not token.hidden:
            parts.append(_tag(token))
        index += 1
    return Markup().join(parts)


def _tag(token: "Token") -> Markup:
    if token.type in _FIXED:
        return _FIXED[token.type]
    if token.type in ("heading_open", "heading_close"):
        tag = f"h{min(int(token.tag[1:]) + 2, 6)}"
        if token.nesting < 0:
            return Markup("</{}>\n").format(tag)
        return Markup('<{} dir="auto">').format(tag)
    if token.type == "ordered_list_open":
        start = token.attrGet("start")
        return Markup('<ol start="{}">').format(start) if start is not None else Markup("<ol>")
    if token.type in ("th_open", "td_open"):
        style = str(token.attrGet("style") or "")
        align = Markup(' class="{}"').format(style.rpartition(":")[2]) if style else Markup()
        return Markup('<{} dir="auto"{}>').format(token.tag, align)
    return escape(inert_block(token.content))


def _code(token: "Token") -> Markup:
    info = token.info.strip()
    language = info.split(maxsplit=1)[0].strip("{}.") if info else ""
    about = Markup()
    if info and (info != language or not code.knows(language)):
        about = Markup('<p class="note" dir="auto">{}</p>\n').format(inert(info))
    return about + code.highlight(token.content, language or None) + "\n"


def _task(tokens: Sequence["Token"], index: int) -> Markup:
    """A box for `[ ]` or `[x]` at the start of a list's item, which loses that mark."""
    children = tokens[index].children
    if index < 2 or tokens[index - 2].type != "list_item_open" or not children:
        return Markup()
    first = children[0]
    found = _TASK.match(first.content) if first.type == "text" else None
    if found is None:
        return Markup()
    first.content = first.content[found.end() :]
    return Markup("☐ ") if found[1] == " " else Markup("☑ ")


def _overfull(tokens: Sequence["Token"], index: int, lines: Sequence[str]) -> str | None:
    """The source of a table that starts here, if a row has more cells than the head."""
    begin, end = tokens[index].map or (0, 0)
    columns = 0
    for token in tokens[index:]:
        if token.type == "thead_close":
            break
        columns += token.type == "th_open"
    for line in lines[begin:end]:
        row = line.strip()
        row = row[row.startswith("|") : len(row) - row.endswith("|")]
        if len(_CELL_END.findall(row)) >= columns:
            return "\n".join(lines[begin:end])
    return None


def _definitions(env: dict[str, Any], lines: Sequence[str]) -> Markup:
    """The lines that define links: they leave no other trace where nothing refers to them."""
    found = [*env.get("references", {}).values(), *env.get("duplicate_refs", ())]
    spans = sorted(definition["map"] for definition in found)
    source = "\n".join(line for begin, end in spans for line in lines[begin:end])
    return code.plain(source) + "\n" if source else Markup()


def _inline(tokens: Sequence["Token"], in_link: bool = False) -> Markup:
    parts: list[Markup] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.type == "text" and not in_link:
            parts.append(links.linked(token.content))
        elif token.type == "code_inline":
            parts.append(Markup("<code>{}</code>").format(inert_block(token.content)))
        elif token.type == "image":
            parts.append(_image(token, in_link))
        elif token.type == "link_open":
            end = _link_end(tokens, index)
            inner = tokens[index + 1 : end]
            label = _inline(inner, in_link=True)
            parts.append(links.link(label, _text(inner), *_target(token, "href")))
            index = end
        else:
            parts.append(_tag(token))
        index += 1
    return Markup().join(parts)


def _link_end(tokens: Sequence["Token"], index: int) -> int:
    level = tokens[index].level
    for end in range(index + 1, len(tokens)):
        if tokens[end].type == "link_close" and tokens[end].level == level:
            return end
    return len(tokens)


def _image(token: "Token", in_link: bool) -> Markup:
    target, title = _target(token, "src")
    alt = _text(token.children or [])
    label = escape(inert(alt or title or "no description"))
    shown = links.unlinked(label, target) if in_link else links.link(label, alt, target, title)
    return Markup("image: ") + shown


def _target(token: "Token", name: str) -> tuple[str, str]:
    return str(token.attrGet(name) or ""), str(token.attrGet("title") or "")


def _text(tokens: Sequence["Token"]) -> str:
    """The words of inline tokens."""
    return "".join(
        _text(token.children) if token.children else "\n" if token.tag == "br" else token.content
        for token in tokens
    )
