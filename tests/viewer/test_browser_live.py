"""Pages that are looked at while something is written."""

from __future__ import annotations

import pytest

from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.payload import AssistantMessage, Text, Thinking, ToolCall, ToolResult
from lettaspace.conversation.payload import UserMessage as User
from lettaspace.conversation.space import Space
from tests.viewer.browser import Look, Looking
from tests.viewer.conftest import Serve

TEXTS = "() => [...document.querySelectorAll('.messages > .m .body')].map((e) => e.innerText)"


@pytest.fixture
def talk(space: Space) -> Conversation:
    made = space.create_conversation(space.create_agent("Otter"), title="Jars")
    for number in range(30):
        made.append(User.text(f"question {number}"))
        made.append(AssistantMessage([Thinking("why not"), Text(f"answer {number}")]))
    return made


def pages_asked(here: Look) -> list[str]:
    return [each for each in here.requests if "/c/" in each]


def shows(here: Look, text: str) -> None:
    here.until("(text) => document.querySelector('main').innerText.includes(text)", text)


def test_a_message_appears_at_the_end_and_the_page_stays_as_it_was(
    talk: Conversation, space: Space, serve: Serve, look: Looking
) -> None:
    running = serve(space)
    here = look(running)
    page = here.at(f"/c/{talk.rkey}")
    page.evaluate("window.kept = true; scrollTo(0, document.documentElement.scrollHeight)")
    fold = page.locator(".m details.aside").last
    fold.evaluate("(e) => { e.open = true; }")
    last = page.locator(".m").last
    last.focus()
    name = last.get_attribute("id")
    talk.append(User.text("the jar is new"))
    shows(here, "the jar is new")
    assert page.locator(".m").last.inner_text().endswith("the jar is new")
    assert page.evaluate("window.kept") is True
    assert fold.evaluate("(e) => e.open")
    assert page.evaluate("document.activeElement.id") == name
    # Who stands at the end stays there.
    here.until("() => innerHeight + scrollY >= document.documentElement.scrollHeight - 80")
    assert page.locator(".live").count() == 0
    assert "61 messages" in page.inner_text(".about")


def test_who_reads_above_is_left_there_and_told(
    talk: Conversation, space: Space, serve: Serve, look: Looking
) -> None:
    running = serve(space)
    here = look(running)
    page = here.at(f"/c/{talk.rkey}")
    page.evaluate("scrollTo(0, 300)")
    before = page.evaluate("scrollY")
    talk.append(User.text("said below"))
    note = page.locator(".live a")
    note.wait_for()
    assert note.inner_text() == "1 new message"
    talk.append(User.text("said below too"))
    here.until("() => document.querySelector('.live')?.innerText === '2 new messages'")
    assert page.evaluate("scrollY") == before
    note.click()
    here.until("() => innerHeight + scrollY >= document.documentElement.scrollHeight - 80")
    assert note.count() == 0
    assert page.locator(".m").last.inner_text().endswith("said below too")
    # What was seen is counted no more.
    page.evaluate("scrollTo(0, 300)")
    talk.append(User.text("said below again"))
    here.until("() => document.querySelector('.live')?.innerText === '1 new message'")


def test_a_result_appears_in_its_call(
    talk: Conversation, space: Space, serve: Serve, look: Looking
) -> None:
    call = ToolCall("c1", "count", {"what": "jars"})
    talk.append(AssistantMessage([call], stop_reason="toolUse"))
    running = serve(space)
    here = look(running)
    page = here.at(f"/c/{talk.rkey}")
    assert page.locator(".call .answered").inner_text() == "No result here."
    talk.append(ToolResult.of(call, "eleven jars"))
    shows(here, "eleven jars")
    assert "eleven jars" in page.locator(".call .answered").inner_text()
    assert page.locator(".m").count() == 50


@pytest.mark.parametrize("view", ["", "?view=window"])
def test_a_compaction_while_one_looks(
    talk: Conversation, space: Space, serve: Serve, look: Looking, view: str
) -> None:
    running = serve(space)
    here = look(running)
    page = here.at(f"/c/{talk.rkey}{view}")
    talk.compact(lambda _: "All the jars in short.", lambda messages: len(messages) - 4)
    shows(here, "All the jars in short.")
    if view:
        here.until("() => document.querySelectorAll('.m').length === 5")
        assert page.locator(".m").first.get_attribute("class") == "m is-summary"
    else:
        here.until("() => document.querySelectorAll('.m.was-compacted').length === 46")
    assert "61 messages, 5 in the window" in page.inner_text(".about")
    assert "Compactions" in page.inner_text(".ticks")


def test_a_rewrite_while_one_looks(
    talk: Conversation, space: Space, serve: Serve, look: Looking
) -> None:
    running = serve(space)
    here = look(running)
    page = here.at(f"/c/{talk.rkey}")
    count = page.locator(".m").count()
    last = talk.window().messages[-1]
    talk.rewrite(last.rkey, AssistantMessage.text("said otherwise"))
    shows(here, "said otherwise")
    assert "answer 29" not in page.inner_text("main")
    assert page.locator(".m").count() == count
    assert page.locator(".live").count() == 0


def test_an_empty_conversation_begins(space: Space, serve: Serve, look: Looking) -> None:
    made = space.create_conversation(space.create_agent("Otter"), title="Jars")
    running = serve(space)
    here = look(running)
    page = here.at(f"/c/{made.rkey}")
    for said in ("the first words", "the second words"):
        made.append(User.text(said))
        shows(here, said)
    assert page.locator(".m").count() == 2


@pytest.mark.parametrize("path", ["/", "/agents"])
def test_lists_follow(
    talk: Conversation, space: Space, serve: Serve, look: Looking, path: str
) -> None:
    running = serve(space)
    other = space.create_conversation(space.create_agent("Heron"), title="Reeds")
    here = look(running)
    page = here.at(path)
    first = page.locator("a[data-item]").first
    first.focus()
    if path == "/":
        assert first.inner_text() == "Reeds"
        talk.append(User.text("once more"))
        here.until("() => document.querySelector('a[data-item]').innerText === 'Jars'")
        # The entry that had the focus has it still.
        assert here.focused() == "a Reeds"
    other.append(User.text("rustle"))
    shows(here, "1 message")
    other.append(User.text("rustle"))
    shows(here, "2 messages")


def test_other_conversations_do_not_stir_a_page(
    talk: Conversation, space: Space, serve: Serve, look: Looking
) -> None:
    running = serve(space)
    other = space.create_conversation(space.create_agent("Heron"), title="Reeds")
    here, beside = look(running), look(running)
    here.at(f"/c/{talk.rkey}")
    asked = len(pages_asked(here))
    beside.at("/")
    other.append(User.text("rustle"))
    shows(beside, "1 message")
    other.append(User.text("rustle again"))
    shows(beside, "2 messages")
    assert len(pages_asked(here)) == asked
    talk.append(User.text("mine"))
    shows(here, "mine")
    assert len(pages_asked(here)) > asked


def test_without_scripts_a_page_stays_as_it_is(
    talk: Conversation, space: Space, serve: Serve, look: Looking
) -> None:
    running = serve(space)
    here = look(running, java_script_enabled=False)
    page = here.at(f"/c/{talk.rkey}")
    assert f"{running.base}/live" not in here.requests
    talk.append(User.text("the jar is new"))
    page.reload()
    assert page.locator(".m").last.inner_text().endswith("the jar is new")
