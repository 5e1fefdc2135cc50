"""What people do on the pages, in a real browser; most of it with scripts and without."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from lettaspace.conversation.redaction import Redactor
from lettaspace.conversation.space import Space
from tests.viewer.browser import Look, Looking
from tests.viewer.conftest import Running, Serve
from tests.viewer.rich import Rich
from tests.viewer.test_pages import KILN, SUMMARY

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPTS = pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])


def tids(page: Page) -> list[str]:
    """The messages that are shown, results in their calls included."""
    found = page.locator(".m[id], .result[id]").evaluate_all("(all) => all.map((e) => e.id)")
    return [each.removeprefix("m-") for each in found]


def comes_into_view(page: Page, tid: str) -> None:
    page.wait_for_function(
        "(id) => { const box = document.getElementById(id).getBoundingClientRect();"
        " return box.top >= 0 && box.top < innerHeight; }",
        arg=f"m-{tid}",
    )


@SCRIPTS
def test_from_the_list_to_a_conversation_and_its_views(
    demo: Running, look: Looking, scripts: bool
) -> None:
    here = look(demo, java_script_enabled=scripts)
    page = here.page
    here.follow(page.get_by_role("link", name="Glaze tests for the spring kiln"))
    assert here.here == f"/c/{KILN}"
    assert page.title() == "Glaze tests for the spring kiln · lettaspace"
    assert "Two of the four" in page.inner_text(".messages")
    here.follow(page.get_by_role("link", name="Window"))
    assert here.here == f"/c/{KILN}?view=window"
    assert "Two of the four" not in page.inner_text(".messages")
    assert page.locator(".tabs [aria-current]").inner_text() == "Window"
    here.follow(page.get_by_role("link", name="Transcript"))
    assert here.here == f"/c/{KILN}"
    here.follow(page.get_by_role("link", name="Kiln", exact=True))
    assert page.get_by_role("heading", level=1).inner_text() == "Kiln"


def test_a_compaction_opens_in_place_and_closes(demo: Running, look: Looking) -> None:
    here = look(demo)
    page = here.at(f"/c/{KILN}?view=window")
    shown = tids(page)
    link = page.get_by_role("link", name="what it covers")
    link.click()
    opened = page.locator(".opened")
    opened.wait_for()
    assert here.here == f"/c/{KILN}?view=window"
    assert "Two of the four" in opened.inner_text()
    message = demo.space.message(demo.space.address.conversation(KILN), SUMMARY)
    assert sorted(tids(page)) == sorted([*shown, *(message.compacted_message_ids or [])])
    assert link.get_attribute("aria-expanded") == "true"
    # The picture in it came too.
    here.until("() => document.querySelector('.opened img').naturalWidth > 0")
    link.click()
    opened.wait_for(state="detached")
    assert tids(page) == shown


@SCRIPTS
def test_a_compaction_opens_as_a_page(demo: Running, look: Looking, scripts: bool) -> None:
    here = look(demo, java_script_enabled=scripts)
    page = here.at(f"/c/{KILN}?view=window")
    link = page.get_by_role("link", name="what it covers")
    here.at(link.get_attribute("href") or "") if scripts else here.follow(link)
    assert here.here == f"/c/{KILN}/covered/{SUMMARY}"
    assert "Two of the four" in page.inner_text(".messages")
    here.follow(page.get_by_role("link", name="Back to the summary").first)
    assert page.url.endswith(f"#m-{SUMMARY}")
    comes_into_view(page, SUMMARY)


def test_a_link_to_a_message_shows_and_marks_it(rich: tuple[Rich, Running], look: Looking) -> None:
    made, running = rich
    here = look(running)
    page = here.at(f"/c/{made.talk}?at={made.covered}#m-{made.covered}")
    comes_into_view(page, made.covered)
    target = page.locator(f"#m-{made.covered}")
    assert target.evaluate("(e) => e.matches(':target')")
    other = page.locator(".result:not(:target)").first
    colour = "(e) => getComputedStyle(e).backgroundColor"
    assert target.evaluate(colour) != other.evaluate(colour)


def test_a_link_to_something_in_a_fold_opens_the_fold(demo: Running, look: Looking) -> None:
    here = look(demo)
    page = here.at(f"/c/{KILN}")
    fold = page.locator("details.aside").first
    assert fold.get_attribute("open") is None
    page.evaluate(
        "document.querySelector('details.aside .text').id = 'inside'; location.hash = '#inside';"
    )
    here.until("() => document.querySelector('details.aside').open")
    assert page.locator("#inside").is_visible()


@SCRIPTS
def test_pages_of_a_long_conversation(
    rich: tuple[Rich, Running], look: Looking, scripts: bool
) -> None:
    made, running = rich
    here = look(running, java_script_enabled=scripts)
    page = here.at(f"/c/{made.long}")
    expected = [
        each.rkey
        for each in running.space.transcript(running.space.address.conversation(made.long))
    ]
    latest = tids(page)
    assert latest[-1] == expected[-1]
    seen = latest
    for _ in range(10):
        earlier = page.get_by_role("link", name="Earlier").first
        if earlier.count() == 0:
            break
        here.follow(earlier)
        seen = tids(page) + seen
    assert seen == expected
    assert page.locator(".pager").first.inner_text().split() == [
        "First", "Earlier", "Later", "Latest",
    ]  # fmt: skip
    here.follow(page.get_by_role("link", name="Latest").first)
    assert tids(page) == latest
    here.follow(page.get_by_role("link", name="First").first)
    assert tids(page)[0] == expected[0]
    here.follow(page.get_by_role("link", name="Later").first)
    assert tids(page)[0] == expected[50]
    # The places at the side lead to what they name.
    here.follow(page.locator(".ticks a").last)
    target = page.url.partition("#m-")[2]
    comes_into_view(page, target)


@SCRIPTS
def test_search_with_and_without_thinking_leads_to_the_message(
    demo: Running, look: Looking, scripts: bool
) -> None:
    here = look(demo, java_script_enabled=scripts)
    page = here.page
    page.get_by_role("searchbox", name="Search every message").fill("has no reason")
    page.get_by_role("searchbox", name="Search every message").press("Enter")
    here.comes_to("/search?q=has+no+reason")
    assert page.get_by_role("status").inner_text() == "1 message has it."
    assert page.locator("mark").all_inner_texts() == ["has no reason"]
    page.get_by_role("searchbox", name="Text").fill("test tiles. Read it before")
    page.get_by_role("searchbox", name="Text").press("Enter")
    here.comes_to("/search?q=test+tiles.+Read+it+before")
    assert page.get_by_role("status").inner_text() == "No message has it."
    page.get_by_label("in thinking too").check()
    page.locator("main").get_by_role("button", name="Search").click()
    here.comes_to("/search?q=test+tiles.+Read+it+before&thinking=1")
    assert page.get_by_role("status").inner_text() == "1 message has it."
    here.follow(page.locator(".hits a").first)
    assert page.url.startswith(f"{here.base}/c/{KILN}?at=")
    comes_into_view(page, page.url.partition("#m-")[2])


@SCRIPTS
def test_record_usage_prompt_and_message_pages(
    rich: tuple[Rich, Running], look: Looking, scripts: bool
) -> None:
    made, running = rich
    here = look(running, java_script_enabled=scripts)
    page = here.at(f"/c/{made.plain}")
    here.follow(page.locator(".about").get_by_role("link", name="Record"))
    assert page.get_by_role("heading", level=1).inner_text() == "Record"
    assert "valid" in page.locator(".badge").all_inner_texts()
    page.go_back()
    here.follow(page.get_by_role("link", name="System prompt"))
    assert "You are Otter." in page.inner_text(".prompt")
    assert page.locator(".prompt .core").inner_text() == "<memory>jars</memory>"
    here.at(f"/c/{made.talk}")
    here.follow(page.locator(".about").get_by_role("link", name="Usage"))
    plots = page.locator("figure.plot")
    assert plots.count() == 2
    for at in range(2):
        assert plots.nth(at).locator("svg.plot-wide").is_visible()
        assert plots.nth(at).locator("svg.plot-narrow").is_hidden()
    here.at(f"/c/{made.talk}/m/{made.covered}")
    here.follow(page.get_by_role("link", name="In the transcript"))
    comes_into_view(page, made.covered)


@SCRIPTS
def test_memory_pages(rich: tuple[Rich, Running], look: Looking, scripts: bool) -> None:
    made, running = rich
    here = look(running, java_script_enabled=scripts)
    page = here.at(f"/agents/{made.agent}")
    here.follow(page.get_by_role("link", name="Memory"))
    here.follow(page.get_by_role("link", name="notes/jars.md").first)
    assert "Two jars." in page.inner_text(".text")
    here.follow(page.get_by_role("link", name="Memory"))
    here.follow(page.locator("main .list a[data-item]").first)
    assert "a = 2" in page.inner_text(".d-add >> nth=0")


def test_pictures_load(rich: tuple[Rich, Running], look: Looking) -> None:
    made, running = rich
    here = look(running)
    page = here.at(f"/c/{made.talk}")
    picture = page.locator(".image img")
    assert picture.count() == 1
    picture.scroll_into_view_if_needed()
    here.until("() => document.querySelector('.image img').naturalWidth === 40")


def test_o61_every_entry_of_every_list_opens(rich: tuple[Rich, Running], look: Looking) -> None:
    made, running = rich
    here = look(running, java_script_enabled=False)
    for listing in ("/", "/agents", f"/agents/{made.agent}", f"/agents/{made.agent}/memory"):
        page = here.at(listing)
        entries = page.locator("a[data-item]").evaluate_all(
            "(all) => all.map((e) => e.getAttribute('href'))"
        )
        assert entries
        for entry in entries:
            here.at(entry)
            assert page.get_by_role("heading", level=1).count() == 1


def test_what_is_not_there_says_so(demo: Running, look: Looking) -> None:
    here = look(demo, java_script_enabled=False)
    answer = here.page.goto(f"{here.base}/c/3mgmzct4q5gk2")
    assert answer is not None
    assert answer.status == 404
    assert here.page.get_by_role("heading", level=1).inner_text() == "Nothing here"
    # The browser itself says that the answer was a 404.
    here.told.clear()
    here.follow(here.page.get_by_role("link", name="To the start"))
    assert here.here == "/"


def test_o22_numbers_have_their_own_text(rich: tuple[Rich, Running], look: Looking) -> None:
    made, running = rich
    page = look(running).at(f"/c/{made.talk}")
    call = page.locator(".call", has_text="look_up")
    for place in (call.locator(".asked"), call.locator(".answered")):
        text = place.inner_text()
        for number in ("9007199254740993", "1.0", "1e-7", "-0.0"):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", text), number


def test_o23_usage_counts_a_response_once_and_rows_show_theirs(
    space: Space, serve: Serve, look: Looking
) -> None:
    from lettaspace.conversation.payload import AssistantMessage, Text, ToolCall, Usage

    talk = space.create_conversation(space.create_agent("Otter"), title="Twice")
    same = {"provider": "acme", "model": "m-1", "response_id": "resp_7"}
    used = Usage(input=10, output=4)
    talk.append(AssistantMessage([Text("Looking.")], usage=used, **same))
    talk.append(AssistantMessage([ToolCall("c1", "ls")], usage=used, **same))
    talk.fork()
    here = look(serve(space))
    for path in ("/usage", f"/usage?conversation={talk.rkey}"):
        cells = here.at(path).locator("tfoot td").all_inner_texts()
        assert (cells[1], cells[2], cells[5], cells[7]) == ("1", "10", "4", "14")
    facts = here.at(f"/c/{talk.rkey}").locator(".m > .rail .used").all_inner_texts()
    assert facts == ["m-1 · 10 in · 4 out"] * 2


def test_o45_a_redacting_viewer_shows_no_secret(
    space: Space, serve: Serve, look: Looking, tmp_path_factory: pytest.TempPathFactory
) -> None:
    running = serve(space, **_secrets(space, tmp_path_factory))
    pages = _reached(running, "/", "/search?q=key&thinking=1")
    assert len(pages) >= 20
    for path, html in pages.items():
        assert [each for each in SECRETS if each in html] == [], path
    # What a browser makes of them, the title bar included.
    here = look(running)
    for path in ("/", f"/c/{space.conversations()[0].rkey}", "/search?q=key"):
        page = here.at(path)
        shown = page.title() + page.content()
        assert "redacted" in shown
        assert [each for each in SECRETS if each in shown] == [], path


SECRETS = ("ghp_" + "E" * 36, "TEST-000", "hunter2hunter2")


def _secrets(space: Space, places: pytest.TempPathFactory) -> dict[str, object]:
    """Secrets in every field that people see."""
    from lettaspace.letta.importer import import_directory
    from tests.conversation.memories import commit, init
    from tests.letta.build import AGENT, Store, call, compaction, message, prompt, result, rows
    from tests.letta.build import text as said

    token, bearer, _ = SECRETS
    secret = f"key {token} Authorization: Bearer {bearer} postgres://u:hunter2hunter2@h/db"
    store = Store(places.mktemp("secrets") / "letta")
    store.agent(name=f"Otter {token}", description=secret)
    memory = init(store.path / "memfs" / AGENT / "memory")
    revision = commit(memory, {"a.md": secret.encode(), f"{token}.txt": b"x"})
    made = rows(
        [
            message(1, "user", secret),
            message(
                2,
                "assistant",
                [
                    {"type": "thinking", "thinking": secret},
                    said(secret),
                    call("c1", "ls", {"command": secret, token: 1}),
                ],
            ),
            result(3, "c1", secret),
        ],
        cwd=f"/home/{token}",
    )
    made.append(compaction(message(4, "user", secret), "e4", "e3", None, 3, 1))
    store.conversation(
        made,
        window=["ui-msg-4"],
        summary=f"Title {token}",
        tags=[token],
        prompt=prompt(content=secret, coreMemory=secret, memfsRevision=revision),
    )
    import_directory(space, store.path)
    return {"letta": store.path, "redaction": Redactor()}


def _reached(running: Running, *paths: str) -> dict[str, str]:
    """Every page that links lead to, as it was sent."""
    queue, found = list(paths), dict.fromkeys(paths, "")
    while queue:
        path = queue.pop()
        page = running.page(path)
        found[path] = page.html
        for link in page.links():
            link = link.partition("#")[0]
            if link.startswith("/") and link not in found and "/image/" not in link:
                found[link] = ""
                queue.append(link)
    return found


def _found(here: Look, query: str, *, thinking: bool = False) -> list[str]:
    """What a search marks in each hit, asked in the field of the page."""
    page = here.page
    page.locator("#q").fill(query)
    page.get_by_label("in thinking too").set_checked(thinking)
    page.locator("#q").press("Enter")
    more = {"thinking": 1} if thinking else {}
    here.comes_to("/search?" + urlencode({"q": query} | more, safe="*"))
    return page.locator(".snippet").all_inner_texts()


def test_o38_o39_o40_searches_typed_into_the_page(
    space: Space, serve: Serve, look: Looking
) -> None:
    from lettaspace.conversation.payload import (
        AssistantMessage,
        Text,
        Thinking,
        ToolCall,
        ToolResult,
    )
    from lettaspace.conversation.payload import UserMessage as User

    talk = space.create_conversation(space.create_agent("Otter"), title="Stones")
    talk.append(User.text("gneiss"))
    talk.compact(lambda _: "flint")
    verbatim = ["don't", "POL-358", "a::b", 'say "hi"', "50% (net)*", "<i>&amp;"]
    for said in ("昨晚重跑ingest后清零", "半夜", *verbatim):
        talk.append(User.text(said))
    call = ToolCall("c1", "look", {"for": "quartz"})
    talk.append(AssistantMessage([Thinking("chert"), Text("so"), call], stop_reason="toolUse"))
    talk.append(ToolResult.of(call, "basalt"))
    here = look(serve(space))
    here.at("/search")
    for query in ("昨晚", "清零", "ingest", "半夜", "夜"):
        assert len(_found(here, query)) == 1, query
        assert here.page.locator("mark").all_inner_texts() == [query]
    for query in verbatim:
        assert _found(here, query) == [query]
    assert _found(here, '"') == ['say "hi"']
    for query in ("quartz", "basalt", "gneiss", "flint"):
        assert len(_found(here, query)) == 1, query
        where = here.page.locator(".where").inner_text()
        assert "Stones" in where
        assert "#" in where
        assert ("compacted" in where) == (query == "gneiss")
    assert _found(here, "chert") == []
    assert _found(here, "chert", thinking=True) == ["chert"]
