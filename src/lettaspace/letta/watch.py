"""Following Letta's directory: what is written there is in the space a moment later.

File events say what changed, and a sweep now and then finds what they did not. Everything runs
in one thread, besides that which collects the events.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lettaspace.conversation.space import Space
from lettaspace.errors import LettaspaceError, NotFound
from lettaspace.letta import events, tracking
from lettaspace.letta.agenda import Agenda
from lettaspace.letta.damage import BAD_NAME, Findings
from lettaspace.letta.directory import (
    MESSAGES,
    AgentFile,
    ConversationDir,
    encode_name,
    list_directory,
)
from lettaspace.letta.events import Events
from lettaspace.letta.following import Following
from lettaspace.letta.importer import import_some
from lettaspace.letta.news import News, OnProblem, OnReport
from lettaspace.letta.report import FAILED
from lettaspace.letta.repository import alone
from lettaspace.letta.watched import Thing, longest, mark, thing

SWEEP = 60.0
"""Seconds between two looks at everything."""

POLL = 2.0
"""The same where there are no events; and how often the directory itself is looked for."""

MAX_PAUSE = 30.0
"""Seconds between two attempts when the space cannot be written, at most."""

WARM_PAUSE = 30.0
"""Seconds until a long conversation is read again that something urgent came between."""

_BATCH = 16


class Stopped(Exception):
    """The watcher was asked to stop, or there is something more urgent."""


class Watcher:
    """Imports what Letta writes, until it is stopped. It only reads the directory.

    `on_report` is called when something was written or found; the report's findings are those
    that were not reported before. `on_problem` is called with one line when the directory or
    the space cannot be used, once until that changes. Both are called in the watcher's thread.
    """

    def __init__(
        self,
        space: Space,
        directory: Path | str,
        *,
        on_report: OnReport | None = None,
        on_problem: OnProblem | None = None,
        sweep: float = SWEEP,
    ) -> None:
        self.space = space
        self.directory = Path(directory)
        self._root = self.directory.resolve()
        self._news = News(on_report, on_problem)
        self._interval = sweep
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._events = Events(self._wake)
        self._agenda = Agenda()
        self._following = Following(self._check)
        self._marks: dict[str, str] = {}
        self._watched: dict[Path, tuple[int, int]] = {}
        self._next_look = self._next_sweep = self._next_warm = 0.0
        self._pause = 0.0
        self._warm: list[ConversationDir] | None = None
        self._is_warming = False

    def start(self) -> None:
        """Begins, in a thread."""
        if self._thread is not None:
            raise RuntimeError("a watcher is started once")
        self._thread = threading.Thread(target=self._run, name="lettaspace-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it. An import that is going on ends between two batches of records; the next
        one goes on from there."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._events.close()

    def _turn(self) -> None:
        """Does what there is to do, and sleeps till there is more."""
        try:
            busy = self._work(time.monotonic())
        except Stopped:
            return
        except Exception as error:
            # Nothing that happens may end the watching.
            text = str(error) if isinstance(error, LettaspaceError) else type(error).__name__
            self._pause = min(max(2 * self._pause, 0.5), MAX_PAUSE)
            self._news.problem("work", f"following {self.directory}: {text}")
            self._stopping.wait(self._pause)
            return
        self._pause = 0.0
        if not busy:
            self._news.solved("work")
            self._wake.wait(max(self._next() - time.monotonic(), 0.0))

    def _next(self) -> float:
        """When there is something to do, unless events come before."""
        times = [self._next_look, self._agenda.next()]
        if self._watched:
            times += [self._next_sweep, self._next_warm if self._warm else None]
        return min(each for each in times if each is not None)

    def _work(self, now: float) -> bool:
        self._wake.clear()
        if now >= self._next_look:
            self._next_look = now + POLL
            self._look()
        for path in self._events.take():
            self._changed(Path(path), now)
        if (failure := self._events.failure()) is not None:
            self._without_events(failure, now)
        if self._watched and now >= self._next_sweep:
            self._sweep(now)
        if paths := self._agenda.take(now, _BATCH):
            self._import(paths)
            return True
        return self._agenda.next() is None and now >= self._next_warm and self._warm_one()

    def _check(self) -> None:
        if self._stopping.is_set() or (self._is_warming and self._events.waiting):
            raise Stopped

    # What there is to be watched.

    def _look(self) -> None:
        """Opens the events for what is there; it may come, go and be replaced."""
        self._root = self.directory.resolve()
        found: dict[Path, tuple[int, int]] = {}
        for name in ("agents", "conversations"):
            path = self._root / name
            with contextlib.suppress(OSError):
                stat = path.stat()
                found[path] = stat.st_dev, stat.st_ino
        if not found:
            text = f"no Letta storage directory at {self.directory}: waiting for one"
            self._news.problem("directory", text)
        if found == self._watched:
            return
        self._watched = found
        if found:
            self._news.solved("directory")
            self._events.open(list(found))
            if not events.are_certain(self._root):
                self._news.problem(
                    "events",
                    f"{self.directory} may change without file events: "
                    f"it is looked at every {POLL:.0f} seconds",
                )
            known = tracking.load(self.space, str(self._root))
            for key, each in known.items():
                path = self._root / "conversations" / encode_name(key)
                self._marks.setdefault(str(path), each.fingerprint)
            self._next_sweep = 0.0
        else:
            self._events.close()
            self._agenda = Agenda()

    def _without_events(self, reason: str, now: float) -> None:
        if not all(path.is_dir() for path in self._watched):
            # It went away: the next look opens what is there then.
            self._watched = {}
            return
        self._news.problem(
            "events",
            f"no file events for {self.directory} ({reason}): "
            f"it is looked at every {POLL:.0f} seconds instead",
        )
        self._next_sweep = now

    def _sweep(self, now: float) -> None:
        """Finds whatever is not as it was imported."""
        self._next_sweep = now + (POLL if self._news.stands("events") else self._interval)
        try:
            listing = list_directory(self._root)
        except NotFound:
            # The next look says so.
            return
        marks: dict[str, str] = {}
        things: Sequence[Thing] = [*listing.agents, *listing.conversations]
        for each in things:
            path = str(each.path)
            if path in self._marks:
                marks[path] = self._marks[path]
            if mark(each) != marks.get(path):
                self._agenda.changed(path, now)
        self._marks = marks
        findings = Findings()
        for name in listing.odd:
            findings.add(BAD_NAME, None, name)
        self._news.listing(findings)
        if self._warm is None:
            self._warm = longest(listing.conversations)

    def _changed(self, path: Path, now: float) -> None:
        parts = path.relative_to(self._root).parts if path.is_relative_to(self._root) else ()
        if len(parts) == 2 and parts[0] == "agents" and path.suffix == ".json":
            self._agenda.changed(str(path), now)
        elif len(parts) >= 2 and parts[0] == "conversations":
            whole = self._root / parts[0] / parts[1]
            small = len(parts) == 3 and parts[2] != MESSAGES
            self._agenda.changed(str(whole), now, small=small)
        else:
            # The directories themselves.
            self._next_look = now

    # What there is to be done.

    def _import(self, paths: Sequence[str]) -> None:
        began = time.monotonic()
        final = {path for path in paths if self._agenda.is_final(path, began)}
        found = [each for path in paths if (each := thing(Path(path))) is not None]
        if not found:
            return
        conversations = [each for each in found if isinstance(each, ConversationDir)]
        agents = [each for each in found if isinstance(each, AgentFile)]
        marks = {str(each.path): mark(each) for each in found}
        try:
            # While we write into a directory, it says what Letta never wrote.
            with alone(self._root):
                report, unsettled = import_some(
                    self.space,
                    self._root,
                    conversations,
                    agents,
                    self._following,
                    final=final,
                )
        except (LettaspaceError, Stopped):
            for path in marks:
                self._agenda.later(path, began, self._pause)
            raise
        except Exception as error:
            self._unexpected(paths, error)
            return
        now = time.monotonic()
        if self._warm:
            self._warm = [each for each in self._warm if each not in conversations]
        # What failed is tried again at the next sweep, whether or not it changes.
        failed = {each.key for each in report.conversations if each.outcome == FAILED}
        again = {str(each.path) for each in conversations if each.key in failed}
        for path, found_mark in marks.items():
            if path in unsettled:
                self._agenda.doubtful(path, unsettled[path], now)
            else:
                self._agenda.done(path, began, now)
                if path not in again:
                    self._marks[path] = found_mark
        read = [each.path.name for each in agents if str(each.path) not in unsettled]
        self._news.report(report, read)

    def _unexpected(self, paths: Sequence[str], error: Exception) -> None:
        """Nobody else has to wait for what cannot be imported, for whatever reason."""
        if len(paths) > 1:
            for path in paths:
                self._import([path])
            return
        self._agenda.later(paths[0], time.monotonic(), SWEEP)
        self._news.problem(paths[0], f"cannot import {paths[0]}: {type(error).__name__}")

    def _warm_one(self) -> bool:
        """Reads one of the long conversations; whether there was one."""
        if not self._warm:
            return False
        self._is_warming = True
        try:
            with alone(self._root):
                import_some(
                    self.space, self._root, self._warm[-1:], (), self._following, again=True
                )
            self._warm.pop()
        except Stopped:
            self._next_warm = time.monotonic() + WARM_PAUSE
        finally:
            self._is_warming = False
        return True
