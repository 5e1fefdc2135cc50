"""Search in the viewer."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from lettaspace.conversation.payload import (
    AssistantMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lettaspace.conversation.payload import UserMessage as User
from lettaspace.conversation.records import Address
from lettaspace.conversation.space import Space
from lettaspace.viewer.searching import pieces
from tests.viewer.conftest import Page, Running, Serve


def hits(page: Page) -> int:
    return page.html.count('<p class="snippet"')


def test_o38_text_without_spaces(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    for said in ("昨晚重跑ingest后清零", "半夜"):
        talk.append(User.text(said))
    here = serve(space)
    for query in ("昨晚", "清零", "ingest", "半夜", "夜"):
        page = here.page("/search", q=query)
        assert hits(page) == 1, query
        assert f"<mark>{query}</mark>" in page.html


@pytest.mark.parametrize(
    "said", ["don't", "POL-358", "a::b", 'say "hi"', "50% (net)*", "<b>", "&amp;", "%_", "a\\b"]
)
def test_o39_query_characters_are_text(space: Space, serve: Serve, said: str) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    talk.append(User.text(said))
    talk.append(User.text("something else"))
    here = serve(space)
    page = here.page("/search", q=said)
    assert hits(page) == 1
    assert said in page.text
    assert here.get("/search", q='"').status_code == 200


def test_o40_scope_of_search(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"), title="Stones")
    call = ToolCall("c1", "dig", {"for": "quartz"})
    talk.append(User.text("gneiss"))
    talk.append(AssistantMessage([Thinking("chert"), Text("digging"), call], stop_reason="toolUse"))
    talk.append(ToolResult.of(call, "basalt"))
    talk.append(User.text("thanks"))
    talk.compact(lambda _messages: "flint", choose=lambda messages: len(messages) - 1)
    here = serve(space)
    for word, role, status in (
        ("quartz", "assistant", True),
        ("basalt", "toolResult", True),
        ("gneiss", "user", True),
        ("flint", "summary", False),
    ):
        page = here.page("/search", q=word)
        assert "1 message has it." in page.text, word
        assert "Stones #" in page.text
        assert role in page.text
        assert ("compacted" in page.text.split("Stones", 1)[1]) is status, word
        (link,) = page.links("#m-")
        assert word in here.page(link).html
    assert "No message has it." in here.page("/search", q="chert").text
    assert "1 message has it." in here.page("/search", q="chert", thinking=1).text


def test_many_hits_come_in_pages(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    for at in range(120):
        talk.append(User.text(f"needle {at:03}"))
    here = serve(space)
    page = here.page("/search", q="needle")
    assert "120 messages have it." in page.text
    found = hits(page)
    while older := page.links("page="):
        page = here.page(older[-1])
        found += hits(page)
        if not [link for link in page.links("page=") if "page=3" in link]:
            break
    assert found == 120


def test_an_empty_query_asks_for_one(demo: Running) -> None:
    for query in ("", "   "):
        page = demo.page("/search", q=query)
        assert "has it" not in page.text


def test_pieces_mark_what_was_looked_for_and_lose_nothing() -> None:
    assert list(pieces("a Celadon, celadon!", "celadon")) == [
        ("a ", False),
        ("Celadon", True),
        (", ", False),
        ("celadon", True),
        ("!", False),
    ]
    assert "".join(text for text, _ in pieces("ſtraße", "STRASSE")) == "ſtraße"
    assert list(pieces("abc", "")) == [("abc", False)]


def test_hits_of_other_members_say_so(space: Space, serve: Serve) -> None:
    bob = "did:web:bob.example"
    space.create_conversation(space.create_agent("Otter")).append(User.text("a jar of mine"))
    theirs = Space(space.home, space.identity, space.database, Address(space.ref, bob))
    said = theirs.create_conversation(theirs.create_agent("Heron")).append(
        User.text("a jar of his")
    )
    here = serve(space)
    page = here.page("/search", q="a jar of")
    assert hits(page) == 2
    assert page.html.count(f"by {bob}") == 1
    assert "a jar of his" in here.page("/record", uri=said.uri).text
    assert f'href="/record?{urlencode({"uri": said.uri})}"' in page.html
