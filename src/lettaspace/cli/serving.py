"""Serving the viewer and following Letta's directory, until the process is told to stop."""

import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.cli.output import Output
from lettaspace.cli.text import counted, field
from lettaspace.page.inert import inert
from lettaspace.viewer.guard import Hosts, is_loopback
from lettaspace.viewer.server import Server, bind, new_token

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.letta.report import Report


class Serving:
    """The address of a viewer that is about to run. Binds at once; close it when done.

    Raises InvalidInput or StoreUnavailable for an address that cannot be had.
    """

    def __init__(self, host: str, port: int | None, names: Sequence[str], *, redact: bool) -> None:
        self.bound = bind(host, port)
        self.hosts = Hosts(self.bound.address, self.bound.port, names)
        self.token = new_token()
        self.is_private = is_loopback(host)
        self.redact = redact and not self.is_private

    @property
    def url(self) -> str:
        return self.bound.url(self.token)

    def close(self) -> None:
        self.bound.socket.close()

    def announce(self, out: Output, watched: Path | None) -> None:
        out.line()
        out.line(f"Viewer: {out.style(self.url, 'bold')}")
        if not self.is_private:
            secrets = "Secrets in messages are redacted." if self.redact else "Nothing is redacted."
            out.line(
                "Whoever has this address can read every conversation, and what is sent is not "
                f"encrypted. {secrets}"
            )
        if watched is not None:
            out.line(f"Following {field(str(watched))}; Ctrl-C stops.")
        else:
            out.line("Ctrl-C stops.")

    def run(self, space: "Space", directory: Path, *, watch: bool, browser: bool) -> None:
        """Until SIGINT or SIGTERM."""
        from lettaspace.viewer.app import viewer

        redaction: Any = None
        if self.redact:
            from lettaspace.conversation.redaction import Redactor

            redaction = Redactor()
        application = viewer(
            space, token=self.token, hosts=self.hosts, letta=directory, redaction=redaction
        )
        stop = threading.Event()
        with ExitStack() as stack:
            stack.enter_context(_stopped_by_signals(stop))
            stack.enter_context(Server(application, self.bound, on_end=stop.set))
            if watch:
                from lettaspace.letta.watch import Watcher

                watcher = Watcher(space, directory, on_report=_tell, on_problem=_complain)
                watcher.start()
                stack.callback(watcher.stop)
            if browser:
                webbrowser.open(self.url)
            stop.wait()


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
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


def _tell(report: "Report") -> None:
    """What was just brought in, for who sits before the terminal."""
    if sys.stderr.isatty() and report.messages.new:
        _say(f"+ {counted(report.messages.new, 'message')}")
    for line in report.lines():
        _complain(line)


def _complain(problem: str) -> None:
    _say(f"! {problem}")


def _say(line: str) -> None:
    print(inert(line), file=sys.stderr, flush=True)  # noqa: T201
