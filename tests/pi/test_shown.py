"""pi's messages are shown, found, counted and written out like any other harness's."""

from __future__ import annotations

import re
from base64 import b64decode
from html import unescape

import pytest

from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.preview import first_words
from lettaspace.conversation.space import Space
from lettaspace.export.document import open_document
from lettaspace.export.html import html
from lettaspace.export.jsonfile import json_lines
from lettaspace.export.markdown import markdown
from lettaspace.pi.importer import import_file, import_session
from tests.pi.sessions import Writer, text
from tests.pi.test_import import DATA
from tests.viewer.conftest import Serve

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


@pytest.fixture
def talk(space: Space) -> Conversation:
    """The session that pi 1.6 wrote."""
    return space.conversation(import_file(space, DATA / "pi-1.6.jsonl").conversation)


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_html(talk: Conversation) -> None:
    page = "".join(html(open_document(talk.space, talk.rkey)))
    said = words(page)
    for each in (
        "Glaze tests",
        "The table of the tiles has it.",  # thinking
        "claude-sonnet-4-5",
        "1,020 in",
        "41 out",
        "$0.0012",
        "A2,celadon 4,10,runs 6 mm",  # a result, in its call
        "celadon 4: one dip, cone 9",
        "Celadon 4 runs at cone 10. The note for Thursday is being written.",  # the summary
        "It rains, so the kiln dries slowly.",  # an extension's message
        "They asked about mugs: eighteen fit.",  # of another branch
        "ls tiles",  # what the user ran
        "You help in a pottery.",  # the system prompt
        "And Friday, in short?",  # what the model is given of it
    ):
        assert each in said, each
    assert f"data:image/png;base64,{PICTURE}" in page
    assert "<strong>Celadon 4</strong>" in page
    assert "is not known here" not in said


def test_markdown(talk: Conversation) -> None:
    page = "".join(markdown(open_document(talk.space, talk.rkey)))
    for each in (
        "**Call** `read` · `toolu_1`",
        "**Result**",
        "Thinking",
        "*Image: image/png, 70 bytes.*",
        "**Compaction: #19 summarises 8 messages.**",
        "**Celadon 4** runs 6 mm at cone 10.",
    ):
        assert each in page, each


def test_json_has_the_entries(talk: Conversation) -> None:
    page = "".join(json_lines(open_document(talk.space, talk.rkey)))
    assert '"format":"pi.entry"' in page
    assert '"entry":{' in page


def test_search_and_titles(talk: Conversation) -> None:
    space = talk.space
    for query in (
        "runs 6 mm",
        "dries slowly",
        "釉薬",
        "eighteen fit",
        "notes/thursday",
        "ls tiles",
    ):
        assert space.search(query).total >= 1, query
    assert space.search("table of the tiles", thinking=True).total == 1
    assert space.search(PICTURE[:20]).total == 0
    assert first_words(space, talk.uri) == "Which glaze runs at cone 10? 釉薬 🏺 and tile A2"


def test_usage(talk: Conversation) -> None:
    total = talk.space.usage(conversation=talk.uri).total
    assert (total.responses, total.output, str(total.cost)) == (7, 253, "0.0091")


def test_calls_and_results(talk: Conversation) -> None:
    assert talk.pending() == []
    left_out = talk.window().left_out
    assert left_out == []


def test_what_a_session_holds_otherwise(space: Space) -> None:
    """Nothing that stands in a file breaks a page, and nothing of it is hidden."""
    made = Writer()
    made.add("message", message={"role": "user", "content": "plain"})
    made.add("message", message={"role": "assistant"})
    made.add("message", message={"role": "assistant", "content": 5, "usage": "much", "": 1})
    made.add("message", message={"role": "stranger", "content": [text("odd")]})
    made.add("message", message={"content": [text("nobody")]})
    made.add("message", message={"role": "system", "content": [text("be kind")], "sections": {}})
    made.add("message", message={"role": "bashExecution"})
    made.add("custom_message", customType="x")
    made.add("custom_message", customType="x", content=[text("c"), 7, None, {"type": "new"}])
    made.add("branch_summary")
    made.add("compaction", summary=None, firstKeptEntryId=7)
    made.add("message", message={"role": "user", "content": [text("\ud83d" * 3)]}, **{"$type": "x"})
    made.message("user", [text("z" * 200_000)], **{"": [text("y" * 200_000)]})
    report = import_session(space, made.session())
    talk = space.conversation(report.conversation)
    for form in (html, markdown, json_lines):
        page = "".join(form(open_document(space, talk.rkey)))
        for each in ("plain", "odd", "nobody", "be kind"):
            assert each in page
    assert space.search("zzz").total == 1
    assert space.usage().total.responses == 0
    assert not list(space.verify())


def test_the_viewers_page(talk: Conversation, serve: Serve) -> None:
    running = serve(talk.space)
    page = running.page(f"/c/{talk.rkey}")
    assert "The table of the tiles has it." in page.text
    sources = [attrs.get("src") or "" for tag, attrs in page.tags if tag == "img"]
    (picture,) = [source for source in sources if "/image/" in source]
    shown = running.get(picture)
    assert shown.headers["content-type"] == "image/png"
    assert shown.content == b64decode(PICTURE)
