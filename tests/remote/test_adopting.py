"""A space of the home's own key moves under an account, whole or not at all."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select

from lettaspace import Space
from lettaspace.conversation.listing import Listing
from lettaspace.conversation.records import (
    AGENT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    Address,
    default_space,
    envelope,
)
from lettaspace.conversation.space import IDENTITY_FILE, STORE_FILE
from lettaspace.conversation.usage import UsageCounter
from lettaspace.errors import Conflict, Damaged, InvalidInput, NotFound
from lettaspace.letta.importer import import_directory
from lettaspace.remote import replicas
from lettaspace.remote.adopting import BACKUP, adopt
from lettaspace.space import schema
from lettaspace.space.writes import Create
from tests.conformance.kit import user
from tests.export.spaces import fill, problems, records
from tests.letta import build

MIRA = "did:plc:mira2mira2mira2mira2mira"
BOB = "did:web:bob.example"
HOST = "https://host.example"
ROOT = Path(__file__).parents[2]

TABLES = (
    schema.records,
    schema.blobs,
    schema.blob_refs,
    schema.message_conversations,
    schema.message_index,
    schema.message_covers,
    schema.append_keys,
    schema.search_text,
    schema.sources,
)


@pytest.fixture
def full(home: Path) -> Iterator[Space]:
    """A space with something of everything."""
    with Space.open(home) as space:
        fill(space)
        talk = space.create_conversation(space.address.agent("agent-otter"), title="keys")
        talk.append(user("kept once"), key="k1")
        yield space


def look(space: Space) -> dict[str, Any]:
    """All that a reader sees, without whose it is."""
    own = space.address.prefix
    talks = {}
    for info in space.conversations():
        assert info.uri.startswith(own)
        assert info.agent.startswith(own)
        window = space.window(info.uri)
        prompt = space.prompt(info.rkey)
        talks[info.rkey] = (
            (info.title, info.messages, info.active, info.created_at, info.updated_at),
            [(each.rkey, each.seq, each.payload()) for each in window.messages],
            [each.rkey for each in window.left_out],
            [
                (
                    each.rkey,
                    each.seq,
                    each.status,
                    each.covered_by,
                    each.created_at,
                    each.updated_at,
                )
                for each in space.transcript(info.uri)
            ],
            None if prompt is None else prompt.value["content"],
        )
    hits = {
        text: (
            [
                (hit.message.rkey, hit.snippet, hit.copy_of and hit.copy_of[len(own) :])
                for hit in found.hits
            ],
            found.total,
            found.distinct,
        )
        for text in ("jars", "tiles 1", "SUM", "e")
        if (found := space.search(text, limit=1000))
    }
    agents = [(each.rkey, each.name, each.conversations, each.messages) for each in space.agents()]
    return {"talks": talks, "hits": hits, "agents": agents, "usage": space.usage().total}


def rows(space: Space) -> dict[str, int]:
    with space.database.read() as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in TABLES
        }


def everything(space: Space) -> list[str]:
    """The store's content, as statements."""
    with closing(sqlite3.connect(space.home / STORE_FILE)) as connection:
        return list(connection.iterdump())


def moved(home: Path, **options: Any) -> Any:
    with Space.open(home) as space:
        return adopt(space, MIRA, HOST, **options)


def account(space: Space, did: str = MIRA) -> Space:
    """The account's own repo in the same store, open for writing."""
    address = Address(default_space(did), did)
    return Space(space.home, space.identity, space.database, address)


def test_everything_stays_and_belongs_to_the_account(home: Path, full: Space) -> None:
    before, size = look(full), rows(full)
    counts: dict[str, int] = {}
    for collection, _ in records(full):
        counts[collection] = counts.get(collection, 0) + 1
    done = adopt(full, MIRA, HOST)
    assert (done.records, done.known, done.already) == (counts, 0, False)
    assert (done.old, done.new) == (str(full.ref), str(default_space(MIRA)))
    old = full.identity.did
    with Space.open(home) as space:
        assert space.address == Address(default_space(MIRA), MIRA)
        assert space.identity.did == old
        assert look(space) == before
        assert rows(space) == size
        assert problems(space) == []
        with space.database.read() as connection:
            assert space.database.authors() == [MIRA]
            own = replicas.own(connection)
            assert own is not None
            assert (own.author, own.host, own.rev) == (MIRA, HOST, None)
            for uri in connection.execute(select(schema.message_conversations.c.uri)).scalars():
                assert uri.startswith(space.address.prefix)
        again = space.conversation(next(k for k, v in before["talks"].items() if v[0][0] == "keys"))
        assert again.append(user("kept once"), key="k1").seq == 1
        assert again.append(user("and on")).seq == 2


def test_strong_references_hold(home: Path, full: Space) -> None:
    adopt(full, MIRA, HOST)
    with Space.open(home) as space:
        forks = [each for each in space.repo.records(CONVERSATION) if "forkedFrom" in each.value]
        assert len(forks) == 2
        for fork in forks:
            for ref in fork.value["forkedFrom"].values():
                assert str(space.record(ref["uri"]).cid) == ref["cid"]


def test_payloads_that_name_the_old_place_are_not_touched(home: Path, full: Space) -> None:
    agent = full.repo.get(AGENT, "agent-otter")
    assert agent is not None
    adopt(full, MIRA, HOST)
    with Space.open(home) as space:
        assert space.repo.get(AGENT, "agent-otter") == agent


def test_a_dry_run_changes_nothing_and_says_the_same(home: Path, full: Space) -> None:
    before = everything(full)
    told = adopt(full, MIRA, HOST, dry_run=True)
    assert everything(full) == before
    assert not (home / BACKUP).exists()
    done = adopt(full, MIRA, HOST, backup=False)
    assert told.to_json() == {**done.to_json(), "dryRun": True}
    assert sum(told.records.values()) > 20


def test_a_second_time_there_is_nothing_to_do(home: Path, full: Space) -> None:
    adopt(full, MIRA, HOST)
    with Space.open(home) as space:
        before = everything(space)
        for dry in (True, False):
            done = adopt(space, MIRA, HOST, dry_run=dry)
            assert (done.already, done.records, done.backup) == (True, {}, None)
        assert everything(space) == before
        with pytest.raises(Conflict, match=f"this home is {MIRA}"):
            adopt(space, BOB, HOST)
        assert everything(space) == before


def test_the_copy_is_the_store_as_it_was(home: Path, full: Space, tmp_path: Path) -> None:
    before = look(full)
    done = adopt(full, MIRA, HOST)
    assert done.backup == home / BACKUP
    assert done.backup.stat().st_mode & 0o077 == 0
    old = tmp_path / "old"
    old.mkdir()
    shutil.copy(done.backup, old / STORE_FILE)
    shutil.copy(home / IDENTITY_FILE, old / IDENTITY_FILE)
    with Space.open(old) as space:
        assert space.address.author == full.identity.did
        assert look(space) == before
        assert problems(space) == []
    assert {each.name for each in home.iterdir()} <= {
        BACKUP,
        IDENTITY_FILE,
        STORE_FILE,
        f"{STORE_FILE}-wal",
        f"{STORE_FILE}-shm",
    }


class Broken(Exception):
    pass


def test_what_breaks_off_leaves_the_space_as_it_was(home: Path, full: Space) -> None:
    before = look(full)

    def breaks(_what: str, done: int, total: int) -> None:
        if done == total:
            raise Broken

    with pytest.raises(Broken):
        adopt(full, MIRA, HOST, progress=breaks)
    assert look(full) == before
    with Space.open(home) as space:
        assert space.address.author == full.identity.did
        assert problems(space) == []
        assert not adopt(space, MIRA, HOST).already
    with Space.open(home) as space:
        assert look(space) == before


def test_a_kill_leaves_the_space_as_it_was(home: Path, full: Space) -> None:
    before = look(full)
    code = (
        "import os, signal, sys\n"
        "from lettaspace import Space\n"
        "from lettaspace.remote.adopting import adopt\n"
        "def kill(what, done, total):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "with Space.open(sys.argv[1]) as space:\n"
        f"    adopt(space, {MIRA!r}, {HOST!r}, progress=kill)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(home)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (home / BACKUP).exists()
    with Space.open(home) as space:
        assert look(space) == before
        assert problems(space) == []
        adopt(space, MIRA, HOST)
    with Space.open(home) as space:
        assert look(space) == before


def test_who_has_it_open_meanwhile_writes_nowhere(home: Path, full: Space) -> None:
    talk = full.conversation(full.conversations()[0].rkey)
    counter = UsageCounter(full)
    counter.report()
    with Listing(full) as listing:
        assert listing.conversations()[1] > 3
        moved(home)
        for write in (
            lambda: talk.append(user("late")),
            lambda: talk.append(user("late"), key="late"),
            lambda: full.create_agent("Late"),
            lambda: full.repo.run(lambda _tx: None),
        ):
            with pytest.raises(NotFound, match=r"has no repo in .* any more"):
                write()
        listing.refresh()
        assert listing.conversations() == ([], 0)
        assert full.conversations() == []
        assert counter.report().total == full.usage().total
    with Space.open(home) as space:
        assert space.search("late").total == 0
        assert problems(space) == []


def test_what_names_somebody_else_stays(home: Path, full: Space) -> None:
    theirs = Address(full.ref, BOB).conversation("3lalalalala22")
    agent = full.address.agent("agent-otter")
    message = {
        "conversation": theirs,
        "agent": agent,
        "role": "user",
        "seq": 1,
        "message": envelope("letta.localMessage", 1, user("at yours")),
        "createdAt": "2024-03-05T10:00:00.000Z",
    }
    summary = {**message, "seq": 2, "compactedMessageIds": ["3lalalalala33"]}
    full.repo.apply_writes(
        [Create(MESSAGE, "3lalalalala33", message), Create(MESSAGE, "3lalalalala44", summary)]
    )
    size = rows(full)
    adopt(full, MIRA, HOST)
    with Space.open(home) as space:
        assert rows(space) == size
        assert problems(space) == []
        stored = space.repo.get(MESSAGE, "3lalalalala33")
        assert stored is not None
        assert stored.value["conversation"] == theirs
        assert stored.value["agent"] == space.address.agent("agent-otter")
        assert [each.rkey for each in space.active(theirs)] == ["3lalalalala44"]
        assert theirs in [each.uri for each in space.conversations()]


def test_what_the_account_has_here_already_stays(home: Path, full: Space, tmp_path: Path) -> None:
    """Two homes with the same history: what one adopted is in the other, where it is adopted."""
    other = tmp_path / "other"
    moved(_copy(full, other))
    before = look(full)
    with Space.open(other) as there:
        repo = account(full).repo
        known = 0
        for collection in (AGENT, CONVERSATION, CONVERSATION_STATE, MESSAGE):
            some = list(there.repo.records(collection))[::2]
            repo.apply_writes([Create(collection, each.rkey, each.value) for each in some])
            known += len(some)
        told = adopt(full, MIRA, HOST, dry_run=True)
        assert told.known == known
        done = adopt(full, MIRA, HOST)
        assert (done.known, done.records) == (known, told.records)
        with Space.open(home) as space:
            assert look(space) == before
            assert problems(space) == []
            assert records(space) == records(there)


def test_what_differs_is_not_decided(home: Path, full: Space, tmp_path: Path) -> None:
    other = tmp_path / "other"
    moved(_copy(full, other))
    with Space.open(other) as there:
        repo = account(full).repo
        (agent,) = there.repo.records(AGENT)
        repo.apply_writes([Create(AGENT, agent.rkey, {**agent.value, "name": "Heron"})])
        info = next(each for each in there.conversations() if each.title == "jars")
        talk = there.repo.get(CONVERSATION, info.rkey)
        assert talk is not None
        repo.apply_writes([Create(CONVERSATION, info.rkey, talk.value)])
        for each in there.transcript(info.uri):
            repo.apply_writes([Create(MESSAGE, each.rkey, each.value)])
        here = account(full).conversation(info.rkey)
        here.append(user("only there"))
        full.conversation(info.rkey).append(user("only here"))
    before = everything(full)
    for dry in (True, False):
        with pytest.raises(Conflict, match=r"1 records differ .* 1 conversations went on in both"):
            adopt(full, MIRA, HOST, dry_run=dry)
        assert everything(full) == before


def test_a_conversation_that_left_an_older_version_is_none_that_differs(
    home: Path, full: Space, tmp_path: Path
) -> None:
    source = full.create_conversation("agent-otter", title="source")
    source.append(user("one"))
    fork = source.fork()
    other = tmp_path / "other"
    moved(_copy(full, other))
    source.rewrite(source.window().messages[0].rkey, user("two"))
    with Space.open(other) as there:
        record = there.repo.get(CONVERSATION, fork.rkey)
        assert record is not None
        account(full).repo.apply_writes([Create(CONVERSATION, fork.rkey, record.value)])
    assert adopt(full, MIRA, HOST).known == 1
    with Space.open(home) as space:
        stored = space.repo.get(CONVERSATION, fork.rkey)
        assert stored is not None
        assert stored.value == record.value


def test_a_member_becomes_the_author(home: Path, full: Space) -> None:
    replicas.add_member(full.database, str(default_space(MIRA)), MIRA, "https://old.example")
    adopt(full, MIRA, HOST)
    with Space.open(home) as space, space.database.read() as connection:
        own = replicas.own(connection)
        assert own is not None
        assert (own.author, own.host) == (MIRA, HOST)


def test_a_space_without_records_is_attached(home: Path) -> None:
    with Space.open(home) as space:
        done = adopt(space, MIRA, HOST)
        assert (done.records, done.already, done.backup) == ({}, False, None)
        with pytest.raises(NotFound, match="any more"):
            space.create_agent("Late")
    with Space.open(home) as space:
        assert space.address.author == MIRA
        space.create_agent("Otter")


def test_in_a_shared_space_nothing_is_left_to_adopt(home: Path) -> None:
    with Space.open(home) as space:
        replicas.attach(space.database, MIRA, HOST, space=str(default_space(BOB)))
    with Space.open(home) as space:
        done = adopt(space, MIRA, HOST)
        assert (done.already, done.new) == (True, str(default_space(BOB)))


def test_without_the_key_an_accounts_space_opens(home: Path, full: Space) -> None:
    adopt(full, MIRA, HOST)
    (home / IDENTITY_FILE).unlink()
    with Space.open(home) as space:
        assert space.address.author == MIRA
        assert len(space.conversations()) > 3
        assert adopt(space, MIRA, HOST).already


def test_what_is_damaged_is_not_moved(home: Path, full: Space) -> None:
    with full.database.write() as connection:
        connection.exec_driver_sql(
            "UPDATE records SET value = x'a0' WHERE collection = ? AND id = "
            "(SELECT max(id) FROM records WHERE collection = ?)",
            (MESSAGE, MESSAGE),
        )
    before = everything(full)
    with pytest.raises(Damaged, match="verify"):
        adopt(full, MIRA, HOST, backup=False)
    assert [line for line in everything(full) if MIRA not in line] == before


def test_only_a_did_is_an_account(full: Space) -> None:
    with pytest.raises(InvalidInput):
        adopt(full, "mira.example", HOST)


def _copy(space: Space, home: Path) -> Path:
    home.mkdir()
    space.database.backup(home / STORE_FILE)
    shutil.copy(space.home / IDENTITY_FILE, home / IDENTITY_FILE)
    return home


# What came from Letta's directory.


def write_letta(root: Path) -> None:
    """Two agents, three conversations, a compaction, a prompt, something large."""
    store = build.Store(root)
    store.agent()
    store.agent("agent-heron", name="Heron")
    store.conversation(build.rows(build.b1()), prompt=build.prompt())
    large = [build.message(1, "user", "List."), build.message(2, "user", "jar\n" * 60_000)]
    store.conversation(build.rows(large), key="default:agent-heron", agent="agent-heron")
    kept = [build.message(number, "user", f"no. {number}") for number in range(1, 5)]
    made = build.rows(kept)
    made.append(build.compaction(build.message(9, "user", "SUM"), "c1", "e4", "e3", 4, 3))
    store.conversation(
        made,
        ["ui-msg-9", "ui-msg-3", "ui-msg-4"],
        key="conversation:local-conv-2",
        created=build.at(7),
    )


def test_two_machines_have_the_same_records(tmp_path: Path) -> None:
    write_letta(tmp_path / "letta")
    found = []
    for name in ("one", "two"):
        with Space.open(tmp_path / name) as space:
            import_directory(space, tmp_path / "letta")
            adopt(space, MIRA, HOST)
        with Space.open(tmp_path / name) as space:
            found.append((records(space), space.repo.set_hash().state))
    assert found[0] == found[1]
    assert len(found[0][0]) > 5


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_later_import_finds_it_unchanged(home: Path, tmp_path: Path, forgotten: bool) -> None:
    write_letta(tmp_path / "letta")
    with Space.open(home) as space:
        import_directory(space, tmp_path / "letta")
        adopt(space, MIRA, HOST)
    with Space.open(home) as space:
        if forgotten:
            with space.database.write() as connection:
                connection.execute(delete(schema.sources))
        before = space.repo.rev()
        report = import_directory(space, tmp_path / "letta")
        assert space.repo.rev() == before
        assert [each.outcome for each in report.conversations] == ["unchanged"] * 3
        assert [each.read for each in report.conversations] == [forgotten] * 3
        assert len(space.conversations()) == 3
