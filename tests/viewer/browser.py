"""The viewer as Chromium shows it: a browser for each module, a fresh context for each look.

Whatever a test does, at its end nothing may have been said on the console or violated the
content policy, no dialog may have opened, and no request may have gone to any other server.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request

    from tests.viewer.conftest import Running

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
    # A colour mixed with what shines through depends on the machine otherwise.
    "--force-color-profile=srgb",
]
SECONDS = 30.0
"""The longest that anything on a page may take."""

PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}

# Before any script of a page runs, in every frame.
_WATCH = """
(() => {
  const tell = window.__tell;
  document.addEventListener("securitypolicyviolation", (event) => tell(
    `policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  for (const name of ["alert", "confirm", "prompt", "print", "open"])
    window[name] = () => tell(`window.${name} was called`);
})();
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser; its own empty profile is made and thrown away.

    While it runs an event loop does, too, so that other modules could have none.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    found = CHROMIUM if Path(CHROMIUM).exists() else shutil.which("chromium")
    if found is None:
        pytest.skip("needs Debian's package chromium")
    with (
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=found, args=ARGUMENTS) as browser,
    ):
        yield browser


class Look:
    """A browser context that has opened the viewer's first address."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        base = self.base = url.partition("/?")[0]
        self.context = context
        self.told: list[str] = []
        """What may not happen, and did."""
        self.requests: list[str] = []
        context.set_default_timeout(SECONDS * 1000)
        context.expose_binding("__tell", lambda _, what: self.told.append(str(what)))
        context.add_init_script(_WATCH)
        context.on("request", self._asked)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.told.append(f"page: {error.error}"))
        context.on("dialog", self._dialog)
        context.route(lambda address: not address.startswith(base), lambda route: route.abort())
        self.page: Page = context.new_page()
        self.page.goto(url)

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)
        if not request.url.startswith(f"{self.base}/"):
            self.told.append(f"request: {request.url[:200]}")

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.told.append(f"console: {message.text[:300]}")

    def _dialog(self, dialog: Any) -> None:
        self.told.append(f"dialog: {dialog.message[:100]}")
        dialog.dismiss()

    def at(self, path: str) -> Page:
        """Opens a page, which must be there."""
        answer = self.page.goto(self.base + path)
        assert answer is not None
        assert answer.status == 200, f"{path} is answered with {answer.status}"
        return self.page

    def follow(self, link: Locator) -> None:
        """Clicks a link and waits for the page that it leads to."""
        address = link.get_attribute("href")
        link.click()
        self.page.wait_for_url(lambda url: url == f"{self.base}{address}")

    def comes_to(self, path: str) -> None:
        """Waits for a page, whatever place in it."""
        self.page.wait_for_url(lambda url: url.partition("#")[0] == self.base + path)

    @property
    def here(self) -> str:
        """The path and query that are shown."""
        return self.page.url.removeprefix(self.base)

    def until(self, expression: str, argument: Any = None) -> None:
        """Waits for a condition in the page."""
        self.page.wait_for_function(expression, arg=argument)

    def focused(self) -> str:
        """What has the focus, in words."""
        return str(self.page.evaluate(_FOCUSED))

    def check(self) -> None:
        assert not self.told, "\n".join([self.page.url, *self.told])


_FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return "nothing";
  const words = (e.getAttribute("aria-label") || e.innerText || e.placeholder || "").trim();
  return [e.localName, e.id && "#" + e.id, words.split("\\n")[0].slice(0, 60)]
    .filter(Boolean).join(" ");
}"""

Looking = Callable[..., Look]


@pytest.fixture
def look(chromium: Browser) -> Iterator[Looking]:
    """Opens a viewer that runs, or one at a first address."""
    with ExitStack() as stack:
        looks: list[Look] = []

        def start(running: Running | str, **options: Any) -> Look:
            url = running if isinstance(running, str) else running.url
            context = chromium.new_context(**{"reduced_motion": "reduce", **options})
            stack.callback(context.close)
            looks.append(Look(context, url))
            return looks[-1]

        yield start
        for each in looks:
            each.check()


WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")


def axe(page: Page, *rules: str) -> list[str]:
    """What of WCAG 2.1 A and AA a page breaks, or of the rules named: the rule and the first
    places. The page's context must bypass the content policy, since the checker is a script."""
    from axe_playwright_python.sync_playwright import Axe

    only = {"type": "rule" if rules else "tag", "values": rules or WCAG}
    found = Axe().run(page, options={"runOnly": only, "resultTypes": ["violations"]})
    return [
        f"{each['id']} {node['target']} {node.get('failureSummary', '')} {node['html'][:150]}"
        for each in found.response["violations"]
        for node in each["nodes"][:3]
    ]
