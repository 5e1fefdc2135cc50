"""The outbox: stored with the write, told at once, tried again for a day, shared by processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lettaspace.atproto import data, tid
from lettaspace.atproto.keys import SigningKey
from lettaspace.server.config import Config
from lettaspace.server.host import Host
from lettaspace.server.outbox import Outbox
from lettaspace.server.removal import remove
from tests.server.hosts import NOW, PASSWORD, Clock
from tests.server.parties import TYPE, Service, pending, service
from tests.waiting import SECONDS

BOB = "did:web:bob.example"
HASH = bytes(range(32))
WRITE = "com.atproto.space.notifyWrite"


def rev(number: int) -> str:
    return tid.encode(int(NOW) * 1_000_000 + number, 0)


@pytest.fixture
def authority() -> Iterator[Service]:
    with service() as running:
        yield running


@pytest.fixture
def space(authority: Service) -> str:
    return f"at://{authority.did}/space/{TYPE}/self"


def opened(target: str, clock: Clock, jitter: float = 1.0) -> Host:
    """A host that is not being served: it tells others when it is told to."""
    config = Config("http://localhost:7480", target, development=True)
    host = Host.open(config, clock=clock)
    host.outbox = Outbox(host, jitter=lambda: jitter)
    return host


@pytest.fixture
def host(target: str, clock: Clock) -> Iterator[Host]:
    with opened(target, clock) as host:
        key = SigningKey.generate()
        host.accounts.add("bob.example", BOB, password=PASSWORD, key=key)
        yield host


def put(host: Host, space: str, number: int = 0, repo: str = BOB) -> None:
    """A write, as the transaction of one stores it, and what is done after its commit."""
    told = host.database.run(
        lambda connection: host.outbox.put(connection, space, repo, rev(number), HASH)
    )
    if told is not None:
        told()


def test_it_is_told_once(host: Host, space: str, authority: Service) -> None:
    put(host, space)
    assert host.outbox.deliver_due() == 1
    assert authority.received == [
        {"space": space, "repo": BOB, "repoRev": rev(0), "hash": data.to_json(HASH)}
    ]
    assert authority.paths == ["/xrpc/" + WRITE]
    assert authority.auth() == (BOB, authority.did + "#atproto_space_host", WRITE)
    assert pending(host) == []
    assert host.outbox.deliver_due() == 0


def test_a_write_that_is_rolled_back_is_not_told(host: Host, space: str) -> None:
    class Stop(Exception):
        pass

    def work(connection: Any) -> None:
        host.outbox.put(connection, space, BOB, rev(0), HASH)
        raise Stop

    with pytest.raises(Stop):
        host.database.run(work)
    assert pending(host) == []


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 522, 524])
def test_what_may_go_well_later_is_tried_again(
    host: Host, space: str, authority: Service, clock: Clock, status: int
) -> None:
    authority.status = status
    put(host, space)
    host.outbox.deliver_due()
    (row,) = pending(host)
    assert (row.attempts, row.next_at, row.leased_until) == (1, NOW + 60, None)
    clock.pass_(59)
    assert host.outbox.deliver_due() == 0
    clock.pass_(1)
    authority.status = 200
    assert host.outbox.deliver_due() == 1
    assert pending(host) == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 301, 501])
def test_what_is_refused_is_dropped(
    host: Host, space: str, authority: Service, status: int
) -> None:
    # The status decides, whatever the error is called.
    authority.status = status
    authority.answer = {"error": "InternalServerError", "message": ""}
    put(host, space)
    assert host.outbox.deliver_due() == 1
    assert pending(host) == []


def test_it_is_tried_for_a_day_and_more_and_more_seldom(
    host: Host, space: str, authority: Service, clock: Clock
) -> None:
    authority.status = 503
    put(host, space)
    waited = []
    while rows := pending(host):
        clock.now = rows[0].next_at
        assert host.outbox.deliver_due() == 1
        if left := pending(host):
            waited.append(left[0].next_at - clock.now)
    assert waited[:7] == [60, 120, 240, 480, 960, 1920, 3600]
    assert set(waited[6:]) == {3600}
    assert 82_800 < sum(waited) <= 86_400


def test_delays_differ(target: str, host: Host, space: str, clock: Clock) -> None:
    authority_down = space.replace("localhost", "gone.localhost")
    with opened(target, clock, jitter=0.0) as other:
        put(other, authority_down)
        other.outbox.deliver_due()
        (row,) = pending(other)
    assert row.next_at == NOW + 30


def test_the_newest_write_of_a_repo_starts_anew(
    host: Host, space: str, authority: Service, clock: Clock
) -> None:
    authority.status = 503
    put(host, space, 1)
    host.outbox.deliver_due()
    clock.pass_(1000)
    put(host, space, 2)
    (row,) = pending(host)
    assert (row.rev, row.attempts, row.next_at) == (rev(2), 0, NOW + 1000)
    assert row.deadline == NOW + 1000 + 86_400
    authority.status = 200
    host.outbox.deliver_due()
    assert [each["repoRev"] for each in authority.received] == [rev(1), rev(2)]
    # Other repos, and other spaces, have rows of their own.
    put(host, space, 3, repo="did:web:zoe.example")
    put(host, space, 3)
    put(host, space + "x", 3)
    assert len(pending(host)) == 3


@pytest.mark.parametrize("status", [200, 503])
def test_a_newer_write_meanwhile_is_not_lost(
    host: Host, space: str, authority: Service, status: int
) -> None:
    authority.is_open.clear()
    authority.status = status
    put(host, space, 1)
    at_work = threading.Thread(target=host.outbox.deliver_due)
    at_work.start()
    assert authority.arrived.acquire(timeout=SECONDS)
    put(host, space, 2)
    authority.is_open.set()
    at_work.join()
    told = [each["repoRev"] for each in authority.received]
    assert told[0] == rev(1)
    rows = pending(host)
    if status == 200:
        assert (told, rows) == ([rev(1), rev(2)], [])
    else:
        assert [(row.rev, row.attempts) for row in rows] == [(rev(2), 1)]


def test_one_process_at_a_time(
    target: str, host: Host, space: str, authority: Service, clock: Clock
) -> None:
    authority.is_open.clear()
    put(host, space)
    with opened(target, clock) as other:
        at_work = threading.Thread(target=host.outbox.deliver_due)
        at_work.start()
        assert authority.arrived.acquire(timeout=SECONDS)
        assert other.outbox.deliver_due() == 0
        # One that does not come back does not keep it for ever.
        clock.pass_(60)
        authority.is_open.set()
        at_work.join()
        put(host, space, 1)
        assert other.outbox.deliver_due() == 1
    assert [each["repoRev"] for each in authority.received] == [rev(0), rev(1)]


def test_many_processes_tell_each_once(
    target: str, host: Host, space: str, authority: Service, clock: Clock
) -> None:
    count = 40
    for number in range(count):
        key = SigningKey.generate()
        did = f"did:web:u{number}.example"
        host.accounts.add(f"u{number}.example", did, password=PASSWORD, key=key)
        put(host, space, number, repo=did)
    others = [opened(target, clock) for _ in range(3)]
    try:
        workers = [threading.Thread(target=each.outbox.deliver_due) for each in (host, *others)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        for each in others:
            each.close()
    assert sorted(each["repoRev"] for each in authority.received) == sorted(map(rev, range(count)))
    assert pending(host) == []


def test_what_a_process_wrote_it_tells_at_once(host: Host, space: str, authority: Service) -> None:
    host.outbox.start()
    try:
        put(host, space, 1)
        authority.wait(1)
        put(host, space, 2)
        assert authority.wait(2)[1]["repoRev"] == rev(2)
    finally:
        host.outbox.stop()
    assert pending(host) == []


def test_what_a_process_did_not_live_to_tell_another_does(
    target: str, host: Host, space: str, authority: Service, clock: Clock
) -> None:
    host.outbox.start()
    try:
        host.database.run(
            lambda connection: host.outbox.put(connection, space, BOB, rev(0), HASH)
        )  # and then it is gone, so that nothing follows the commit
    finally:
        host.outbox.stop()
    with opened(target, clock) as other:
        assert other.outbox.deliver_due() == 0
        clock.pass_(60)
        assert other.outbox.deliver_due() == 1
    assert len(authority.received) == 1


def test_accounts_that_are_not_active_wait(
    host: Host, space: str, authority: Service, clock: Clock
) -> None:
    account = host.accounts.get(BOB)
    host.accounts.set_state(account, "takendown")
    put(host, space)
    assert host.outbox.deliver_due() == 1
    assert authority.received == []
    host.accounts.set_state(account, "active")
    clock.pass_(60)
    assert host.outbox.deliver_due() == 1
    assert len(authority.received) == 1
    put(host, space, 1)
    remove(host.database, account, clock)
    assert pending(host) == []
    put(host, space, 2)
    host.outbox.deliver_due()
    assert pending(host) == []
    assert len(authority.received) == 1


def test_an_authority_that_cannot_be_found_may_be_later(host: Host, clock: Clock) -> None:
    for name in ("did:web:gone.localhost%3A1", "did:plc:x"):
        put(host, f"at://{name}/space/{TYPE}/self")
    assert host.outbox.deliver_due() == 2
    assert [row.attempts for row in pending(host)] == [1, 1]
