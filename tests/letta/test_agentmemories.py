"""Agents' memories, which reconciling brings both ways beside the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.records import MEMORY
from lettaspace.conversation.space import Space
from lettaspace.errors import NotFound
from lettaspace.letta import memories
from lettaspace.letta.agentmemories import MemoryChange
from lettaspace.letta.brought import Outcome as Brought
from lettaspace.letta.memoryreport import Outcome
from lettaspace.letta.reconciling import reconcile
from lettaspace.remote.branches import diverge
from tests.conversation.memories import Tree, commit, git, init
from tests.letta.build import AGENT
from tests.letta.killing import killed
from tests.letta.sides import AT_ONCE, Side, settled
from tests.remote.apart import Host

FIRST: Tree = {"persona.md": b"Warm.\n", "human.md": b"Likes figs.\n"}


def memory(side: Side) -> Path:
    return side.path / "memfs" / AGENT / "memory"


def edit(side: Side, name: str, text: str) -> str:
    """A commit that changes one file; its id."""
    path = memory(side)
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text(text)
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", f"change {name}")
    return head(side)


def head(side: Side) -> str:
    return git(memory(side), "rev-parse", "HEAD")


def change(side: Side, *, allow_code: bool = False) -> MemoryChange | None:
    """Reconciles; what became of the memory, if it was looked at."""
    done = reconcile(
        side.space, side.path, part=diverge, rest=AT_ONCE, allow_code=allow_code
    ).memories
    assert len(done) < 2
    return done[0] if done else None


@pytest.fixture
def both(sides: list[Side], host: Host) -> list[Side]:
    """Two machines with the same memory."""
    a, b = sides
    init(memory(a))
    commit(memory(a), FIRST)
    settled(host, a, b)
    return [a, b]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Has each run of git for a memory noted."""
    runs: list[str] = []
    for name in ("store", "restore"):
        real: Callable[..., Any] = getattr(memories, name)

        def call(*arguments: Any, _real: Any = real, _name: str = name, **more: Any) -> Any:
            runs.append(_name)
            return _real(*arguments, **more)

        monkeypatch.setattr(memories, name, call)
    return runs


def test_there_and_back(both: list[Side], host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = both
    assert head(a) == head(b)
    assert (memory(b) / "human.md").read_bytes() == b"Likes figs.\n"
    runs = counted(monkeypatch)
    assert change(a) is change(b) is None
    assert runs == []
    new = edit(b, "human.md", "Likes plums.\n")
    found = change(b)
    assert found is not None
    assert found.stored is not None
    assert (found.stored.outcome, found.ok) == (Outcome.STORED, True)
    assert runs == ["store", "restore"]
    settled(host, b, a)
    assert head(a) == new
    assert (memory(a) / "human.md").read_text() == "Likes plums.\n"


def test_what_git_can_merge(both: list[Side], host: Host) -> None:
    a, b = both
    edit(a, "a.md", "A\n")
    edit(b, "b.md", "B\n")
    settled(host, a, b)
    assert head(a) == head(b)
    for side in both:
        assert (memory(side) / "a.md").exists()
        assert (memory(side) / "b.md").exists()


def test_o59_a_conflict_is_named_and_stops_nothing_else(both: list[Side], host: Host) -> None:
    a, b = both
    ours, theirs = edit(a, "human.md", "Likes plums.\n"), edit(b, "human.md", "Likes pears.\n")
    b.turn(5, "On B", name="b")
    b.sync(host)
    a.machine.sync(host)
    for _ in range(2):
        report = a.reconcile()
        (found,) = report.memories
        assert (found.ok, found.conflicts, report.is_done) == (False, ("human.md",), False)
        assert found.to_json()["conflicts"] == ["human.md"]
        assert found.to_json()["restored"] == "conflict"
    # The turn is there, and of the memory nothing was changed.
    assert a.said()[-2:] == ["On B", "On B!"]
    assert (memory(a) / "human.md").read_text() == "Likes plums.\n"
    assert (head(a), head(b)) == (ours, theirs)
    assert git(memory(a), "status", "--porcelain") == ""
    assert git(memory(a), "rev-parse", "refs/lettaspace/stored/main") == theirs
    # Somebody merges the two, and then that is everybody's.
    git(memory(a), "merge", "-q", "refs/lettaspace/stored/main", check=False)
    merged = edit(a, "human.md", "Likes plums and pears.\n")
    settled(host, a, b)
    assert head(a) == head(b) == merged


def test_o59_conflicts_that_nobody_resolved_are_not_stored(both: list[Side]) -> None:
    a, _ = both
    before = a.space.repo.get(MEMORY, AGENT)
    edit(a, "other.md", "x\n")
    (memory(a) / "human.md").write_text("<<<<<<< here\nfigs\n=======\nplums\n>>>>>>> there\n")
    found = change(a)
    assert found is not None
    assert (found.ok, found.conflicts) == (False, ("human.md",))
    assert a.space.repo.get(MEMORY, AGENT) == before


def test_a_commit_that_is_made_meanwhile_is_not_overlooked(
    both: list[Side], host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = both
    edit(a, "one.md", "1\n")
    real = memories.restore

    def restore(*arguments: Any, **more: Any) -> Any:
        done = real(*arguments, **more)
        edit(a, "two.md", "2\n")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(memories, "restore", restore)
        change(a)
    settled(host, a, b)
    assert (memory(b) / "two.md").exists()


def test_code_comes_when_it_is_allowed(both: list[Side], host: Host) -> None:
    a, b = both
    edit(a, "mods/greet.js", "export default 1;\n")
    a.sync(host)
    b.machine.sync(host)
    found = change(b)
    assert found is not None
    assert (found.ok, found.left_out) == (True, ("mods/greet.js",))
    assert not (memory(b) / "mods").exists()
    assert change(b) is None
    assert change(b, allow_code=True) is not None
    assert (memory(b) / "mods" / "greet.js").exists()
    settled(host, a, b)


def test_letta_does_not_start_without_its_memory(
    both: list[Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = both
    root = tmp_path / "new"
    for name in ("agents", "conversations"):
        (root / name).mkdir(parents=True)

    def refuse(*_arguments: Any, **_more: Any) -> None:
        raise NotFound("the space lacks a blob")

    with monkeypatch.context() as patch:
        patch.setattr(memories, "restore", refuse)
        report = reconcile(a.space, root, part=diverge)
    assert [each.outcome for each in report.restored.agents] == [Brought.LEFT]
    assert list((root / "agents").iterdir()) == list((root / "conversations").iterdir()) == []
    assert [each.problem for each in report.memories] == ["the space lacks a blob"]
    assert not report.is_done
    reconcile(a.space, root, part=diverge)
    assert (root / "memfs" / AGENT / "memory" / "human.md").exists()
    assert len(list((root / "agents").iterdir())) == 1


def test_what_is_in_the_way_is_said_and_stays(both: list[Side], host: Host) -> None:
    a, b = both
    edit(a, "human.md", "Likes plums.\n")
    a.turn(5, "On A")
    a.sync(host)
    b.machine.sync(host)
    shutil.rmtree(memory(b))
    memory(b).symlink_to(memory(a))
    report = b.reconcile()
    assert [each.ok for each in report.memories] == [False]
    assert "no directory" in report.memories[0].problem
    assert b.said()[-1] == "On A!"
    assert memory(b).is_symlink()


def test_a_memory_without_a_commit_is_left_alone(sides: list[Side]) -> None:
    a, _ = sides
    init(memory(a))
    found = change(a)
    assert found is None or (found.ok and not found.written)
    assert a.space.repo.get(MEMORY, AGENT) is None


def test_killed_at_any_moment(both: list[Side], host: Host, tmp_path: Path) -> None:
    """Both went on: what A has is merged, and stored again."""
    a, b = both
    edit(a, "a.md", "A\n")
    edit(b, "b.md", "B\n")
    b.sync(host)
    a.machine.pull(host)
    home, root = a.space.home, a.path
    a.space.close()
    template = tmp_path / "template"
    shutil.copytree(home, template / "home")
    shutil.copytree(root, template / "letta", symlinks=True)
    expected: set[str] = set()
    step = 0
    while True:
        shutil.rmtree(home)
        shutil.rmtree(root)
        shutil.copytree(template / "home", home)
        shutil.copytree(template / "letta", root, copy_function=shutil.copy2, symlinks=True)

        def work() -> None:
            with Space.open(home) as space:
                reconcile(space, root, part=diverge, rest=AT_ONCE)

        was_killed = killed(work, step)
        with Space.open(home) as space:
            reconcile(space, root, part=diverge, rest=AT_ONCE)
            assert reconcile(space, root, part=diverge, rest=AT_ONCE).written == 0
            record = space.repo.get(MEMORY, AGENT)
            assert record is not None
            assert record.value["head"] == head(a), step
        assert git(memory(a), "status", "--porcelain") == "", step
        expected.add(head(a))
        assert len(expected) == 1, step
        assert sorted(path.name for path in memory(a).glob("*.md")) == [
            "a.md", "b.md", "human.md", "persona.md",
        ]  # fmt: skip
        if not was_killed:
            break
        step += 13
    assert step > 20
