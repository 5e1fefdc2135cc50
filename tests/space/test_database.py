"""Opening and sharing a store, of either kind."""

import subprocess
import sys
import threading

import pytest
from sqlalchemy import inspect, text

from lettaspace.errors import StoreUnavailable
from lettaspace.space import postgres as postgres_module
from lettaspace.space import schema
from lettaspace.space import sqlite as sqlite_module
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.writes import Create
from tests.space.conftest import AUTHOR, SPACE, refuse_bad
from tests.waiting import SECONDS

NOTE = "com.example.note"

OPEN = """
import sys
from lettaspace.space.database import Database
with Database.open(sys.argv[1]) as database, database.read() as connection:
    print(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar())
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request, tmp_path):
    """Where no store is yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "new" / "space.db")
    else:
        postgres = request.getfixturevalue("postgres")
        with postgres.database() as name:
            yield postgres.url(name)


def tables(database):
    with database.engine.connect() as connection:
        found = inspect(connection)
        return {
            name: [(column["name"], str(column["type"])) for column in found.get_columns(name)]
            for name in found.get_table_names()
        }


def test_migrations_give_the_tables_the_code_speaks_of(database):
    with database.read() as connection:
        found = inspect(connection)
        sqlite = connection.dialect.name == "sqlite"
        expected = schema.metadata.sorted_tables if sqlite else schema.EVERYWHERE
        if not sqlite:
            names = {table.name for table in expected}
            assert set(found.get_table_names()) == {*names, "alembic_version"}
        for table in expected:
            columns = {column["name"]: column for column in found.get_columns(table.name)}
            assert set(columns) == set(table.columns.keys()), table.name
            for column in table.columns:
                assert columns[column.name]["nullable"] == column.nullable, column
                wanted = column.type.compile(connection.dialect)
                assert columns[column.name]["type"].compile(connection.dialect) == wanted, column
            assert found.get_pk_constraint(table.name)["constrained_columns"] == [
                column.name for column in table.primary_key
            ]
            indexes = {
                index["name"]: index["column_names"] for index in found.get_indexes(table.name)
            }
            for index in table.indexes:
                assert indexes.get(index.name) == [column.name for column in index.columns]
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    assert version == schema.REVISION


def test_o26_eight_processes_open_a_fresh_store_together(fresh):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, fresh], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(8)
    ]
    results = [(*process.communicate(timeout=SECONDS), process.returncode) for process in processes]
    assert results == [(f"{schema.REVISION}\n".encode(), b"", 0)] * 8


def test_o26_a_failed_batch_keeps_no_lock(repo, target, monkeypatch):
    with pytest.raises(Exception, match="float"):
        repo.apply_writes([Create(NOTE, "a", {"n": 1}), Create(NOTE, "b", {"n": 0.5})])
    assert list(repo.records(NOTE)) == []
    for module in (sqlite_module, postgres_module):
        monkeypatch.setattr(module, "LOCK_SECONDS", 10.0)  # a lock that was kept is an error then
    with Database.open(target) as other:
        EmbeddedRepo(other, SPACE, AUTHOR, validate=refuse_bad).apply_writes(
            [Create(NOTE, "c", {"n": 1})]
        )
    assert [record.rkey for record in repo.records(NOTE)] == ["c"]


def test_a_store_of_a_newer_version_is_refused_untouched(database, target):
    with database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = tables(database)
    with pytest.raises(StoreUnavailable, match="newer lettaspace"):
        Database.open(target)
    assert tables(database) == before


def test_a_missing_store_is_not_made_when_only_read(fresh):
    with pytest.raises(StoreUnavailable, match="no store"):
        Database.open(fresh, create=False)
    Database.open(fresh).close()
    Database.open(fresh, create=False).close()


def test_keys_are_in_the_order_of_their_bytes(repo):
    keys = ["a", "B", "_", "b", "A", "a.b", "a-b", "ab", "~", "1", "10", "2", "Z:z"]
    repo.apply_writes([Create(NOTE, key, {}) for key in keys])
    assert [record.rkey for record in repo.records(NOTE)] == sorted(keys)
    assert [record.rkey for record in repo.records(NOTE, after="Z:z")] == [
        key for key in sorted(keys) if key > "Z:z"
    ]


def test_waiting_for_another_writer_ends_in_a_clear_error(repo, target, monkeypatch):
    for module in (sqlite_module, postgres_module):
        monkeypatch.setattr(module, "LOCK_SECONDS", 0.2)
    with Database.open(target) as other:
        waiting = EmbeddedRepo(other, SPACE, AUTHOR, validate=refuse_bad)

        def plan(_view):
            with pytest.raises(StoreUnavailable, match="another"):
                waiting.apply_writes([Create(NOTE, "b", {})])
            return [Create(NOTE, "a", {})]

        repo.transact(plan)
    assert [record.rkey for record in repo.records(NOTE)] == ["a"]


def test_a_reader_sees_one_snapshot_while_a_writer_writes(repo):
    repo.apply_writes([Create(NOTE, "a", {"n": 1})])
    with repo.snapshot() as view:
        assert view.get(NOTE, "b") is None
        repo.apply_writes([Create(NOTE, "b", {"n": 2})])
        assert view.get(NOTE, "b") is None
        assert len(list(view.records(NOTE))) == 1
    assert repo.get(NOTE, "b") is not None


def test_a_write_inside_a_write_is_a_mistake_that_is_told(repo):
    with repo.database.write(), pytest.raises(RuntimeError, match="inside"), repo.database.write():
        pass
    repo.apply_writes([Create(NOTE, "a", {"n": 1})])


def test_threads_take_turns_at_writing(repo):
    def write(name):
        for number in range(20):
            repo.apply_writes([Create(NOTE, f"{name}{number}", {"n": number})])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(repo.records(NOTE))) == 80
    assert len({op.rev for op in repo.ops()}) == 80


def test_a_transaction_that_mixes_both_ways_of_running_statements(repo):
    with repo.database.write() as connection:
        connection.execute(text("UPDATE repos SET rev = '3mbo6jo6e222b'"))
    assert repo.rev() == "3mbo6jo6e222b"

    def fail():
        with repo.database.write() as connection:
            connection.execute(text("UPDATE repos SET rev = NULL"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert repo.rev() == "3mbo6jo6e222b"
    repo.apply_writes([Create(NOTE, "a", {"n": 1})])
