"""Reading memory directories: git's answers, each with a real repository."""

from __future__ import annotations

import doctest
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lettaspace.conversation import git as git_module
from lettaspace.conversation import memory as memory_module
from lettaspace.conversation.memory import (
    MemoryDirectory,
    MemoryKind,
    has_conflict_markers,
)
from lettaspace.errors import Damaged, InvalidInput, LettaspaceError, NotFound, StoreUnavailable
from tests.conversation.memories import Link, commit, git, init

FILES = {"MEMORY.md": b"# Memory\n", "persona.md": b"Warm.\n"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return init(tmp_path / "memory")


def digest(path: Path) -> dict[str, bytes]:
    """Every file below, .git included."""
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_good_one(path: Path) -> None:
    revision = commit(path, FILES)
    state = MemoryDirectory(path).state()
    assert (state.kind, state.revision, state.branch) == (MemoryKind.OK, revision, "main")
    assert state.message == ""
    assert state.require() == revision
    snapshot = MemoryDirectory(path).read(revision)
    assert snapshot.files == FILES
    assert snapshot.revision == revision
    assert MemoryDirectory(path).uncommitted() == []


def test_detached_is_readable_and_said(path: Path) -> None:
    first = commit(path, FILES)
    commit(path, {})
    git(path, "checkout", "-q", "--detach", first)
    state = MemoryDirectory(path).state()
    assert (state.kind, state.revision, state.branch) == (MemoryKind.DETACHED, first, None)
    assert "detached" in state.message
    assert MemoryDirectory(path).read(state.require()).files == FILES


def nothing(path: Path) -> None:
    shutil.rmtree(path)


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"")


def no_repository(path: Path) -> None:
    shutil.rmtree(path / ".git")
    (path / "MEMORY.md").write_bytes(b"not committed")


def inside_another(path: Path) -> None:
    no_repository(path)
    commit(init(path.parent), {"other.md": b"of another repository"})
    path.mkdir()


def head_of_garbage(path: Path) -> None:
    commit(path, FILES)
    (path / ".git/HEAD").write_bytes(b"\x00garbage")


def no_head(path: Path) -> None:
    commit(path, FILES)
    (path / ".git/HEAD").unlink()


def branch_of_garbage(path: Path) -> None:
    commit(path, FILES)
    (path / ".git/refs/heads/main").write_text("garbage\n")


def branch_without_commit(path: Path) -> None:
    commit(path, FILES)
    (path / ".git/refs/heads/main").write_text("1" * 40 + "\n")


def another_branch(path: Path) -> None:
    commit(path, FILES)
    git(path, "symbolic-ref", "HEAD", "refs/heads/gone")


def branch_lost(path: Path) -> None:
    commit(path, FILES)
    (path / ".git/refs/heads/main").unlink()


def detached_nowhere(path: Path) -> None:
    commit(path, FILES)
    (path / ".git/HEAD").write_text("1" * 40 + "\n")


def bad_config(path: Path) -> None:
    commit(path, FILES)
    (path / ".git/config").write_text("[core\nnonsense")


def newer_format(path: Path) -> None:
    commit(path, FILES)
    git(path, "config", "core.repositoryFormatVersion", "99")


def gitfile_to_nowhere(path: Path) -> None:
    shutil.rmtree(path / ".git")
    (path / ".git").write_text("gitdir: /nowhere/at/all\n")


ANSWERS: list[tuple[Callable[[Path], object], MemoryKind, type[LettaspaceError]]] = [
    (nothing, MemoryKind.NO_DIRECTORY, NotFound),
    (a_file, MemoryKind.NO_DIRECTORY, NotFound),
    (no_repository, MemoryKind.NOT_A_REPOSITORY, NotFound),
    (inside_another, MemoryKind.NOT_A_REPOSITORY, NotFound),
    (lambda _path: None, MemoryKind.NO_COMMITS, NotFound),
    (head_of_garbage, MemoryKind.BROKEN_HEAD, Damaged),
    (no_head, MemoryKind.BROKEN_HEAD, Damaged),
    (branch_of_garbage, MemoryKind.BROKEN_HEAD, Damaged),
    (branch_without_commit, MemoryKind.BROKEN_HEAD, Damaged),
    (another_branch, MemoryKind.BROKEN_HEAD, Damaged),
    (branch_lost, MemoryKind.BROKEN_HEAD, Damaged),
    (detached_nowhere, MemoryKind.BROKEN_HEAD, Damaged),
    (bad_config, MemoryKind.BROKEN_HEAD, Damaged),
    (newer_format, MemoryKind.BROKEN_HEAD, Damaged),
    (gitfile_to_nowhere, MemoryKind.BROKEN_HEAD, Damaged),
]


@pytest.mark.parametrize(("make", "kind", "error"), ANSWERS)
def test_answers_are_told_apart(
    path: Path, make: Callable[[Path], object], kind: MemoryKind, error: type[LettaspaceError]
) -> None:
    make(path)
    state = MemoryDirectory(path).state()
    assert state.kind == kind
    assert state.revision is None
    assert str(path) in state.message
    assert "\n" not in state.message
    with pytest.raises(error, match=str(path)):
        state.require()


def test_foreign_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(path, FILES)
    if os.getuid() == 0:
        for each in (path, path / ".git"):
            os.chown(each, 12345, 12345)
    else:  # git's own switch for testing this
        real = git_module.Git._environment

        def different(self: git_module.Git, settings: dict[str, str]) -> dict[str, str]:
            return real(self, settings) | {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}

        monkeypatch.setattr(git_module.Git, "_environment", different)
    state = MemoryDirectory(path).state()
    assert state.kind == MemoryKind.FOREIGN_OWNER
    assert "safe.directory" in state.message
    with pytest.raises(StoreUnavailable, match="owns it"):
        state.require()
    with pytest.raises(StoreUnavailable, match="owns it"):
        MemoryDirectory(path).work_tree()


def test_git_missing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = commit(path, FILES)
    monkeypatch.setenv("PATH", str(tmp_path))
    state = MemoryDirectory(path).state()
    assert state.kind == MemoryKind.GIT_MISSING
    with pytest.raises(StoreUnavailable, match="not installed"):
        state.require()
    with pytest.raises(StoreUnavailable, match="not installed"):
        MemoryDirectory(path).read(revision)


def slow_git(directory: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """A git that hangs where its arguments match."""
    real = shutil.which("git")
    directory.mkdir()
    script = directory / "git"
    script.write_text(f'#!/bin/sh\ncase "$*" in {when}) exec sleep 30;; esac\nexec {real} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")


def test_timeout(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(path, FILES)
    slow_git(tmp_path / "bin", monkeypatch, "*")
    state = MemoryDirectory(path, timeout=0.2).state()
    assert state.kind == MemoryKind.TIMEOUT
    with pytest.raises(StoreUnavailable, match=r"0\.2 seconds"):
        state.require()


def test_timeout_while_reading(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = commit(path, FILES)
    slow_git(tmp_path / "bin", monkeypatch, "cat-file*")
    with pytest.raises(StoreUnavailable, match="did not answer"):
        MemoryDirectory(path, timeout=0.5).read(revision)


def test_reads_any_commit_whatever_the_work_tree_holds(path: Path) -> None:
    first = commit(path, FILES)
    commit(path, {"other.md": b"x"})
    (path / "other.md").write_bytes(b"not committed")
    memory = MemoryDirectory(path)
    assert memory.read(first).files == FILES
    assert memory.read(memory.state().require()).files == {"other.md": b"x"}
    assert memory.read(first, wanted=lambda name: name == "persona.md").files == {
        "persona.md": b"Warm.\n"
    }


def test_every_name_and_content_comes_through(path: Path) -> None:
    files = {
        "a.md": b"",
        "bin.dat": bytes(range(256)) * 4,
        "dir/sub/x y.md": b"no newline at the end",
        'é\n\t"\\.md': b"blob 12\nlooks like a header\n",
        "语.md": "语".encode(),
        "-rf.md": b"looks like an option",
        os.fsdecode(b"\xff\xfe.md"): b"a name that is no UTF-8",
        "big.md": b"x" * 300_000,
    }
    revision = commit(path, files)
    assert dict(MemoryDirectory(path).read(revision).files) == files


def test_links_and_submodules_are_no_content(path: Path) -> None:
    links = {"link.md": Link("a.md"), "out.md": Link("/etc/hostname"), "loop.md": Link("loop.md")}
    revision = commit(path, {"a.md": b"a", **links}, submodules=("mod.md",))
    snapshot = MemoryDirectory(path).read(revision)
    assert snapshot.files == {"a.md": b"a"}
    assert snapshot.links == {
        "link.md": b"a.md",
        "out.md": b"/etc/hostname",
        "loop.md": b"loop.md",
    }
    assert snapshot.submodules == ("mod.md",)
    assert list(snapshot.blobs()) == ["a.md", "link.md", "loop.md", "out.md"]


@pytest.mark.parametrize(
    "revision", ["HEAD", "main", "--output=x", "abc123", "", "1" * 41, "Z" * 40]
)
def test_only_full_ids_are_read(path: Path, revision: str) -> None:
    commit(path, FILES)
    with pytest.raises(InvalidInput, match="full commit id"):
        MemoryDirectory(path).read(revision)


def test_missing_objects_are_damage_and_no_empty_memory(path: Path) -> None:
    revision = commit(path, FILES)
    with pytest.raises(Damaged, match="commit 1111"):
        MemoryDirectory(path).read("1" * 40)
    blob = git(path, "rev-parse", "HEAD:persona.md")
    tree = git(path, "rev-parse", "HEAD^{tree}")
    for name, what in ((blob, "object"), (tree, "commit")):
        (path / ".git/objects" / name[:2] / name[2:]).unlink()
        with pytest.raises(Damaged, match=what):
            MemoryDirectory(path).read(revision)


def test_uncommitted_is_named(path: Path) -> None:
    commit(path, {**FILES, "gone.md": b"x", "same.md": b"y", ".gitignore": b"*.tmp\n"})
    (path / "persona.md").write_bytes(b"changed")
    (path / "gone.md").unlink()
    (path / "staged.md").write_bytes(b"staged")
    git(path, "add", "staged.md")
    (path / "dir").mkdir()
    (path / "dir/né w\n.md").write_bytes(b"new")
    (path / "x.tmp").write_bytes(b"ignored")
    memory = MemoryDirectory(path)
    assert sorted(memory.uncommitted()) == ["dir/né w\n.md", "gone.md", "persona.md", "staged.md"]
    assert memory.work_tree().conflicts == ()


def test_a_bare_repository_has_no_work_tree(path: Path, tmp_path: Path) -> None:
    revision = commit(path, FILES)
    git(tmp_path, "clone", "-q", "--bare", str(path), str(tmp_path / "bare"))
    memory = MemoryDirectory(tmp_path / "bare")
    assert memory.state().revision == revision
    assert memory.read(revision).files == FILES
    assert memory.uncommitted() == []


def conflicted(path: Path) -> str:
    """A merge of two changes to one file that nobody has resolved. HEAD's commit."""
    commit(path, {"system/persona.md": b"base\n", "other.md": b"o\n"})
    git(path, "checkout", "-q", "-b", "side")
    commit(path, {"system/persona.md": b"theirs\n", "other.md": b"o\n"})
    git(path, "checkout", "-q", "main")
    head = commit(path, {"system/persona.md": b"ours\n", "other.md": b"o\n"})
    git(path, "merge", "-q", "side", check=False)
    return head


def test_o59_unresolved_conflicts_are_named_and_nothing_is_committed(path: Path) -> None:
    head = conflicted(path)
    (path / "other.md").write_bytes(b"changed, but in no conflict\n")
    before = digest(path)
    memory = MemoryDirectory(path)
    tree = memory.work_tree()
    assert tree.conflicts == ("system/persona.md",)
    assert set(tree.uncommitted) == {"system/persona.md", "other.md"}
    # What is committed is what counts, and it has no markers.
    assert memory.state().revision == head
    assert memory.read(head).files["system/persona.md"] == b"ours\n"
    assert memory.read(head).conflicts == []
    assert digest(path) == before


def test_o59_markers_that_were_staged_or_committed_are_named(path: Path) -> None:
    conflicted(path)
    git(path, "add", "system/persona.md")
    memory = MemoryDirectory(path)
    assert memory.work_tree().conflicts == ("system/persona.md",)
    git(path, "commit", "-q", "-m", "with markers")
    assert memory.work_tree().conflicts == ()
    assert memory.read(memory.state().require()).conflicts == ["system/persona.md"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"<<<<<<< HEAD\na\n=======\nb\n>>>>>>> side\n", True),
        (b"x\r\n<<<<<<< HEAD\r\na\r\n=======\r\nb\r\n>>>>>>> side", True),
        (b"<<<<<<<\n=======\n>>>>>>>\n", True),
        (b"about <<<<<<< in text\n=======\n>>>>>>> x", False),
        (b"Title\n=======\n", False),
        (b">>>>>>> a\n=======\n<<<<<<< b\n", False),
        (b"<<<<<<<< HEAD\n=======\n>>>>>>> x", False),
        (b"", False),
    ],
)
def test_conflict_markers(text: bytes, found: bool) -> None:
    assert has_conflict_markers(text) is found


def test_a_repository_cannot_make_us_run_its_programs(path: Path, tmp_path: Path) -> None:
    revision = commit(path, {**FILES, ".gitattributes": b"*.md filter=evil diff=evil\n"})
    trap = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {trap}\ncat\n')
    program.chmod(0o755)
    for key in (
        "core.fsmonitor", "core.pager", "pager.status", "filter.evil.clean", "filter.evil.smudge",
        "filter.evil.process", "diff.external", "diff.evil.textconv", "diff.evil.command",
        "core.sshCommand", "core.editor", "credential.helper", "gpg.program",
        "uploadpack.packObjectsHook", "core.alternateRefsCommand", "core.gitProxy",
        "filter.a=b c.clean",
    ):  # fmt: skip
        git(path, "config", key, str(program))
    git(path, "config", "filter.evil.required", "true")
    hooks = path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit"):
        shutil.copy(program, hooks / hook)
    # As long as before and with a new time, so that git has to compare contents.
    (path / "persona.md").write_bytes(b"Cold.\n")
    os.utime(path / "persona.md", (1, 1))
    os.utime(path / "MEMORY.md", (1, 1))
    memory = MemoryDirectory(path)
    assert memory.state().revision == revision
    assert memory.read(revision).files["persona.md"] == b"Warm.\n"
    assert memory.uncommitted() == ["persona.md"]
    assert not trap.exists(), trap.read_text()
    # The trap works: git as it is runs into it.
    subprocess.run(["git", "status"], cwd=path, capture_output=True, check=False)
    assert trap.exists()


def test_a_missing_object_is_not_fetched(path: Path, tmp_path: Path) -> None:
    revision = commit(path, FILES)
    other = tmp_path / "other"
    shutil.copytree(path, other)
    blob = git(path, "rev-parse", "HEAD:persona.md")
    (path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    trap = tmp_path / "ran"
    git(path, "config", "remote.origin.url", f"ext::sh -c 'touch% {trap}'")
    git(path, "config", "remote.origin.promisor", "true")
    git(path, "config", "protocol.ext.allow", "always")
    git(path, "config", "extensions.partialClone", "origin")
    git(path, "config", "core.repositoryFormatVersion", "1")
    with pytest.raises(Damaged, match=f"object {blob}"):
        MemoryDirectory(path).read(revision)
    assert not trap.exists()


def test_the_callers_git_variables_do_not_count(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = commit(path, FILES)
    commit(init(tmp_path / "other"), {"x.md": b"another repository"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nothing"))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    memory = MemoryDirectory(path)
    assert memory.state().revision == revision
    assert memory.uncommitted() == []


def test_nothing_is_written(path: Path) -> None:
    commit(path, FILES)
    os.utime(path / "persona.md", (1, 1))  # git would like to refresh its index
    before = digest(path)
    memory = MemoryDirectory(path)
    memory.read(memory.state().require())
    memory.work_tree()
    assert digest(path) == before


def test_a_path_that_cannot_be_kept_inside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="may not hold"):
        MemoryDirectory(tmp_path / f"a{os.pathsep}b" / "memory")


def test_examples_in_the_module() -> None:
    assert doctest.testmod(memory_module) == doctest.TestResults(0, 2)
