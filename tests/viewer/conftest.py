"""The viewer as it is served: a real server on loopback, and real requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from lettaspace.conversation.space import Space
from lettaspace.demo import write_directory
from lettaspace.letta.importer import import_directory
from lettaspace.viewer.app import viewer
from lettaspace.viewer.guard import Hosts
from lettaspace.viewer.server import Bound, Server, bind
from tests.viewer.browser import chromium, look
from tests.viewer.rich import Rich, make
from tests.waiting import SECONDS

__all__ = ["chromium", "look"]

TOKEN = "the-token-of-the-tests"


@dataclass(frozen=True, slots=True)
class Running:
    """A viewer that is being served."""

    space: Space
    app: Starlette
    bound: Bound
    browser: httpx.Client
    """Has the cookie."""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.bound.port}"

    @property
    def url(self) -> str:
        """The first address."""
        return self.bound.url(TOKEN)

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.browser.get(self.base + path, params=query or None)

    def page(self, path: str, **query: Any) -> Page:
        answer = self.get(path, **query)
        assert answer.status_code == 200, f"{path} is answered with {answer.status_code}"
        return Page(answer.text)


class Page(HTMLParser):
    """What stands on a page: its tags, links and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self._text))

    def links(self, containing: str = "") -> list[str]:
        found = [attrs.get("href") or "" for tag, attrs in self.tags if tag == "a"]
        return [each for each in found if containing in each]

    def messages(self) -> list[str]:
        """The TIDs of the messages on the page, in order."""
        return [
            attrs["id"].removeprefix("m-")
            for tag, attrs in self.tags
            if (attrs.get("id") or "").startswith("m-") and attrs["id"]
        ]


Serve = Callable[..., Running]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a space; ends it after the test."""
    with serving() as start:
        yield start


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The viewer over the demo's space. Not to be written to."""
    place = tmp_path_factory.mktemp("viewer")
    write_directory(place / "letta")
    with Space.open(place / "home") as space, serving() as start:
        import_directory(space, place / "letta")
        yield start(space, letta=place / "letta")


class serving:  # noqa: N801 - used as a function
    """Starts viewers, and ends them all."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def __enter__(self) -> Serve:
        return self.start

    def start(self, space: Space, **more: Any) -> Running:
        bound = bind("127.0.0.1", 0)
        hosts = Hosts("127.0.0.1", bound.port)
        app = viewer(space, token=TOKEN, hosts=hosts, **more)
        server = Server(app, bound)
        server.__enter__()
        self._open.append(lambda: server.__exit__(None, None, None))
        browser = httpx.Client(timeout=SECONDS)
        self._open.append(browser.close)
        running = Running(space, app, bound, browser)
        assert browser.get(running.url).status_code == 303
        return running

    def __exit__(self, *exc: object) -> None:
        for end in reversed(self._open):
            end()


@pytest.fixture
def space(home: Path) -> Iterator[Space]:
    with Space.open(home) as opened:
        yield opened


@pytest.fixture(scope="session")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rich, Running]]:
    """The viewer over a space that has everything. Not to be written to."""
    place = tmp_path_factory.mktemp("rich")
    with Space.open(place / "home") as space, serving() as start:
        made = make(space, place / "letta")
        yield made, start(space, letta=made.letta)
