"""The host as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from lettaspace.server import (
    blobs,
    credentials,
    directory,
    logins,
    logs,
    maintenance,
    notifications,
    records,
    simplespace,
    sync,
    vault,
)
from lettaspace.server.config import Config
from lettaspace.server.connections import ENDING
from lettaspace.server.host import Host
from lettaspace.server.limits import AddressLimits
from lettaspace.server.traffic import Observer, Traffic
from lettaspace.server.wellknown import routes

MODULES = (
    blobs,
    credentials,
    directory,
    logins,
    maintenance,
    notifications,
    records,
    simplespace,
    sync,
)
"""Each has `register(host)`, which adds its methods, and its workers if it has any."""


def create(config: Config) -> ASGIApp:
    """The application of a host that is opened now and closed when the server ends, and the
    logs of its process."""
    logs.install(config.log)
    return application(Host.open(config), close=True)


def application(host: Host, *, close: bool = False) -> ASGIApp:
    """The application of an open host, which its end closes if `close` is true."""
    for module in MODULES:
        module.register(host)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            if close:
                stack.push_async_callback(run_in_threadpool, host.close)
            for worker in host.workers:
                worker.start()
                stack.push_async_callback(run_in_threadpool, worker.stop)
            yield {ENDING: host.waiting.end}

    elsewhere = Starlette(routes=routes(host), lifespan=lifespan)
    paths = frozenset(route.path for route in routes(host))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_method = scope["type"] == "http" and scope["path"] not in paths
        await (host.xrpc if is_method else elsewhere)(scope, receive, send)

    limited = AddressLimits(app, host.limits, host.xrpc.gated)
    observers = _observers(host)
    if not observers:
        return limited
    return Traffic(limited, observers, paths=paths, nsids=host.xrpc.nsids)


def _observers(host: Host) -> list[Observer]:
    """Who is told of requests, as the host is configured."""
    found: list[Observer] = []
    if host.config.log == "info":
        found.append(logs.RequestLog(vault.secret(host.database, logs.KEY)))
    if host.config.metrics_ports:
        from lettaspace.server.metrics import Metrics, MetricsServer  # takes long to import

        metrics = Metrics()
        metrics.watch_outbox(host.database, host.clock)
        host.workers.append(MetricsServer(metrics, host.config.metrics_ports))
        found.append(metrics)
    return found
