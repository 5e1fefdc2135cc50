"""Work of many threads in one transaction, so that they wait for the disk once.

Whoever comes first leads: does what waits, its own and others' work alike, commits, and hands
over to the first who came meanwhile. While the disk is waited for, the next group gathers.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

MOST: Final = 32
"""Pieces of work in one transaction at most, so that the first need not wait long."""


class Job:
    """A piece of work, and what came of it."""

    __slots__ = ("_turn", "done", "error", "result", "work")

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        """Until it is done, or is the one to lead."""
        self._turn.acquire()

    def wake(self) -> None:
        self._turn.release()


class Together:
    """Gathers jobs. `commit` does them all and sets their outcomes; what it raises is the error
    of every job that has none. It runs in the thread of one of the jobs."""

    def __init__(self, commit: Callable[[Sequence[Job]], None]) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._led = False

    def run(self, work: Callable[[Any], T]) -> T:
        """What `work` returns or raises, once all of its group is committed."""
        job = Job(work)
        with self._lock:
            self._waiting.append(job)
            waits, self._led = self._led, True
        if waits:
            job.wait()
        if not job.done:
            self._lead()
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def _lead(self) -> None:
        """Does a group, which the caller's own job is the first of."""
        with self._lock:
            size = min(len(self._waiting), MOST)
            own, *others = jobs = [self._waiting.popleft() for _ in range(size)]
        try:
            self._commit(jobs)
        except BaseException as error:
            for job in jobs:
                job.error = job.error or error
        own.done = True
        for job in others:
            job.done = True
            job.wake()
        with self._lock:
            if self._waiting:
                self._waiting[0].wake()
            else:
                self._led = False
