"""Agents' memories on two machines and a host, with real git: no commit that was stored is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lettaspace.conversation.records import AGENT, MEMORY
from lettaspace.letta import memorystoring
from lettaspace.letta.memories import restore, store
from lettaspace.letta.memoryreport import Outcome
from lettaspace.space.writes import Create
from tests.conversation.memories import commit, git, init
from tests.remote.faults import HELD_REQUEST
from tests.remote.world import Machine, Setup, World, setup

PLUM = "agent-local-plum"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with setup(tmp_path_factory.mktemp("memories"), machines=2) as made:
        yield made


class Home:
    """A machine with a memory directory."""

    def __init__(self, machine: Machine, memory: Path) -> None:
        self.machine = machine
        self.memory = memory

    @property
    def space(self):
        return self.machine.space

    def sync(self) -> None:
        self.machine.sync()

    def keep(self, name: str, text: str) -> str:
        """A commit, stored here; its id."""
        files = {path.name: path.read_bytes() for path in self.memory.glob("*.md")}
        made = commit(self.memory, {**files, name: text.encode()})
        assert store(self.space, PLUM, self.memory).outcome is Outcome.STORED
        return made

    def bring(self) -> None:
        assert restore(self.space, PLUM, self.memory, allow_code=False).ok

    def commits(self) -> set[str]:
        return set(git(self.memory, "rev-list", "--all").split())

    def stored(self) -> set[str]:
        """Every commit that the space has."""
        fresh = self.memory.with_name(f"{self.memory.name}-fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        restore(self.space, PLUM, fresh, allow_code=False)
        return set(git(fresh, "rev-list", "--all").split())

    @property
    def record(self):
        found = self.space.repo.get(MEMORY, PLUM)
        assert found is not None
        return found.value


@pytest.fixture
def homes(shared: Setup, tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    """Two machines with the same memory, skewed against one another."""
    world = World(shared, [0.0, 300.0])
    one, two = (Home(machine, tmp_path / f"memory{machine.number}") for machine in world.machines)
    init(one.memory)
    one.space.repo.apply_writes([Create(AGENT, PLUM, {"name": "Plum"})])
    one.keep("MEMORY.md", "# Index\n")
    one.sync()
    two.sync()
    two.bring()
    yield one, two
    world.settle()
    world.close()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("packs", [False, True])
def test_a_directory_that_is_deleted_before_its_next_sync(
    homes: tuple[Home, Home], first: int, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if packs:
        monkeypatch.setattr(memorystoring, "MAX_BUNDLES", 0)
    one, two = homes[first], homes[1 - first]
    ours = one.keep("ours.md", "figs")
    theirs = two.keep("theirs.md", "pears")
    shutil.rmtree(one.memory)
    two.sync()
    one.sync()
    assert {ours, theirs} <= {one.record["head"], *one.record["otherHeads"]}
    two.sync()
    assert two.record == one.record
    for each in (one, two):
        each.bring()
        assert {ours, theirs} <= each.commits()
        assert store(each.space, PLUM, each.memory).ok
        assert {ours, theirs} <= each.stored()


@pytest.mark.parametrize("first", [0, 1])
def test_who_still_has_their_directory_merges(homes: tuple[Home, Home], first: int) -> None:
    one, two = homes[first], homes[1 - first]
    ours = one.keep("ours.md", "figs")
    theirs = two.keep("theirs.md", "pears")
    for _ in range(2):
        for each in (two, one):
            each.sync()
            each.bring()
            store(each.space, PLUM, each.memory)
    one.machine.world.settle()
    assert two.record == one.record
    assert "otherHeads" not in one.record
    for each in (one, two):
        each.bring()
        assert {ours, theirs} <= set(git(each.memory, "rev-list", "main").split())
        assert (each.memory / "ours.md").read_text() == "figs"
        assert (each.memory / "theirs.md").read_text() == "pears"


@pytest.mark.parametrize("first", [0, 1])
def test_a_version_that_was_written_over_at_the_host(homes: tuple[Home, Home], first: int) -> None:
    """Both had pulled, both push, and the host compares nothing."""
    one, two = homes[first], homes[1 - first]
    theirs = two.keep("theirs.md", "pears")
    with two.machine.syncing(1, HELD_REQUEST):  # it has pulled, and is about to push
        ours = one.keep("ours.md", "figs")
        one.sync()
        shutil.rmtree(one.memory)
    one.sync()
    two.sync()
    one.sync()
    assert two.record == one.record
    one.bring()
    assert {ours, theirs} <= one.commits()


def test_who_takes_what_was_packed_changes_nothing(
    homes: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = homes
    for number in range(4):
        one.keep(f"{number}.md", "figs")
    one.sync()
    two.sync()
    monkeypatch.setattr(memorystoring, "MAX_BUNDLES", 0)
    one.keep("last.md", "pears")
    one.sync()
    assert len(one.record["bundles"]) == 1
    two.sync()
    assert two.record == one.record
    assert not two.machine.sync().did_something
    assert not one.machine.sync().did_something
    two.bring()
    assert two.commits() == one.commits()
