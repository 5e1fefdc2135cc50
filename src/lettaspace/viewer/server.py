"""Serving the viewer: a socket that is bound before anything else starts, and uvicorn."""

import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import uvicorn
from starlette.types import ASGIApp

from lettaspace.errors import InvalidInput, StoreUnavailable

PORT = 7430
"""The port unless another is asked for; where it is taken, the next free one is."""

_TRIES = 20
_GRACE = 1
"""Seconds that open connections are given at the end."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A listening socket and the address it has."""

    socket: socket.socket
    address: str
    port: int

    def url(self, token: str) -> str:
        """The first address to open. On every address, the one of this machine."""
        host = self.address
        if host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            host = "127.0.0.1"
        if ":" in host:
            host = f"[{host}]"
        return f"http://{host}:{self.port}/?token={token}"


def new_token() -> str:
    return secrets.token_urlsafe(24)


def bind(address: str = "127.0.0.1", port: int | None = None) -> Bound:
    """Listens on an address. Without a port, on `PORT` or the next free one; on 0, any.

    Raises StoreUnavailable where that is impossible, InvalidInput for no address.
    """
    ports = range(PORT, PORT + _TRIES) if port is None else [port]
    reason = ""
    for number in ports:
        try:
            family, _, protocol, _, target = socket.getaddrinfo(
                address or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except OSError:
            raise InvalidInput(f"{address!r} is no address of this machine") from None
        # Without its protocol, asyncio would not know it for TCP and leave Nagle's delays on.
        listening = socket.socket(family, socket.SOCK_STREAM, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(target)
            listening.listen(128)
        except OSError as error:
            listening.close()
            reason = error.strerror or str(error)
            continue
        return Bound(listening, address, listening.getsockname()[1])
    raise StoreUnavailable(f"cannot listen on {address}, port {ports[0]}: {reason}")


class Server:
    """Serves an application on a bound socket, in a thread of its own, while inside `with`.

    `on_end` is called in that thread when it ends, for whatever reason.
    """

    def __init__(
        self, app: ASGIApp, bound: Bound, *, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self.bound = bound
        self._on_end = on_end
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,  # addresses hold what was searched for
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=_GRACE,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="viewer", daemon=True)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self.bound.socket])
        finally:
            self._on_end()

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.bound.socket.close()
