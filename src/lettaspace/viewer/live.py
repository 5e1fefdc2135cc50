"""Telling open pages that something was written (server-sent events).

Nobody looks: nothing happens. While somebody does, one task asks the store a few times a
second whether anyone has written to it, which takes microseconds.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from lettaspace.conversation.listing import Changes
from lettaspace.errors import LettaspaceError
from lettaspace.viewer.site import Site

PERIOD = 0.2
"""Seconds between two looks at the store."""

PING = 20
"""Seconds after which a silent connection is sent something, so that it stays open."""

WAITING = 16
"""Changes that wait for a slow reader; then it is told only that everything may have changed."""


class Live:
    """Whoever looks on, and the task that looks for them."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._readers: set[asyncio.Queue[Changes]] = set()
        self._task: asyncio.Task[None] | None = None

    async def events(self, since: int | None = None) -> AsyncIterator[ServerSentEvent]:
        """An event for every change, from a version on (from now on unless given)."""
        queue: asyncio.Queue[Changes] = asyncio.Queue()
        self._readers.add(queue)
        try:
            changes = await run_in_threadpool(self._changes, since)
            if not self.is_looking:
                self._task = asyncio.create_task(self._look(changes.version))
            if since is not None and changes:
                yield _event(changes)
            while True:
                yield _event(await queue.get())
        finally:
            self._readers.discard(queue)

    @property
    def is_looking(self) -> bool:
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _look(self, seen: int) -> None:
        while self._readers:
            try:
                changes = await run_in_threadpool(self._changes, seen)
            except LettaspaceError:
                # The store is locked or gone for the moment; pages say so themselves.
                await asyncio.sleep(1)
                continue
            if changes:
                for queue in self._readers:
                    if queue.qsize() < WAITING:
                        queue.put_nowait(changes)
            seen = changes.version
            await asyncio.sleep(PERIOD)

    def _changes(self, seen: int | None) -> Changes:
        listing = self.site.listing
        return listing.changed_since(listing.version if seen is None else seen)


def _event(changes: Changes) -> ServerSentEvent:
    said: dict[str, Any] = {
        "conversations": sorted(changes.conversations),
        "agents": sorted(changes.agents),
        "everything": changes.everything,
    }
    return ServerSentEvent(json.dumps(said), event="change", id=str(changes.version))


async def live(request: Request) -> Response:
    """The stream of changes: what was written, never what it says."""
    source: Live = request.app.state.live
    # A browser that connects again says what it was told last.
    given = request.headers.get("last-event-id") or request.query_params.get("since", "")
    is_number = given.isascii() and given.isdigit() and len(given) < 16
    return EventSourceResponse(source.events(int(given) if is_number else None), ping=PING)
