"""Whatever the text, its HTML holds only what is allowed, and shows the text."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lettaspace.conversation import jsontext
from lettaspace.errors import InvalidInput
from lettaspace.page import code, diff, jsonview, markdown
from lettaspace.page.inert import inert_block
from tests.page.hostile import HOSTILE, HUGE, Page


def _parsed(text: str) -> Any:
    try:
        return jsontext.loads(text)
    except (InvalidInput, UnicodeEncodeError):
        return {text[:50]: [text]}


WAYS: dict[str, Callable[[str], str]] = {
    "markdown": markdown.render,
    "markdown in a list": lambda text: markdown.render("- > " + text),
    "markdown in a link": lambda text: markdown.render(f"[{text}](https://a.example)"),
    "markdown as a target": lambda text: markdown.render(f"[a]({text}) ![a](<{text}>) <{text}>"),
    "markdown as a title": lambda text: markdown.render(f'[a](https://a.example "{text}")'),
    "markdown in a fence": lambda text: markdown.render(f"````python\n{text}\n````"),
    "markdown as a language": lambda text: markdown.render(f"~~~{text}\nx\n~~~"),
    "markdown in a table": lambda text: markdown.render(f"| a |\n|---|\n| {text} |"),
    "code": code.highlight,
    "code, plain": code.plain,
    "code in Python": lambda text: code.highlight(text, "python"),
    "code in HTML": lambda text: code.highlight(text, "html"),
    "code in a shell": lambda text: code.highlight(text, "bash"),
    "code as a language": lambda text: code.highlight("x", text, text),
    "terminal": code.terminal,
    "diff": diff.highlight,
    "diff with nothing": lambda text: diff.unified("", text, text),
    "diff of two": lambda text: diff.unified(text, text[::-1], "x.py"),
    "JSON string": jsonview.render,
    "JSON key": lambda text: jsonview.render({text: {text: [text]}}),
    "JSON": lambda text: jsonview.render(_parsed(text)),
    "arguments": lambda text: jsonview.arguments(text, _parsed(text)),
    "argument": lambda text: jsonview.arguments(text, {text: text, "x": [text]}),
    "edit": lambda text: jsonview.arguments(
        "edit", {"file_path": text, "edits": [{"old_string": text, "new_string": "x"}]}
    ),
    "file": lambda text: jsonview.arguments("write", {"path": "x.html", "content": text + "\n"}),
    "command": lambda text: jsonview.arguments("Bash", {"command": text, "language": text}),
}
PIECES = [
    *("<", ">", '"', "'", "&", "&#x", ";", "`", "```", "~~~", "[", "](", ")", "![", "<!--", "-->"),
    *("|", "|-|\n", "- ", "1. ", "> ", "# ", "*", "_", "~~", "\n", "\n\n", " ", "\t", "\\", "    "),
    *("https://", "javascript:", "mailto:a@b", "a.example", "/", "@", ":", "{", "}", ",", "x", "1"),
    *(
        "\x1b[",
        "31m",
        "\x9b",
        "\x00",
        "\u202e",
        "\ud800",
        "\udc00",
        "\u05d0",
        "\r\n",
        "\r",
        "\u2028",
    ),
    *("@@ -1 +1 @@", "+", "-", "--- ", "+++ ", "[a]: b", "[ ] ", "=== ", "<script>", " onclick="),
]
everything = st.one_of(
    st.text(),
    st.text(st.characters(exclude_categories=())),
    st.lists(st.sampled_from(PIECES)).map("".join),
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_only_text(name: str) -> None:
    for way, show in WAYS.items():
        page = Page(show(HOSTILE[name]))
        assert not page.problems, way
        assert page.text.strip(), way


@pytest.mark.parametrize("way", ["markdown", "code in Python", "terminal", "diff", "arguments"])
@pytest.mark.parametrize("name", HUGE)
def test_huge_text_ends_and_is_only_text(name: str, way: str) -> None:
    page = Page(WAYS[way](HUGE[name]))
    assert not page.problems


@pytest.mark.parametrize("way", WAYS)
def test_any_text_is_only_text(way: str) -> None:
    @settings(deadline=None, max_examples=60)
    @given(everything)
    def check(text: str) -> None:
        assert not Page(WAYS[way](text)).problems

    check()


@pytest.mark.parametrize("show", [code.highlight, code.plain, diff.highlight])
@given(everything)
@settings(deadline=None)
def test_code_shows_its_text_whole(show: Callable[[str], str], text: str) -> None:
    assert Page(show(text)).text == inert_block(text)


@given(everything, st.sampled_from(["python", "html", "bash", "js", "c", "yaml", "diff", "pycon"]))
@settings(deadline=None)
def test_colours_leave_the_text_as_it_is(text: str, language: str) -> None:
    assert Page(code.highlight(text, language)).text == inert_block(text)


@given(everything)
@settings(deadline=None)
def test_markdown_shows_every_letter(text: str) -> None:
    shown = Page(markdown.render(text)).text
    letters = [character for character in text if character == "\u05d0"]
    assert shown.count("\u05d0") >= len(letters)


def test_the_check_finds_what_it_is_for() -> None:
    for html in (
        "<script>x</script>",
        "<p onclick='x'>x</p>",
        "<p style='x'>x</p>",
        '<a href="javascript:x">x</a>',
        '<a href="//evil.example">x</a>',
        "<p>\u202e</p>",
        "<p>&#x202e;</p>",
        "<p>&#27;</p>",
        "<p class='m'>x</p>",
        "<img src='x'>",
        "<!-- x -->",
        "<p>",
        "</p>",
        "<p dir='auto' dir='rtl'>x</p>",
        "<a href='https://a'><a href='https://b'>x</a></a>",
    ):
        assert Page(html).problems, html


def test_o21_controls_and_bidi_are_shown_inert() -> None:
    text = "\x1b]52;c;aGk=\x07 \x1b[2J \x9b \u202etxt.exe"
    for way in ("markdown", "code", "terminal", "diff", "argument"):
        assert "␛]52;c;aGk=␇ ␛[2J \\x9b \\u202etxt.exe" in Page(WAYS[way](text)).text
    line = "קובץ and English"
    for way in ("markdown", "argument"):
        assert line in Page(WAYS[way](line)).text
        assert 'dir="auto"' in WAYS[way](line)
