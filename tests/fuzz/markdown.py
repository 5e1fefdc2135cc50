"""Markdown of messages: whatever the text, the page holds only what is allowed."""

from __future__ import annotations

from lettaspace.page import markdown
from tests.fuzz.texts import text
from tests.page.hostile import Page

WORDS = (
    *(b"```", b"~~~", b"[a](", b"![", b"](https://a.example)", b"<!--", b"<script>", b"&#x", b"> "),
    *(b"- [ ] ", b"1. ", b"|-|\n", b"| a |", b"[a]: b", b"https://", b"javascript:", b"\\", b"***"),
    *(b"\x1b[31m", b"\xe2\x80\xae", b"\xd7\x90", b"&nbsp;", b"    ", b"\t", b"\r", b"\0", b"~~"),
)


def fuzz_markdown(given: bytes) -> None:
    page = Page(markdown.render(text(given)))
    assert not page.problems, page.problems
