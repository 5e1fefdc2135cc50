"""Numbers about a host, for Prometheus: how much of what, how fast, how it went.

Labels are methods, statuses, names of errors and kinds of writes, from fixed sets; never an
account, a space or an address. Numbers are of one process, except those of the outbox, which
are the database's. They are served on loopback, beside the host, by `MetricsServer`.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from lettaspace.errors import StoreUnavailable
from lettaspace.server import tables
from lettaspace.server.calls import Call
from lettaspace.server.connections import Connection
from lettaspace.server.outbox import WINDOW
from lettaspace.server.traffic import Exchange
from lettaspace.space.database import Database

LOOPBACK: Final = "127.0.0.1"

KINDS: Final = ("create", "update", "delete")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_SPACE = "com.atproto.space."
_KIND = {
    _SPACE + "createRecord": "create",
    _SPACE + "putRecord": "update",
    _SPACE + "deleteRecord": "delete",
}
_BATCH = _SPACE + "applyWrites"
_UPLOAD = "com.atproto.repo.uploadBlob"
_DOWNLOAD = _SPACE + "getBlob"


class Metrics:
    """The numbers of one process, in a registry of their own. An `Observer` of requests."""

    def __init__(self) -> None:
        # A second line for each, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "lettaspace_requests",
            "Requests answered; status is empty where the client did not wait.",
            ("method", "status", "error"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "lettaspace_request_seconds",
            "Time from a request's head to its answer's end.",
            ("method",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._active = Gauge(
            "lettaspace_requests_active",
            "Requests that are being answered.",
            registry=self.registry,
        )
        self._writes = Counter(
            "lettaspace_writes", "Batches of writes committed.", registry=self.registry
        )
        self._operations = Counter(
            "lettaspace_operations",
            "Records written in them; a put counts as an update.",
            ("kind",),
            registry=self.registry,
        )
        self._blob_bytes = Counter(
            "lettaspace_blob_bytes",
            "Bytes of blobs taken in and given out.",
            ("direction",),
            registry=self.registry,
        )
        connections = Gauge(
            "lettaspace_connections", "Connections that are open.", registry=self.registry
        )
        connections.set_function(lambda: Connection.open)
        # What did not happen yet is a zero, not a gap.
        for kind in KINDS:
            self._operations.labels(kind)
        for direction in ("in", "out"):
            self._blob_bytes.labels(direction)
        ProcessCollector(registry=self.registry)

    def watch_outbox(self, database: Database, clock: Callable[[], float]) -> None:
        """Adds what waits to be told to other hosts; it is asked of the database each time."""
        self.registry.register(_Outbox(database, clock))

    def began(self) -> None:
        self._active.inc()

    def ended(self, exchange: Exchange) -> None:
        self._active.dec()
        status = "" if exchange.status is None else str(exchange.status)
        self._requests.labels(exchange.method, status, exchange.error or "").inc()
        self._seconds.labels(exchange.method).observe(exchange.seconds)
        if exchange.status != 200:
            return
        if exchange.method == _UPLOAD:
            self._blob_bytes.labels("in").inc(exchange.received)
        elif exchange.method == _DOWNLOAD:
            self._blob_bytes.labels("out").inc(exchange.sent)
        elif exchange.call is not None and (operations := _operations(exchange.call)):
            self._writes.inc()
            for kind, number in operations.items():
                self._operations.labels(kind).inc(number)


class MetricsServer:
    """Serves metrics on loopback, at the first of the ports that is free: several processes
    have one each. A `Worker` of the host. Starting raises StoreUnavailable."""

    def __init__(self, metrics: Metrics, ports: Sequence[int]) -> None:
        self._metrics = metrics
        self._ports = ports
        self._server: WSGIServer | None = None

    @property
    def port(self) -> int:
        """The port that it is served at."""
        if self._server is None:
            raise RuntimeError("not started")
        return self._server.server_port

    def start(self) -> None:
        for port in self._ports:
            with suppress(OSError):
                self._server, self._thread = start_http_server(
                    port, LOOPBACK, self._metrics.registry
                )
                return
        raise StoreUnavailable(f"metrics: port {self._ports[0]} is not to be had")

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


class _Outbox(Collector):
    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        query = select(func.count(), func.min(tables.outbox.c.deadline))
        try:
            with self._database.read() as connection:
                depth, deadline = connection.execute(query).one()
        except StoreUnavailable:
            return  # a gap, and the rest is served all the same
        age = 0.0 if deadline is None else self._clock() - (deadline - WINDOW)
        yield GaugeMetricFamily(
            "lettaspace_outbox_writes", "Writes that authorities are still to be told of.", depth
        )
        yield GaugeMetricFamily(
            "lettaspace_outbox_age_seconds", "How long the oldest of them waits.", max(0.0, age)
        )


def _operations(call: Call) -> Tally[str]:
    """How many records a call that went well wrote, by kind."""
    nsid = call.method.nsid
    if nsid == _BATCH:
        kinds = [write["$type"].rpartition("#")[2] for write in call.input["writes"]]
        return Tally(kind for kind in kinds if kind in KINDS)
    return Tally([_KIND[nsid]] if nsid in _KIND else [])
