"""The host as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from lettaspace.server import logins
from lettaspace.server.config import Config
from lettaspace.server.host import Host
from lettaspace.server.wellknown import routes

MODULES = (logins,)
"""Each has `register(host)`, which adds its methods, and its workers if it has any."""


def create(config: Config) -> ASGIApp:
    """The application of a host that is opened now and closed when the server ends."""
    return application(Host.open(config), close=True)


def application(host: Host, *, close: bool = False) -> ASGIApp:
    """The application of an open host, which its end closes if `close` is true."""
    for module in MODULES:
        module.register(host)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if close:
                stack.push_async_callback(run_in_threadpool, host.close)
            for worker in host.workers:
                worker.start()
                stack.push_async_callback(run_in_threadpool, worker.stop)
            yield

    elsewhere = Starlette(routes=routes(host), lifespan=lifespan)
    paths = frozenset(route.path for route in routes(host))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_method = scope["type"] == "http" and scope["path"] not in paths
        await (host.xrpc if is_method else elsewhere)(scope, receive, send)

    return app
