"""The host's tables, on either database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect

from lettaspace.errors import StoreUnavailable
from lettaspace.server import tables, vault
from lettaspace.space.database import Database
from tests.waiting import SECONDS


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where nobody has prepared anything yet."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "host.db")


OPEN = """
import sys
from lettaspace.server import tables, vault
from lettaspace.space.database import Database
with Database.open(sys.argv[1]) as database:
    tables.prepare(database)
    print(vault.secret(database, "test").hex())
"""


def test_migrations_give_the_tables_the_code_speaks_of(database: Database) -> None:
    with database.read() as connection:
        found = inspect(connection)
        for table in tables.metadata.sorted_tables:
            columns = {column["name"]: column for column in found.get_columns(table.name)}
            assert list(columns) == list(table.columns.keys()), table.name
            for column in table.columns:
                assert columns[column.name]["nullable"] == column.nullable, column
                wanted = column.type.compile(connection.dialect)
                assert columns[column.name]["type"].compile(connection.dialect) == wanted, column
            assert found.get_pk_constraint(table.name)["constrained_columns"] == [
                column.name for column in table.primary_key
            ]
            indexes = {
                index["name"]: (index["column_names"], bool(index["unique"]))
                for index in found.get_indexes(table.name)
            }
            for index in table.indexes:
                columns_of = [column.name for column in index.columns]
                assert indexes[index.name] == (columns_of, index.unique)
            uniques = {
                tuple(each["column_names"]) for each in found.get_unique_constraints(table.name)
            }
            for column in table.columns:
                assert not column.unique or (column.name,) in uniques, column
            keys = {
                tuple(each["constrained_columns"]): each["options"].get("ondelete")
                for each in found.get_foreign_keys(table.name)
            }
            for key in table.foreign_keys:
                assert keys[(key.parent.name,)] == key.ondelete == "CASCADE"
        query = f"SELECT version_num FROM {tables.VERSION_TABLE}"
        assert connection.exec_driver_sql(query).scalar() == tables.REVISION


def test_preparing_twice_changes_nothing(database: Database) -> None:
    before = vault.secret(database, "test")
    tables.prepare(database)
    assert vault.secret(database, "test") == before
    assert len(before) == 32
    assert vault.secret(database, "other") != before


def test_eight_processes_prepare_one_database(target: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, target], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(8)
    ]
    done = [process.communicate(timeout=SECONDS) for process in processes]
    assert [err for _, err in done] == [b""] * 8
    assert len({out for out, _ in done}) == 1


def test_tables_of_a_newer_version_are_refused(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql(f"UPDATE {tables.VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(StoreUnavailable, match="newer lettaspace"):
        tables.prepare(database)


def test_tables_of_somebody_else_are_left_alone(target: str) -> None:
    with Database.open(target) as database:
        with database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE sessions (mine TEXT)")
        with pytest.raises(StoreUnavailable, match="a table sessions that is not lettaspace's"):
            tables.prepare(database)
        with database.read() as connection:
            assert not inspect(connection).has_table("accounts")
