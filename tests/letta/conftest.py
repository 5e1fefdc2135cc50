"""A space to import into, and a storage directory to import from."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lettaspace.conversation.space import Space
from lettaspace.letta.restoring import restore
from tests.letta.build import Store, b1, rows
from tests.letta.sides import AT_ONCE, Side
from tests.remote.apart import Host, Machine

OpenSpace = Callable[[str], Space]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "letta")


@pytest.fixture
def open_space(tmp_path: Path) -> Iterator[OpenSpace]:
    """Homes by name; all of one identity, as if one account were on several machines."""
    identity = tmp_path / "identity.json"
    with ExitStack() as stack:

        def open_one(name: str) -> Space:
            home = tmp_path / "homes" / name
            home.mkdir(parents=True, exist_ok=True)
            if identity.exists() and not (home / "identity.json").exists():
                shutil.copy2(identity, home / "identity.json")
            space = stack.enter_context(Space.open(home))
            if not identity.exists():
                shutil.copy2(home / "identity.json", identity)
            return space

        yield open_one


@pytest.fixture
def space(open_space: OpenSpace) -> Space:
    return open_space("a")


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def sides(open_space: OpenSpace, store: Store, tmp_path: Path, host: Host) -> list[Side]:
    """Two machines; the talk began on the first, and the second was given it."""
    store.agent()
    store.conversation(rows(b1()), prompt=None)
    a = Side(Machine(open_space("a")), store.path)
    b = Side(Machine(open_space("b")), tmp_path / "b")
    a.sync(host)
    a.reconcile()
    b.machine.sync(host)
    restore(b.space, b.path, rest=AT_ONCE)
    return [a, b]
