"""Following: a replica that is kept in sync while a process runs.

What is written here goes to the host in a moment. A host that knows how to wait says at once
when there is something new there (`listening`). Any other is asked every now and then: soon
after something happened, seldom while nothing does, and ever more seldom while the host does not
answer. No failure, expected or not, ends the following: it is told of, and tried again.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from lettaspace.conversation.listing import Pulse
from lettaspace.conversation.space import Space
from lettaspace.errors import LettaspaceError
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.listening import Listener
from lettaspace.remote.mirror import Mirror

TICK: Final = 0.1
"""Seconds between two looks at whether anything was written here."""
SETTLE: Final = 0.25
"""Seconds without a write after which what was written goes; at most `HURRY` after the first."""
HURRY: Final = 2.0
SOON: Final = 5.0
SELDOM: Final = 60.0
"""Seconds between two questions to the host, and what they grow to while nothing happens."""
RARELY: Final = 1800.0
"""The same for a host that says by itself when there is something new."""
AFTER_FAILURE: Final = 5.0
AT_MOST: Final = 300.0


class Doing(Protocol):
    """What a sync reports."""

    @property
    def did_something(self) -> bool: ...

    @property
    def asked_others(self) -> bool:
        """Whether repos were read as well of which nobody says when there is something new."""
        ...


R = TypeVar("R", bound=Doing)


class Pace:
    """When to sync next. Times are those of one monotonic clock, in seconds."""

    def __init__(self, now: float) -> None:
        self._next_question = now
        self._interval = SOON
        self._failures = 0
        self._first_write: float | None = None
        self._last_write = now
        self._news = False
        self._told = False

    def wrote(self, now: float) -> None:
        """Something was written here."""
        if self._first_write is None:
            self._first_write = now
        self._last_write = now

    def heard(self) -> None:
        """The host has something new."""
        self._news = True

    def told(self, now: float, told: bool) -> None:
        """Whether the host says by itself when there is something new. Where it no longer does,
        it is asked at once."""
        if self._told and not told and not self._failures:
            self._interval = SOON
            self._next_question = now
        self._told = told

    def is_due(self, now: float) -> bool:
        """Whether it is time."""
        if now >= self._next_question:
            return True
        if self._failures:
            return False
        if self._first_write is None:
            return self._news
        settled = now - self._last_write >= SETTLE or now - self._first_write >= HURRY
        return settled or self._news

    def succeeded(self, now: float, *, busy: bool, others: bool = False) -> None:
        """`busy`: the sync brought or took something; `others`: it asked for more than what the
        host tells of."""
        self._failures = 0
        self._first_write = None
        self._news = False
        self._interval = SOON if busy else min(SELDOM, self._interval * 1.5)
        self._next_question = now + (RARELY if self._told and not others else self._interval)

    def failed(self, now: float) -> float:
        """Returns the seconds until it is tried again."""
        pause = min(AT_MOST, AFTER_FAILURE * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._news = False
        self._next_question = now + pause
        return pause


class Follower(Generic[R]):
    """Calls `sync` in a thread whenever it is time, until it is stopped.

    `waiting` is the repo at its host, asked by a client of its own that tries once; its host says
    there, if it can, when there is something new. `on_report` is told of each sync that did
    something, `on_problem` of each new problem: once, not each time it is tried again.
    """

    def __init__(
        self,
        space: Space,
        sync: Callable[[], R],
        *,
        waiting: HostRepo | None = None,
        on_report: Callable[[R], None] = lambda _report: None,
        on_problem: Callable[[LettaspaceError], None] = lambda _error: None,
    ) -> None:
        self._space = space
        self._sync = sync
        self._on_report = on_report
        self._on_problem = on_problem
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sync", daemon=True)
        self._problem: str | None = None
        self._listener: Listener | None = None
        if waiting is not None:
            self._listener = Listener(waiting, self._known, self._wake, self._complain)

    def start(self) -> None:
        self._thread.start()
        if self._listener is not None:
            self._listener.start()

    def stop(self) -> None:
        """Returns when the sync that is under way has ended."""
        self._stopped.set()
        self._wake.set()
        if self._listener is not None:
            self._listener.stop()
        self._thread.join()

    def _run(self) -> None:
        pace = Pace(time.monotonic())
        while not self._stopped.is_set():
            try:
                self._follow(pace)
            except Exception as error:
                self._complain(error)
                self._stopped.wait(pace.failed(time.monotonic()))

    def _follow(self, pace: Pace) -> None:
        pulse = Pulse(self._space.database)
        try:
            while not self._stopped.is_set():
                if pulse.changed() and self._is_ahead():
                    pace.wrote(time.monotonic())
                if self._listener is not None:
                    pace.told(time.monotonic(), self._listener.tells)
                    if self._listener.has_news:
                        pace.heard()
                if pace.is_due(time.monotonic()):
                    self._once(pace)
                self._wake.wait(TICK)
                self._wake.clear()
        finally:
            pulse.close()

    def _once(self, pace: Pace) -> None:
        listener = self._listener
        try:
            if listener is None:
                report = self._sync()
            else:
                with listener.syncing():
                    report = self._sync()
        except Exception as error:
            self._complain(error)
            pace.failed(time.monotonic())
            return
        self._problem = None
        busy = report.did_something
        pace.succeeded(time.monotonic(), busy=busy, others=report.asked_others)
        if busy:
            self._on_report(report)

    def _complain(self, error: Exception) -> None:
        name = error.code if isinstance(error, LettaspaceError) else type(error).__name__
        if self._problem == name:
            return
        self._problem = name
        if not isinstance(error, LettaspaceError):  # what it says may hold anything
            error = LettaspaceError(f"syncing failed unexpectedly ({name}); it is tried again")
        with suppress(Exception):  # there is nobody left to tell
            self._on_problem(error)

    def _known(self) -> str | None:
        """The revision of the host that all is known up to, None before there is one."""
        with self._space.database.read() as connection:
            return Mirror(connection, self._space.repo.id).head().rev

    def _is_ahead(self) -> bool:
        """Whether something was written here that the host may not have."""
        repo = self._space.repo
        with repo.database.read() as connection:
            pushed = Mirror(connection, repo.id).head().pushed
        return pushed != repo.rev()
