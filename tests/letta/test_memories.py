"""Memory that travels: stored from one directory, restored into another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lettaspace.atproto.data import blob_refs
from lettaspace.conversation.records import AGENT, MEMORY
from lettaspace.conversation.space import Space
from lettaspace.errors import Conflict, Damaged, LettaspaceError, NotFound, StoreUnavailable
from lettaspace.letta import memorystoring
from lettaspace.letta.build import agent_record
from lettaspace.letta.memories import MemoryReport, Outcome, restore, store
from lettaspace.letta.memoryrecord import stored_memory
from lettaspace.space.writes import Create, Update
from tests.conversation.memories import Link, Tree, commit, git, init
from tests.letta.killing import killed
from tests.letta.test_bundles import raw, tree

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
        place = tmp_path / f"all-{len(list(tmp_path.iterdir()))}"
        restore(self.space, AGENT_ID, place)
        return set(git(place, "rev-list", "--all").split())


Make = Callable[[str], Machine]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a space that has the agent: to make one takes longer than to copy it."""
    home = tmp_path_factory.mktemp("template") / "home"
    with Space.open(home) as space:
        record = agent_record(AGENT_ID, {"id": AGENT_ID, "name": "Plum"}, {})
        space.repo.apply_writes([Create(AGENT, AGENT_ID, record)])
    return home


@pytest.fixture
def make(template: Path, tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def one(name: str) -> Machine:
            home = tmp_path / "homes" / name
            shutil.copytree(template, home)
            space = stack.enter_context(Space.open(home))
            return Machine(space, tmp_path / name / "memfs" / AGENT_ID / "memory")

        yield one


@pytest.fixture
def a(make: Make) -> Machine:
    machine = make("a")
    init(machine.memory)
    machine.commit(FIRST)
    return machine


@pytest.fixture
def b(make: Make) -> Machine:
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
    assert list(a.space.verify()) == []


def test_nothing_new_writes_nothing(a: Machine) -> None:
    a.store()
    rev = a.space.repo.rev()
    report = a.store()
    assert (report.outcome, a.space.repo.rev()) == (Outcome.UNCHANGED, rev)
    a.edit("human.md", "More.\n")
    a.store()
    stored = stored_memory(a.space, AGENT_ID, required=True)
    assert [len(part.value.get("prerequisites", ())) for part in stored.parts] == [0, 1]


def test_a_new_directory_is_as_letta_makes_it(a: Machine, b: Machine) -> None:
    (a.memory / ".git/hooks/post-commit").write_text("#!/bin/sh\nexit 1\n")
    git(a.memory, "config", "letta.memoryRepository.url", "https://ada.example/x.git")
    git(a.memory, "remote", "add", "origin", "https://ada.example/x.git")
    a.store()
    send(a, b)
    b.restore()
    local = dict(
        line.split("=", 1) for line in git(b.memory, "config", "--local", "-l").splitlines()
    )
    core = {key: local.pop(key) for key in list(local) if key.startswith("core.")}
    assert local == {
        "letta.agentid": AGENT_ID,
        "user.email": f"{AGENT_ID}@letta.com",
        "user.name": "Plum",
        "commit.gpgsign": "false",
    }
    assert "core.hookspath" not in core
    assert not (b.memory / ".git/hooks").exists()
    assert git(b.memory, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(b.memory, "branch", "--list", "--all") == "* main"
    assert [path.name for path in b.memory.parent.iterdir()] == ["memory"]


def test_an_empty_directory_is_filled_and_another_one_left_alone(a: Machine, b: Machine) -> None:
    a.store()
    send(a, b)
    b.memory.mkdir(parents=True)
    assert b.restore().outcome is Outcome.RESTORED
    shutil.rmtree(b.memory)
    b.memory.mkdir()
    (b.memory / "notes.md").write_text("mine")
    with pytest.raises(NotFound, match="not a git repository"):
        b.restore()
    assert [path.name for path in b.memory.iterdir()] == ["notes.md"]


def test_what_is_not_there(a: Machine, b: Machine) -> None:
    with pytest.raises(NotFound, match="no memory of"):
        b.restore()
    with pytest.raises(NotFound):
        b.store()
    init(b.memory)
    with pytest.raises(NotFound, match="nothing was ever committed"):
        b.store()
    shallow = a.memory.with_name("shallow")
    a.edit("human.md", "two\n")
    git(a.memory, "clone", "-q", "--depth", "1", f"file://{a.memory}", str(shallow))
    with pytest.raises(Damaged, match="whole history"):
        store(a.space, AGENT_ID, shallow)


def test_what_cannot_be_written(a: Machine, b: Machine) -> None:
    behind(a, b)
    (b.memory / ".git/lettaspace").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="memory"):
        b.restore()
    shutil.rmtree(b.memory)
    b.memory.write_text("a file")
    with pytest.raises(Conflict, match="no directory"):
        b.restore()
    b.memory.unlink()
    b.memory.symlink_to(a.memory)
    with pytest.raises(Conflict, match="no directory"):
        b.restore()
    b.memory.unlink()
    b.memory.parent.rmdir()
    b.memory.parent.write_text("a file")
    with pytest.raises(StoreUnavailable):
        b.restore()


def test_uncommitted_changes_stay_where_they_are(a: Machine, b: Machine) -> None:
    (a.memory / "human.md").write_text("Thinking about it.\n")
    (a.memory / "draft.md").write_text("New.\n")
    report = a.store()
    assert (report.outcome, report.uncommitted) == (Outcome.STORED, ("human.md", "draft.md"))
    send(a, b)
    b.restore()
    assert b.files() == FIRST


def test_many_bundles_become_one(a: Machine, b: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memorystoring, "MAX_BUNDLES", 3)
    counts = []
    for number in range(5):
        a.edit("human.md", f"Day {number}.\n")
        counts.append(a.store().bundles)
        # The other machine has only what the record has now, or some of it from before.
        if number in (0, 3, 4):
            send(a, b)
            b.restore()
            assert b.head == a.head
    assert counts == [1, 2, 3, 1, 2]


def test_large_additions_are_packed_again(a: Machine) -> None:
    a.store()
    a.edit("noise.txt", os.urandom(300_000).hex())
    assert a.store().bundles == 1


def test_a_bundle_of_several_blobs(a: Machine, b: Machine) -> None:
    (a.memory / "picture.bin").write_bytes(os.urandom(5 << 20))
    git(a.memory, "add", "-A")
    git(a.memory, "commit", "-q", "-m", "picture")
    a.store()
    stored = stored_memory(a.space, AGENT_ID, required=True)
    assert len(stored.parts[0].value["content"]["blobs"]) == 2
    send(a, b)
    b.restore()
    assert b.files() == a.files()


def test_sha256(make: Make, b: Machine) -> None:
    machine = make("c")
    machine.memory.mkdir(parents=True)
    git(machine.memory, "init", "-q", "-b", "main", "--object-format=sha256")
    machine.commit(FIRST)
    machine.store()
    machine.edit("human.md", "two\n")
    assert machine.store().bundles == 2
    send(machine, b)
    assert b.restore().head == machine.head
    assert len(b.head) == 64


# Both went on


def apart(a: Machine, b: Machine, ours: Tree, theirs: Tree) -> None:
    """Two machines with the same memory commit, the first one stores, and both know of it."""
    a.store()
    send(a, b)
    b.restore()
    for machine, files in ((a, ours), (b, theirs)):
        machine.commit({**FIRST, **files})
    a.store()
    send(a, b)


def test_a_clean_merge(a: Machine, b: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    apart(a, b, {"human.md": b"Ours.\n"}, {"persona.md": b"Theirs.\n"})
    ours, theirs = a.head, b.head
    report = b.restore()
    assert report.outcome is Outcome.MERGED
    assert report.ok
    assert report.identity == f"Plum <{AGENT_ID}@letta.com>"
    assert git(b.memory, "log", "-1", "--format=%an <%ae>") == report.identity
    assert set(git(b.memory, "log", "-1", "--format=%P").split()) == {ours, theirs}
    assert b.status == ""
    assert b.files() == {**FIRST, "human.md": b"Ours.\n", "persona.md": b"Theirs.\n"}
    assert b.store().outcome is Outcome.STORED
    send(b, a)
    assert a.restore().outcome is Outcome.FORWARDED
    assert a.head == b.head
    assert a.store().refs == ()


def test_a_merge_is_in_the_users_name(
    a: Machine, b: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\nname = Mira\nemail = mira@example.invalid\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    apart(a, b, {"human.md": b"Ours.\n"}, {"persona.md": b"Theirs.\n"})
    assert b.restore().identity == "Mira <mira@example.invalid>"


def test_both_machines_make_the_same_merge(
    a: Machine, b: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    a.store()
    send(a, b)
    b.restore()
    git(a.memory, "config", "user.name", "Plum")
    git(a.memory, "config", "user.email", f"{AGENT_ID}@letta.com")
    a.edit("human.md", "Ours.\n")
    b.edit("persona.md", "Theirs.\n")
    a.store()
    b.store()
    mine, yours = a.space.repo.get(MEMORY, AGENT_ID), b.space.repo.get(MEMORY, AGENT_ID)
    assert mine is not None
    assert yours is not None
    for target, record, source in ((b, mine, a), (a, yours, b)):
        blobs = {cid: source.space.repo.get_blob(cid) for cid in blob_refs(record.value)}
        target.space.repo.apply_writes([Update(MEMORY, AGENT_ID, record.value)], blobs=blobs)
    assert [a.restore().outcome, b.restore().outcome] == [Outcome.MERGED] * 2
    assert a.head == b.head


def test_no_program_runs_that_the_repository_names(a: Machine, b: Machine, tmp_path: Path) -> None:
    apart(a, b, {".gitattributes": b"* merge=own filter=own\n", "human.md": b"Ours.\n"},
          {"human.md": b"Theirs.\n"})  # fmt: skip
    ran = tmp_path / "ran"
    for key in ("merge.own.driver", "filter.own.smudge", "filter.own.clean", "core.fsmonitor"):
        git(b.memory, "config", key, f"touch {ran}")
    git(b.memory, "config", "core.hooksPath", str(tmp_path / "hooks"))
    (tmp_path / "hooks").mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        (tmp_path / "hooks" / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (tmp_path / "hooks" / name).chmod(0o755)
    assert b.restore().outcome is Outcome.CONFLICT
    b.store()
    assert not ran.exists()


def test_o59_an_unrelated_history_takes_nothing_away(a: Machine, b: Machine) -> None:
    """(a) 79 files here, another root with 8 there."""
    init(b.memory)
    b.commit({f"notes/{number}.md": b"kept\n" for number in range(79)})
    a.commit({f"{number}.md": b"other\n" for number in range(8)})
    git(a.memory, "checkout", "-q", "--orphan", "fresh")
    git(a.memory, "commit", "-q", "-m", "new root")
    git(a.memory, "branch", "-M", "main")
    ours, theirs, files = b.head, a.head, b.files()
    a.store()
    send(a, b)
    report = b.restore()
    assert (report.outcome, report.ok, report.local) == (Outcome.UNRELATED, False, ours)
    assert (b.head, b.files(), b.status) == (ours, files, "")
    assert git(b.memory, "rev-parse", "refs/lettaspace/local/main") == ours
    assert git(b.memory, "rev-parse", "refs/lettaspace/stored/main") == theirs
    assert report.refs == ("refs/lettaspace/stored/main",)
    # The space has both from then on; the memory's head is still the one it had.
    assert (b.store().head, b.restore().outcome) == (theirs, Outcome.UNRELATED)
    send(b, a)
    assert a.restore().refs == (f"refs/lettaspace/apart/{ours}",)
    assert git(a.memory, "show", f"{ours}:notes/78.md") == "kept"


def test_o59_a_conflict_is_named_and_both_are_kept(a: Machine, b: Machine, tmp_path: Path) -> None:
    """(b) Both changed the same file, and nobody is there to ask."""
    persona = "system/persona.md"
    apart(a, b, {persona: b"I am warm.\n"}, {persona: b"I am brisk.\n", "plain.md": b"x\n"})
    ours, theirs, files = b.head, a.head, b.files()
    for _ in range(2):
        report = b.restore()
        assert (report.outcome, report.ok) == (Outcome.CONFLICT, False)
        assert report.conflicts == (persona,)
        assert (b.head, b.files(), b.status) == (ours, files, "")
        assert git(b.memory, "rev-parse", "refs/lettaspace/stored/main") == theirs
        assert git(b.memory, "rev-parse", "refs/lettaspace/local/main") == ours
        assert b.store().head == theirs
    assert {ours, theirs} <= b.in_the_space(tmp_path)
    # A person merges them, with whatever git has for it.
    git(b.memory, "merge", "-q", "-X", "ours", "-m", "by hand", "refs/lettaspace/stored/main")
    assert b.restore().outcome is Outcome.CURRENT
    assert b.store().head == b.head
    assert stored_memory(b.space, AGENT_ID, required=True).others == ()
    send(b, a)
    assert a.restore().outcome is Outcome.FORWARDED
    assert (a.head, a.files()) == (b.head, b.files())


def test_o59_an_unresolved_work_tree_is_not_stored(a: Machine) -> None:
    """(c) Conflict markers in the work tree."""
    a.store()
    git(a.memory, "checkout", "-q", "-b", "side")
    a.edit("human.md", "One.\n")
    git(a.memory, "checkout", "-q", "main")
    a.edit("human.md", "Two.\n")
    git(a.memory, "merge", "-q", "side", check=False)
    rev, head = a.space.repo.rev(), a.head
    report = a.store()
    assert (report.outcome, report.ok, report.conflicts) == (
        Outcome.UNRESOLVED, False, ("human.md",),
    )  # fmt: skip
    git(a.memory, "add", "human.md")
    git(a.memory, "update-ref", "-d", "MERGE_HEAD")
    assert a.store().conflicts == ("human.md",), "added, but nobody resolved it"
    assert (a.space.repo.rev(), a.head) == (rev, head)
    (a.memory / "human.md").write_text("Both.\n")
    assert a.store().outcome is Outcome.STORED


@pytest.mark.parametrize("first", ["a", "b"])
def test_the_record_that_lost_loses_no_history(
    a: Machine, b: Machine, tmp_path: Path, first: str
) -> None:
    """Both wrote the record, in either order; the later one is everybody's."""
    a.store()
    send(a, b)
    b.restore()
    a.edit("human.md", "Ours.\n")
    b.edit("human.md", "Theirs.\n")
    one, other = (a, b) if first == "a" else (b, a)
    one.store()
    other.store()
    exchange(a, b)
    assert other.head not in (one.head, None)
    assert one.head not in one.in_the_space(tmp_path)
    for machine in (one, other):
        machine.sync()
        exchange(a, b)
    for machine in (a, b):
        assert {a.head, b.head} <= machine.in_the_space(tmp_path)
        assert machine.status == ""


def test_what_was_stored_is_remembered_when_the_user_goes_back(
    a: Machine, b: Machine, tmp_path: Path
) -> None:
    apart(a, b, {"human.md": b"Ours.\n"}, {"human.md": b"Theirs.\n"})
    b.store()
    theirs = b.head
    a.edit("persona.md", "Brisk.\n")
    a.store()
    # This record is later than the one with both.
    send(a, b)
    git(b.memory, "reset", "-q", "--hard", "HEAD~1")
    assert theirs not in b.in_the_space(tmp_path)
    b.sync()
    assert {theirs, a.head} <= b.in_the_space(tmp_path)
    assert b.head == a.head


def test_nothing_is_lost_whatever_the_order(make: Make, a: Machine, tmp_path: Path) -> None:
    """Three machines edit, store, exchange and rewrite in an order that chance decides."""
    import random

    chance = random.Random(6)
    machines = [a, make("b"), make("c")]
    a.store()
    for machine in machines[1:]:
        send(a, machine)
        machine.restore()
    made = a.commits()
    for number in range(16):
        machine = chance.choice(machines)
        what = chance.choice(["edit", "edit", "sync", "store", "amend", "reset", "exchange"])
        if what == "edit":
            machine.edit(f"{chance.choice('xyz')}.md", f"{number}\n")
        elif what == "amend":
            git(machine.memory, "commit", "-q", "--amend", "-m", f"again {number}")
        elif what == "reset":
            git(machine.memory, "reset", "-q", "--hard", "HEAD~1", check=False)
        elif what == "sync":
            machine.sync()
        elif what == "store":
            machine.store()
        else:
            exchange(machine, chance.choice(machines))
        if what in ("sync", "store"):
            made |= machine.commits()
    # Twice round: whoever lost is heard of by everybody.
    for machine in machines * 2:
        for other in machines:
            exchange(machine, other)
        machine.sync()
        made |= set(git(machine.memory, "rev-list", "HEAD").split())
    for other in machines:
        exchange(machines[-1], other)
    for machine in machines:
        assert made <= machine.in_the_space(tmp_path)
        assert machine.status == ""


def test_a_history_that_was_written_anew_here_is_the_users_will(
    a: Machine, b: Machine, tmp_path: Path
) -> None:
    a.edit("human.md", "Once.\n")
    a.store()
    old = a.head
    git(a.memory, "commit", "-q", "--amend", "-m", "better said")
    assert a.restore().outcome is Outcome.CURRENT
    report = a.store()
    assert report.head == a.head
    assert stored_memory(a.space, AGENT_ID, required=True).others == (old,)
    git(a.memory, "reset", "-q", "--hard", "HEAD~1")
    assert a.restore().outcome is Outcome.CURRENT
    assert a.store().head == a.head
    assert old in a.in_the_space(tmp_path)


def test_many_other_heads_are_tied_together(
    a: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memorystoring, "MAX_HEADS", 3)
    heads = set()
    for number in range(6):
        git(a.memory, "commit", "-q", "--amend", "-m", f"try {number}")
        heads.add(a.head)
        a.store()
        assert len(stored_memory(a.space, AGENT_ID, required=True).others) <= 3
        assert a.store().outcome is Outcome.UNCHANGED
    assert heads <= a.in_the_space(tmp_path)


# A directory where something is going on


def behind(a: Machine, b: Machine) -> str:
    """The second machine is one commit behind what its space has; the commit it is at."""
    a.store()
    send(a, b)
    b.restore()
    a.edit("human.md", "Newer.\n")
    a.store()
    send(a, b)
    return b.head


@pytest.mark.parametrize("staged", [False, True])
def test_changes_are_not_overwritten(a: Machine, b: Machine, staged: bool) -> None:
    old = behind(a, b)
    (b.memory / "persona.md").write_text("Half a thought")
    if staged:
        git(b.memory, "add", "-A")
    report = b.restore()
    assert (report.outcome, report.later, report.ok) == (Outcome.UNCOMMITTED, True, True)
    assert report.uncommitted == ("persona.md",)
    assert b.head == old
    assert (b.memory / "persona.md").read_text() == "Half a thought"
    git(b.memory, "checkout", "-q", "HEAD", "--", ".")
    assert b.restore().outcome is Outcome.FORWARDED


@pytest.mark.parametrize("text", ["mine", "", "Newer.\n"])
def test_a_new_file_in_the_way_stays(a: Machine, b: Machine, text: str) -> None:
    behind(a, b)
    a.edit("plans.md", "Newer.\n")
    a.store()
    send(a, b)
    (b.memory / "plans.md").write_text(text)
    (b.memory / "else.md").write_text("in nobody's way")
    old = b.head
    assert b.restore().outcome is Outcome.UNCOMMITTED
    assert (b.head, (b.memory / "plans.md").read_text()) == (old, text)
    assert b.status == "?? else.md\n?? plans.md"
    (b.memory / "plans.md").unlink()
    assert b.restore().outcome is Outcome.FORWARDED
    assert (b.memory / "else.md").read_text() == "in nobody's way"


@pytest.mark.parametrize(
    "busy", ["index.lock", "MERGE_HEAD", "rebase-merge", "CHERRY_PICK_HEAD", "detached", "branch"]
)
def test_while_git_is_at_work_nothing_moves(a: Machine, b: Machine, busy: str) -> None:
    old = behind(a, b)
    if busy == "detached":
        git(b.memory, "checkout", "-q", "--detach")
    elif busy == "branch":
        git(b.memory, "checkout", "-q", "-b", "side")
    else:
        (b.memory / ".git" / busy).write_text(f"{old}\n" if busy.isupper() else "")
    report = b.restore()
    assert (report.outcome, report.later, b.head) == (Outcome.BUSY, True, old)
    assert report.message
    if busy in ("detached", "branch"):
        git(b.memory, "checkout", "-q", "main")
    else:
        (b.memory / ".git" / busy).unlink()
    assert b.restore().outcome is Outcome.FORWARDED


def test_deep_changes_of_the_tree(a: Machine, b: Machine) -> None:
    """Files that become directories and back, names of all kinds, links, modes."""
    trees: list[Tree] = [
        {"a": b"file\n", "dir/x.md": b"x\n", 'é\n\t".md': b"odd\n", "here": Link("dir/x.md")},
        {"a/b/c.md": b"deep\n", "dir": b"now a file\n", "here": b"now a file\n"},
        {"a": b"file again\n", "dir": Link("a"), " lead.md": b"1\n", "-dash": b"2\n"},
    ]
    for each in trees:
        a.commit(each)
        a.store()
        send(a, b)
        b.restore()
        assert b.head == a.head
        assert b.status == ""
        assert b.files() == a.files()


# Code


MOD = b"export default function activate() {}\n"
CODE: Tree = {
    **FIRST,
    "mods/hello.js": MOD,
    "mods/data.json": b"{}\n",
    "skills/run/SKILL.md": b"Run run.sh\n",
    "skills/run/run.sh": b"echo hi\n",
    "in": Link("skills/run/SKILL.md"),
    "out": Link("../../../settings.json"),
}
IS_CODE = ("mods/data.json", "mods/hello.js", "skills/run/run.sh")


def visible(machine: Machine) -> set[str]:
    found = machine.memory.rglob("*")
    names = {str(path.relative_to(machine.memory)) for path in found if not path.is_dir()}
    return {name for name in names if not name.startswith(".git/")}


@pytest.mark.parametrize("already", [False, True])
def test_code_comes_only_when_it_is_allowed(a: Machine, b: Machine, already: bool) -> None:
    if already:
        a.store()
        send(a, b)
        b.restore()
    a.commit(CODE)
    a.store()
    send(a, b)
    report = b.restore()
    assert (report.code, report.left_out) == (IS_CODE, tuple(sorted([*IS_CODE, "out"])))
    assert report.links == ("out",)
    assert visible(b) == {*FIRST, "skills/run/SKILL.md", "in"}
    assert (b.status, b.head) == ("", a.head)
    # Whatever is committed here meanwhile has it all.
    b.edit("human.md", "More.\n")
    b.store()
    assert git(b.memory, "show", "HEAD:mods/hello.js").encode() + b"\n" == MOD
    again = b.restore()
    assert (again.outcome, again.left_out) == (Outcome.CURRENT, report.left_out)
    assert again.links == report.links
    allowed = b.restore(allow_code=True)
    assert (allowed.outcome, allowed.code, allowed.left_out) == (
        Outcome.CURRENT, IS_CODE, ("out",),
    )  # fmt: skip
    assert visible(b) == {*CODE} - {"out"}
    assert b.status == ""
    assert b.restore().code == (), "it is the user's own from now on"
    assert visible(b) == {*CODE} - {"out"}


def test_code_that_is_here_stays_until_it_changes(a: Machine, b: Machine) -> None:
    a.commit({**FIRST, "mods/own.js": MOD, "mods/other.js": MOD})
    a.store()
    send(a, b)
    assert b.restore(allow_code=True).left_out == ()
    assert not (b.memory / ".git/info/sparse-checkout").exists()
    a.edit("mods/other.js", "export default function evil() {}\n")
    a.edit("human.md", "More.\n")
    a.store()
    send(a, b)
    assert b.restore().left_out == ("mods/other.js",)
    assert visible(b) == {*FIRST, "mods/own.js"}
    b.edit("mods/new.js", "export default function mine() {}\n")
    assert b.store().outcome is Outcome.STORED
    assert b.restore(allow_code=True).left_out == ()
    assert visible(b) == {*FIRST, "mods/own.js", "mods/other.js", "mods/new.js"}
    assert git(b.memory, "config", "--get", "core.sparseCheckout", check=False) == ""


def test_code_that_comes_by_a_merge(a: Machine, b: Machine) -> None:
    apart(a, b, {"mods/hello.js": MOD}, {"human.md": b"Theirs.\n"})
    report = b.restore()
    assert (report.outcome, report.left_out) == (Outcome.MERGED, ("mods/hello.js",))
    assert not (b.memory / "mods").exists()
    assert b.status == ""


def test_a_sparse_checkout_of_the_users_own(a: Machine, b: Machine) -> None:
    old = behind(a, b)
    git(b.memory, "sparse-checkout", "set", "--no-cone", "/*", "!/persona.md")
    chosen = (b.memory / ".git/info/sparse-checkout").read_bytes()
    a.edit("mods/hello.js", "x\n")
    a.store()
    send(a, b)
    report = b.restore()
    assert (report.outcome, b.head) == (Outcome.UNCOMMITTED, old)
    assert b.restore(allow_code=True).outcome is Outcome.FORWARDED
    assert (b.memory / ".git/info/sparse-checkout").read_bytes() == chosen
    assert not (b.memory / "persona.md").exists()


# Killed at any moment


def test_a_killed_restore_leaves_nothing_half(a: Machine, b: Machine) -> None:
    a.edit("human.md", "two\n")
    a.commit({**FIRST, "mods/a.js": MOD})
    a.store()
    send(a, b)
    home = b.space.home

    def work() -> None:
        with Space.open(home) as space:
            restore(space, AGENT_ID, b.memory)

    steps = 0
    while killed(work, steps):
        steps += 1
        if b.memory.exists():
            assert (b.head, b.status, visible(b)) == (a.head, "", {*FIRST})
            shutil.rmtree(b.memory)
    assert steps > 15
    assert [path.name for path in b.memory.parent.iterdir()] == ["memory"]
    assert (b.head, b.status, visible(b)) == (a.head, "", {*FIRST})


# Records that are not what they should be


def test_damaged_records(a: Machine, b: Machine) -> None:
    a.edit("human.md", "two\n")
    a.store()
    send(a, b)
    good = b.space.repo.get(MEMORY, AGENT_ID)
    assert good is not None
    bundle = good.value["bundles"][0]
    wrong: list[dict[str, Any]] = [
        {"branch": "../../x"},
        {"branch": "-x"},
        {"branch": "main.lock"},
        {"head": "--upload-pack=touch"},
        {"head": "1" * 40},
        {"otherHeads": ["1" * 40]},
        {"otherHeads": ["HEAD"]},
        {"bundles": []},
        {"bundles": [{**bundle, "content": {**bundle["content"], "key": bytes(32)}}]},
        {"bundles": [{**bundle, "content": {**bundle["content"], "size": 3}}]},
    ]
    for fields in wrong:
        b.space.repo.apply_writes([Update(MEMORY, AGENT_ID, {**good.value, **fields})])
        with pytest.raises(Damaged):
            b.restore()
        assert not b.memory.exists()
        assert list(b.memory.parent.glob("*")) == []
        assert list(b.memory.parent.glob(".*")) == []


def test_a_hostile_history_goes_nowhere(a: Machine, b: Machine) -> None:
    """A commit that would write a hook: not into a new directory, nor into one that is there."""
    script = raw(a.memory, "blob", b"#!/bin/sh\n")
    hooks = tree(a.memory, ("100755", "post-checkout", script))
    root = tree(a.memory, ("40000", ".git", tree(a.memory, ("40000", "hooks", hooks))))
    head = git(a.memory, "commit-tree", root, "-p", a.head, "-m", "x")
    git(a.memory, "update-ref", "refs/heads/main", head)
    old = git(a.memory, "rev-parse", "main~1")
    a.store()
    send(a, b)
    with pytest.raises(Damaged, match=head):
        b.restore()
    assert not b.memory.exists()
    init(b.memory)
    git(b.memory, "pull", "-q", str(a.memory), old)
    with pytest.raises(Damaged, match=head):
        b.restore()
    assert (b.head, b.status) == (old, "")
    assert git(b.memory, "for-each-ref", "refs/lettaspace/") == ""


def test_a_record_that_cannot_be_read_stops_nothing_else(a: Machine, b: Machine) -> None:
    """In a directory that is there, it changes nothing."""
    old = behind(a, b)
    record = b.space.repo.get(MEMORY, AGENT_ID)
    assert record is not None
    value = {**record.value, "bundles": record.value["bundles"][:1]}
    b.space.repo.apply_writes([Update(MEMORY, AGENT_ID, value)])
    for act in (b.restore, b.store):
        with pytest.raises(LettaspaceError, match="no bundle with commit"):
            act()
        assert (b.head, b.status) == (old, "")
