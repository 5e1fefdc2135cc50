"""What is PostgreSQL's own: sessions, locks, lost connections, crashes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from lettaspace.atproto.cid import CID
from lettaspace.conversation.space import Space
from lettaspace.errors import InvalidInput, StoreUnavailable
from lettaspace.space import postgres as module
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.sethash import SetHash, element
from lettaspace.space.verify import blob_problems, repo_problems
from lettaspace.space.writes import Create, Update, Write
from tests.postgres import Postgres
from tests.space.conftest import AUTHOR, SPACE, refuse_bad
from tests.waiting import SECONDS, until

NOTE = "com.example.note"
OTHER = "did:web:bob.example"


@pytest.fixture
def target(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def other(database: Database) -> EmbeddedRepo:
    """Another author's repo in the same store."""
    return EmbeddedRepo(database, SPACE, OTHER, validate=refuse_bad)


def terminate(target: str) -> None:
    """Ends all other connections to the database."""
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def setting(database: Database, name: str) -> str:
    with database.read() as connection:
        return str(connection.execute(text(f"SHOW {name}")).scalar_one())


def problems(repo: EmbeddedRepo) -> list[str]:
    with repo.database.read() as connection:
        found = [*repo_problems(connection, repo.id, refuse_bad, lambda *_: None)]
        found += blob_problems(connection, lambda *_: None)
    return [str(each) for each in found]


@pytest.mark.parametrize(
    ("given", "used"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")],
)
def test_commits_are_durable_whatever_was_set(target: str, given: str, used: str) -> None:
    name = target.partition("/test")[2].partition("?")[0]
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE test{name} SET synchronous_commit = {given}".encode())
    for url in (target, f"{target}&options=-csynchronous_commit%3D{given}"):
        with Database.open(url) as database:
            assert setting(database, "synchronous_commit") == used


def test_what_else_a_session_has(database: Database, target: str) -> None:
    assert setting(database, "client_encoding") == "UTF8"
    assert setting(database, "lock_timeout") == "30s"
    assert setting(database, "statement_timeout") == "2min"
    assert setting(database, "idle_in_transaction_session_timeout") == "10min"
    assert setting(database, "transaction_isolation") == "repeatable read"
    with database.write() as connection:
        shown = connection.execute(text("SHOW transaction_isolation")).scalar_one()
        assert shown == "read committed"
    with pytest.raises(StoreUnavailable, match="read-only"), database.read() as connection:
        connection.execute(text("DELETE FROM records"))


def test_a_server_without_fsync_is_refused(postgres: Postgres, target: str) -> None:
    def wait_for(value: str) -> None:
        def shown() -> Any:
            with psycopg.connect(target) as connection:
                return connection.execute("SHOW fsync").fetchone()

        postgres.execute("SELECT pg_reload_conf()")
        until(lambda: shown() == (value,))

    postgres.execute("ALTER SYSTEM SET fsync = off")
    try:
        wait_for("off")
        with pytest.raises(StoreUnavailable, match="fsync off"):
            Database.open(target)
    finally:
        postgres.execute("ALTER SYSTEM RESET fsync")
        wait_for("on")


def test_another_encoding_is_refused(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE DATABASE latin ENCODING LATIN1 LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
    )
    try:
        with pytest.raises(StoreUnavailable, match="encoding LATIN1"):
            Database.open(postgres.url("latin"))
    finally:
        postgres.execute("DROP DATABASE latin")


def test_a_database_that_is_not_there(postgres: Postgres) -> None:
    with pytest.raises(StoreUnavailable, match="postgresql:///none: there is no such database"):
        Database.open(postgres.url("none"))


def test_a_database_of_another_program(postgres: Postgres) -> None:
    with postgres.database() as name:
        with psycopg.connect(postgres.url(name)) as connection:
            connection.execute("CREATE TABLE records (mine int)")
        with pytest.raises(StoreUnavailable, match="table records that is not lettaspace's"):
            Database.open(postgres.url(name))


def test_a_wrong_password_is_not_repeated(postgres: Postgres, target: str) -> None:
    postgres.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    try:
        url = target.replace("owner@", "guarded:hunter2@")
        with pytest.raises(StoreUnavailable, match="refuses the user or the password") as caught:
            Database.open(url)
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))
        # The right one is let in, and may not do anything.
        with pytest.raises(StoreUnavailable, match="may not do that"):
            Database.open(url.replace("hunter2", "right"))
    finally:
        postgres.execute("DROP ROLE guarded")


def test_without_the_driver_it_is_named() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from lettaspace.errors import StoreUnavailable\n"
        "from lettaspace.space.database import Database\n"
        "try:\n    Database.open('postgresql://h/d')\n"
        "except StoreUnavailable as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"PostgreSQL needs its driver: install lettaspace[postgres]\n"


def test_the_embedded_library_says_that_it_needs_a_file(database: Database, tmp_path: Any) -> None:
    with pytest.raises(StoreUnavailable, match="embedded library needs a SQLite file"):
        Space(tmp_path, None, database)  # type: ignore[arg-type]


def test_a_backup_is_the_servers(database: Database, tmp_path: Any) -> None:
    with pytest.raises(StoreUnavailable, match="pg_dump"):
        database.backup(tmp_path / "copy")


def test_a_dump_brings_everything_back(
    repo: EmbeddedRepo, postgres: Postgres, target: str, tmp_path: Any
) -> None:
    blob = CID.for_raw(b"sherd")
    ref = {"$type": "blob", "ref": blob, "mimeType": "image/png", "size": 5}
    repo.apply_writes([Create(NOTE, "a", {"pic": ref})], blobs={blob: b"sherd"})

    def run(command: str, *arguments: str) -> None:
        subprocess.run([postgres.binaries / command, *arguments], check=True, capture_output=True)

    dump = str(tmp_path / "space.dump")
    run("pg_dump", "--format=custom", f"--file={dump}", target)
    with postgres.database() as name:
        run("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={postgres.url(name)}", dump)
        with Database.open(postgres.url(name), create=False) as database:
            again = EmbeddedRepo(database, SPACE, AUTHOR, validate=refuse_bad, create=False)
            assert (again.rev(), list(again.ops())) == (repo.rev(), list(repo.ops()))
            assert again.get_blob(blob) == b"sherd"
            again.apply_writes([Create(NOTE, "b", {})])
            assert problems(again) == []


def test_what_postgresql_cannot_hold_as_text(repo: EmbeddedRepo) -> None:
    with pytest.raises(InvalidInput):
        repo.get(NOTE, "a\0b")
    repo.apply_writes([Create(NOTE, "a", {"text": "a\0b"})])
    record = repo.get(NOTE, "a")
    assert record is not None
    assert record.value["text"] == "a\0b"


def test_all_connections_in_use(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.1)
    with (
        Database.open(target, connections=1) as database,
        database.read(),
        pytest.raises(StoreUnavailable, match="all connections were in use"),
        database.read(),
    ):
        pass


def test_a_statement_that_takes_too_long(database: Database) -> None:
    def sleep() -> None:
        with database.read() as connection:
            # What a session's own limit is, another test tells; nothing else need be this quick.
            connection.execute(text("SET LOCAL statement_timeout = '100ms'"))
            connection.execute(text("SELECT pg_sleep(30)"))

    with pytest.raises(StoreUnavailable, match="a statement took"):
        sleep()


def test_a_transaction_that_hangs_is_ended(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Database.open(target) as database:
        repo = EmbeddedRepo(database, SPACE, AUTHOR, validate=refuse_bad)

        def hang(view: Any) -> list[Write]:
            limit = "SET LOCAL idle_in_transaction_session_timeout = '100ms'"
            view.connection.execute(text(limit))
            with psycopg.connect(target, autocommit=True) as watching:
                while watching.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"
                ).fetchone():
                    time.sleep(0.01)
            return [Create(NOTE, "a", {})]

        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            repo.transact(hang)
        assert repo.get(NOTE, "a") is None


def test_a_lost_connection_is_one_clear_error_and_the_next_call_works(
    repo: EmbeddedRepo, target: str
) -> None:
    def lose(view: Any) -> list[Write]:
        terminate(target)
        return [Create(NOTE, "a", {})]

    with pytest.raises(StoreUnavailable, match="the connection was lost") as caught:
        repo.transact(lose)
    assert "\n" not in str(caught.value)

    def lose_reading() -> None:
        with repo.snapshot() as view:
            terminate(target)
            view.get(NOTE, "a")

    with pytest.raises(StoreUnavailable, match="the connection was lost"):
        lose_reading()
    terminate(target)
    assert repo.get(NOTE, "a") is None
    repo.apply_writes([Create(NOTE, "a", {})])


def test_a_connection_lost_at_the_end_of_a_write(database: Database, target: str) -> None:
    def write() -> None:
        with database.write() as connection:
            connection.execute(text("DELETE FROM records"))
            terminate(target)

    with pytest.raises(StoreUnavailable, match="not known whether it is stored"):
        write()


def test_a_server_that_was_away(repo: EmbeddedRepo, postgres: Postgres) -> None:
    repo.apply_writes([Create(NOTE, "a", {})])
    postgres.stop()
    try:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            repo.get(NOTE, "a")
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            repo.apply_writes([Create(NOTE, "b", {})])
    finally:
        postgres.start()
    assert repo.get(NOTE, "a") is not None
    repo.apply_writes([Create(NOTE, "b", {})])


def break_off(connection: Any, state: str) -> None:
    connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$")


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_what_the_server_breaks_off_is_tried_again(repo: EmbeddedRepo, state: str) -> None:
    calls = []

    def plan(view: Any) -> list[Write]:
        calls.append(view.get(NOTE, "a"))
        if len(calls) < 3:
            break_off(view.connection, state)
        return [Create(NOTE, "a", {})]

    assert len(repo.transact(plan)) == 1
    assert calls == [None] * 3
    assert len(list(repo.ops())) == 1


def test_it_is_not_tried_for_ever(repo: EmbeddedRepo) -> None:
    calls = []

    def plan(view: Any) -> list[Write]:
        calls.append(1)
        break_off(view.connection, "40001")
        return []

    with pytest.raises(StoreUnavailable, match="other writers were in the way"):
        repo.transact(plan)
    assert len(calls) == module.ATTEMPTS


def test_a_deadlock_ends_well(repo: EmbeddedRepo, other: EmbeddedRepo) -> None:
    both = threading.Barrier(2)
    calls = []

    def write(mine: EmbeddedRepo, theirs: EmbeddedRepo) -> None:
        first = True

        def plan(view: Any) -> list[Write]:
            nonlocal first
            calls.append(mine.author)
            if first:
                first = False
                both.wait(timeout=SECONDS)  # each holds its own row, and asks for the other one's
            view.connection.exec_driver_sql(
                f"SELECT 1 FROM repos WHERE id = {theirs.id} FOR UPDATE"
            )
            return [Create(NOTE, "a", {})]

        mine.transact(plan)

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(write, repo, other), pool.submit(write, other, repo)]:
            each.result(timeout=SECONDS)
    assert len(calls) > 2
    assert repo.get(NOTE, "a") is not None
    assert other.get(NOTE, "a") is not None


def test_writers_of_other_repos_do_not_wait(repo: EmbeddedRepo, other: EmbeddedRepo) -> None:
    def plan(_view: Any) -> list[Write]:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other.apply_writes, [Create(NOTE, "b", {})]).result(timeout=20)
        return [Create(NOTE, "a", {})]

    repo.transact(plan)
    assert repo.get(NOTE, "a") is not None
    assert other.get(NOTE, "b") is not None
    with repo.database.read() as connection:
        ids = connection.execute(text("SELECT id FROM records")).scalars().all()
    assert len(set(ids)) == 2


def test_the_same_blobs_from_many_writers_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 1)  # none is to get in another one's way
    blobs = {CID.for_raw(data): data for data in (bytes([n]) * 2000 for n in range(40))}

    def write(number: int) -> None:
        author = f"did:web:w{number}.example"
        repo = EmbeddedRepo(database, SPACE, author, validate=refuse_bad)
        turned = dict(list(blobs.items())[:: 1 if number % 2 else -1])
        refs = [
            {"$type": "blob", "ref": cid, "mimeType": "image/png", "size": 2000} for cid in turned
        ]
        repo.apply_writes([Create(NOTE, "a", {"all": refs})], blobs=turned)
        assert problems(repo) == []

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(12)))
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM blobs")).scalar_one() == 40
        assert connection.execute(text("SELECT count(*) FROM blob_refs")).scalar_one() == 480


def test_a_listing_that_is_not_read_to_its_end(repo: EmbeddedRepo) -> None:
    for start in range(0, 1200, 200):
        repo.apply_writes([Create(NOTE, f"k{n:04}", {}) for n in range(start, start + 200)])
    for _ in range(3):
        with repo.snapshot() as view:
            listing = view.records(NOTE)
            assert next(listing).rkey == "k0000"
        del listing
    with repo.snapshot() as view:
        assert len(list(view.records(NOTE))) == 1200

    def plan(view: Any) -> list[Write]:
        return [Update(NOTE, record.rkey, {"n": 1}) for record in view.records(NOTE, limit=3)]

    assert [each.rkey for each in repo.transact(plan)] == ["k0000", "k0001", "k0002"]


WRITER = """
import sys
from lettaspace.errors import StoreUnavailable
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.writes import Create, Update
NOTE = "com.example.note"
target, space, author, name = sys.argv[1:]
def plan(view):
    found = view.get(NOTE, "count")
    n = 1 if found is None else found.value["n"] + 1
    count = Create(NOTE, "count", {"n": n}) if found is None else Update(NOTE, "count", {"n": n})
    return [count, Create(NOTE, f"{name}-{n}", {"text": "x" * 500})]
with Database.open(target) as database:
    repo = EmbeddedRepo(database, space, author, validate=lambda *_: None)
    while True:
        try:
            written = repo.transact(plan)
        except StoreUnavailable:
            sys.exit(3)
        print(written[1].rkey, flush=True)
"""


@pytest.fixture
def writers(target: str) -> Iterator[list[tuple[str, subprocess.Popen[str]]]]:
    """Two processes for each of two repos, with the repo's author."""
    started = [
        (
            author,
            subprocess.Popen(
                [sys.executable, "-c", WRITER, target, SPACE, author, name],
                stdout=subprocess.PIPE,
                text=True,
            ),
        )
        for author in (AUTHOR, OTHER)
        for name in ("one", "two")
    ]
    try:
        yield started
    finally:
        for _, process in started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def acknowledged(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(count)]
    assert all(lines)
    return lines


def rest(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.read().split()


def check(repo: EmbeddedRepo, keys: set[str]) -> None:
    """The repo holds what was acknowledged, and at most the one write more of each writer whose
    acknowledgement was cut off; and all of it fits together."""
    stored = {record.rkey for record in repo.records(NOTE)} - {"count"}
    assert keys <= stored
    assert len(stored - keys) <= 2
    counted = repo.get(NOTE, "count")
    assert counted is not None
    assert counted.value["n"] == len(stored)
    assert sorted(int(key.partition("-")[2]) for key in stored) == [*range(1, len(stored) + 1)]
    assert problems(repo) == []
    folded = SetHash()
    for record in repo.records(NOTE):
        folded.add(element(NOTE, record.rkey, str(record.cid)))
    assert folded.state == repo.set_hash().state


def test_o24_writers_that_are_killed_lose_nothing_that_was_acknowledged(
    repo: EmbeddedRepo, other: EmbeddedRepo, writers: list[tuple[str, subprocess.Popen[str]]]
) -> None:
    keys: dict[str, set[str]] = {AUTHOR: set(), OTHER: set()}
    for number, (author, process) in enumerate(writers):
        keys[author].update(acknowledged(process, 5 + 7 * number))
        process.kill()
        keys[author].update(rest(process))
    check(repo, keys[AUTHOR])
    check(other, keys[OTHER])
    repo.apply_writes([Create(NOTE, "after", {})])


def test_a_server_that_is_killed_loses_nothing_that_was_acknowledged(
    repo: EmbeddedRepo,
    other: EmbeddedRepo,
    writers: list[tuple[str, subprocess.Popen[str]]],
    postgres: Postgres,
) -> None:
    keys: dict[str, set[str]] = {AUTHOR: set(), OTHER: set()}
    for author, process in writers:
        keys[author].update(acknowledged(process, 8))
    postgres.kill()
    try:
        for author, process in writers:
            keys[author].update(rest(process))
            assert process.wait(timeout=SECONDS) == 3
    finally:
        postgres.start()
    check(repo, keys[AUTHOR])
    check(other, keys[OTHER])
