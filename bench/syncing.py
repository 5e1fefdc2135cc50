"""Syncing a space with a host: 100,000 messages there, and down to a second machine; ten new
ones; nothing new. Time, and what goes over the wire against the size of the records."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from sqlalchemy import func, select

from bench.client import joined
from bench.context import Context
from bench.figure import Figure, Goal, Side, ratio
from bench.measure import Cost, timed
from bench.served import DID, Served
from lettaspace.atproto import data
from lettaspace.conversation.records import default_space
from lettaspace.conversation.space import STORE_FILE, Space
from lettaspace.letta.importer import import_directory
from lettaspace.remote.following import RARELY
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.listening import LONGEST
from lettaspace.remote.mirror import Mirror
from lettaspace.remote.replicas import attach
from lettaspace.remote.syncing import Syncer
from lettaspace.remote.xrpc import Client
from lettaspace.space import schema
from lettaspace.space.car import read_repo
from lettaspace.space.database import Database

SPACE = str(default_space(DID))

UP_GOAL = Goal(2)
DOWN_GOAL = Goal(8)
UP_WIRE_GOAL = Goal(1.6)
DOWN_WIRE_GOAL = Goal(1.3)
TRIPS_GOAL = Goal(1)
TEN_WIRE_GOAL = Goal(4)
IDLE_GOAL = Goal(0.01)

BATCH = 150
"""Records in a request of the baseline, and bytes, which are below what a host takes."""
BYTES = 900_000
TRIPS = 3
"""Requests that a sync may take after ten new messages."""
TEN = 10


class Wire(httpx.HTTPTransport):
    """Counts requests and the bytes of heads and bodies, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = self.bytes = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        self.requests += 1
        self.bytes += len(request.method) + len(request.url.raw_path) + len(request.read()) + 12
        self.bytes += _fields(request.headers) + _fields(response.headers) + 17
        if not isinstance(response.stream, httpx.SyncByteStream):
            raise TypeError("a body that is not read here")
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Counted(response.stream, self),
            extensions=response.extensions,
        )


class _Counted(httpx.SyncByteStream):
    """A body, whose bytes are counted as they come."""

    def __init__(self, stream: httpx.SyncByteStream, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            self._wire.bytes += len(piece)
            yield piece

    def close(self) -> None:
        self._stream.close()


class Machine:
    """A replica at a home, and what it sends and is sent."""

    def __init__(self, home: Path, host: Served) -> None:
        self.wire = Wire()
        with Database.open(home / STORE_FILE) as database:
            attach(database, DID, host.origin, signing_key=host.key.did)
        self.space = Space.open(home)
        self._client = Client(host.origin, auth=_Session(host), transport=self.wire)
        self._host = HostRepo(self._client, SPACE, DID)
        self.syncer = Syncer(self.space, self._host, lambda _again, key=host.key: key)

    def sync(self) -> tuple[Cost, int, int]:
        """What it costs, in requests, and in bytes."""
        requests, size = self.wire.requests, self.wire.bytes
        cost = timed(self.syncer.sync)
        return cost, self.wire.requests - requests, self.wire.bytes - size

    def wait(self) -> int:
        """The bytes of a question whose answer is held, whatever the time: that nothing is new."""
        size = self.wire.bytes
        with self.space.database.read() as connection:
            known = Mirror(connection, self.space.repo.id).head().rev
        if known is None or self._host.wait(known, 1) != (False, True):
            raise RuntimeError("the host does not wait")
        return self.wire.bytes - size

    def close(self) -> None:
        self._client.close()
        self.space.close()


class _Session:
    def __init__(self, host: Served) -> None:
        self._fields = host.session

    def fields(self, _method: str, _url: str, _nonce: str | None) -> list[tuple[str, str]]:
        return list(self._fields)

    def renew(self, _used: Sequence[tuple[str, str]], _error: str) -> bool:
        return False


def sync(context: Context) -> list[Figure]:
    """The first sync of 100,000 messages, a clone, ten new messages, and nothing new."""
    with Served(context.work / "sync-host.db") as host:
        written = context.small if context.quick else context.large
        first, second = context.work / "sync-one", context.work / "sync-two"
        for home in (first, second):
            shutil.rmtree(home, ignore_errors=True)
        with _machine(first, host) as one:
            import_directory(one.space, written.path)
            size, records = _stored(one.space)
            up, _, up_bytes = one.sync()
            bare = _bare(context, one.space)
            host.reconnect()
            with _machine(second, host) as two:
                down, _, down_bytes = two.sync()
                host.reconnect()
                plain = timed(lambda: _download(host))
                talk = one.space.conversation(one.space.conversations()[0].uri)
                for number in range(TEN):
                    talk.append(_message(number))
                ten = _stored(one.space)[0] - size
                cost, trips, ten_bytes = one.sync()
                two.sync()
                _, _, idle = two.sync()
                hour = round(3600 / LONGEST) * two.wait() + round(3600 / RARELY) * idle
        facts = {"records": records, "bytes": size}
        return [
            ratio(
                "sync-up",
                (f"the first sync of {records} records", up),
                ("sending the same in requests made beforehand", bare),
                UP_GOAL,
                **facts,
            ),
            _bytes("sync-up-wire", "on the wire", up_bytes, "the records", size, UP_WIRE_GOAL),
            ratio(
                "sync-down",
                (f"a clone of {records} records", down),
                ("getRepo, and checking all of it", plain),
                DOWN_GOAL,
                **facts,
            ),
            _bytes(
                "sync-down-wire", "on the wire", down_bytes, "the records", size, DOWN_WIRE_GOAL
            ),
            Figure(
                "sync-ten-requests",
                trips / TRIPS,
                Side("requests of a sync", cost.wall, cost.cpu, count=trips),
                Side("pull, push, confirm", count=TRIPS),
                TRIPS_GOAL,
            ),
            _bytes("sync-ten-wire", "on the wire", ten_bytes, "ten records", ten, TEN_WIRE_GOAL),
            _bytes(
                "watch-idle-hour", "on the wire in an hour", hour, "the records", size, IDLE_GOAL
            ),
        ]


@contextmanager
def _machine(home: Path, host: Served) -> Iterator[Machine]:
    machine = Machine(home, host)
    try:
        yield machine
    finally:
        machine.close()


def _stored(space: Space) -> tuple[int, int]:
    """The bytes of all records, and their number."""
    records = schema.records.c
    query = select(func.sum(func.length(records.value)), func.count()).where(
        records.repo == space.repo.id
    )
    with space.database.read() as connection:
        size, count = connection.execute(query).one()
    return int(size), int(count)


def _bare(context: Context, space: Space) -> Cost:
    """Sending the records to another host, with nothing to do but that."""
    with Served(context.work / "sync-bare.db") as host:
        requests: list[bytes] = []
        for some in _batches(space):
            requests.append(host.post("applyWrites", {"space": SPACE, "repo": DID, "writes": some}))
        return timed(lambda: _all(host, requests))


def _batches(space: Space) -> Iterator[list[dict[str, object]]]:
    """Writes that a request may hold: so many, and not more than it may have bytes."""
    batch: list[dict[str, object]] = []
    size = 0
    for write in _writes(space):
        more = len(json.dumps(write).encode())
        if batch and (len(batch) == BATCH or size + more > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(write)
        size += more
    if batch:
        yield batch


def _writes(space: Space) -> Iterator[dict[str, object]]:
    """The creation of each record, as it is sent."""
    names = select(schema.records.c.collection).distinct()
    with space.database.read() as connection:
        collections = list(connection.execute(names).scalars())
    for collection in collections:
        for record in space.repo.records(collection):
            yield {
                "$type": "com.atproto.space.applyWrites#create",
                "collection": collection,
                "rkey": record.rkey,
                "value": data.to_json(record.value),
            }


def _all(host: Served, requests: Sequence[bytes]) -> None:
    for request in requests:
        host.connection.ask(request)


def _download(host: Served) -> None:
    answer = host.connection.ask(host.get("getRepo", space=SPACE))
    _, _, records = read_repo([joined(answer.body)], space=SPACE, author=DID, key=host.key)
    for _ in records:
        pass


def _bytes(name: str, what: str, size: int, other: str, base: int, goal: Goal) -> Figure:
    return Figure(name, size / base, Side(what, memory=size), Side(other, memory=base), goal)


def _message(number: int) -> dict[str, object]:
    text = f"Message {number} of ten. " + "word " * 150
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _fields(headers: httpx.Headers) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.raw)
