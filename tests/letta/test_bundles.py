"""Bundles: git reads ours, and hostile ones get nowhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lettaspace.errors import Damaged
from lettaspace.letta.bundles import create, split, unpack
from lettaspace.letta.repository import Repository
from tests.conversation.memories import commit, git, init


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = init(tmp_path / "source")
    commit(path, {"MEMORY.md": b"# Index\n"})
    return path


@pytest.fixture
def target(tmp_path: Path) -> Repository:
    return Repository(init(tmp_path / "target"))


def raw(path: Path, kind: str, data: bytes) -> str:
    """An object as it is, however wrong."""
    done = subprocess.run(
        ["git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"],
        cwd=path, input=data, capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout.decode().strip()


def tree(path: Path, *entries: tuple[str, str, str]) -> str:
    """A tree of (mode, name, object)."""
    parts = (f"{mode} {name}\0".encode() + bytes.fromhex(oid) for mode, name, oid in entries)
    return raw(path, "tree", b"".join(parts))


def test_git_reads_them(source: Path, tmp_path: Path) -> None:
    repository = Repository(source)
    first = git(source, "rev-parse", "HEAD")
    second = commit(source, {"MEMORY.md": b"# Index\n", "a.md": b"a\n"})
    whole = create(repository, first, [], "main")
    more = create(repository, second, [first], "main")
    assert (whole.prerequisites, more.prerequisites) == ((), (first,))
    (tmp_path / "whole").write_bytes(whole.data)
    (tmp_path / "more").write_bytes(more.data)
    git(tmp_path, "clone", "-q", "-b", "main", str(tmp_path / "whole"), "clone")
    clone = tmp_path / "clone"
    git(clone, "bundle", "verify", str(tmp_path / "more"))
    git(clone, "pull", "-q", "--ff-only", str(tmp_path / "more"), "main")
    assert git(clone, "rev-parse", "HEAD") == second
    assert (clone / "a.md").read_text() == "a\n"


def test_we_read_gits(source: Path, target: Repository, tmp_path: Path) -> None:
    git(source, "bundle", "create", "-q", str(tmp_path / "bundle"), "main")
    head = git(source, "rev-parse", "HEAD")
    data = (tmp_path / "bundle").read_bytes()
    assert split(data)[0].head == unpack(target, data) == head


def test_the_prerequisites_must_be_there(source: Path, target: Repository) -> None:
    first = git(source, "rev-parse", "HEAD")
    second = commit(source, {"MEMORY.md": b"# Index\n" * 500, "a.md": b"a\n"})
    more = create(Repository(source), second, [first], "main")
    with pytest.raises(Damaged):
        unpack(target, more.data)
    assert not target.is_commit(second)


@pytest.mark.parametrize(
    "name", [".git", ".GIT", "git~1", ".git\u200c", "..", ".", "a/b", ".git::$INDEX_ALLOCATION"]
)
def test_hostile_names(source: Path, target: Repository, name: str) -> None:
    blob = raw(source, "blob", b"#!/bin/sh\ntouch /tmp/owned\n")
    hooks = tree(source, ("100755", "post-checkout", blob))
    root = tree(source, ("40000", name, hooks))
    head = git(source, "commit-tree", root, "-m", "x")
    bundle = create(Repository(source), head, [], "main")
    with pytest.raises(Damaged, match=head):
        unpack(target, bundle.data)
    assert not target.is_commit(head)


def test_hostile_modules(source: Path, target: Repository) -> None:
    """Other repositories whose names or addresses are attacks, or that are links."""
    for content in (
        b'[submodule "../../x"]\n\tpath = x\n\turl = y\n',
        b'[submodule "x"]\n\tpath = x\n\turl = -u./payload\n',
    ):
        root = tree(source, ("100644", ".gitmodules", raw(source, "blob", content)))
        head = git(source, "commit-tree", root, "-m", "x")
        with pytest.raises(Damaged):
            unpack(target, create(Repository(source), head, [], "main").data)
    link = tree(source, ("120000", ".gitmodules", raw(source, "blob", b"MEMORY.md")))
    head = git(source, "commit-tree", link, "-m", "x")
    with pytest.raises(Damaged):
        unpack(target, create(Repository(source), head, [], "main").data)


def test_wrong_bytes(source: Path, target: Repository) -> None:
    head = git(source, "rev-parse", "HEAD")
    good = create(Repository(source), head, [], "main").data
    header, pack = good.split(b"\n\n", 1)
    line = header.split(b"\n")[1]
    wrong = [
        b"",
        b"\n\n",
        b"PACK" + good,
        good.replace(b"v2", b"v9"),
        good[:-30],
        good[:-1] + bytes([good[-1] ^ 1]),
        header + b"\n\n",
        header + b"\n" + line + b"\n\n" + pack,
        b"# v2 git bundle\n\n" + pack,
        b"# v3 git bundle\n@filter=blob:none\n" + line + b"\n\n" + pack,
        b"# v2 git bundle\n" + b"1" * 40 + b" refs/heads/main\n\n" + pack,
        b"# v2 git bundle\n--upload-pack=x refs/heads/main\n\n" + pack,
        b"# v2 git bundle\n" + "é".encode() * 20 + b" refs/heads/main\n\n" + pack,
    ]
    for data in wrong:
        with pytest.raises(Damaged):
            unpack(target, data)
    assert unpack(target, good) == head
