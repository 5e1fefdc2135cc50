"""The pages without a mouse."""

from __future__ import annotations

from tests.viewer.browser import Look, Looking
from tests.viewer.conftest import Running
from tests.viewer.rich import Rich
from tests.viewer.test_pages import KILN

OUTLINE = """() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


def press(here: Look, *keys: str) -> None:
    for key in keys:
        here.page.keyboard.press(key)


def tabbed(here: Look, most: int = 400) -> list[str]:
    """What Tab leads to, until it leaves the page."""
    found: list[str] = []
    for _ in range(most):
        press(here, "Tab")
        name = here.focused()
        if name == "nothing":
            return found
        assert here.page.evaluate(OUTLINE), f"the focus on {name} cannot be seen"
        found.append(name)
    raise AssertionError("the focus never leaves the page")


def test_tab_goes_through_a_page_in_order_and_leaves_it(demo: Running, look: Looking) -> None:
    here = look(demo)
    found = tabbed(here)
    assert found[:8] == [
        "a Skip to content",
        "a lettaspace",
        "a Conversations",
        "a Agents",
        "a Usage",
        "input #find Search every message",
        "button Search",
        "a Why does the shelf planner give 17?",
    ]


def test_tab_is_nowhere_held(rich: tuple[Rich, Running], look: Looking) -> None:
    made, running = rich
    here = look(running)
    here.at(f"/c/{made.talk}")
    here.page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    everything = here.page.evaluate(
        "[...document.querySelectorAll('a[href], button, input, summary, [tabindex=\"0\"]')].length"
    )
    # Chromium also stops at what scrolls and has nothing to focus in it.
    assert len(tabbed(here)) >= everything


def test_the_first_key_skips_to_the_content(demo: Running, look: Looking) -> None:
    here = look(demo)
    press(here, "Tab")
    assert here.page.locator(".skip").bounding_box()["x"] >= 0  # type: ignore[index]
    press(here, "Enter")
    here.until("() => document.activeElement.id === 'main'")
    press(here, "Tab")
    assert here.focused() == "a Why does the shelf planner give 17?"


def test_slash_searches_and_escape_leaves_the_field(demo: Running, look: Looking) -> None:
    here = look(demo)
    press(here, "/")
    assert here.focused().startswith("input #find")
    here.page.keyboard.type("j/k?")
    assert here.page.locator("#find").input_value() == "j/k?"
    press(here, "Escape")
    assert here.focused() == "nothing"
    press(here, "/", "Control+a")
    here.page.keyboard.type("shino")
    press(here, "Enter")
    here.page.wait_for_url("**/search?q=shino")
    press(here, "j")
    assert here.focused() == "a Glaze tests for the spring kiln"
    press(here, "Enter")
    here.page.wait_for_url(f"**/c/{KILN}?at=*")


def test_j_and_k_go_through_lists_and_messages(demo: Running, look: Looking) -> None:
    here = look(demo)
    press(here, "j", "j", "j", "j", "j")
    assert here.focused() == "a Glaze tests for the spring kiln"
    press(here, "k")
    assert here.focused().startswith("a 釉薬")
    press(here, "j", "Enter")
    here.page.wait_for_url(f"**/c/{KILN}")
    names = here.page.locator(".m").evaluate_all("(all) => all.map((e) => e.id)")
    at = "() => document.activeElement.id"
    press(here, "j")
    assert here.page.evaluate(at) == names[0]
    for name in names[1:]:
        press(here, "j")
        assert here.page.evaluate(at) == name
        assert here.page.evaluate(OUTLINE)
    press(here, "j")
    assert here.page.evaluate(at) == names[-1]
    press(here, "k")
    assert here.page.evaluate(at) == names[-2]


def test_o_and_enter_open_and_fold(demo: Running, look: Looking) -> None:
    here = look(demo)
    page = here.at(f"/c/{KILN}")
    fold = page.locator(".m", has=page.locator("details")).first.locator("details").first
    is_open = "(e) => e.open"
    press(here, "j", "j")
    assert not fold.evaluate(is_open)
    press(here, "o")
    assert fold.evaluate(is_open)
    press(here, "o")
    assert not fold.evaluate(is_open)
    fold.locator("summary").focus()
    press(here, "Enter")
    assert fold.evaluate(is_open)
    press(here, "Space")
    assert not fold.evaluate(is_open)


def test_a_compaction_opens_and_closes_by_key(demo: Running, look: Looking) -> None:
    here = look(demo)
    page = here.at(f"/c/{KILN}?view=window")
    press(here, "j", "Tab", "Tab", "Tab")
    assert here.focused() == "a what it covers"
    press(here, "Enter")
    page.locator(".opened .m").first.wait_for()
    assert here.focused() == "a what it covers"
    press(here, "j")
    assert page.evaluate("document.activeElement.closest('.opened') !== null")
    press(here, "k")
    assert page.evaluate("document.activeElement.matches('.is-summary')")
    press(here, "Tab", "Tab", "Tab", "Enter")
    page.locator(".opened").wait_for(state="detached")


def test_keys_turn_pages_and_views(rich: tuple[Rich, Running], look: Looking) -> None:
    made, running = rich
    here = look(running)
    page = here.at(f"/c/{made.long}")
    for key, address in (
        ("p", f"**/c/{made.long}?before=*"),
        ("n", f"**/c/{made.long}?after=*"),
        ("g", f"**/c/{made.long}?first=1"),
        ("G", f"**/c/{made.long}"),
        ("t", f"**/c/{made.long}?view=window"),
        ("t", f"**/c/{made.long}"),
    ):
        press(here, key)
        page.wait_for_url(address)
    # Where there is no such page, they lead to the end of this one.
    press(here, "G")
    assert page.evaluate("document.activeElement === [...document.querySelectorAll('.m')].pop()")
    press(here, "n")
    assert here.here == f"/c/{made.long}"
    here.at("/")
    press(here, "G")
    assert here.focused() == "a Jars"
    press(here, "g")
    assert here.focused() == "a Long"


def test_the_keys_are_listed_and_the_list_closes(demo: Running, look: Looking) -> None:
    here = look(demo)
    press(here, "?")
    dialog = here.page.get_by_role("dialog", name="Keys")
    assert "next message or entry" in dialog.inner_text()
    press(here, "j")
    assert here.focused() == "button Close"
    press(here, "Escape")
    dialog.wait_for(state="detached")
    press(here, "?", "Enter")
    dialog.wait_for(state="detached")
    press(here, "?", "?")
    dialog.wait_for(state="detached")


def test_a_list_that_has_closed_is_not_in_the_way_of_the_next(demo: Running, look: Looking) -> None:
    here = look(demo)
    seen = here.page.evaluate("""() => {
      const key = () => dispatchEvent(new KeyboardEvent("keydown", {key: "?"}));
      const open = () => document.querySelectorAll("dialog[open]").length;
      key();
      const first = open();
      document.querySelector("dialog").close();
      key();
      return [first, open()];
    }""")
    assert seen == [1, 1]
