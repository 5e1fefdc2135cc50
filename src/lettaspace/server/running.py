"""Serving: one process or several on a socket, until the process is told to stop."""

import signal
from collections.abc import Callable, Sequence
from functools import partial
from socket import socket
from types import FrameType

import uvicorn
from uvicorn.supervisors import Multiprocess

from lettaspace.errors import StoreUnavailable
from lettaspace.server.app import create
from lettaspace.server.config import Config
from lettaspace.server.connections import Connection

_GRACE = 10
"""Seconds that requests are given at the end."""

_KEEP_ALIVE = 75
"""Seconds that an idle connection stays: longer than a proxy in front keeps it."""


def serve(
    config: Config, listening: socket, *, workers: int = 1, on_ready: Callable[[], None]
) -> None:
    """Serves until SIGINT or SIGTERM. The socket listens already; `on_ready` is called when
    nothing but a mistake of ours can keep it from being served.

    Raises StoreUnavailable. To be called in the main thread.
    """
    if workers == 1:
        _serve_alone(config, listening, on_ready)
    else:
        on_ready()
        settings = _settings(partial(create, config), config.proxies, factory=True, workers=workers)
        Multiprocess(settings, sockets=[listening]).run()


def _serve_alone(config: Config, listening: socket, on_ready: Callable[[], None]) -> None:
    server = uvicorn.Server(_settings(create(config), config.proxies))

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    # The server has its own handlers while it runs, and then raises the signal again for ours.
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        on_ready()
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not server.started:
        raise StoreUnavailable("the server could not start")


def _settings(app: Callable[..., object], proxies: Sequence[str], **more: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        lifespan="on",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        **more,  # type: ignore[arg-type]
    )
