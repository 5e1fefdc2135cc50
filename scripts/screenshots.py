"""Takes the pictures in docs/images of the demo space, with Debian's Chromium.

    TZ=UTC python scripts/screenshots.py [DIRECTORY]

Needs the test extra and /usr/bin/chromium.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from lettaspace.conversation.space import Space
from lettaspace.demo import write_directory
from lettaspace.letta.importer import import_directory
from lettaspace.viewer.app import viewer
from lettaspace.viewer.guard import Hosts
from lettaspace.viewer.server import Server, bind, new_token

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--font-render-hinting=none"]
WIDTH, HEIGHT = 1280, 800

KILN = "/c/3menokz37mit4"
PAGES = {
    "list": "/",
    "conversation": "/c/3mgmzct4q5gka",
    "compaction": f"{KILN}?view=window",
    "search": "/search?q=shino",
    "usage": "/usage",
}


def take(browser: Browser, url: str, base: str, theme: str, directory: Path) -> None:
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(url)
    for name, address in PAGES.items():
        # Open pages hold a connection for what is written, so the network is never idle.
        page.goto(base + address, wait_until="load")
        if name == "compaction":
            page.locator("a[data-open]").click()
            page.locator(".opened").wait_for()
            page.mouse.move(0, 0)
        page.screenshot(path=directory / f"{name}-{theme}.png")
    context.close()


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        letta = Path(place) / "letta"
        write_directory(letta)
        bound, token = bind("127.0.0.1", 0), new_token()
        with Space.open(Path(place) / "home") as space, sync_playwright() as playwright:
            import_directory(space, letta)
            app = viewer(space, token=token, hosts=Hosts("127.0.0.1", bound.port), letta=letta)
            with (
                Server(app, bound),
                playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS) as browser,
            ):
                for theme in ("light", "dark"):
                    base = f"http://127.0.0.1:{bound.port}"
                    take(browser, bound.url(token), base, theme, directory)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
