"""`lettaspace letta`: what differs, what is restored, how a conversation is gone on with."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from lettaspace.cli import hook as running
from lettaspace.letta import hooks
from lettaspace.letta.directory import encode_name
from tests.cli.conftest import Cli, on
from tests.cli.machines import Machine, World
from tests.conversation.memories import Link, commit, git, init
from tests.letta.build import AGENT, KEY, Store, b1, message, row, rows
from tests.letta.helpers import digest
from tests.letta.test_restoring import append, read, read_rows


@pytest.fixture
def letta(tmp_path: Path) -> Store:
    made = Store(tmp_path / "letta")
    made.agent()
    made.conversation(rows(b1()))
    return made


@pytest.fixture
def two(world: World, letta: Store) -> tuple[Machine, Machine, Path]:
    """Two machines; all is at the host, and the second has no Letta directory yet."""
    memory = init(letta.path / "memfs" / AGENT / "memory")
    commit(memory, {"MEMORY.md": b"# Index\n", "persona.md": b"Warm.\n"})
    one, other = world.machine("one"), world.machine("two")
    assert one("sync", "--letta", letta.path).code == 0
    assert other("clone", world.handle).code == 0
    return one, other, world.base / "b" / "lc-local-backend"


def rest(directory: Path) -> None:
    """Letta has written nothing for a minute."""
    before = time.time() - 60
    for path in directory.rglob("*"):
        if ".git" not in path.parts:
            os.utime(path, (before, before))


def turn(root: Path, number: int, said: str) -> None:
    parent = read_rows(root)[-1]["id"]
    append(root, [row(message(number, "user", said), f"{number:08x}", parent)])
    rest(root)


def test_a_conversation_is_gone_on_with_elsewhere(two: tuple[Machine, Machine, Path]) -> None:
    one, other, root = two
    with other.open() as space:
        (tid,) = [each.rkey for each in space.conversations()]
    done = other("letta", "resume", "Jars", "--letta", root, "--json")
    assert (done.code, done.err) == (0, "")
    form = done.json
    assert (form["conversation"], form["key"], form["agent"]) == (tid, KEY, AGENT)
    assert form["command"] == ["letta", "--backend", "local", "--conversation", "local-conv-1"]
    assert form["environment"] == {"LETTA_LOCAL_BACKEND_DIR": str(root)}
    assert form["storedCwd"] == "/home/a/otter"
    assert read(root)["in_context_message_ids"] == [f"ui-msg-{n}" for n in range(1, 5)]
    assert git(root / "memfs" / AGENT / "memory", "status", "--porcelain") == ""
    before = digest(root / "conversations"), digest(root / "agents")
    told = other("letta", "resume", tid[:8], "--letta", root).out.splitlines()
    assert (digest(root / "conversations"), digest(root / "agents")) == before
    assert told[0].startswith("It was begun in /home/a/otter, which is not on this machine;")
    assert shlex.split(told[-1])[-2:] == ["--conversation", "local-conv-1"]

    # It goes on there, and the first machine hears of it.
    turn(root, 5, "And now?")
    assert other("sync", "--letta", root).code == 0
    first = one.world.base / "letta"
    done = one("sync", "--letta", first)
    assert done.out.splitlines()[-2:] == [
        f"Into {first}: 1 conversation with 1 message",
        f"From {one.world.origin}: 1 new, 1 changed records",
    ]
    assert read(first)["in_context_message_ids"][-1] == "ui-msg-5"
    assert one("sync", "--letta", first, "--read-only").code == 0


def test_o27_o34_the_named_conversation_and_its_own_directory(
    two: tuple[Machine, Machine, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other, root = two
    plum = tmp_path / "plum"
    plum.mkdir()
    monkeypatch.chdir(plum)
    # What Letta remembers of this directory is another conversation; the named one counts.
    (plum / ".letta").mkdir()
    remembered = '{"lastSession": {"agentId": "agent-x", "conversationId": "local-conv-92"}}'
    (plum / ".letta" / "settings.local.json").write_text(remembered)
    done = other("letta", "resume", "local-conv-1", "--letta", root)
    assert "begun in /home/a/otter" in done.out
    assert f"goes on in {plum}" in done.out
    assert done.out.splitlines()[-1].endswith("--conversation local-conv-1")
    assert (plum / ".letta" / "settings.local.json").read_text() == remembered
    pinned = other("letta", "resume", "local-conv-1", "--letta", root, "--pin")
    assert pinned.code == 0
    assert "local-conv-92" not in (plum / ".letta" / "settings.local.json").read_text()
    # The stored directory stays what it was.
    again = other("letta", "resume", "local-conv-1", "--letta", root, "--json")
    assert again.json["storedCwd"] == "/home/a/otter"


def test_what_differs(two: tuple[Machine, Machine, Path]) -> None:
    one, other, root = two
    letta = one.world.base / "letta"
    same = one("letta", "status", "--letta", letta)
    assert same.out == f"{letta} and the space say the same.\n"
    assert one("letta", "status", "--letta", letta, "--json").json == {
        "directory": str(letta),
        "conversations": [],
        "agents": [],
        "memories": [],
    }
    Store(root)
    form = other("letta", "status", "--letta", root, "--json").json
    assert [each["reason"] for each in form["conversations"]] == ["notHere"]
    assert [each["reason"] for each in form["agents"]] == ["notHere"]
    assert [each["reason"] for each in form["memories"]] == ["notHere"]
    turn(letta, 5, "More.")
    Store(letta).agent(name="Otter the second")
    memory = letta / "memfs" / AGENT / "memory"
    commit(memory, {"MEMORY.md": b"# Index\n", "persona.md": b"Cold.\n"})
    (memory / "draft.md").write_text("not yet")
    form = one("letta", "status", "--letta", letta, "--json").json
    assert [(e["reason"], e["here"]) for e in form["conversations"]] == [("directory", 1)]
    assert [each["reason"] for each in form["agents"]] == ["directory"]
    assert [(e["reason"], e["uncommitted"]) for e in form["memories"]] == [
        ("directory", ["draft.md"])
    ]
    words = one("letta", "status", "--letta", letta).out
    assert words.count("went on here") == 3


def test_only_what_is_named(two: tuple[Machine, Machine, Path]) -> None:
    one, other, root = two
    letta = Store(one.world.base / "letta")
    second = [message(1, "user", "x", conversation="local-conv-2")]
    created = "2024-03-06T10:00:00.000Z"
    letta.conversation(rows(second), key="conversation:local-conv-2", created=created)
    assert one("sync", "--letta", letta.path).code == 0
    assert other("pull").code == 0
    dry = other("letta", "restore", "--letta", root, "--dry-run", "--json").json
    assert (dry["dryRun"], len(dry["conversations"]), root.exists()) == (True, 2, False)
    done = other("letta", "restore", "--letta", root, "--conversation", "local-conv-2", "--json")
    assert [each["key"] for each in done.json["conversations"]] == ["conversation:local-conv-2"]
    assert [each["outcome"] for each in done.json["agents"]] == ["new"]
    whole = other("letta", "restore", "--letta", root, "--agent", "otter")
    assert whole.out == f"Into {root}: 1 conversation with 4 messages\n"
    assert other("letta", "restore", "--letta", root).out == f"{root} has all of it.\n"


def test_what_is_refused(two: tuple[Machine, Machine, Path], tmp_path: Path, cli: Cli) -> None:
    _, other, root = two
    for arguments, said in [
        (("restore", "--agent", "badger"), "no agent is called 'badger'"),
        (("resume", "nothing-like-it"), "nothing-like-it"),
    ]:
        done = other("letta", *arguments, "--letta", root)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert said in done.err
    assert cli("letta", "restore").code == 1
    assert cli("letta", "resume").code == 2
    assert other("letta", "resume", "x", "--run", "--json").code == 2
    signed_in = Machine(tmp_path / "three", other.world)
    signed_in.login()
    assert "`lettaspace clone`" in on(signed_in.home)("letta", "status").err


def test_code_stays_out_until_it_is_allowed(two: tuple[Machine, Machine, Path]) -> None:
    one, other, root = two
    memory = one.world.base / "letta" / "memfs" / AGENT / "memory"
    commit(memory, {"MEMORY.md": b"# Index\n", "mods/run.js": b"export default 1\n"})
    assert one("sync", "--letta", one.world.base / "letta").code == 0
    assert other("pull").code == 0
    done = other("letta", "restore", "--letta", root)
    assert "code stays out until --allow-code lets it in: mods/run.js" in done.out
    there = root / "memfs" / AGENT / "memory" / "mods" / "run.js"
    assert not there.exists()
    assert other("letta", "restore", "--letta", root, "--allow-code").code == 0
    assert there.exists()


def test_links_are_not_what_allow_code_lets_in(two: tuple[Machine, Machine, Path]) -> None:
    one, other, root = two
    memory = one.world.base / "letta" / "memfs" / AGENT / "memory"
    out = Link("../../../settings.json")
    commit(memory, {"MEMORY.md": b"# Index\n", "mods/run.js": b"1\n", "out": out, "mods/out": out})
    assert one("sync", "--letta", one.world.base / "letta").code == 0
    first = other("letta", "resume", "Jars", "--letta", root).out.splitlines()
    name = f"memory of {AGENT}"
    assert f"{name}: code stays out until --allow-code lets it in: mods/run.js" in first
    assert f"{name}: links that lead outside stay out: mods/out, out" in first
    again = other("letta", "restore", "--letta", root, "--allow-code")
    assert "--allow-code" not in again.out
    assert f"{name}: links that lead outside stay out: mods/out, out" in again.out
    there = root / "memfs" / AGENT / "memory"
    assert (there / "mods" / "run.js").exists()
    assert not any((there / link).is_symlink() for link in ("out", "mods/out"))


def test_the_mod(world: World, letta: Store) -> None:
    one = world.machine("one")
    mods = hooks.mods_directory()
    assert one("letta", "hook", "status", "--json").json["installed"] is False
    assert one("letta", "hook", "install", "--letta", letta.path, "--json").json["changed"] is True
    assert one("letta", "hook", "install", "--letta", letta.path, "--json").json["changed"] is False
    assert str(one.home) in (mods / hooks.NAME).read_text()
    assert one("letta", "hook", "status").out.endswith(": there\n")
    assert one("letta", "hook", "uninstall").code == 0
    assert not (mods / hooks.NAME).exists()
    mods.mkdir(parents=True, exist_ok=True)
    (mods / hooks.NAME).write_text("somebody's own")
    refused = one("letta", "hook", "install")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert one("letta", "hook", "uninstall").code == 1
    assert (mods / hooks.NAME).read_text() == "somebody's own"


def test_what_the_mod_starts_says_nothing(
    world: World, letta: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SETTLE", 0.0)
    one = world.machine("one")
    done = one("letta", "hook", "run", "--letta", letta.path)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert len(one("conversations", "--json").json) == 1
    assert one.remote()["state"] == "in-sync"
    assert not (one.home / running.AGAIN).exists()
    world.end_sessions()
    (letta.path / "agents" / f"{encode_name(AGENT)}.json").unlink()
    failed = one("letta", "hook", "run", "--letta", letta.path / "nowhere")
    assert (failed.code, failed.out, failed.err) == (0, "", "")
