"""Whole repos are downloaded while they are written to without pause: each is of one moment.

LETTASPACE_DOWNLOADS is how many there are; 10,000 take some minutes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from lettaspace.space.car import read_repo
from tests.server.blackbox.client import NOTE, SPACE, Host, Party, good, place
from tests.server.hosted import PASSWORD, Hosted, hosted
from tests.waiting import SECONDS

DOWNLOADS = int(os.environ.get("LETTASPACE_DOWNLOADS", "200"))
CLIENTS = 4
SIZE = 100

UNLIMITED = (
    "--limit", "writes-per-hour=0", "--limit", "writes-per-day=0", "--log", "error",
)  # fmt: skip


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Hosted]:
    with hosted(tmp_path / "home", None, *UNLIMITED) as host:
        host.add_account("alice.localhost")
        host.start()
        yield host


@contextmanager
def signed_in(process: Hosted) -> Iterator[Party]:
    with httpx.Client(trust_env=False, timeout=SECONDS) as client:
        yield Party(Host(process.origin, client), "alice.localhost", PASSWORD)


def contents(number: int) -> dict[str, Any]:
    """The repo after that batch, by record key: the newest notes, of which half are revised, and
    which batch was the last."""
    notes: dict[str, Any] = {
        str(each): note(each, revised=each <= number - SIZE // 2)
        for each in range(number - SIZE + 1, number + 1)
    }
    return notes | {"last": {"$type": NOTE, "number": number}}


def note(number: int, *, revised: bool = False) -> dict[str, Any]:
    return {"$type": NOTE, "text": f"note {number} " * 20, "revised": revised}


class Writer:
    """Creates, updates and deletes in each batch."""

    def __init__(self, party: Party, space: str) -> None:
        self._party = party
        self._repo = party.repo(space)
        self.acknowledged = SIZE
        """The number of the last batch that was answered."""
        first = contents(self.acknowledged)
        self._apply([("create", rkey, value) for rkey, value in first.items()])

    def until(self, over: threading.Event) -> None:
        for number in count(self.acknowledged + 1):
            if over.is_set():
                return
            revised = number - SIZE // 2
            self._apply(
                [
                    ("create", str(number), note(number)),
                    ("update", str(revised), note(revised, revised=True)),
                    ("delete", str(number - SIZE), None),
                    ("update", "last", {"$type": NOTE, "number": number}),
                ]
            )
            self.acknowledged = number

    def _apply(self, changes: list[tuple[str, str, Any]]) -> None:
        writes = [
            {"$type": f"{SPACE}applyWrites#{action}", **place(rkey)}
            | ({} if value is None else {"value": value})
            for action, rkey, value in changes
        ]
        good(self._party.post(SPACE + "applyWrites", **self._repo, writes=writes))


def test_every_download_is_of_one_moment(process: Hosted, record_property: Any) -> None:
    over = threading.Event()
    turns = iter(range(DOWNLOADS))  # its next is atomic, so all clients may share it

    def download(key: Any) -> list[tuple[str, int]]:
        """Revision and number of each repo that this client got, all of them checked."""
        got = []
        with signed_in(process) as reader:
            for _ in turns:
                known = writer.acknowledged
                answer = reader.get(SPACE + "getRepo", **reader.repo(space))
                assert answer.status_code == 200, answer.text
                commit, index, records = read_repo(
                    [answer.content], space=space, author=reader.did, key=key
                )
                found = {record.rkey: record.value for record in records}
                number = found["last"]["number"]
                assert found == contents(number)
                assert len(index) == SIZE + 1
                assert number >= known
                got.append((commit.rev, number))
        return got

    with signed_in(process) as alice, ThreadPoolExecutor(CLIENTS + 1) as pool:
        space = good(alice.create_space(skey="busy"))["uri"]
        writer = Writer(alice, space)
        key = alice.key()
        writing = pool.submit(writer.until, over)
        try:
            clients = [pool.submit(download, key) for _ in range(CLIENTS)]
            each = [client.result() for client in clients]
        finally:
            over.set()
        writing.result()
    # What one client gets is never older than what it had, and a revision is one content.
    assert all(got == sorted(got) for got in each)
    pairs = [pair for got in each for pair in got]
    assert len(pairs) == DOWNLOADS
    assert len(set(pairs)) == len({rev for rev, _ in pairs}) == len({number for _, number in pairs})
    # It was written to meanwhile.
    assert len(set(pairs)) > DOWNLOADS // 20
    assert process.log() == ""
    record_property("downloads", len(pairs))
    record_property("different downloads", len(set(pairs)))
    record_property("batches written meanwhile", writer.acknowledged - SIZE)
    record_property("memory of the host", process.memory())
