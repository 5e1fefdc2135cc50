"""What the pages share: the space, its listing, and how an answer is made."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse

from lettaspace.conversation.listing import Listing
from lettaspace.conversation.message import Message
from lettaspace.conversation.overview import AgentInfo, ConversationInfo
from lettaspace.conversation.preview import clipped, first_words
from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.redaction import Redacting
from lettaspace.conversation.space import Space
from lettaspace.conversation.usage import UsageCounter
from lettaspace.errors import NotFound
from lettaspace.page.images import may_be_drawn
from lettaspace.viewer import templates

T = TypeVar("T")

_WORDS = 20_000
"""First words of so many conversations are remembered."""


class Site:
    """A space being looked at. `letta` is Letta Code's directory on this machine, if there is
    one: the agents' memory lies beside it. With `redaction`, pages show no secrets."""

    def __init__(
        self, space: Space, *, letta: Path | None = None, redaction: Redacting | None = None
    ) -> None:
        self.space = space
        self.letta = letta
        self.redaction = redaction
        self.usage = UsageCounter(space)
        self._words: dict[str, str | None] = {}
        self._listing: Listing | None = None
        self._building = threading.Lock()

    @property
    def listing(self) -> Listing:
        """Made when it is first needed: of a large space it takes a moment."""
        with self._building:
            if self._listing is None:
                self._listing = Listing(self.space)
        self._listing.refresh()
        return self._listing

    @property
    def version(self) -> int:
        """Of what is stored. A page that follows is given the one from before it was made."""
        return self.listing.version

    @property
    def redact(self) -> Callable[[str], str] | None:
        """What texts go through; None where nothing is redacted."""
        return None if self.redaction is None else self.redaction.text

    def close(self) -> None:
        with self._building:
            if self._listing is not None:
                self._listing.close()
                self._listing = None

    def conversation(self, rkey: str) -> ConversationInfo:
        """Raises NotFound."""
        found = self.listing.get(rkey)
        if found is None:
            raise NotFound(f"no conversation {rkey}")
        return self.clean(found)

    def agent(self, rkey: str) -> AgentInfo:
        """Raises NotFound."""
        found = self.listing.agent(rkey)
        if found is None:
            raise NotFound(f"no agent {rkey}")
        return self.clean_agent(found)

    def agents(self) -> list[AgentInfo]:
        return [self.clean_agent(each) for each in self.listing.agents()]

    def agent_names(self) -> dict[str, str]:
        """Agents' names by URI."""
        return {each.uri: each.name or each.rkey for each in self.agents()}

    def clean(self, info: ConversationInfo) -> ConversationInfo:
        """A conversation as it may be shown; one without a title is called by its first words."""
        hide = self.redact or str
        if info.title:
            title: str | None = hide(info.title)
        else:
            words = self._first_words(info)
            title = None if words is None else clipped(hide(words))
        cwd = info.cwd and hide(info.cwd)
        return replace(info, title=title, cwd=cwd, tags=tuple(map(hide, info.tags)))

    def _first_words(self, info: ConversationInfo) -> str | None:
        if info.rkey not in self._words and info.messages:
            if len(self._words) >= _WORDS:
                self._words.clear()
            self._words[info.rkey] = first_words(self.space, info.uri)
        return self._words.get(info.rkey)

    def clean_agent(self, info: AgentInfo) -> AgentInfo:
        """An agent as it may be shown."""
        if (redact := self.redact) is None:
            return info
        return replace(
            info,
            name=info.name and redact(info.name),
            description=info.description and redact(info.description),
            tags=tuple(map(redact, info.tags)),
        )

    def page(self, name: str, **context: Any) -> HTMLResponse:
        redacted = self.redaction is not None
        return HTMLResponse(templates.render(name, redacted=redacted, **context))


def site(request: Request) -> Site:
    found: Site = request.app.state.site
    return found


def path(*parts: str, **query: str | int | None) -> str:
    """An address on this server; what is None is left out of the query."""
    given = {key: value for key, value in query.items() if value is not None}
    address = "/" + "/".join(quote(part, safe="") for part in parts)
    return address + ("?" + urlencode(given) if given else "")


@dataclass(frozen=True, slots=True)
class Pager(Generic[T]):
    """One page of a numbered list."""

    items: Sequence[T]
    first: int
    last: int
    total: int
    pages: int
    newer: str | None
    older: str | None


def page_number(request: Request) -> int:
    """Which page of a list is asked for, from 1."""
    given = request.query_params.get("page", "1")
    is_number = given.isascii() and given.isdigit() and len(given) < 9
    return max(1, int(given)) if is_number else 1


def numbered(request: Request, total: int, size: int) -> tuple[int, "PagerAddress"]:
    """Where the page that a request asks for starts, and what makes its pager."""
    pages = max(1, -(-total // size))
    number = min(page_number(request), pages)
    return (number - 1) * size, PagerAddress(request, number, pages, size, total)


@dataclass(frozen=True, slots=True)
class PagerAddress:
    request: Request
    number: int
    pages: int
    size: int
    total: int

    def pager(self, items: Sequence[T]) -> Pager[T]:
        start = (self.number - 1) * self.size
        return Pager(
            items,
            first=start + 1 if items else 0,
            last=start + len(items),
            total=self.total,
            pages=self.pages,
            newer=self._to(self.number - 1),
            older=self._to(self.number + 1),
        )

    def _to(self, number: int) -> str | None:
        if not 1 <= number <= self.pages:
            return None
        query = [pair for pair in self.request.query_params.multi_items() if pair[0] != "page"]
        if number > 1:
            query.append(("page", str(number)))
        return self.request.url.path + ("?" + urlencode(query) if query else "")


class MessageLinks:
    """Where messages of a conversation are shown; see `page.messages.Links`."""

    def __init__(self, site: Site, rkey: str, view: str) -> None:
        self.site = site
        self.rkey = rkey
        self.view = view

    def message(self, rkey: str) -> str | None:
        # What is compacted stands in no window.
        view = self.view if self.view != "transcript" else None
        return path("c", self.rkey, view=view, at=rkey) + f"#m-{rkey}"

    def alone(self, rkey: str) -> str | None:
        return path("c", self.rkey, "m", rkey)

    def record(self, rkey: str) -> str | None:
        return path("record", uri=self.site.space.address.uri(MESSAGE, rkey))

    def covered(self, rkey: str) -> str | None:
        return path("c", self.rkey, "covered", rkey)

    def image(self, message: Message, part: int, data: Any) -> str | None:
        if not may_be_drawn(data):
            return None
        return path("c", self.rkey, "m", message.rkey, "image", str(part))
