"""What else shows texts of messages: the first byte chooses how."""

from __future__ import annotations

from collections.abc import Callable

from lettaspace.conversation import jsontext
from lettaspace.conversation.linediff import line_diff
from lettaspace.errors import InvalidInput
from lettaspace.page import code, diff, jsonview
from lettaspace.page.inert import inert_block
from tests.fuzz.texts import text
from tests.page.hostile import Page

WORDS = (
    *(b"\x1b[1;31m", b"\x1b[38;5;1m", b"\x1b]8;;", b"\x9b", b"\r\n", b"\xe2\x80\xae", b"\0", b"</"),
    *(b"@@ -1 +1 @@\n", b"--- a\n+++ b\n", b"*** Begin Patch\n", b"diff --git a/b b/b\n", b"\n+"),
    *(b'"""', b"'''", b"def a(b):", b"#!/bin/sh\n", b"<<EOF", b"<?php", b"/*", b"${", b"$("),
    *(b'{"edits":[{"old_string":"', b'"new_string":"', b'"file_path":"a.py"', b'"command":"'),
    *(b"NaN",),
)
LANGUAGES = ("python", "html", "bash", "js", "c", "yaml", "diff", "pycon", "json", "css", "rust")
LANGUAGES += (
    "sql",
    "toml",
    "go",
    "java",
    "typescript",
    "xml",
    "markdown",
    "php",
    "make",
    "console",
)


def fuzz_page(given: bytes) -> None:
    if not given:
        return
    name, show = WAYS[given[0] % len(WAYS)]
    shown = text(given[1:])
    page = Page(show(shown))
    assert not page.problems, page.problems
    if name == "whole":
        assert page.text == inert_block(shown)


def _json(given: str) -> str:
    try:
        return jsonview.render(jsontext.loads(given))
    except InvalidInput:
        return jsonview.render({given: [given]})


def _arguments(given: str) -> str:
    tool, _, rest = given.partition("\n")
    try:
        return jsonview.arguments(tool, jsontext.loads(rest))
    except InvalidInput:
        return jsonview.arguments(tool, {"command": rest, "file_path": tool, "content": rest})


def _compared(given: str) -> str:
    old, _, new = given.partition("\0")
    line_diff(old, new).unified()
    return diff.unified(old, new, "a.py")


def _named(given: str) -> str:
    language, _, rest = given.partition("\n")
    return code.highlight(rest, language, language)


WAYS: list[tuple[str, Callable[[str], str]]] = [
    ("parts", code.terminal),
    ("parts", _json),
    ("parts", _arguments),
    ("parts", _compared),
    ("parts", _named),
    ("whole", diff.highlight),
    ("whole", code.plain),
    ("whole", code.highlight),
    *(("whole", lambda given, one=one: code.highlight(given, one)) for one in LANGUAGES),
]
