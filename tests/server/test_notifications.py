"""News of writes, in and out: who may send them, what is refused, who is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lettaspace.atproto import data, tid
from lettaspace.atproto.uri import SpaceRef
from lettaspace.server.policies import AppAccess, MemberList, Public, Settings
from lettaspace.server.spaces import Spaces
from lettaspace.server.writers import Change, Writers
from lettaspace.space.database import Database
from tests.server.hosts import NOW, Clock, Server
from tests.server.parties import (
    MEMBERS,
    PUBLIC,
    SIMPLE,
    SPACE,
    TYPE,
    Reader,
    Service,
    User,
    error,
    managed_by,
    service,
    settle,
)

WRITE = SPACE + "notifyWrite"
HASH = bytes(range(32))


def rev(seconds: float = 0, clock_id: int = 0) -> str:
    """A revision so many seconds from the tests' now."""
    return tid.encode(int((NOW + seconds) * 1_000_000), clock_id)


@pytest.fixture
def alice(server: Server) -> User:
    return User(server, "alice")


@pytest.fixture
def bob(server: Server) -> User:
    return User(server, "bob")


@pytest.fixture
def syncer() -> Iterator[Service]:
    with service() as running:
        yield running


def notify(alice: User, bob: User, space: str, **more: Any) -> Any:
    """Bob's host tells alice's of a write."""
    audience = more.pop("audience", alice.did + "#atproto_space_host")
    body = {"space": space, "repo": bob.did, "repoRev": rev(), "hash": HASH} | more
    return bob.service_post(alice.server, WRITE, audience, **body)


def repos(alice: User, space: str, **params: Any) -> list[dict[str, Any]]:
    reader = Reader(alice.server).open(alice, space)
    answer = reader.get(SPACE + "listRepos", alice.did, space=space, **params)
    assert answer.status_code == 200, answer.text
    listed: list[dict[str, Any]] = data.loads(answer.content)["repos"]
    return listed


def test_a_write_is_taken_note_of_once(alice: User, bob: User) -> None:
    space = alice.create(write=PUBLIC)
    assert repos(alice, space) == []
    assert notify(alice, bob, space).status_code == 200
    (listed,) = repos(alice, space)
    assert {**listed, "spaceRev": ""} == {
        "did": bob.did,
        "repoRev": rev(),
        "hash": HASH,
        "spaceRev": "",
    }
    # What is not newer changes nothing, whatever it says of the hash, and is no error.
    for again in ({}, {"hash": bytes(32)}, {"repoRev": rev(-1)}, {"spaceRev": rev(99)}):
        assert notify(alice, bob, space, **again).status_code == 200
        assert repos(alice, space) == [listed]
    # Both names of the authority's host are good, and what a sender says of the space is not.
    newer = {"repoRev": rev(0, 1), "spaceRev": rev(-50), "prevSpaceRev": rev(-60)}
    assert notify(alice, bob, space, audience=alice.did, **newer).status_code == 200
    (now,) = repos(alice, space)
    assert now["repoRev"] == rev(0, 1)
    assert now["spaceRev"] > listed["spaceRev"]
    assert repos(alice, space, cursor=listed["spaceRev"]) == [now]
    assert repos(alice, space, cursor=now["spaceRev"]) == []


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"repoRev": "x"}, (400, "InvalidRequest")),
        ({"repoRev": rev()[:-1]}, (400, "InvalidRequest")),
        ({"hash": b"abc"}, (400, "InvalidRequest")),
        ({"hash": b""}, (400, "InvalidRequest")),
        ({"hash": "abc"}, (400, "InvalidRequest")),
        ({"repo": "did:web:zoe.example"}, (403, "Forbidden")),
        ({"audience": "did:web:zoe.example"}, (403, "Forbidden")),
        ({"repoRev": rev(301)}, (400, "FutureRev")),
        ({"repoRev": "zzzzzzzzzzzzz"}, (400, "InvalidRequest")),
        ({"repoRev": "jzzzzzzzzzzzz"}, (400, "FutureRev")),
        ({"repoRev": rev(300)}, None),
    ],
)
def test_what_is_refused(
    alice: User, bob: User, change: dict[str, Any], refusal: tuple[int, str] | None
) -> None:
    space = alice.create(write=PUBLIC)
    answer = notify(alice, bob, space, **change)
    if refusal is None:
        assert answer.status_code == 200
    else:
        assert error(answer) == refusal
        assert repos(alice, space) == []


def test_spaces_that_are_not_here(alice: User, bob: User) -> None:
    space = alice.create(write=PUBLIC)
    other = f"at://did:web:zoe.example/space/{TYPE}/self"
    audience = "did:web:zoe.example"
    for uri, more in ((other, {"audience": audience}), (space + "x", {})):
        assert error(notify(alice, bob, uri, **more)) == (400, "SpaceNotFound")
    assert alice.post(SIMPLE + "deleteSpace", space=space).status_code == 200
    assert error(notify(alice, bob, space)) == (400, "SpaceNotFound")
    nobody = alice.server.client.post(f"/xrpc/{WRITE}", json={})
    assert nobody.status_code in (400, 401)


def test_who_may_write(alice: User, bob: User, syncer: Service) -> None:
    space = alice.create(write=MEMBERS)
    assert error(notify(alice, bob, space)) == (403, "Forbidden")
    alice.admit(space, bob.did, read=True, write=False)
    assert error(notify(alice, bob, space)) == (403, "Forbidden")
    alice.admit(space, bob.did, read=False, write=True)
    assert notify(alice, bob, space).status_code == 200
    # Whoever may not write any more stays where they were.
    alice.admit(space, bob.did, read=True, write=False)
    assert error(notify(alice, bob, space, repoRev=rev(1))) == (403, "Forbidden")
    assert [each["repoRev"] for each in repos(alice, space)] == [rev()]
    # The authority always may.
    assert notify(alice, alice, space, repo=alice.did).status_code == 200
    managed = alice.create("managed", write=managed_by(syncer.id))
    syncer.answer = {"authorized": False}
    assert error(notify(alice, bob, managed)) == (403, "Forbidden")
    syncer.answer = {"authorized": True}
    assert notify(alice, bob, managed).status_code == 200
    assert syncer.queries[1] == {"space": managed, "user": bob.did, "access": "write"}


def test_writes_on_the_authoritys_own_host_need_no_call(alice: User, bob: User) -> None:
    """Bob and alice are on one host: there is nothing in the outbox at any time."""
    space = alice.create(write=MEMBERS)
    bob.write(space, "not a member yet")
    assert repos(alice, space) == []
    alice.admit(space, bob.did)
    bob.write(space)
    alice.write(space)
    listed = repos(alice, space)
    assert [each["did"] for each in listed] == [bob.did, alice.did]
    for user, each in zip((bob, alice), listed, strict=True):
        answer = user.get(SPACE + "getLatestCommit", space=space, repo=user.did)
        commit = data.loads(answer.content)["commit"]
        assert (each["repoRev"], each["hash"]) == (commit["rev"], commit["hash"])


def test_a_managing_app_is_asked_beside_a_local_write(
    alice: User, bob: User, syncer: Service
) -> None:
    space = alice.create(write=managed_by(syncer.id))
    syncer.answer = {"authorized": True}
    bob.write(space)
    settle(alice.server)
    assert [each["did"] for each in repos(alice, space)] == [bob.did]
    syncer.answer = {"authorized": False}
    bob.write(space)
    settle(alice.server)
    (listed,) = repos(alice, space)
    commit = bob.get(SPACE + "getLatestCommit", space=space, repo=bob.did).json()["commit"]
    assert listed["repoRev"] < commit["rev"]


def test_pages_of_repos(alice: User, bob: User) -> None:
    space = alice.create(write=PUBLIC)
    alice.write(space)
    bob.write(space)
    reader = Reader(alice.server).open(alice, space)

    def page(**params: Any) -> dict[str, Any]:
        answer = reader.get(SPACE + "listRepos", alice.did, space=space, **params)
        value: dict[str, Any] = answer.json()
        return value

    first = page(limit=1)
    assert [each["did"] for each in first["repos"]] == [alice.did]
    assert first["cursor"] == first["repos"][-1]["spaceRev"]
    # A writer can come again while one pages, and then with its newest write.
    alice.write(space)
    second = page(limit=5, cursor=first["cursor"])
    assert [each["did"] for each in second["repos"]] == [bob.did, alice.did]
    assert second["cursor"] == second["repos"][-1]["spaceRev"]
    assert page(cursor=second["cursor"]) == {"repos": []}
    # Any text is a cursor, and compared as one.
    assert page(cursor="0") == page()
    assert page(cursor="zzzz") == {"repos": []}
    answer = reader.get(SPACE + "listRepos", alice.did, space=space, limit=1001)
    assert error(answer) == (400, "InvalidRequest")
    for headers in ({}, alice.bearer):
        answer = alice.server.client.get(
            f"/xrpc/{SPACE}listRepos", params={"space": space}, headers=headers
        )
        assert answer.status_code == 401


# Registrations


def test_a_service_is_told_until_it_is_not(alice: User, syncer: Service) -> None:
    space = alice.create()
    reader = Reader(alice.server).open(alice, space)
    register, unregister = SPACE + "registerNotify", SPACE + "unregisterNotify"
    target = {"space": space, "service": syncer.id}
    answer = reader.post(register, alice.did, **target)
    assert answer.json() == {"expiresAt": "2026-09-22T14:13:20.000Z"}
    alice.write(space)
    (first,) = syncer.wait(1)
    assert "prevSpaceRev" not in first
    assert syncer.auth() == (alice.did, syncer.id, WRITE)
    # Half a day later it is renewed, and then good for a whole one.
    alice.server.clock.pass_(43_200)
    syncer.passed = 43_200
    alice.sign_in()
    reader = Reader(alice.server).open(alice, space)
    answer = reader.post(register, alice.did, **target)
    assert answer.json() == {"expiresAt": "2026-09-23T02:13:20.000Z"}
    alice.server.clock.pass_(86_399)
    syncer.passed += 86_399
    alice.sign_in()
    alice.write(space)
    assert syncer.wait(2)[1]["prevSpaceRev"] == first["spaceRev"]
    alice.server.clock.pass_(1)
    alice.write(space)
    reader = Reader(alice.server).open(alice, space)
    assert reader.post(register, alice.did, **target).status_code == 200
    alice.write(space)
    told = syncer.wait(3)
    # What it was not told of leaves a gap.
    assert told[2]["prevSpaceRev"] > told[1]["spaceRev"]
    for _ in range(2):
        assert reader.post(unregister, alice.did, **target).status_code == 200
    alice.write(space)
    other = {"space": space, "service": "did:web:nowhere.example#gone"}
    assert reader.post(unregister, alice.did, **other).status_code == 200
    assert reader.post(register, alice.did, **target).status_code == 200
    alice.write(space)
    assert len(syncer.wait(4)) == 4


def test_an_account_is_told_at_its_own_host(alice: User, syncer: Service) -> None:
    """A DID alone is that of an account, and what is for it goes to its PDS."""
    space = alice.create()
    reader = Reader(alice.server).open(alice, space)
    target = {"space": space, "service": syncer.did}
    assert reader.post(SPACE + "registerNotify", alice.did, **target).status_code == 200
    alice.write(space)
    syncer.wait(1)
    assert syncer.auth() == (alice.did, syncer.did, WRITE)


@pytest.mark.parametrize(
    "service_id", ["", "x", "did:web:gone.localhost%3A1", "did:plc:x", "{did}#other", "{did}#"]
)
def test_services_that_cannot_be_found(alice: User, syncer: Service, service_id: str) -> None:
    space = alice.create()
    reader = Reader(alice.server).open(alice, space)
    body = {"space": space, "service": service_id.format(did=syncer.did)}
    answer = reader.post(SPACE + "registerNotify", alice.did, **body)
    assert error(answer) == (400, "ServiceNotResolvable")


def test_a_space_has_so_many_services(
    alice: User, syncer: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lettaspace.server.notifications.MAX_REGISTRATIONS", 1)
    space = alice.create()
    register = SPACE + "registerNotify"
    reader = Reader(alice.server).open(alice, space)
    for service_id, status in ((syncer.id, 200), (syncer.id, 200), (syncer.did, 400)):
        body = {"space": space, "service": service_id}
        assert reader.post(register, alice.did, **body).status_code == status
    alice.server.clock.pass_(86_400)
    alice.sign_in()
    reader = Reader(alice.server).open(alice, space)
    body = {"space": space, "service": syncer.did}
    assert reader.post(register, alice.did, **body).status_code == 200


# Without HTTP: revisions of a space

REF = SpaceRef("did:web:alice.example", TYPE, "self")
URI = str(REF)


@pytest.fixture
def spaces(database: Database, clock: Clock) -> Spaces:
    spaces = Spaces(database, clock)
    spaces.create(REF, Settings(MemberList(), Public(), AppAccess()))
    return spaces


def note(database: Database, known: Writers, did: str, repo_rev: str) -> Change | None:
    def work(connection: Any) -> Change | None:
        held = known.hold(connection, URI)
        return held and known.note(connection, held, did, repo_rev, HASH)

    return database.run(work)


def test_revisions_rise_across_processes(database: Database, clock: Clock, spaces: Spaces) -> None:
    """Each `Writers` stands for a process: a clock that stands still, and no common memory."""
    processes = [Writers(database, clock) for _ in range(4)]
    start = threading.Barrier(len(processes))

    def work(number: int) -> list[Change]:
        start.wait()
        done = [
            note(database, processes[number], f"did:web:w{number}.example", rev(step))
            for step in range(10)
        ]
        return [change for change in done if change]

    with ThreadPoolExecutor(4) as pool:
        changes = [change for done in pool.map(work, range(4)) for change in done]
    assert len(changes) == 40
    chain = {change.prev: change.writer.space_rev for change in changes}
    # One chain without a fork, from nothing to the newest, rising.
    seen = []
    at = chain.get(None)
    while at is not None:
        seen.append(at)
        at = chain.get(at)
    assert len(seen) == 40
    assert seen == sorted(seen)
    listed = processes[0].page(URI, "", 100)
    assert len(listed) == 4
    assert listed[-1].space_rev == seen[-1]


def test_revisions_rise_though_the_clock_goes_back(
    database: Database, clock: Clock, spaces: Spaces
) -> None:
    clock.pass_(30 * 86_400)
    first = note(database, Writers(database, clock), "did:web:a.example", rev())
    clock.pass_(-30 * 86_400)
    second = note(database, Writers(database, clock), "did:web:b.example", rev())
    assert first is not None
    assert second is not None
    assert second.writer.space_rev > first.writer.space_rev
    assert second.prev == first.writer.space_rev


def test_a_space_made_anew_begins_a_new_chain(
    database: Database, clock: Clock, spaces: Spaces
) -> None:
    known = Writers(database, clock)
    first = note(database, known, "did:web:a.example", rev(5))
    spaces.delete(URI)
    assert note(database, known, "did:web:a.example", rev(6)) is None
    assert known.page(URI, "", 10) == []
    spaces.create(REF, Settings(MemberList(), Public(), AppAccess()))
    again = note(database, known, "did:web:a.example", rev(5))
    assert first is not None
    assert again is not None
    # No revision is given twice, so that an old checkpoint misses nothing.
    assert again.writer.space_rev > first.writer.space_rev
    assert again.prev is None
