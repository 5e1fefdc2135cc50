"""The history of memory directories, each a real repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lettaspace.conversation import history as history_module
from lettaspace.conversation.commits import Change, ChangeKind, EntryKind
from lettaspace.conversation.history import History
from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.errors import Damaged, NotFound, StoreUnavailable
from tests.conversation.memories import Link, commit, git, init
from tests.conversation.test_memory import digest, slow_git

FILES = {"MEMORY.md": b"# Memory\n", "persona.md": b"Warm.\nKind.\nBrief.\n"}
ODD = [
    "a\nb.md",
    'quo"te\\.md',
    "--option.md",
    "-p",
    ":(glob)*.md",
    ":!x.md",
    "*.md",
    "tab\there.md",
    "\u202egnp.md",
    "sub dir/é 語.md",
    "1" * 40,
    ":100644 100644 x y M",
    os.fsdecode(b"\xff\xfe.md"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return init(tmp_path / "memory")


@pytest.fixture
def history(path: Path) -> History:
    return History(MemoryDirectory(path))


def changes(history: History, revision: str) -> list[tuple[str, str | None, str]]:
    found = history.log(revision, count=1).commits[0].changes
    assert found is not None
    return [(each.kind.value, each.old_path, each.path) for each in found]


def test_files_and_their_last_changes(path: Path, history: History) -> None:
    first = commit(path, {**FILES, "notes/x.md": b"x"})
    second = commit(path, {**FILES, "notes/x.md": b"longer"})
    listing = history.files(second)
    assert [(each.path, each.kind, each.size) for each in listing.entries] == [
        ("MEMORY.md", EntryKind.FILE, 9),
        ("notes/x.md", EntryKind.FILE, 6),
        ("persona.md", EntryKind.FILE, 19),
    ]
    assert not listing.cut
    last = history.last_changes(second)
    assert {name: each.revision for name, each in last.items()} == {
        "MEMORY.md": first,
        "notes/x.md": second,
        "persona.md": first,
    }
    assert history.file(first, "notes/x.md").data == b"x"
    assert history.file(second, "notes/x.md").data == b"longer"


def test_the_log(path: Path, history: History) -> None:
    first = commit(path, FILES)
    said = ["-m", "Subject\nof two lines\n\nBody\n", "--author", "Mira Ó <m@example.invalid>"]
    git(path, "commit", "-q", "--allow-empty", "--date", "2024-03-05T10:00:00+02:00", *said)
    second = git(path, "rev-parse", "HEAD")
    log = history.log(second)
    assert [each.revision for each in log.commits] == [second, first]
    assert (log.more, log.shallow) == (False, False)
    newest, oldest = log.commits
    assert newest.parents == (first,)
    assert newest.author == "Mira Ó"
    assert newest.time == "2024-03-05T08:00:00.000Z"
    assert newest.subject == "Subject of two lines"
    assert newest.changes == ()
    assert oldest.parents == ()
    assert oldest.changes == (
        Change(ChangeKind.ADDED, "MEMORY.md"),
        Change(ChangeKind.ADDED, "persona.md"),
    )
    assert history.commit(second).message == "Subject\nof two lines\n\nBody"


def test_the_log_comes_in_pages(path: Path, history: History) -> None:
    made = [commit(path, {"a.md": str(number).encode()}) for number in range(5)][::-1]
    pages = [history.log(made[0], skip=skip, count=2) for skip in (0, 2, 4, 10**12)]
    assert [[each.revision for each in page.commits] for page in pages] == [
        made[0:2], made[2:4], made[4:5], [],
    ]  # fmt: skip
    assert [page.more for page in pages] == [True, True, False, False]


def test_the_log_of_one_file(path: Path, history: History) -> None:
    first = commit(path, {"a.md": b"1", "b.md": b"1"})
    commit(path, {"a.md": b"1", "b.md": b"2"})
    third = commit(path, {"a.md": b"3", "b.md": b"2"})
    assert [each.revision for each in history.log(third, path="a.md").commits] == [third, first]
    assert history.log(third, path="*.md").commits == ()
    assert history.log(third, path=":(glob)*").commits == ()


def test_a_rename_is_one(path: Path, history: History) -> None:
    text = b"".join(b"line %d\n" % number for number in range(30))
    commit(path, {"old.md": text})
    renamed = commit(path, {"new.md": text + b"one more\n"})
    assert changes(history, renamed) == [("R", "old.md", "new.md")]
    (only,) = history.log(renamed, path="new.md").commits
    assert only.revision == renamed
    (diff,) = history.commit(renamed).files
    assert diff.hunks is not None
    assert diff.hunks.endswith("+one more\n")
    moved = commit(path, {"newer.md": text + b"one more\n"})
    (diff,) = history.commit(moved).files
    assert (diff.change.old_path, diff.hunks, diff.binary) == ("new.md", "", False)


def merged(path: Path) -> tuple[str, str]:
    """A merge of a side branch with a file of its own: the side's commit and the merge's."""
    commit(path, {"a.md": b"a"})
    git(path, "checkout", "-q", "-b", "side")
    side = commit(path, {"a.md": b"a", "s.md": b"s"})
    git(path, "checkout", "-q", "main")
    commit(path, {"a.md": b"a", "m.md": b"m"})
    git(path, "merge", "-q", "--no-ff", "-m", "Merge side", "side")
    return side, git(path, "rev-parse", "HEAD")


def test_a_merge_is_told_against_its_first_parent(path: Path, history: History) -> None:
    side, merge = merged(path)
    log = history.log(merge)
    assert len(log.commits) == 4
    assert len(log.commits[0].parents) == 2
    assert changes(history, merge) == [("A", None, "s.md")]
    (diff,) = history.commit(merge).files
    assert (diff.change.path, diff.hunks) == (
        "s.md",
        "@@ -0,0 +1 @@\n+s\n\\ No newline at end of file\n",
    )
    # The file itself was last changed where it was made.
    assert history.last_changes(merge)["s.md"].revision == side


def test_a_merge_that_changed_something_itself_is_the_last_change(
    path: Path, history: History
) -> None:
    commit(path, {"a.md": b"1\n"})
    git(path, "checkout", "-q", "-b", "side")
    commit(path, {"a.md": b"2\n"})
    git(path, "checkout", "-q", "main")
    commit(path, {"a.md": b"3\n"})
    git(path, "merge", "-q", "side", check=False)
    merge = commit(path, {"a.md": b"4\n"})
    assert len(history.log(merge).commits[0].parents) == 2
    assert history.last_changes(merge)["a.md"].revision == merge


def test_every_name_comes_through(path: Path, history: History) -> None:
    first = commit(path, dict.fromkeys(ODD, b"1\n"))
    second = commit(path, dict.fromkeys(ODD, b"2\n"))
    assert {each.path for each in history.files(second).entries} == set(ODD)
    for revision, letter in ((first, "A"), (second, "M")):
        found = changes(history, revision)
        assert {name for _, _, name in found} == set(ODD)
        assert {kind for kind, _, _ in found} == {letter}
    assert {name: each.revision for name, each in history.last_changes(second).items()} == (
        dict.fromkeys(ODD, second)
    )
    for name in ODD:
        assert history.file(first, name).data == b"1\n"
        log = history.log(second, path=name)
        assert [each.revision for each in log.commits] == [second, first]
    patch = history.commit(second)
    assert {each.change.path for each in patch.files} == set(ODD)
    assert {each.hunks for each in patch.files} == {"@@ -1 +1 @@\n-1\n+2\n"}


def test_every_content_comes_through(path: Path, history: History) -> None:
    hostile = (
        b"diff --git a/x b/x\n@@ -1 +1 @@\n--- a\n+++ b\nBinary files a and b differ\n"
        b"\xff\x1b[31m\r\n" + "\u202e\u2028".encode() + b"\n"
    )
    first = commit(path, {"a.md": hostile, "b.md": b"b\n", "empty.md": b""})
    diffs = {each.change.path: each for each in history.commit(first).files}
    assert set(diffs) == {"a.md", "b.md", "empty.md"}
    assert diffs["b.md"].hunks == "@@ -0,0 +1 @@\n+b\n"
    assert diffs["empty.md"].hunks == ""
    lines = (diffs["a.md"].hunks or "").encode("utf-8", "surrogateescape").split(b"\n")
    assert b"\n".join(line[1:] for line in lines[1:-1]) + b"\n" == hostile


def test_binary_links_and_submodules_are_shown_as_what_they_are(
    path: Path, history: History
) -> None:
    tree = {"a.bin": b"\0\1", "l.md": Link("/etc/hostname"), "t.md": Link("a")}
    first = commit(path, tree, submodules=("mod",))
    kinds = {each.path: (each.kind, each.size) for each in history.files(first).entries}
    assert kinds == {
        "a.bin": (EntryKind.FILE, 2),
        "l.md": (EntryKind.LINK, 13),
        "mod": (EntryKind.SUBMODULE, None),
        "t.md": (EntryKind.LINK, 1),
    }
    assert history.file(first, "l.md").data == b"/etc/hostname"
    assert history.file(first, "mod").data is None
    diffs = {each.change.path: each for each in history.commit(first).files}
    assert (diffs["a.bin"].binary, diffs["a.bin"].hunks) == (True, None)
    assert diffs["l.md"].change.entry is EntryKind.LINK
    assert diffs["mod"].change.entry is EntryKind.SUBMODULE
    assert "Subproject commit 1111" in (diffs["mod"].hunks or "")
    # A link that becomes a file is two sections of git's patch, and the rest stays in step.
    second = commit(path, {**tree, "t.md": b"text\n", "z.md": b"z\n"}, submodules=("mod",))
    diffs = {each.change.path: each for each in history.commit(second).files}
    assert diffs["t.md"].change.kind is ChangeKind.TYPE
    assert "-a\n" in (diffs["t.md"].hunks or "")
    assert "+text\n" in (diffs["t.md"].hunks or "")
    assert diffs["z.md"].hunks == "@@ -0,0 +1 @@\n+z\n"
    gone = commit(path, {"z.md": b"z\n"})
    diffs = {each.change.path: each for each in history.commit(gone).files}
    assert diffs["l.md"].change == Change(ChangeKind.DELETED, "l.md", None, EntryKind.LINK)


@pytest.mark.parametrize(
    "revision",
    ["HEAD", "main", "--output=x", "abc123", "", "1" * 40, "\n" + "1" * 40, "1" * 40 + "\n", "é"],
)
def test_only_full_ids_of_commits_are_taken(path: Path, history: History, revision: str) -> None:
    commit(path, FILES)
    for ask in (history.files, history.log, history.last_changes, history.commit):
        with pytest.raises(NotFound, match="there is no commit"):
            ask(revision)


def test_other_objects_are_no_commits(path: Path, history: History) -> None:
    head = commit(path, FILES)
    git(path, "tag", "-a", "-m", "t", "named", head)
    for name in ("HEAD^{tree}", "HEAD:persona.md", "named"):
        with pytest.raises(NotFound):
            history.commit(git(path, "rev-parse", name))
    assert not (path / "x").exists()


@pytest.mark.parametrize("name", ["gone.md", "", "notes", "notes/", "./persona.md", "../x", "/etc"])
def test_what_is_no_file_of_the_commit_is_not_found(
    path: Path, history: History, name: str
) -> None:
    head = commit(path, {**FILES, "notes/x.md": b"x"})
    (path / "gone.md").write_bytes(b"not committed")
    with pytest.raises(NotFound, match="has no file"):
        history.file(head, name)


def test_a_repository_cannot_make_us_run_its_programs(
    path: Path, history: History, tmp_path: Path
) -> None:
    commit(path, {**FILES, ".gitattributes": b"*.md filter=evil diff=evil\n"})
    head = commit(path, {**FILES, "persona.md": b"Cold.\n", ".gitattributes": b"*.md diff=evil\n"})
    trap = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {trap}\ncat\n')
    program.chmod(0o755)
    for key in (
        "core.fsmonitor", "core.pager", "pager.diff-tree", "pager.rev-list", "pager.ls-tree",
        "diff.external", "diff.evil.textconv", "diff.evil.command", "gpg.program", "core.editor",
        "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.sshCommand",
        "core.askPass", "alias.rev-list", "alias.diff-tree",
    ):  # fmt: skip
        value = f"!{program}" if key.startswith("alias") else str(program)
        git(path, "config", key, value)
    included = tmp_path / "included"
    included.write_text(f"[diff]\n\texternal = {program}\n[log]\n\tshowSignature = true\n")
    git(path, "config", f"includeIf.gitdir:{path}/.path", str(included))
    git(path, "config", "include.path", str(included))
    for key in ("log.showSignature", "diff.submodule", "log.follow", "log.mailmap"):
        git(path, "config", key, "log" if key == "diff.submodule" else "true")
    git(path, "config", "mailmap.file", str(tmp_path / "gone"))
    hooks = path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit"):
        shutil.copy(program, hooks / hook)
    before = digest(path)
    assert len(history.log(head).commits) == 2
    assert len(history.log(head, path="persona.md").commits) == 2
    assert history.last_changes(head)["persona.md"].revision == head
    assert history.file(head, "persona.md").data == b"Cold.\n"
    (attributes, diff) = history.commit(head).files
    assert attributes.change.path == ".gitattributes"
    assert diff.hunks == "@@ -1,3 +1 @@\n-Warm.\n-Kind.\n-Brief.\n+Cold.\n"
    assert not trap.exists(), trap.read_text()
    assert digest(path) == before
    # The trap works: git as it is runs into it.
    subprocess.run(["git", "diff", "HEAD~1"], cwd=path, capture_output=True, check=False)
    assert trap.exists()


def test_a_shallow_clone_says_so(path: Path, tmp_path: Path) -> None:
    for number in range(3):
        head = commit(path, {"a.md": str(number).encode()})
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{path}", str(tmp_path / "clone"))
    shallow = History(MemoryDirectory(tmp_path / "clone"))
    log = shallow.log(head)
    assert (len(log.commits), log.more, log.shallow) == (2, False, True)
    oldest = log.commits[-1]
    assert (oldest.parents, oldest.changes) == ((), (Change(ChangeKind.ADDED, "a.md"),))
    assert [each.hunks for each in shallow.commit(oldest.revision).files] == [
        "@@ -0,0 +1 @@\n+1\n\\ No newline at end of file\n"
    ]


def test_large_files_are_not_read(
    path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit(path, {"a.md": b"x" * 64, "b.md": b"x" * 65})
    monkeypatch.setattr(history_module, "MAX_FILE", 64)
    assert history.file(head, "a.md").data == b"x" * 64
    large = history.file(head, "b.md")
    assert (large.data, large.entry.size) == (None, 65)


def test_large_patches_are_cut_between_files(
    path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit(path, {"a.md": b"a\n", "b.md": b"b" * 900 + b"\n", "c.md": b"c\n"})
    monkeypatch.setattr(history_module, "MAX_PATCH", 600)
    patch = history.commit(head)
    assert patch.cut
    assert [(each.change.path, each.hunks) for each in patch.files] == [
        ("a.md", "@@ -0,0 +1 @@\n+a\n"),
        ("b.md", None),
        ("c.md", None),
    ]


def test_large_listings_are_cut(
    path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(path, {"one.md": b"1"})
    head = commit(path, {f"{number:03}.md": b"%d" % number for number in range(100)})
    monkeypatch.setattr(history_module, "MAX_LIST", 1_000)
    listing = history.files(head)
    assert listing.cut
    assert [each.path for each in listing.entries] == [
        f"{number:03}.md" for number in range(len(listing.entries))
    ]
    log = history.log(head)
    assert [each.changes for each in log.commits] == [None, None]
    patch = history.commit(head)
    assert (patch.cut, patch.files) == (True, ())


def written(path: Path, *lines: str) -> str:
    """A commit made by hand of the lines after its tree; its id."""
    tree = git(path, "rev-parse", "HEAD^{tree}")
    made = path.parent / "raw"
    made.write_text("\n".join([f"tree {tree}", *lines]) + "\n")
    return git(path, "hash-object", "-t", "commit", "-w", "--literally", str(made))


def test_a_time_that_is_none_is_left_out(path: Path, history: History) -> None:
    commit(path, FILES)
    odd = written(path, "author  <> 99999999999999999 +0000", "committer x <> 1 +0000", "")
    (found,) = history.log(odd).commits
    assert (found.time, found.author, found.subject) == (None, "", "")


def test_no_encoding_can_forge_commits(path: Path, history: History) -> None:
    commit(path, FILES)
    forged = "+AAA-".join(["x", "1" * 40, "", "0", "forged", "forged", "", "1" * 40])
    odd = written(
        path, f"author {forged} <> 1 +0000", "committer x <> 1 +0000", "encoding UTF-7", "", forged
    )
    (found,) = history.log(odd).commits
    assert (found.revision, found.parents) == (odd, ())
    assert found.changes is not None
    assert len(found.changes) == len(FILES)
    assert history.commit(odd).commit.revision == odd


def test_a_commit_too_large_is_said(
    path: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(path, FILES)
    git(path, "commit", "-q", "--amend", "-m", "x" * 5_000)
    head = git(path, "rev-parse", "HEAD")
    monkeypatch.setattr(history_module, "MAX_LIST", 4_000)
    assert history.log(head).commits == ()
    with pytest.raises(Damaged, match="too large"):
        history.commit(head)


def test_damage_is_no_empty_history(path: Path, history: History) -> None:
    first = commit(path, FILES)
    second = commit(path, {"a.md": b"a"})
    blob = git(path, "rev-parse", f"{second}:a.md")
    (path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert history.files(second).entries[0].size is None
    with pytest.raises(Damaged, match="cannot be read"):
        history.file(second, "a.md")
    with pytest.raises(Damaged, match="the changes"):
        history.commit(second)
    (path / ".git/objects" / first[:2] / first[2:]).unlink()
    with pytest.raises(Damaged, match="the history"):
        history.log(second)


def test_where_git_gives_no_answer(
    path: Path, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit(path, FILES)
    slow_git(tmp_path / "bin", monkeypatch, "*rev-list*")
    with pytest.raises(StoreUnavailable, match="did not answer"):
        History(MemoryDirectory(path, timeout=0.3)).log(head)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(StoreUnavailable, match="not installed"):
        history.log(head)
    shutil.rmtree(path)
    with pytest.raises(NotFound, match="no such directory"):
        history.log(head)
