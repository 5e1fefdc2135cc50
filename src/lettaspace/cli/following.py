"""What goes on beside a command until it is told to stop, and the lines that it says."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.cli.text import counted
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.letta.reconciler import Reconciler
    from lettaspace.letta.reconciling import ReconcileReport
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


PATIENCE = 5.0
"""Seconds to wait for the host's next bytes before anything else is done."""


def pulled(space: "Space", account: "Account") -> "Exchange | None":
    """What is new at the host, so that it is here before what is new in Letta's directory: then
    what both sides changed is merged field by field. None where it cannot be had within a moment;
    whoever follows the host tries again, and says why."""
    from lettaspace.cli.progress import steps
    from lettaspace.errors import LettaspaceError
    from lettaspace.remote.exchanging import exchange
    from lettaspace.remote.linking import Link

    try:
        with Link(space, account, tries=1, timeout=PATIENCE) as link, steps() as step:
            return exchange(link, step, push=False, members=False)
    except LettaspaceError:
        return None


@contextmanager
def followed(
    space: "Space",
    directory: Path | None,
    account: "Account | None",
    *,
    say: Say,
    complain: Say,
    both_ways: bool = False,
    allow_code: bool = False,
    members: bool | None = None,
) -> Iterator[list[str]]:
    """Letta's directory and the space, the space and the account's host, as far as there are
    any, are kept the same; yields what is followed. Raises Conflict for a space that is none of
    the account's."""
    names: list[str] = []
    with ExitStack() as stack:
        reconciler = None
        if directory is not None:
            names.append(str(directory))
            if both_ways:
                reconciler = _reconciler(space, directory, allow_code, say=say, complain=complain)
        if account is not None:
            came = reconciler.came if reconciler is not None else _nothing
            stack.enter_context(
                host_followed(
                    space, account, say=say, complain=complain, members=members, came=came
                )
            )
            names.append(account.host)
        if directory is not None:
            stack.enter_context(
                letta_followed(space, directory, say=say, complain=complain, reconciler=reconciler)
            )
        if reconciler is not None:
            # The last one to begin and the first one to end: the watcher may wait for it.
            reconciler.start()
            stack.callback(reconciler.stop)
        yield names


def _nothing() -> None:
    """Nobody waits for it."""


@contextmanager
def letta_followed(
    space: "Space",
    directory: Path,
    *,
    say: Say,
    complain: Say,
    reconciler: "Reconciler | None" = None,
) -> Iterator[None]:
    """What Letta writes is in the space a moment later."""
    from lettaspace.letta.report import DIVERGED
    from lettaspace.letta.watch import Watcher

    def tell(report: "Report") -> None:
        if reconciler is not None:
            if any(each.outcome == DIVERGED for each in report.conversations):
                reconciler.came()
            else:
                reconciler.wrote()
        if report.messages.new:
            say(f"+ {counted(report.messages.new, 'message')}")
        for line in report.lines():
            complain(line)

    with Watcher(space, directory, on_report=tell, on_problem=complain):
        yield


def _reconciler(
    space: "Space", directory: Path, allow_code: bool, *, say: Say, complain: Say
) -> "Reconciler":
    """What comes into the space is in Letta's directory a moment later, once it is started."""
    from lettaspace.cli.lettadir import reconciled_lines
    from lettaspace.letta.reconciler import Reconciler
    from lettaspace.remote.branches import diverge

    known: set[str] = set()

    def tell(report: "ReconcileReport") -> None:
        """What was done; and what was not, once."""
        left: set[str] = set()
        for line in reconciled_lines(report, directory):
            if line.startswith("! ") or ": later, " in line:
                left.add(line)
            else:
                say(line)
        for line in sorted(left - known):
            (complain if line.startswith("! ") else say)(line.removeprefix("! "))
        if report.imported.conversations:  # it was not the memories alone
            known.clear()
        known.update(left)

    return Reconciler(
        space,
        directory,
        part=diverge,
        allow_code=allow_code,
        on_report=tell,
        on_problem=complain,
    )


@contextmanager
def host_followed(
    space: "Space",
    account: "Account",
    *,
    say: Say,
    complain: Say,
    members: bool | None = None,
    came: Callable[[], None] = _nothing,
) -> Iterator[None]:
    """The space and its host are kept the same; `came` is called when something came from there.
    Raises Conflict for a space that is none of the account's."""
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
        if done.own.created or done.own.updated or done.own.forks:
            came()
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
