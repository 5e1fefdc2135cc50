"""Following: a replica that is kept in sync while a process runs.

What is written here goes to the host in a moment. What others write is asked for every now and
then: soon after something happened, seldom while nothing does, and ever more seldom while the
host does not answer.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from lettaspace.conversation.listing import Pulse
from lettaspace.conversation.space import Space
from lettaspace.errors import LettaspaceError
from lettaspace.remote.mirror import Mirror

TICK: Final = 0.5
"""Seconds between two looks at whether anything was written here."""
SETTLE: Final = 0.5
"""Seconds without a write after which what was written goes; at most `HURRY` after the first."""
HURRY: Final = 3.0
SOON: Final = 5.0
SELDOM: Final = 60.0
"""Seconds between two questions to the host, and what they grow to while nothing happens."""
AFTER_FAILURE: Final = 5.0
AT_MOST: Final = 300.0


class Doing(Protocol):
    """What a sync reports."""

    @property
    def did_something(self) -> bool: ...


R = TypeVar("R", bound=Doing)


class Pace:
    """When to sync next. Times are those of one monotonic clock, in seconds."""

    def __init__(self, now: float) -> None:
        self._next_question = now
        self._interval = SOON
        self._failures = 0
        self._first_write: float | None = None
        self._last_write = now

    def wrote(self, now: float) -> None:
        """Something was written here."""
        if self._first_write is None:
            self._first_write = now
        self._last_write = now

    def is_due(self, now: float) -> bool:
        """Whether it is time."""
        if now >= self._next_question:
            return True
        if self._first_write is None or self._failures:
            return False
        return now - self._last_write >= SETTLE or now - self._first_write >= HURRY

    def succeeded(self, now: float, *, busy: bool) -> None:
        """`busy`: the sync brought or took something."""
        self._failures = 0
        self._first_write = None
        self._interval = SOON if busy else min(SELDOM, self._interval * 1.5)
        self._next_question = now + self._interval

    def failed(self, now: float) -> None:
        pause = min(AT_MOST, AFTER_FAILURE * 2.0**self._failures)
        self._failures += 1
        self._next_question = now + pause


class Follower(Generic[R]):
    """Calls `sync` in a thread whenever it is time, until it is stopped.

    `on_report` is told of each sync that did something, `on_problem` of each new problem: once,
    not each time it is tried again.
    """

    def __init__(
        self,
        space: Space,
        sync: Callable[[], R],
        *,
        on_report: Callable[[R], None] = lambda _report: None,
        on_problem: Callable[[LettaspaceError], None] = lambda _error: None,
    ) -> None:
        self._space = space
        self._sync = sync
        self._on_report = on_report
        self._on_problem = on_problem
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sync", daemon=True)
        self._problem: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the sync that is under way has ended."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        pulse = Pulse(self._space.database)
        try:
            pace = Pace(time.monotonic())
            while not self._stopped.is_set():
                if pulse.changed() and self._is_ahead():
                    pace.wrote(time.monotonic())
                if pace.is_due(time.monotonic()):
                    self._once(pace)
                self._stopped.wait(TICK)
        finally:
            pulse.close()

    def _once(self, pace: Pace) -> None:
        try:
            report = self._sync()
        except LettaspaceError as error:
            pace.failed(time.monotonic())
            if self._problem != error.code:
                self._problem = error.code
                self._on_problem(error)
            return
        self._problem = None
        pace.succeeded(time.monotonic(), busy=report.did_something)
        if report.did_something:
            self._on_report(report)

    def _is_ahead(self) -> bool:
        """Whether something was written here that the host may not have."""
        repo = self._space.repo
        with repo.database.read() as connection:
            pushed = Mirror(connection, repo.id).head().pushed
        return pushed != repo.rev()
