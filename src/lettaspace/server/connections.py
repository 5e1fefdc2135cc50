"""HTTP connections: uvicorn's fast parser, with the bounds it leaves out.

uvicorn on `httptools` gathers the head of a request, however long it gets and however long that
takes, before an application hears of it. `uvicorn.Config(app, http=Connection)` uses this.
"""

import asyncio
from typing import ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 * 1024
"""Bytes of a head, or of what else is no body: about this many, since they come in blocks."""

HEAD_SECONDS = 20.0
"""How long a head may take, from the connection or from its first byte."""


ENDING: Final = "lettaspace.ending"
"""Where the state of an application has what is to be called when the server begins to end."""


class Connection(HttpToolsProtocol):
    """A connection that is closed when a request's head is too long or too slow."""

    _unread = 0
    """Bytes received since the end of a head, the last of a body, or the end of a request."""

    _late: asyncio.TimerHandle | None = None

    open: ClassVar[int] = 0
    """How many connections this process has."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        Connection.open += 1
        self._wait()

    def shutdown(self) -> None:
        # The application's own end comes after that of all requests, held ones among them.
        if (ending := self.app_state.get(ENDING)) is not None:
            ending()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        Connection.open -= 1
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread == 0:
            self._stop_waiting()
        elif self._unread > MAX_HEAD:
            self.send_400_response("The head of this request is too long.")
        elif self._late is None:
            self._wait()

    def on_headers_complete(self) -> None:
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
