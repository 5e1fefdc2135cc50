"""Which repos of a store a host has, and which of them is our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lettaspace import Space
from lettaspace.conversation.records import default_space
from lettaspace.conversation.space import IDENTITY_FILE, STORE_FILE
from lettaspace.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from lettaspace.remote import replicas
from lettaspace.remote.replicas import Replica, add_member, attach
from lettaspace.space.database import Database
from lettaspace.space.schema import EMPTY_SET_HASH

MIRA = "did:plc:mira2mira2mira2mira2mira"
BOB = "did:web:bob.example"
HOST = "https://host.example"
KEY = "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme"
SPACE = str(default_space(MIRA))


def own(space: Space) -> Replica | None:
    with space.database.read() as connection:
        return replicas.own(connection)


def test_a_new_home_becomes_the_accounts(home: Path) -> None:
    with Database.open(home / STORE_FILE) as database:
        made = attach(database, MIRA, HOST, signing_key=KEY)
    assert made == Replica(
        repo=made.repo,
        space=SPACE,
        author=MIRA,
        own=True,
        host=HOST,
        signing_key=KEY,
        rev=None,
        set_hash=EMPTY_SET_HASH,
        pushed=None,
        synced_at=None,
        problem=None,
        problem_since=None,
    )
    with Space.open(home) as space:
        assert own(space) == made
        assert (str(space.ref), space.address.author, space.repo.id) == (SPACE, MIRA, made.repo)
        assert space.create_agent("Otter").startswith(f"{SPACE}/{MIRA}/")
    with Space.open(home) as space:
        assert [each.name for each in space.agents()] == ["Otter"]


def test_another_space_than_the_default_one(home: Path) -> None:
    shared = str(default_space(BOB))
    with Space.open(home) as space:
        attach(space.database, MIRA, HOST, space=shared)
    with Space.open(home) as space:
        assert (str(space.ref), space.address.author) == (shared, MIRA)


def test_whoever_had_the_empty_space_open_finds_it_gone(home: Path) -> None:
    with Space.open(home) as space:
        attach(space.database, MIRA, HOST)
        assert space.database.authors() == [MIRA]
        with pytest.raises(NotFound, match="any more"):
            space.create_agent("Otter")


def test_a_home_has_one_account(home: Path) -> None:
    with Space.open(home) as space:
        first = attach(space.database, MIRA, HOST)
        for did, name in ((BOB, None), (MIRA, str(default_space(BOB)))):
            with pytest.raises(Conflict, match=f"this home is {MIRA}"):
                attach(space.database, did, HOST, space=name)
        again = attach(space.database, MIRA, "https://moved.example", signing_key=KEY)
        assert (again.repo, again.host, again.signing_key) == (
            first.repo,
            "https://moved.example",
            KEY,
        )
        assert own(space) == again == attach(space.database, MIRA, "https://moved.example")


def test_what_the_homes_key_wrote_is_to_be_adopted(home: Path) -> None:
    with Space.open(home) as space:
        space.create_agent("Otter")
        with pytest.raises(Conflict, match="lettaspace adopt"):
            attach(space.database, MIRA, HOST)
        assert own(space) is None
        space.create_agent("Heron")


def test_no_key_is_needed_where_an_account_writes(home: Path) -> None:
    with Space.open(home) as space:
        attach(space.database, MIRA, HOST)
        key = space.identity.did
    (home / IDENTITY_FILE).unlink()
    with Space.open(home) as space:
        assert space.address.author == MIRA
        assert space.identity.did != key


def test_a_key_is_needed_where_only_members_are_the_accounts(home: Path) -> None:
    with Space.open(home) as space:
        space.create_agent("Otter")
        add_member(space.database, SPACE, BOB, HOST)
    (home / IDENTITY_FILE).unlink()
    with pytest.raises(StoreUnavailable, match="is missing"):
        Space.open(home)


def test_members(home: Path) -> None:
    with Space.open(home) as space:
        mine = attach(space.database, MIRA, HOST)
        theirs = add_member(space.database, SPACE, BOB, "https://bob.example")
        assert (theirs.own, theirs.author, theirs.host) == (False, BOB, "https://bob.example")
        with space.database.read() as connection:
            assert replicas.members(connection) == [theirs]
            assert replicas.find(connection, SPACE, BOB) == theirs
            assert replicas.find(connection, SPACE, MIRA) == mine
            assert replicas.find(connection, str(default_space(BOB)), BOB) is None
        with pytest.raises(Conflict, match="no other member"):
            add_member(space.database, SPACE, MIRA, HOST)
        moved = add_member(space.database, SPACE, BOB, "https://new.example")
        assert (moved.repo, moved.host) == (theirs.repo, "https://new.example")
        assert own(space) == mine


def test_the_homes_own_key_is_no_member(home: Path) -> None:
    with Space.open(home) as space, pytest.raises(Conflict, match="no other member"):
        add_member(space.database, str(space.ref), space.identity.did, HOST)


def test_only_a_did_is_an_account(home: Path) -> None:
    with Space.open(home) as space:
        with pytest.raises(InvalidInput):
            attach(space.database, "mira.example", HOST, space=SPACE)
        assert own(space) is None
        space.create_agent("Otter")


def test_what_is_noted(home: Path) -> None:
    with Space.open(home) as space:
        repo = attach(space.database, MIRA, HOST).repo
        add_member(space.database, SPACE, BOB, HOST)
        with space.database.write() as connection:
            replicas.note(connection, repo, rev="3lalalalala22", set_hash=b"x" * 2048)
            replicas.note_problem(connection, repo, "unreachable", 10)
            replicas.note_problem(connection, repo, "signed out", 20)
        found = own(space)
        assert found is not None
        assert (found.rev, found.set_hash) == ("3lalalalala22", b"x" * 2048)
        assert (found.problem, found.problem_since) == ("signed out", 10)
        again = attach(space.database, MIRA, HOST)
        assert again == found
        with space.database.write() as connection:
            replicas.note_synced(connection, repo, 30)
        found = own(space)
        assert found is not None
        assert (found.synced_at, found.problem, found.problem_since) == (30, None, None)
        with space.database.read() as connection:
            (member,) = replicas.members(connection)
            assert (member.rev, member.synced_at) == (None, None)
