"""What goes on beside a command until it is told to stop, and the lines that it says."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.cli.text import counted
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.letta.report import Report
    from lettaspace.remote.account import Account
    from lettaspace.remote.exchanging import Exchange

Say = Callable[[str], None]
"""Told one line."""


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Sets the event at the first signal; the second one ends the process as usual."""
    before: dict[int, Any] = {}

    def on_signal(number: int, _frame: Any) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)


@contextmanager
def letta_followed(space: "Space", directory: Path, *, say: Say, complain: Say) -> Iterator[None]:
    """What Letta writes is in the space a moment later."""
    from lettaspace.letta.watch import Watcher

    def tell(report: "Report") -> None:
        if report.messages.new:
            say(f"+ {counted(report.messages.new, 'message')}")
        for line in report.lines():
            complain(line)

    with Watcher(space, directory, on_report=tell, on_problem=complain):
        yield


@contextmanager
def host_followed(
    space: "Space", account: "Account", *, say: Say, complain: Say, members: bool | None = None
) -> Iterator[None]:
    """The space and its host are kept the same. Raises Conflict for a space that is none of the
    account's."""
    from lettaspace.cli.remote import explained, happened, troubles
    from lettaspace.remote.exchanging import Exchange, exchange
    from lettaspace.remote.following import Follower
    from lettaspace.remote.linking import Link
    from lettaspace.remote.syncing import SyncReport

    stopping = threading.Event()
    known: set[str] = set()

    def sync() -> "Exchange":
        try:
            done = exchange(link, members=members)
        except _Stopped:
            return Exchange(SyncReport())
        new = set(troubles(done))
        for line in sorted(new - known):
            complain(line)
        known.clear()
        known.update(new)
        return done

    def tell(done: "Exchange") -> None:
        for line in happened(done, account.host):
            say(line)

    def pause(seconds: float) -> None:
        if stopping.wait(seconds):
            raise _Stopped

    with Link(space, account, sleep=pause) as link, link.waiting() as waiting:
        follower = Follower(
            space,
            sync,
            waiting=waiting,
            on_report=tell,
            on_problem=lambda error: complain(str(explained(error, link.host.space))),
        )
        follower.start()
        try:
            yield
        finally:
            stopping.set()
            follower.stop()


class _Stopped(Exception):
    """No more waiting: the command ends."""


def note(line: str) -> None:
    """A line on stderr."""
    print(inert(line), file=sys.stderr, flush=True)  # noqa: T201


def complain(problem: str) -> None:
    """A line on stderr about what is wrong."""
    note(f"! {problem}")


def mention(line: str) -> None:
    """A line for who sits before the terminal."""
    if sys.stderr.isatty():
        note(line)
