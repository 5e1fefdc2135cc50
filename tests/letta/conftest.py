"""A space to import into, and a storage directory to import from."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lettaspace.conversation.space import Space
from tests.letta.build import Store

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
