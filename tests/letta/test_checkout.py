"""A work tree that is moved, by a process that is killed before any of its steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lettaspace.letta.checkout import Checkout, Moved
from lettaspace.letta.repository import Repository
from tests.conversation.memories import Link, Tree, commit, git, init
from tests.letta.killing import killed

OLD: Tree = {
    "MEMORY.md": b"# Index\n",
    "human.md": b"Likes figs.\n",
    "gone.md": b"bye\n",
    "dir/a.md": b"a\n",
    "flat": b"file\n",
    "mods/a.js": b"1\n",
}
NEW: Tree = {
    "MEMORY.md": b"# Index\n",
    "human.md": b"Likes plums.\n",
    "came.md": b"hello\n",
    "dir": b"now a file\n",
    "flat/deep/b.md": b"b\n",
    "link": Link("human.md"),
    "mods/a.js": b"2\n",
}
LEFT_OUT = frozenset({"mods/a.js"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return init(tmp_path / "memory")


@pytest.fixture
def commits(path: Path) -> tuple[str, str]:
    new = commit(path, NEW)
    return commit(path, OLD), new


def contents(path: Path) -> dict[str, bytes | str]:
    found: dict[str, bytes | str] = {}
    for each in sorted(path.rglob("*")):
        name = str(each.relative_to(path))
        if name.startswith(".git/") or (each.is_dir() and not each.is_symlink()):
            continue
        found[name] = str(each.readlink()) if each.is_symlink() else each.read_bytes()
    return found


def expected(tree: Tree) -> dict[str, bytes | str]:
    return {name: each.target if isinstance(each, Link) else each for name, each in tree.items()}


WITHOUT = {name: each for name, each in NEW.items() if name not in LEFT_OUT}


def test_moved(path: Path, commits: tuple[str, str]) -> None:
    checkout = Checkout(Repository(path))
    assert checkout.move(*commits, LEFT_OUT, "test") is Moved.DONE
    assert contents(path) == expected(WITHOUT)
    assert git(path, "status", "--porcelain") == ""
    assert git(path, "rev-parse", "main") == commits[1]
    assert "lettaspace: test" in git(path, "reflog", "-1")
    assert checkout.move(*commits, LEFT_OUT, "test") is Moved.BUSY
    assert not (path / ".git/index.lock").exists()
    assert not (path / ".git/lettaspace").exists()


def test_killed_at_any_step(path: Path, commits: tuple[str, str]) -> None:
    old, new = commits
    (path / "untracked.md").write_text("mine")
    steps = 0
    while killed(lambda: Checkout(Repository(path)).move(old, new, LEFT_OUT, "test"), steps):
        steps += 1
        assert git(path, "rev-parse", "HEAD") in (old, new)
        checkout = Checkout(Repository(path))
        checkout.recover()
        assert not checkout.is_busy()
        assert not (path / ".git/lettaspace").exists()
        at = git(path, "rev-parse", "HEAD")
        assert git(path, "status", "--porcelain") == "?? untracked.md"
        mine = {"untracked.md": b"mine"}
        assert contents(path) == {**expected(OLD if at == old else WITHOUT), **mine}
        if at == new:
            assert checkout.move(new, old, frozenset(), "back") is Moved.DONE
            assert contents(path) == {**expected(OLD), **mine}
    assert steps >= 15


@pytest.mark.parametrize("torn", [b"", b"Likes pl", b"Likes plums.\n", None])
def test_what_a_kill_inside_git_leaves_is_taken_back(
    path: Path, commits: tuple[str, str], torn: bytes | None
) -> None:
    old, new = commits
    own = path / ".git/lettaspace"
    own.mkdir()
    (own / "pending").write_text(f"{old} {new}\n")
    (own / "lock").touch()
    (own / "index.lock").touch()
    os.link(own / "lock", path / ".git/index.lock")
    (path / "human.md").unlink()
    if torn is not None:
        (path / "human.md").write_bytes(torn)
    (path / "gone.md").unlink()
    (path / "came.md").write_bytes(b"hel")
    (path / "dir/a.md").write_bytes(b"Somebody wrote this since.\n")
    checkout = Checkout(Repository(path))
    checkout.recover()
    assert git(path, "status", "--porcelain") == "M dir/a.md"
    assert not checkout.is_busy()
    git(path, "checkout", "-q", "--", "dir/a.md")
    assert checkout.move(old, new, LEFT_OUT, "test") is Moved.DONE


def test_somebody_elses_lock_stays(path: Path, commits: tuple[str, str]) -> None:
    (path / ".git/index.lock").touch()
    checkout = Checkout(Repository(path))
    assert checkout.move(*commits, LEFT_OUT, "test") is Moved.BUSY
    assert checkout.is_busy()
    assert contents(path) == expected(OLD)


def test_links_are_not_followed_when_taking_back(
    path: Path, commits: tuple[str, str], tmp_path: Path
) -> None:
    old, new = commits
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep/b.md").write_bytes(b"b\n")
    own = path / ".git/lettaspace"
    own.mkdir()
    (own / "pending").write_text(f"{old} {new}\n")
    (own / "lock").touch()
    os.link(own / "lock", path / ".git/index.lock")
    (path / "flat").unlink()
    (path / "flat").symlink_to(outside)
    Checkout(Repository(path)).recover()
    assert (outside / "deep/b.md").read_bytes() == b"b\n"
