"""Where a store is, and that no message gives a password away."""

import traceback
from pathlib import Path

import pytest

from lettaspace.errors import InvalidInput, StoreUnavailable
from lettaspace.space.database import Database
from lettaspace.space.url import PostgresURL, read_target

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (Path("a/b.db"), "a/b.db"),
        (Path("postgresql:/x"), "postgresql:/x"),  # a path is one, whatever is in it
        ("a/b.db", "a/b.db"),
        ("/a/b c.db", "/a/b c.db"),
        ("a:b/c.db", "a:b/c.db"),
        ("sqlite:///a/b.db", "a/b.db"),
        ("sqlite:////a/b.db", "/a/b.db"),
        ("SQLite:////a/b%20c%3F.db", "/a/b c?.db"),
    ],
)
def test_files(target, path):
    assert read_target(target) == Path(path)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "PostgreSQL"])
def test_servers(scheme):
    url = f"{scheme}://u:{SECRET}@db.example:5433/space"
    found = read_target(url)
    assert isinstance(found, PostgresURL)
    assert found.text == url
    assert SECRET not in repr(found)


def test_the_environment_may_say_what_the_url_does_not(monkeypatch, tmp_path):
    monkeypatch.setenv("PGHOST", str(tmp_path))
    with pytest.raises(StoreUnavailable, match="cannot be reached, or refuses"):
        Database.open("postgresql://")


@pytest.mark.parametrize(
    "target",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://host/a.db",
        f"sqlite:///a.db?key={SECRET}",
        f"sqlite:///a.db#{SECRET}",
        f"sqlite://[{SECRET}",
        f"sqlite:{SECRET}",
        f"mysql://u:{SECRET}@h/d",
        f"postgresql+psycopg://u:{SECRET}@h/d",
        f"postgresql:/u:{SECRET}@h/d",
        f"postgres:u:{SECRET}@h/d",
        f"postgresql://u:{SECRET}/@h/d",
        f"postgresql://u:123/{SECRET}@h/d",
        f"postgresql://u:123@{SECRET}@h/d",
        f"postgresql://u:{SECRET}%zz@h/d",
        f"postgresql://u:@h:{SECRET}/d",
        f"postgresql://h/d?{SECRET}",
        f"postgresql://h/d?passwort={SECRET}",
        f"postgresql://[{SECRET}/d",
        f"postgresql://u:{SECRET}\0@h/d",
    ],
)
def test_what_is_no_url_is_refused_in_one_line_without_what_it_holds(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InvalidInput, StoreUnavailable)) as caught:
        Database.open(target)
    assert "\n" not in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "target",
    [
        f"postgresql://u:{SECRET}@/d?host={{}}",
        f"postgresql://u@/d?host={{}}&password={SECRET}",
        f"postgresql://u@/d?host={{}}&options=-c%20{SECRET}%3D1",
        f"postgresql://u:{SECRET}@localhost:1/d",
        f"postgresql://u:{SECRET}@nowhere.invalid/d?connect_timeout=1",
    ],
)
def test_a_server_that_is_not_there(target, tmp_path):
    with pytest.raises(StoreUnavailable, match="cannot be reached, or refuses") as caught:
        Database.open(target.format(tmp_path))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
