"""A host under load: many clients at once, and what is left of their writes when it is killed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from lettaspace.atproto import methods
from lettaspace.atproto.commit import Commit
from lettaspace.server.errors import GENERAL
from lettaspace.space.sethash import SetHash, element
from tests.server.blackbox.client import (
    NOTE,
    OPEN,
    PUBLIC,
    SIMPLE,
    SPACE,
    TYPE,
    Holder,
    Host,
    Party,
    good,
    place,
)
from tests.server.hosted import PASSWORD, Hosted, hosted
from tests.waiting import SECONDS

CLIENTS = 200
MEGABYTE = 1024 * 1024

UNLIMITED = (
    "--limit", "writes-per-hour=0", "--limit", "writes-per-day=0",
    "--limit", "anonymous=0", "--limit", "refused=0", "--log", "error",
)  # fmt: skip


@pytest.fixture
def process(target: str, tmp_path: Path) -> Iterator[Hosted]:
    with hosted(tmp_path / "home", target, *UNLIMITED) as host:
        host.add_account("alice.localhost")
        host.start()
        yield host


@pytest.fixture
def alice(process: Hosted) -> Iterator[Party]:
    with httpx.Client(trust_env=False, timeout=SECONDS) as client:
        yield Party(Host(process.origin, client), "alice.localhost", PASSWORD)


@pytest.fixture
def space(alice: Party) -> str:
    settings = {"readPolicy": PUBLIC, "writePolicy": PUBLIC, "appAccess": OPEN}
    answer = alice.post(SIMPLE + "createSpace", spaceType=TYPE, skey="load", **settings)
    return str(good(answer)["uri"])


@dataclass
class Load:
    """What all clients do together. A request is its method, its arguments, and the errors
    that are right for it."""

    party: Party
    space: str
    outcomes: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    acknowledged: dict[str, str] = field(default_factory=dict)
    """The CID of each record whose creation was answered, by record key."""
    sent: list[list[str]] = field(default_factory=list)
    """The record keys of each batch that was sent."""
    numbers: Iterator[int] = field(default_factory=count)

    async def round(self, requests: int) -> None:
        """Every client makes so many requests, one after the other."""

        async def work() -> None:
            async with connected(self.party.host.url) as connection:
                for _ in range(requests):
                    await self.request(connection, next(self.numbers))

        await asyncio.gather(*(work() for _ in range(CLIENTS)))

    async def request(self, connection: Connection, number: int) -> None:
        repo = self.party.repo(self.space)
        kind = number % 8
        if kind < 2:
            await self.create(connection, number)
        elif kind == 2:
            await self.batch(connection, [f"{number}-{part}" for part in range(20)])
        elif kind == 3:
            await self._get(connection, "getRecord", repo | place("first"))
        elif kind == 4:
            await self._get(connection, "listRecords", repo | {"limit": "20"})
        elif kind == 5:
            await self._get(connection, "listRepoOps", repo | {"limit": "20"})
        elif kind == 6:
            await self._get(connection, "getRecord", repo | place("never"))
        else:
            await self._get(connection, "getRecord", repo | place("first"), signed_in=False)

    async def create(self, connection: Connection, number: int) -> None:
        self.sent.append([str(number)])
        body = self.party.repo(self.space) | place(str(number)) | {"record": _note(number)}
        answer = await self._ask(connection, "createRecord", body=body)
        if "cid" in answer:
            self.acknowledged[str(number)] = answer["cid"]

    async def batch(self, connection: Connection, rkeys: list[str]) -> None:
        self.sent.append(rkeys)
        create = f"{SPACE}applyWrites#create"
        writes = [{"$type": create, **place(rkey), "value": _note(rkey)} for rkey in rkeys]
        body = self.party.repo(self.space) | {"writes": writes}
        answer = await self._ask(connection, "applyWrites", body=body)
        for rkey, result in zip(rkeys, answer.get("results", ()), strict=False):
            self.acknowledged[rkey] = result["cid"]

    async def _get(
        self, connection: Connection, name: str, params: dict[str, str], *, signed_in: bool = True
    ) -> None:
        await self._ask(connection, name, "?" + urlencode(params), signed_in=signed_in)

    async def _ask(
        self,
        connection: Connection,
        name: str,
        query: str = "",
        body: Any = None,
        *,
        signed_in: bool = True,
    ) -> Any:
        headers = self.party.bearer if signed_in else {}
        status, answer = await connection.ask(f"/xrpc/{SPACE}{name}{query}", headers, body)
        self.outcomes[name, status, answer.get("error", "")] += 1
        return answer


class Connection:
    """HTTP for a load that is the server's and not the client's own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, path: str, headers: dict[str, str], body: Any) -> tuple[int, Any]:
        """The status and the JSON of an answer. Raises OSError or EOFError if none comes."""
        sent = b"" if body is None else json.dumps(body).encode()
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "host: localhost"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += ["content-type: application/json", f"content-length: {len(sent)}", "", ""]
        self._writer.write("\r\n".join(lines).encode() + sent)
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        return int(head[9:12]), json.loads(await self._reader.readexactly(size))


@asynccontextmanager
async def connected(origin: str) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(origin.rpartition(":")[2]))
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _note(number: object) -> dict[str, str]:
    return {"text": f"note {number} " * 20}


@pytest.mark.parametrize("target", ["sqlite", "postgresql"], indirect=True)
def test_many_clients_at_once(process: Hosted, alice: Party, space: str) -> None:
    good(alice.write(space, "first"))
    load = Load(alice, space)
    memory = []
    for _ in range(3):
        asyncio.run(load.round(4))
        memory.append(process.memory())
    requests = 3 * 4 * CLIENTS
    assert sum(load.outcomes.values()) == requests
    for name, status, error in load.outcomes:
        declared = methods.method(SPACE + name).errors | GENERAL
        assert not error or error in declared, (name, status, error)
        assert status < 500 or error == "NotEnoughResources", (name, status, error)
    # One of eight is refused for what it asks, one for who asks; all others are served.
    assert load.outcomes["getRecord", 400, "RecordNotFound"] == requests // 8
    assert load.outcomes["getRecord", 401, "AuthMissing"] == requests // 8
    served = sum(number for (_, status, _), number in load.outcomes.items() if status == 200)
    assert served == requests * 6 // 8
    # What a round takes is given back: the second is not paid for again by the third.
    assert memory[2] - memory[1] < 32 * MEGABYTE, [each // MEGABYTE for each in memory]
    assert memory[2] < 256 * MEGABYTE, [each // MEGABYTE for each in memory]
    check(alice, space, load)
    assert process.log() == ""


@pytest.mark.parametrize("target", ["sqlite", "postgresql"], indirect=True)
def test_nothing_acknowledged_is_lost_when_it_is_killed(
    process: Hosted, alice: Party, space: str
) -> None:
    load = Load(alice, space)
    for _ in range(2):
        asyncio.run(_until_killed(process, load))
        process.start()
        check(alice, space, load)
    assert load.acknowledged


async def _until_killed(process: Hosted, load: Load) -> None:
    """Writes with many clients, kills the host when enough is acknowledged, and ends when every
    client has noticed."""
    enough = len(load.acknowledged) + 300

    async def write() -> None:
        with suppress(OSError, EOFError):  # nobody knows what became of the last request
            async with connected(process.origin) as connection:
                while True:
                    number = next(load.numbers)
                    if number % 4:
                        await load.create(connection, number)
                    else:
                        await load.batch(connection, [f"{number}-{part}" for part in range(5)])
                    if len(load.acknowledged) >= enough and process.process is not None:
                        process.kill()

    await asyncio.gather(*(write() for _ in range(32)))


def check(alice: Party, space: str, load: Load) -> None:
    """All that was acknowledged is there; each batch is there whole or not at all; and the log,
    the set hash, the commit and what the space knows of its writer say the same."""
    found: dict[str, str] = {}
    params: dict[str, Any] = alice.repo(space) | {"limit": 1000, "excludeValues": True}
    while True:
        page = good(alice.get(SPACE + "listRecords", **params))
        found |= {each["rkey"]: str(each["cid"]) for each in page["records"]}
        if "cursor" not in page:
            break
        params["cursor"] = page["cursor"]
    assert load.acknowledged.items() <= found.items()
    for batch in load.sent:
        assert len(found.keys() & set(batch)) in (0, len(batch))
    folded = SetHash()
    for rkey, cid in found.items():
        folded.add(element(NOTE, rkey, cid))
    commit = Commit.from_value(
        good(alice.get(SPACE + "getLatestCommit", **alice.repo(space)))["commit"]
    )
    assert commit.hash == folded.digest()
    assert commit.is_valid(space, alice.did, alice.key())
    last = good(alice.get(SPACE + "listRepoOps", **alice.repo(space), since=commit.rev))
    assert last["ops"] == []
    holder = Holder(alice.host)
    good(holder.exchange(alice.delegate(space), space))
    (writer,) = good(holder.get(alice.host, SPACE + "listRepos", alice.did, space=space))["repos"]
    assert (writer["repoRev"], writer["hash"]) == (commit.rev, commit.hash)
