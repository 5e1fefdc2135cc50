"""Memory that travels: stored from one directory, restored into another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lettaspace.atproto.data import blob_refs
from lettaspace.conversation.records import AGENT, MEMORY
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged, LettaspaceError, NotFound
from lettaspace.letta import memories
from lettaspace.letta.build import agent_record
from lettaspace.letta.memories import MemoryReport, Outcome, restore, store
from lettaspace.letta.memoryrecord import stored_memory
from lettaspace.space.writes import Create, Update
from tests.conversation.memories import Link, Tree, commit, git, init
from tests.letta.conftest import OpenSpace

AGENT_ID = "agent-local-plum"
FIRST: Tree = {"MEMORY.md": b"# Index\n", "persona.md": b"Warm.\n", "human.md": b"Likes figs.\n"}


@dataclass
class Machine:
    """A space and a memory directory of the same person."""

    space: Space
    memory: Path

    def store(self) -> MemoryReport:
        return store(self.space, AGENT_ID, self.memory)

    def restore(self, *, allow_code: bool = False) -> MemoryReport:
        return restore(self.space, AGENT_ID, self.memory, allow_code=allow_code)

    def sync(self) -> tuple[MemoryReport | None, MemoryReport]:
        """As a sync does it, after the pull: restored, then stored."""
        known = self.space.repo.get(MEMORY, AGENT_ID) is not None
        return self.restore() if known else None, self.store()

    def commit(self, files: Tree) -> str:
        return commit(self.memory, files)

    def edit(self, name: str, text: str) -> str:
        (self.memory / name).parent.mkdir(parents=True, exist_ok=True)
        (self.memory / name).write_text(text)
        git(self.memory, "add", "-A")
        git(self.memory, "commit", "-q", "-m", f"change {name}")
        return self.head

    @property
    def head(self) -> str:
        return git(self.memory, "rev-parse", "HEAD")

    @property
    def status(self) -> str:
        return git(self.memory, "status", "--porcelain")

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.memory)): path.read_bytes()
            for path in sorted(self.memory.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(self.memory).parts
        }

    def commits(self) -> set[str]:
        """Every commit that a ref leads to."""
        return set(git(self.memory, "rev-list", "--all").split())

    def in_the_space(self, tmp_path: Path) -> set[str]:
        """Every commit that the space has: those of a clone made of it."""
        place = tmp_path / f"all-{len(os.listdir(tmp_path))}"
        restore(self.space, AGENT_ID, place)
        return set(git(place, "rev-list", "--all").split())


@pytest.fixture
def make(open_space: OpenSpace, tmp_path: Path) -> Iterator[object]:
    def one(name: str) -> Machine:
        space = open_space(name)
        if space.repo.get(AGENT, AGENT_ID) is None:
            record = agent_record(AGENT_ID, {"id": AGENT_ID, "name": "Plum"}, {})
            space.repo.apply_writes([Create(AGENT, AGENT_ID, record)])
        return Machine(space, tmp_path / name / "memfs" / AGENT_ID / "memory")

    return one


@pytest.fixture
def a(make) -> Machine:
    machine = make("a")
    init(machine.memory)
    machine.commit(FIRST)
    return machine


@pytest.fixture
def b(make) -> Machine:
    return make("b")


def send(source: Machine, target: Machine) -> None:
    """What a sync does with the record: the later one is everybody's."""
    theirs = source.space.repo.get(MEMORY, AGENT_ID)
    assert theirs is not None
    ours = target.space.repo.get(MEMORY, AGENT_ID)
    if ours is not None and ours.value["updatedAt"] >= theirs.value["updatedAt"]:
        return
    blobs = {cid: source.space.repo.get_blob(cid) for cid in blob_refs(theirs.value)}
    write = Create if ours is None else Update
    target.space.repo.apply_writes([write(MEMORY, AGENT_ID, theirs.value)], blobs=blobs)


def exchange(one: Machine, other: Machine) -> None:
    send(one, other)
    send(other, one)


def test_there_and_back(a: Machine, b: Machine) -> None:
    report = a.store()
    assert (report.outcome, report.head, report.bundles) == (Outcome.STORED, a.head, 1)
    exchange(a, b)
    made = b.restore()
    assert (made.outcome, made.head, made.local) == (Outcome.RESTORED, a.head, a.head)
    assert b.files() == a.files()
    assert b.status == ""
    b.edit("human.md", "Likes plums.\n")
    assert b.store().outcome is Outcome.STORED
    exchange(a, b)
    assert a.restore().outcome is Outcome.FORWARDED
    assert (a.head, a.files(), a.status) == (b.head, b.files(), "")
    assert [a.restore().outcome, a.store().outcome] == [Outcome.CURRENT, Outcome.UNCHANGED]


def test_nothing_new_writes_nothing(a: Machine) -> None:
    a.store()
    rev = a.space.repo.rev()
    report = a.store()
    assert (report.outcome, a.space.repo.rev()) == (Outcome.UNCHANGED, rev)
    a.edit("human.md", "More.\n")
    a.store()
    stored = stored_memory(a.space, AGENT_ID, required=True)
    assert [len(part.value.get("prerequisites", ())) for part in stored.parts] == [0, 1]
