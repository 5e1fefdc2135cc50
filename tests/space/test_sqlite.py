"""Opening, sharing and losing the store's file."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import event, inspect

from lettaspace.errors import StoreUnavailable
from lettaspace.space import schema
from lettaspace.space import sqlite as module
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.writes import Create
from tests.space.conftest import AUTHOR, SPACE, refuse_bad


@pytest.fixture
def target(tmp_path):
    return str(tmp_path / "home" / "space.db")


def test_durable_settings(database):
    for transaction in (database.read, database.write):
        with transaction() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_only_the_owner_can_read_it(database):
    path = database.path
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    side_files = [each for each in path.parent.iterdir() if each != path]
    assert side_files
    assert all(each.stat().st_mode & 0o077 == 0 for each in side_files)


def test_o26_a_backup_holds_what_is_not_checkpointed(repo, tmp_path):
    with repo.database.read():  # a reader keeps the log from being folded in
        for number in range(20):
            repo.apply_writes([Create("com.example.note", f"n{number:02}", {"n": number})])
        repo.database.backup(tmp_path / "backup.db")
    with Database.open(tmp_path / "backup.db") as copy:
        copied = EmbeddedRepo(copy, SPACE, AUTHOR, validate=refuse_bad)
        assert len(list(copied.records("com.example.note"))) == 20


@pytest.mark.parametrize("content", [b"not a database at all, just text " * 40, b"x"])
def test_another_file_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "space.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable) as caught:
        Database.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_a_missing_store_is_not_made_when_only_read(tmp_path):
    with pytest.raises(StoreUnavailable, match="no store"):
        Database.open(tmp_path / "none" / "space.db", create=False)
    assert not (tmp_path / "none").exists()


def test_a_directory_in_its_place(tmp_path):
    (tmp_path / "space.db").mkdir()
    with pytest.raises(StoreUnavailable):
        Database.open(tmp_path / "space.db")


def test_waiting_for_the_write_lock_ends_in_a_clear_error(database, monkeypatch):
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.2)
    with (
        Database.open(database.path) as other,
        database.write(),
        pytest.raises(StoreUnavailable, match="write lock"),
        other.write(),
    ):
        pass


def test_a_full_disk_is_a_clear_error_and_loses_nothing(repo):
    repo.apply_writes([Create("com.example.note", "a", {"n": 1})])
    with repo.database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    repo.database.close()  # so that every connection learns the limit

    @event.listens_for(repo.database.engine, "connect")
    def limit(connection, _record):
        connection.execute(f"PRAGMA max_page_count = {pages}")

    large = [Create("com.example.note", f"b{number}", {"t": "x" * 60_000}) for number in range(50)]
    with pytest.raises(StoreUnavailable, match="disk is full"):
        repo.apply_writes(large)
    assert len(list(repo.records("com.example.note"))) == 1
    assert repo.get("com.example.note", "a") is not None


def test_moving_the_home_moves_the_store(repo, tmp_path):
    repo.apply_writes([Create("com.example.note", "a", {"n": 1})])
    repo.database.close()
    shutil.copytree(repo.database.path.parent, tmp_path / "moved")
    with Database.open(tmp_path / "moved" / "space.db") as moved:
        other = EmbeddedRepo(moved, SPACE, AUTHOR, validate=refuse_bad)
        assert other.get("com.example.note", "a").value["n"] == 1


def test_a_place_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="cannot open"):
        Database.open(tmp_path / "file" / "space.db")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_store_of_the_first_schema_is_brought_up_to_date(tmp_path):
    path = tmp_path / "space.db"
    Database.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX message_index_loose")
        for table in ("replicas", "mirror", "mirror_blobs", "held", "synced"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        connection.commit()
    with Database.open(path) as database, database.read() as connection:
        names = {index["name"] for index in inspect(connection).get_indexes("message_index")}
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    assert "message_index_loose" in names
    assert version == schema.REVISION


def test_a_reader_that_comes_back_after_the_end_is_closed(tmp_path):
    """Another thread closes the store at the last moment."""

    class Late(list):
        def append(self, connection):
            database.close()
            super().append(connection)

    database = Database.open(tmp_path / "space.db")
    readers = database._readers = Late()
    with database.read() as connection:
        raw = connection.connection.driver_connection
        assert raw.execute("SELECT 1").fetchone() == (1,)
    assert not readers
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        raw.execute("SELECT 1")
