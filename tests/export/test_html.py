"""Exports as a page: everything is in it, and nothing in it does anything."""

from __future__ import annotations

import hashlib
import tracemalloc
from base64 import b64encode
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from lettaspace.export.document import open_document
from lettaspace.export.html import html
from tests.conversation.talk import Talk, call, text
from tests.export.conftest import PNG, SECRET, Fake, drop_blobs, state

SVG = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(2)</script></svg>"

HOSTILE = [
    "<script>top.location='//x.example'</script>",
    "<img src=x onerror=alert(1)>",
    "![a](https://x.example/p.png)",
    "[a](javascript:alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "</style></title></details></main><style>*{background:url(//x.example)}</style>",
    '" onmouseover="alert(1)" x="',
    "{{ 7*7 }}{% for a in b %}",
]

ELEMENTS = {
    "a", "article", "bdi", "b", "blockquote", "body", "br", "code", "dd", "del", "details", "div",
    "dl", "dt", "em", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "head",
    "header", "hr", "html", "img", "li", "main", "meta", "ol", "p", "pre", "s", "section", "span",
    "strong", "style", "summary", "table", "tbody", "td", "th", "thead", "time", "title", "tr",
    "ul",
}  # fmt: skip
ATTRIBUTES = {
    "alt", "aria-label", "aria-labelledby", "charset", "class", "content", "data-version",
    "data-more", "datetime", "dir", "href", "http-equiv", "id", "lang", "loading", "name", "rel",
    "src", "start", "tabindex", "target", "title",
}  # fmt: skip
VOID = {"br", "hr", "img", "meta"}


class Page(HTMLParser):
    """A page taken apart; whatever is not expected in one fails the test."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.style = ""
        self.feed(source)
        self.close()
        assert self.open == []
        self.text = "".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS
        self.elements[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert name in ATTRIBUTES, (tag, name)
            self.attributes.append((tag, name, value or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def named(self, name: str) -> list[str]:
        return [value for _, each, value in self.attributes if each == name]


def exported(talk: Talk, **options: Any) -> Page:
    return Page("".join(html(open_document(talk.space, talk.rkey, **options))))


def test_a_small_conversation(talk: Talk) -> None:
    state(talk, title="Jars")
    talk.add("List the jars.", 1)
    parts = [text("Looking."), call("A1", "ls", {"dir": "jars"})]
    talk.add("2", 2, role="assistant", content=parts)
    talk.add("3", 3, role="toolResult", content=[text("plum\nfig")], toolCallId="A1")
    talk.add("Two jars: **plum** and fig.", 4, role="assistant")
    page = exported(talk)
    at = 0
    for word in ["Jars", "Otter", "List the jars.", "Looking.", "ls", "jars", "plum\nfig", "Two"]:
        at = page.text.index(word, at) + len(word)
    assert page.elements["article"] == 3  # the result stands in its call
    assert page.elements["section"] == 1
    assert "2024-03-05 10:00:00 UTC" in page.text


def test_the_policy_allows_the_style_and_nothing_else(talk: Talk) -> None:
    page = exported(talk)
    digest = b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    (policy,) = [value for value in page.named("content") if "default-src" in value]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert page.elements["style"] == 1
    assert "prefers-color-scheme: dark" in page.style
    assert "url(" not in page.style
    assert "@import" not in page.style


def test_images_are_in_the_file_once(talk: Talk) -> None:
    kinds = {
        "image/png": b"\x89PNG\r\n\x1a\n" + b"x" * 20,
        "image/jpeg": b"\xff\xd8\xff" + b"x" * 20,
        "image/gif": b"GIF89a" + b"x" * 20,
        "image/webp": b"RIFF0000WEBP" + b"x" * 20,
        "image/avif": b"0000ftypavif" + b"x" * 20,
        "text/html": b"<script>alert(1)</script>",
    }
    parts = [
        {"type": "image", "mimeType": "image/png", "data": b64encode(content).decode()}
        for content in kinds.values()
    ]
    talk.add("images", 1, content=[*parts, {"type": "image", "mimeType": "image/png"}])
    for redaction in (None, Fake()):
        page = exported(talk, redaction=redaction)
        assert page.named("src") == [
            f"data:{kind};base64,{b64encode(content).decode()}"
            for kind, content in list(kinds.items())[:4]
        ]
        assert not [value for value in page.named("href") if value.startswith("data:")]
        assert page.elements["figcaption"] == 7


def test_o63_a_drawing_is_shown_as_its_source(talk: Talk) -> None:
    data = b64encode(SVG.encode()).decode()
    talk.add("drawing", 1, content=[{"type": "image", "mimeType": "image/svg+xml", "data": data}])
    page = exported(talk)
    assert page.elements["img"] == 0
    assert SVG in page.text


def test_o63_hostile_text_does_nothing(talk: Talk) -> None:
    for number, said in enumerate(HOSTILE):
        first = number * 4 + 1
        talk.add(f"user {said}", first)
        parts = [
            text(said),
            {"type": "thinking", "thinking": said},
            call(said, said, {said: said}),
            {"type": "image", "mimeType": said, "data": said},
            {"type": said, "x": said},
        ]
        talk.add(f"call {said}", first + 1, role="assistant", content=parts)
        fields = {"role": "toolResult", "content": [text(said)], "toolCallId": said}
        talk.add(f"result {said}", first + 2, **fields)
        other = {"format": said[:60], "version": 1, "data": {"a": said}}
        talk.add(f"role {said}", first + 3, role=said[:60], payload=other)
    meta = {"compaction": {"summary": HOSTILE[0]}}
    talk.add("sum", 99, covers=[f"user {HOSTILE[0]}"], content=[text(HOSTILE[0])], metadata=meta)
    state(talk, title=" ".join(HOSTILE), cwd=HOSTILE[0], tags=HOSTILE)
    page = exported(talk)  # fails for elements and attributes that are not on the list
    assert page.text.count(HOSTILE[0]) > 10
    assert "49" not in page.text.replace("#49", "")
    assert page.named("src") == []
    for target in page.named("href"):
        assert target.startswith(("#m-", "https://x.example/"))
    assert [value for _, name, value in page.attributes if name == "http-equiv"] == [
        "Content-Security-Policy"
    ]


def test_o19_o21_control_characters_are_visible(talk: Talk) -> None:
    hostile = "a\x00b\x1b]52;c;aGk=\x07\x9b2J\u202etxt.exe\u2028x"
    state(talk, title=hostile, tags=[hostile])
    talk.add(hostile, 1)
    talk.add("call", 2, role="assistant", content=[call(hostile, hostile, {"a": hostile})])
    talk.add("result", 3, role="toolResult", content=[text(hostile)], toolCallId=hostile)
    talk.add("sur\ud800rogate", 4)
    source = "".join(html(open_document(talk.space, talk.rkey)))
    assert not set(source) & set("\x00\x1b\x07\x9b\u202e\u2028\ud800")
    assert "a␀b␛" in source
    source.encode()


def test_compactions_and_windows(talk: Talk) -> None:
    talk.add("one", 1)
    talk.add("inner", 2, covers=["one"])
    talk.add("three", 3)
    talk.add("outer", 4, covers=["inner", "three"])
    talk.add("stray", 5, role="toolResult", toolCallId="Z")
    page = exported(talk)
    assert [value for value in page.named("id") if value.startswith("m-")] == [
        f"m-{talk.tids[name]}" for name in ("one", "inner", "three", "outer", "stray")
    ]
    assert page.text.count("Summarises") == 2
    for target in page.named("href"):
        assert target.removeprefix("#") in page.named("id")
    window = exported(talk, window=True)
    assert window.elements["article"] == 1
    assert "Not in the window" in window.text
    assert "orphan-result" in window.text


def test_what_is_not_known_or_cannot_be_read(talk: Talk) -> None:
    other = {"format": "acme.msg", "version": 1, "data": {"a": "word"}}
    talk.add("strange", 1, role="observer", payload=other)
    talk.add("clay " * 60_000, 2)
    talk.add("after", 3)
    drop_blobs(talk.space)
    page = exported(talk)
    assert "word" in page.text
    assert "This message cannot be read: no blob" in page.text
    assert "after" in page.text
    redacted = exported(talk, redaction=Fake())
    assert "This message cannot be read: " in redacted.text
    assert "bafk" not in redacted.text


def test_everything_is_in_it_however_long(talk: Talk) -> None:
    long = "".join(f"line {number}\n" for number in range(20_000))
    talk.add("said", 1, content=[text(long + "the end of what was said")])
    talk.add("call", 2, role="assistant", content=[call("A", "ls", {"a": long + "argued"})])
    talk.add("out", 3, role="toolResult", content=[text(long + "printed")], toolCallId="A")
    page = exported(talk)
    assert "the end of what was said" in page.text
    assert "argued" in page.text
    assert "printed" in page.text
    assert "not shown" not in page.text


def test_o45_redacted_on_the_page(talk: Talk) -> None:
    state(talk, title=SECRET, tags=[SECRET], cwd=f"/home/{SECRET}")
    svg = b64encode(f"<svg>{SECRET}</svg>".encode()).decode()
    talk.add("1", 1, content=[text(SECRET), {"type": "image", "mimeType": "a/svg", "data": svg}])
    talk.add("2", 2, role="assistant", content=[call("A", SECRET, {"key": SECRET})])
    talk.add("3", 3, role="toolResult", content=[text(SECRET)], toolCallId="A")
    other = {"format": SECRET, "version": 1, "data": {"a": SECRET}}
    talk.add("4", 4, role=SECRET, payload=other)
    meta = {"compaction": {"summary": SECRET}}
    talk.add("5", 5, covers=["1"], content=[text(SECRET)], metadata=meta)
    assert exported(talk).text.count(SECRET) >= 12
    assert "bafy" in "".join(exported(talk).named("data-version"))
    source = "".join(html(open_document(talk.space, talk.rkey, redaction=Fake())))
    assert SECRET not in source
    assert source.count("[removed]") >= 12
    assert "bafy" not in source
    assert "Secrets were replaced where they were found." in source


def test_no_conversation_is_held_in_memory(talk: Talk) -> None:
    for number in range(1, 301):
        talk.add(f"{number} " + ("clay " * 400 + "\n\n") * 10, number)  # 20 KB each
    "".join(html(open_document(talk.space, talk.rkey)))  # templates stay in memory
    document = open_document(talk.space, talk.rkey)
    tracemalloc.start()
    try:
        length = sum(map(len, html(document)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert length > 4_000_000
    assert most < 4_000_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_and_fetches_nothing(talk: Talk, tmp_path: Path, scheme: Any) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    state(talk, title=" ".join(HOSTILE))
    parts = [text(" ".join(HOSTILE)), {"type": "image", "mimeType": "image/png", "data": PNG}]
    talk.add("hostile", 1, content=parts)
    path = tmp_path / "talk.html"
    path.write_text("".join(html(open_document(talk.space, talk.rkey))), encoding="utf-8")
    asked: list[str] = []
    said: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
        try:
            page = browser.new_page(color_scheme=scheme)
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda message: said.append(message.text))
            page.on("dialog", lambda dialog: said.append(dialog.message))
            page.goto(path.as_uri())
            width = page.eval_on_selector("img", "image => image.naturalWidth")
            dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        finally:
            browser.close()
    assert width == 1
    assert (dark == "rgb(21, 22, 23)") == (scheme == "dark")
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert said == []
