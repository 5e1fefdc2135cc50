"""Reconciling again and again, beside a watcher: what comes into the space is in Letta's
directory a moment later, and what is committed in a memory is in the space.

The watcher brings in what Letta writes in conversations; this one has to be told of the rest.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from lettaspace.conversation.space import Space
from lettaspace.errors import LettaspaceError
from lettaspace.letta.brought import Outcome
from lettaspace.letta.continuing import Part
from lettaspace.letta.doubt import Rest
from lettaspace.letta.reconciling import ReconcileReport, reconcile, reconcile_memories

SWEEP: Final = 60.0
"""Seconds between two looks at everything."""
SETTLE: Final = 0.5
"""Seconds after Letta's last write until the memories are looked at."""
AGAIN: Final = 1.0
"""Seconds until what Letta was at work in is tried again, and what they grow to."""
AT_MOST: Final = 60.0
HURRY: Final = 10.0
"""Seconds for which writes elsewhere put that off, at most."""


class _Stopped(Exception):
    """No more: what is missing is for the next run."""


class Reconciler:
    """Reconciles in a thread, when there is something to be done, until it is stopped.

    `on_report` is told of each run that wrote something or left something for later,
    `on_problem` of each new problem: once, not each time it is tried again. Both are called in
    the thread.
    """

    def __init__(
        self,
        space: Space,
        directory: Path,
        *,
        part: Part,
        allow_code: bool = False,
        rest: Rest | None = None,
        on_report: Callable[[ReconcileReport], None] = lambda _report: None,
        on_problem: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._space = space
        self._directory = directory
        self._part = part
        self._allow_code = allow_code
        self._rest = rest
        self._on_report = on_report
        self._on_problem = on_problem
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._due: float | None = time.monotonic()
        self._memories_due: float | None = None
        self._waiting_since: float | None = None
        self._pause = AGAIN
        self._is_waiting = False
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="lettaspace-letta", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the conversation that is being brought is whole."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def came(self) -> None:
        """Something came into the space that Letta did not write here."""
        self._plan(time.monotonic())

    def wrote(self) -> None:
        """Letta wrote something, which is in the space by now."""
        now = time.monotonic()
        with self._lock:
            self._memories_due = now + SETTLE
            if self._is_waiting:
                # Perhaps that was the end of its turn.
                self._pause = AGAIN
                if self._waiting_since is None:
                    self._waiting_since = now
                if self._due is None or self._due > now:
                    self._due = min(now + AGAIN, self._waiting_since + HURRY)
        self._wake.set()

    def _plan(self, when: float) -> None:
        with self._lock:
            self._due = when if self._due is None else min(self._due, when)
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            now = time.monotonic()
            with self._lock:
                is_due = self._due is not None and self._due <= now
                look = self._memories_due is not None and self._memories_due <= now
                if is_due:
                    self._due = self._waiting_since = None
                if is_due or look:
                    self._memories_due = None
            if is_due or look:
                self._once(everything=is_due)
                continue
            self._wake.wait(self._next(now))

    def _next(self, now: float) -> float:
        with self._lock:
            times = [each for each in (self._due, self._memories_due) if each is not None]
        return max(min(times, default=now + SWEEP) - now, 0.0)

    def _once(self, *, everything: bool) -> None:
        try:
            report = self._reconcile() if everything else self._memories()
            if report.written or not report.is_done:
                self._on_report(report)
        except _Stopped:
            return
        except Exception as error:
            # Nothing that happens may end the reconciling.
            self._complain(error)
            self._later()
            return
        self._problem = None
        if everything and _waits(report):
            self._later()
        elif everything:
            with self._lock:
                self._is_waiting = False
                self._pause = AGAIN
            self._plan(time.monotonic() + SWEEP)

    def _complain(self, error: Exception) -> None:
        text = str(error) if isinstance(error, LettaspaceError) else type(error).__name__
        if self._problem != text:
            self._problem = text
            with suppress(Exception):  # there is nobody left to tell
                self._on_problem(f"{self._directory}: {text}")

    def _later(self) -> None:
        with self._lock:
            self._is_waiting = True
            pause = self._pause
            self._pause = min(pause * 2, AT_MOST)
        self._plan(time.monotonic() + pause)

    def _check(self) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _reconcile(self) -> ReconcileReport:
        return reconcile(
            self._space,
            self._directory,
            part=self._part,
            allow_code=self._allow_code,
            rest=self._rest,
            check=self._check,
        )

    def _memories(self) -> ReconcileReport:
        return reconcile_memories(self._space, self._directory, allow_code=self._allow_code)


def _waits(report: ReconcileReport) -> bool:
    """Whether something is to be tried again soon."""
    later = (Outcome.BUSY, Outcome.AHEAD, Outcome.DIVERGED)
    return any(each.outcome in later for each in report.restored.left) or any(
        each.later for change in report.memories for each in change.reports
    )
