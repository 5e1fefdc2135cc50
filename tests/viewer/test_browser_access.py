"""Accessibility and the screen of a phone: every kind of page, light and dark."""

from __future__ import annotations

import pytest

from tests.viewer.browser import PHONE, Look, Looking, axe
from tests.viewer.conftest import Running
from tests.viewer.rich import Rich

OPEN_ALL = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"

SAME = ("no prompt", "search form", "usage of one")
"""Pages in which others have everything already."""

ALIKE = ("long", "nothing found", "window", "covered")
"""Pages that have no colours of their own."""


def breaks(here: Look, made: Rich, *rules: str) -> dict[str, list[str]]:
    found = {}
    for name, path in made.pages().items():
        if name in SAME or (rules and name in ALIKE):
            continue
        page = here.at(path)
        page.evaluate(OPEN_ALL)
        if problems := axe(page, *rules):
            found[name] = problems
    return found


def test_no_page_breaks_a_rule_of_accessibility(rich: tuple[Rich, Running], look: Looking) -> None:
    made, running = rich
    assert breaks(look(running, bypass_csp=True, color_scheme="light"), made) == {}


def test_every_colour_has_contrast_in_the_dark(rich: tuple[Rich, Running], look: Looking) -> None:
    made, running = rich
    here = look(running, bypass_csp=True, color_scheme="dark")
    assert breaks(here, made, "color-contrast", "link-in-text-block") == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_scripts_add_breaks_none_either(
    rich: tuple[Rich, Running], look: Looking, scheme: str
) -> None:
    made, running = rich
    here = look(running, bypass_csp=True, color_scheme=scheme)
    page = here.at(f"/c/{made.talk}?view=window")
    page.locator("a[data-open]").click()
    page.locator(".opened .m").first.wait_for()
    assert axe(page) == []
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert axe(page) == []


def test_the_checker_sees_what_is_wrong(rich: tuple[Rich, Running], look: Looking) -> None:
    _, running = rich
    page = look(running, bypass_csp=True).at("/agents")
    page.evaluate(
        "document.documentElement.lang = '';"
        "for (const each of document.querySelectorAll('h1')) each.style.color = '#bbb';"
    )
    assert {each.split()[0] for each in axe(page)} == {"html-has-lang", "color-contrast"}


def test_on_a_phone_nothing_is_too_wide_and_fingers_hit(
    rich: tuple[Rich, Running], look: Looking
) -> None:
    """Targets have 24 pixels, or so much space around them; links in sentences excepted
    (WCAG 2.2, 2.5.8)."""
    made, running = rich
    here = look(running, bypass_csp=True, **PHONE)
    found: dict[str, object] = {}
    for name, path in made.pages().items():
        page = here.at(path)
        page.evaluate(OPEN_ALL)
        assert page.evaluate("innerWidth") == 390
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > 390:
            found[name] = wide
        if problems := axe(page, "target-size"):
            found[f"{name}, targets"] = problems
        page.set_viewport_size({"width": 320, "height": 700})
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > 320:
            found[f"{name}, narrower"] = wide
        page.set_viewport_size(PHONE["viewport"])
    assert found == {}
