"""Serving the viewer until the process is told to stop, and what goes on beside it."""

import threading
import webbrowser
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.cli.following import stopped_by_signals
from lettaspace.cli.output import Output
from lettaspace.cli.text import field
from lettaspace.viewer.guard import Hosts, is_loopback
from lettaspace.viewer.server import Server, bind, new_token

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space


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

    def announce(self, out: Output, followed: Sequence[str]) -> None:
        """Says where it will be; `followed` is what is followed meanwhile."""
        out.line()
        out.line(f"Viewer: {out.style(self.url, 'bold')}")
        if not self.is_private:
            secrets = "Secrets in messages are redacted." if self.redact else "Nothing is redacted."
            out.line(
                "Whoever has this address can read every conversation, and what is sent is not "
                f"encrypted. {secrets}"
            )
        if followed:
            out.line(f"Following {field(' and '.join(followed))}; Ctrl-C stops.")
        else:
            out.line("Ctrl-C stops.")

    def run(
        self,
        space: "Space",
        letta: Path | None,
        beside: Sequence[AbstractContextManager[object]],
        *,
        browser: bool,
    ) -> None:
        """Until SIGINT or SIGTERM. `letta` is Letta's directory, for the agents' memory; `beside`
        goes on meanwhile."""
        from lettaspace.viewer.app import viewer

        redaction: Any = None
        if self.redact:
            from lettaspace.conversation.redaction import Redactor

            redaction = Redactor()
        application = viewer(
            space, token=self.token, hosts=self.hosts, letta=letta, redaction=redaction
        )
        stop = threading.Event()
        with ExitStack() as stack:
            stack.enter_context(stopped_by_signals(stop))
            stack.enter_context(Server(application, self.bound, on_end=stop.set))
            for each in beside:
                stack.enter_context(each)
            if browser:
                webbrowser.open(self.url)
            stop.wait()
