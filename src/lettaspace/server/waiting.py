"""Waiting: an answer that is held until there is something to say.

Whoever asks with `Prefer: wait=N` whether a repo is newer than they know is answered once it
is, or after N seconds. One task looks after all who wait: it asks the database, so that it does
not matter which process wrote, and no thread and no connection is held for anybody. Source:
RFC 7240, sections 2 and 4.3.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sqlalchemy import and_, or_, select
from starlette.types import Receive

from lettaspace.server.calls import RawHeaders
from lettaspace.server.incoming import Gone, disconnected
from lettaspace.server.threads import Threads
from lettaspace.space import schema
from lettaspace.space.database import Database

MAX_SECONDS: Final = 55
"""What is held longer, proxies take for dead."""
MAX_OF_ACCOUNT: Final = 16
MAX_WAITING: Final = 1000
"""Requests that a process holds; one more is answered at once."""
TICK: Final = 0.25
"""Seconds between two looks at what those who wait ask about."""

Wait = Callable[[float, Receive], Awaitable[bool]]
"""Waits for so many seconds at most. False: it did not, and does not do so now. Raises Gone."""

_SOME = 100

_log = logging.getLogger("lettaspace.server")

_repos = schema.repos.c


def wanted(headers: RawHeaders) -> int:
    """The seconds that a request prefers to wait, at most `MAX_SECONDS`; 0 if it does not."""
    for name, value in headers:
        for preference in value.split(b",") if name == b"prefer" else ():
            token, _, word = preference.partition(b";")[0].partition(b"=")
            number = word.strip().strip(b'"')
            if token.strip().lower() == b"wait" and number.isdigit():
                return min(int(number[:9]), MAX_SECONDS)
    return 0


@dataclass(frozen=True, slots=True)
class Subject:
    """A repo, and the revision that somebody knows of it; None before any."""

    space: str
    did: str
    known: str | None


@dataclass(eq=False, slots=True)
class _Waiter:
    subject: Subject
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Waiting:
    """All who wait in this process, on one event loop. `threads` are asked to look."""

    def __init__(self, database: Database, threads: Threads) -> None:
        self._database = database
        self._threads = threads
        self._waiters: set[_Waiter] = set()
        self._of_account: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._over = False

    async def until_news(self, subject: Subject, seconds: float, receive: Receive) -> bool:
        """Returns once the repo has another revision than is known, or after so many seconds.

        At once where too many wait already, or the server ends: False. Raises Gone if the client
        did not wait.
        """
        did = subject.did
        full = len(self._waiters) >= MAX_WAITING or self._of_account[did] >= MAX_OF_ACCOUNT
        if full or self._over:
            return False
        waiter = _Waiter(subject)
        self._waiters.add(waiter)
        self._of_account[did] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        news = asyncio.create_task(waiter.news.wait())
        gone = asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait((news, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise Gone
        finally:
            news.cancel()
            gone.cancel()
            self._waiters.discard(waiter)
            self._of_account -= Counter((did,))
        return True

    def end(self) -> None:
        """Answers all who wait, and lets nobody wait any more. To be called on the loop."""
        self._over = True
        self._wake(self._waiters)

    async def _look(self) -> None:
        while self._waiters:
            await asyncio.sleep(TICK)
            waiters = list(self._waiters)
            try:
                subjects = list({waiter.subject for waiter in waiters})
                news = await self._threads.run(partial(self._news, subjects))
            except Exception as error:  # their answers will say what is wrong
                _log.error("looking for news failed: %s", type(error).__name__)
                self._wake(waiters)
            else:
                self._wake(waiter for waiter in waiters if waiter.subject in news)

    def _wake(self, waiters: Iterable[_Waiter]) -> None:
        for waiter in waiters:
            waiter.news.set()

    def _news(self, subjects: Sequence[Subject]) -> set[Subject]:
        """Those whose repo is not as it is known."""
        revs: dict[tuple[str, str], str | None] = {}
        with self._database.read() as connection:
            for start in range(0, len(subjects), _SOME):
                some = subjects[start : start + _SOME]
                # Spelled out, as SQLite finds no pairs by its index in any other form.
                which = or_(*(and_(_repos.space == s.space, _repos.author == s.did) for s in some))
                query = select(_repos.space, _repos.author, _repos.rev).where(which)
                revs |= {(row.space, row.author): row.rev for row in connection.execute(query)}
        return {s for s in subjects if revs.get((s.space, s.did)) != s.known}
