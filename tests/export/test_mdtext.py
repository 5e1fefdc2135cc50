"""Texts inside Markdown, judged by a parser of Markdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from lettaspace.export.mdtext import code, escaped, fenced, quoted
from lettaspace.page.inert import inert, inert_block

PARSER = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])

MARKS = "`~<>[]()!#*_-=+|:\\\n\t &;{^}x1./\u2028\x1b"
PIECES = st.text(st.sampled_from(MARKS), max_size=60)
WORDS = st.sampled_from(["<b>", "</details>", "![a](b)", "# h\n", "```\n", "[a]: b\n", "\n\n"])


def flat(tokens: list[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *flat(token.children or []))]


def blocks(source: str) -> list[str]:
    """What stands at the top of a document."""
    return [token.type for token in PARSER.parse(source) if token.level == 0]


@pytest.mark.parametrize(
    "said",
    [
        "plain",
        "# A heading\n\n## Another",
        "Title\n=====\n\n---",
        "```\nnever closed",
        "~~~~ python\nx",
        "- a list\n\n- of two",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "a < b, c > d and `<b>` is code",
        "[a link](https://example.org), and <https://example.org>",
        "```html\n<script>alert(1)</script>\n```",
        "",
        "\n\nspace around\n\n",
    ],
)
def test_markdown_is_quoted(said: str) -> None:
    source = quoted(said)
    assert blocks(f"{source}\n\nafter") == [
        "blockquote_open", "blockquote_close", "paragraph_open", "paragraph_close",
    ]  # fmt: skip
    lines = [line.removeprefix(">").removeprefix(" ") for line in source.split("\n")]
    assert "\n".join(lines) == said.strip("\n")


@pytest.mark.parametrize(
    "said",
    [
        "<script>top.location='//x.example'</script>",
        "text <img src=x onerror=alert(1)> text",
        "</details>",
        "<!-- never closed",
        "<img src=x onerror=alert(1)",
        "![a picture](https://x.example/p.png)",
        "[a](javascript:alert(1))",
        "[a](JavaScript&colon;alert(1))",
        "<javascript:alert(1)>",
        "[a](data:text/html,x)",
        "[Fig]: https://x.example",
        "a note[^1]\n\n[^1]: of its own",
        "`<b>`{=html}",
        "<p>" + ">" * 90 + "x",
        "[" + "a " * 6_000,
        "<" + "a\n\n" * 70_000,
    ],
    ids=lambda text: text[:20],
)
def test_o63_what_would_do_more_is_fenced(said: str) -> None:
    source = quoted(said)
    (fence,) = [token for token in PARSER.parse(source) if token.level == 0]
    assert fence.type == "fence"
    assert fence.content == (said if said.endswith("\n") else f"{said}\n")


@given(st.lists(PIECES | WORDS))
def test_nothing_leaves_its_place(pieces: list[str]) -> None:
    said = "".join(pieces)
    for source in (quoted(said), fenced(said)):
        env: dict[str, object] = {}
        tokens = PARSER.parse(f"before\n\n{source}\n\nafter", env)
        top = [token.type for token in tokens if token.level == 0]
        assert top in (
            [*_PARAGRAPH, "blockquote_open", "blockquote_close", *_PARAGRAPH],
            [*_PARAGRAPH, "fence", *_PARAGRAPH],
        )
        assert not env.get("references")
        kinds = {token.type for token in flat(tokens)}
        assert not kinds & {"html_block", "html_inline", "image"}
    (fence,) = [token for token in PARSER.parse(fenced(said)) if token.level == 0]
    text = inert_block(said)
    assert fence.content == (text if text.endswith("\n") else f"{text}\n")


_PARAGRAPH = ["paragraph_open", "paragraph_close"]


@given(PIECES)
def test_a_line_is_only_text(line: str) -> None:
    heading = PARSER.parse(f"# {escaped(line)} x")
    assert [token.type for token in heading] == ["heading_open", "inline", "heading_close"]
    assert heading[1].children is not None
    assert {token.type for token in heading[1].children} == {"text"}
    assert heading[1].children[0].content == f"{inert(line).strip()} x".strip()


@given(PIECES)
def test_code_is_only_code(line: str) -> None:
    _, inline, _ = PARSER.parse(f"a {code(line)} z")
    assert inline.children is not None
    if inert(line).strip():
        assert [token.type for token in inline.children] == ["text", "code_inline", "text"]
        assert inline.children[1].content == inert(line)
    else:
        assert code(line) == "(empty)"
