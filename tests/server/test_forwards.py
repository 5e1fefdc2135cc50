"""Telling services: in order, one at a time, and with a chain that shows what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import data, tid
from lettaspace.atproto.keys import SigningKey
from lettaspace.server import forwards
from lettaspace.server.config import Config
from lettaspace.server.forwards import DELETED, WRITE, Forwards
from lettaspace.server.host import Host
from lettaspace.server.writers import Change, Writer
from tests.server.hosts import NOW, PASSWORD, Clock
from tests.server.parties import TYPE, Service, service
from tests.waiting import SECONDS

ALICE = "did:web:alice.example"
SPACE = f"at://{ALICE}/space/{TYPE}/self"
HASH = bytes(range(32))


def rev(number: int) -> str:
    return tid.encode(int(NOW) * 1_000_000 + number, 0)


def change(number: int, who: str, *services: str, space: str = SPACE) -> Change:
    """The write that gave the space its revision of this number."""
    prev = rev(number - 1) if number else None
    return Change(
        space, Writer(f"did:web:{who}.example", rev(number), HASH, rev(number)), prev, services
    )


class Told(Forwards):
    """Forwards that go nowhere."""

    def __init__(self) -> None:
        super().__init__(cast(Host, None))
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    def _send(self, service: str, notice: Any) -> None:
        self.sent.append((service, notice.nsid, notice.body))


def chain(told: Told) -> list[tuple[str, str | None, str]]:
    return [
        (body["repo"].split(":")[2].split(".")[0], body.get("prevSpaceRev"), body["spaceRev"])
        for _, _, body in told.sent
    ]


def test_writes_are_told_in_order() -> None:
    told = Told()
    for number, who in enumerate("abc"):
        told.tell(change(number, who, "s"))
    told.flush()
    assert chain(told) == [("a", None, rev(0)), ("b", rev(0), rev(1)), ("c", rev(1), rev(2))]
    assert told.sent[0] == (
        "s",
        WRITE,
        {
            "space": SPACE,
            "repo": "did:web:a.example",
            "repoRev": rev(0),
            "hash": HASH,
            "spaceRev": rev(0),
        },
    )


def test_of_one_writer_only_the_newest_is_told() -> None:
    told = Told()
    for number, who in enumerate("abaa"):
        told.tell(change(number, who, "s"))
    told.flush()
    assert chain(told) == [("b", None, rev(1)), ("a", rev(1), rev(3))]


def test_writes_told_of_in_another_order_than_made() -> None:
    told = Told()
    for number in (1, 0, 2):
        told.tell(change(number, "a", "s"))
    told.flush()
    assert chain(told) == [("a", None, rev(2))]


def test_services_and_spaces_do_not_mix() -> None:
    told = Told()
    other = SPACE + "2"
    told.tell(change(0, "a", "s", "t"))
    told.tell(change(0, "a", "s", space=other))
    told.tell(change(1, "a", "t"))
    told.flush()
    found = [(to, body["space"], body["spaceRev"]) for to, _, body in told.sent]
    assert sorted(found) == [
        ("s", SPACE, rev(0)),
        ("s", other, rev(0)),
        ("t", SPACE, rev(1)),
    ]


def test_the_end_of_a_space_is_the_last_that_is_told_of_it() -> None:
    told = Told()
    told.tell(change(0, "a", "s"))
    told.tell(change(0, "a", "s", space=SPACE + "2"))
    told.tell_deleted(SPACE, ["s"])
    told.flush()
    assert [(nsid, body["space"]) for _, nsid, body in told.sent] == [
        (WRITE, SPACE + "2"),
        (DELETED, SPACE),
    ]


def test_there_is_an_end_to_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards, "MAX_PENDING", 2)
    told = Told()
    for number, who in enumerate("abcd"):
        told.tell(change(number, who, "s"))
    told.flush()
    # What went is a gap: the first that comes does not follow what the service knows.
    assert chain(told) == [("c", rev(1), rev(2)), ("d", rev(2), rev(3))]


@given(st.lists(st.sampled_from("abc-"), max_size=30))
def test_a_service_that_gets_everything_sees_no_gap(steps: str) -> None:
    """However far it is behind at any time; and it ends with the newest of every writer."""
    told = Told()
    number = 0
    newest: dict[str, str] = {}
    for step in steps:
        if step == "-":
            told.flush()
        else:
            told.tell(change(number, step, "s"))
            newest[step] = rev(number)
            number += 1
    told.flush()
    at = None
    seen: dict[str, str] = {}
    for who, prev, space_rev in chain(told):
        assert prev == at
        assert at is None or space_rev > at
        at = seen[who] = space_rev
    assert seen == newest


# With hosts


@pytest.fixture
def syncer() -> Iterator[Service]:
    with service() as running:
        yield running


@pytest.fixture
def host(tmp_path: Any, clock: Clock) -> Iterator[Host]:
    config = Config("http://localhost:7480", tmp_path / "host.db", development=True)
    with Host.open(config, clock=clock) as host:
        key = SigningKey.generate()
        host.accounts.add("alice.example", ALICE, password=PASSWORD, key=key)
        yield host


def test_one_at_a_time_for_each_service(host: Host, syncer: Service) -> None:
    syncer.is_open.clear()
    host.forwards.start()
    try:
        with service() as other:
            host.forwards.tell(change(0, "a", syncer.id))
            assert syncer.arrived.acquire(timeout=SECONDS)
            for number in range(1, 6):
                host.forwards.tell(change(number, "a", syncer.id, other.id))
            # A slow one holds up nobody else, and is asked nothing more meanwhile.
            other.wait(1)
            assert not syncer.arrived.acquire(blocking=False)
            syncer.is_open.set()
            told = syncer.wait(2)
    finally:
        host.forwards.stop()
    assert [each["spaceRev"] for each in told] == [rev(0), rev(5)]
    assert told[1]["prevSpaceRev"] == rev(0)
    assert told[0]["hash"] == data.to_json(HASH)
    assert syncer.auth(1) == (ALICE, syncer.id, WRITE)


@pytest.mark.parametrize("status", [400, 500, 503])
def test_what_fails_is_not_tried_again(host: Host, syncer: Service, status: int) -> None:
    syncer.status = status
    host.forwards.tell(change(0, "a", syncer.id))
    host.forwards.tell(change(1, "b", syncer.id, "did:web:gone.localhost%3A1#x"))
    host.forwards.flush()
    host.forwards.flush()
    assert [each["spaceRev"] for each in syncer.received] == [rev(0), rev(1)]


def test_where_a_service_is_is_looked_up_each_time(host: Host, syncer: Service) -> None:
    host.forwards.tell(change(0, "a", syncer.id))
    host.forwards.flush()
    with service() as moved:
        # Its document says another place now; what this host kept of the old one has aged.
        syncer.port = moved.port
        host.background.identity._documents.drop(syncer.did)
        host.forwards.tell(change(1, "a", syncer.id))
        host.forwards.flush()
        assert len(moved.received) == 1
        assert moved.auth() == (ALICE, syncer.id, WRITE)
    assert len(syncer.received) == 1
