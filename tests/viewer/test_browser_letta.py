"""What the real Letta Code writes, on a page that is open in a browser."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_serving import up
from tests.lab.lab import Lab
from tests.lab.provider import Reply
from tests.lab.scenarios import CONVERSATION, bash
from tests.viewer.browser import Looking


def test_a_turn_of_letta_appears_on_the_open_pages(
    letta_lab: Lab, home: Path, look: Looking
) -> None:
    """The conversation's page follows a turn with a tool call; the list counts it."""
    letta = letta_lab.copy("deterministic", "viewed")
    letta.connect("lmstudio")
    turn = letta_lab.script(
        "viewed",
        Reply("I look at the note.", calls=(bash("cat note.txt"),)),
        Reply("Two jars: plum and fig."),
    )
    with up(home, "--letta", letta.storage, "--port", "0") as (_, said):
        assert said["messages"] == 4
        here, beside = look(said["url"]), look(said["url"])
        page = here.page
        page.locator("a[data-item]").first.click()
        page.locator(".m").first.wait_for()
        assert page.locator(".m").count() == 4
        page.evaluate("window.kept = true")
        letta.ask(f"List the jars. {turn}", conversation=CONVERSATION)
        here.until("() => document.querySelector('main').innerText.includes('Two jars: plum')")
        assert page.evaluate("window.kept") is True
        assert page.locator(".m").count() == 7
        assert "plum\nfig" in page.locator(".call .answered").last.inner_text()
        beside.until("() => document.querySelector('main').innerText.includes('8 messages')")
