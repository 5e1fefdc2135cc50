"""`lettaspace sync` where somebody is signed in: Letta's directory is written to as well."""

from __future__ import annotations

import json
import os
from errno import EACCES
from pathlib import Path
from typing import Any

import pytest

from lettaspace.letta.directory import list_directory
from lettaspace.letta.placing import Placing
from tests.cli.conftest import Cli
from tests.cli.machines import Machine, World
from tests.cli.test_serving import up
from tests.cli.test_sync_remote import Watching
from tests.conversation.memories import commit, git, init
from tests.letta.build import AGENT, KEY, Store, at, b1, message, row, rows
from tests.letta.helpers import digest
from tests.letta.sides import append, read, read_rows
from tests.waiting import until


class Both(Machine):
    """A machine with a Letta directory, which may be empty."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.base / name, world)
        self.login()
        self.store = Store(world.base / f"{name}-letta")

    @property
    def path(self) -> Path:
        return self.store.path

    @property
    def memory(self) -> Path:
        return self.path / "memfs" / AGENT / "memory"

    def sync(self, *options: str) -> str:
        done = self("sync", "--letta", self.path, *options)
        assert (done.code, done.err) == (0, "")
        return done.out

    def turn(self, number: int, said: str, key: str = KEY, name: str = "a") -> None:
        """Letta answers."""
        parent = read_rows(self.path, key)[-1]["id"]
        own = f"{name}{number:07x}", f"{name}{number + 1:07x}"
        made = [
            row(message(number, "user", said, created=at(number)), own[0], parent),
            row(message(number + 1, "assistant", f"{said}!"), own[1], own[0]),
        ]
        append(self.path, made, key)

    def window(self, key: str = KEY) -> list[str]:
        """The texts that Letta would load."""
        latest = {each["message"]["id"]: each["message"] for each in read_rows(self.path, key)[1:]}
        ids = read(self.path, key)["in_context_message_ids"]
        return ["".join(p.get("text", "") for p in latest[each]["content"]) for each in ids]

    @property
    def keys(self) -> list[str]:
        return [each.key for each in list_directory(self.path).conversations]


TALK = ["List the jars.", "Looking.", "plum\nfig", "Two jars: plum and fig."]


@pytest.fixture
def one(world: World) -> Both:
    made = Both(world, "one")
    made.store.agent()
    made.store.conversation(rows(b1()))
    made.sync()
    return made


@pytest.fixture
def two(one: Both) -> Both:
    """Another machine, where Letta was started once."""
    return Both(one.world, "two")


def test_it_goes_on_there_and_comes_back(one: Both, two: Both) -> None:
    out = two.sync()
    assert f"Into {two.path}: 1 agent, 1 conversation with 4 messages" in out
    assert two.window() == TALK
    two.turn(5, "On two", name="b")
    two.sync()
    done = one("sync", "--letta", one.path, "--json")
    assert done.code == 0
    (brought,) = done.json["restored"]["conversations"]
    assert (brought["key"], brought["outcome"], brought["rows"]) == (KEY, "changed", 2)
    assert one.window() == [*TALK, "On two", "On two!"]
    before = digest(one.path), digest(two.path)
    for machine in (one, two):
        assert "Into" not in machine.sync()
    assert (digest(one.path), digest(two.path)) == before


def test_one_may_have_it_only_read(one: Both, two: Both) -> None:
    assert "Into" not in two.sync("--read-only")
    assert two.keys == []
    form = two("sync", "--letta", two.path, "--read-only", "--json").json
    assert (form["restored"], form["memories"]) == (None, [])
    # The host is no part of it.
    assert "Into" in two.sync("--no-host")
    assert two.window() == TALK


def test_a_dry_run_says_what_would_be_written(one: Both, two: Both) -> None:
    two.sync("--read-only")
    before = digest(two.path)
    out = two.sync("--dry-run")
    assert f"Would write into {two.path}: 1 conversation with 4 messages" in out
    form = two("sync", "--letta", two.path, "--dry-run", "--json").json
    assert [each["reason"] for each in form["differences"]] == ["notHere"]
    assert digest(two.path) == before


def test_a_dry_run_says_what_status_says(one: Both, two: Both) -> None:
    init(one.memory)
    first = commit(one.memory, {"human.md": b"Likes figs.\n"})
    one.sync()
    two.sync("--no-host")
    two("pull")
    form = two("sync", "--letta", two.path, "--dry-run", "--json").json
    assert [(e["agent"], e["reason"], e["head"]) for e in form["memoryDifferences"]] == [
        (AGENT, "notHere", first)
    ]
    two.sync()
    commit(one.memory, {"human.md": b"Likes plums.\n"})
    commit(two.memory, {"human.md": b"Likes pears.\n"})
    two.store.agent(name="Otter the second")
    one.sync()
    two("pull")
    before = digest(two.path)
    form = two("sync", "--letta", two.path, "--dry-run", "--json").json
    assert [each["reason"] for each in form["memoryDifferences"]] == ["both"]
    assert [each["reason"] for each in form["agentDifferences"]] == ["directory"]
    status = two("letta", "status", "--letta", two.path, "--json").json
    names = {"conversations": "differences", "agents": "agentDifferences"}
    names["memories"] = "memoryDifferences"
    assert {name: form[name_there] for name, name_there in names.items()} == {
        name: status[name] for name in names
    }
    said = two("letta", "status", "--letta", two.path).out
    assert said.count("\n") == 3
    assert two.sync("--dry-run").endswith(said)
    assert digest(two.path) == before


def test_where_nobody_is_signed_in_it_is_only_read(cli: Cli, home: Path, tmp_path: Path) -> None:
    from lettaspace.conversation.space import Space
    from tests.conformance.kit import user

    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    assert cli("sync", "--letta", store.path).code == 0
    before = digest(store.path)
    with Space.open(home) as space:
        agent = space.agents()[0].uri
        space.create_conversation(agent, title="made beside Letta").append(user("hello"))
    form = cli("sync", "--letta", store.path, "--json").json
    assert (form["restored"], form["parted"], form["differences"]) == (None, [], None)
    assert digest(store.path) == before


def test_offline_both_are_brought_together_all_the_same(one: Both) -> None:
    with one.open() as space:
        (rkey,) = [each.rkey for each in space.conversations()]
    one.say(rkey, "from the library")
    one.world.end_sessions()
    done = one("sync", "--letta", one.path)
    assert done.code == 1
    assert done.err.startswith("lettaspace: error: signed out: ")
    assert done.err.count("\n") == 1
    assert f"Into {one.path}: 1 conversation with 1 message" in done.out
    assert one.window() == [*TALK, "from the library"]


def test_letta_is_at_work_there(one: Both, two: Both) -> None:
    two.sync()
    with two.open() as space:
        (rkey,) = [each.rkey for each in space.conversations()]
    asked = row(message(5, "user", "And now?", created=at(5)), "c5", read_rows(two.path)[-1]["id"])
    append(two.path, [asked])
    two("sync", "--letta", two.path, "--read-only")
    two.say(rkey, "meanwhile")
    before = read_rows(two.path)
    out = two.sync()
    assert f"{KEY}: later, for Letta is at work in it" in out
    assert read_rows(two.path) == before


def test_both_went_on_offline(one: Both, two: Both) -> None:
    two.sync()
    one.turn(5, "On one")
    two.turn(6, "On two", name="b")
    for machine in (one, two):
        machine.sync("--no-host")
    one.sync()
    out = two.sync()
    assert "Two machines went on with" in out
    one.sync()
    for machine in (one, two):
        said = {tuple(machine.window(key)) for key in machine.keys}
        assert said == {(*TALK, "On one", "On one!"), (*TALK, "On two", "On two!")}
    before = digest(one.path), digest(two.path)
    one.sync()
    two.sync()
    assert (digest(one.path), digest(two.path)) == before


def test_o59_a_memory_that_cannot_be_merged(one: Both, two: Both) -> None:
    init(one.memory)
    commit(one.memory, {"human.md": b"Likes figs.\n"})
    one.sync()
    assert f"memory of {AGENT}: restored" in two.sync()
    heads = [
        commit(each.memory, {"human.md": f"Likes {fruit}.\n".encode()})
        for each, fruit in ((one, "plums"), (two, "pears"))
    ]
    two.turn(5, "On two", name="b")
    two.sync()
    for _ in range(2):
        done = one("sync", "--letta", one.path)
        assert done.code == 1
        assert done.err.count("\n") == 1
        assert AGENT in done.err
        assert "human.md" in done.err
    assert one.window()[-1] == "On two!"
    told = one("sync", "--letta", one.path, "--json")
    assert told.code == 1
    (found,) = told.json["memories"]
    assert (found["ok"], found["restored"], found["conflicts"]) == (False, "conflict", ["human.md"])
    assert found["refs"]
    assert told.json["remote"]["pushed"] == 0
    assert [git(each.memory, "rev-parse", "HEAD") for each in (one, two)] == heads
    for machine in (one, two):
        assert b"<<<<" not in (machine.memory / "human.md").read_bytes()


def test_a_directory_that_cannot_be_written_is_read(
    one: Both, two: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.sync()
    two.turn(5, "On two", name="b")
    two.sync()
    made = [message(1, "user", "On one", conversation="local-conv-2")]
    one.store.conversation(rows(made), key="conversation:local-conv-2", created=at(-9))

    def refuse(_placing: Placing) -> Path:
        raise PermissionError(EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Placing, "_draft", refuse)
        done = one("sync", "--letta", one.path)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "cannot write" in done.err
    assert "Permission denied" in done.err
    # What is new there has gone to the host all the same.
    assert one.remote()["state"] == "in-sync"
    assert len(one("conversations", "--json").json) == 2
    # Once it can be, the rest follows: not at once, for the rows have just been written.
    for path in one.store.directory().iterdir():
        os.utime(path, (1e9, 1e9))
    one.sync()
    assert one.window()[-1] == "On two!"


def test_code_is_said_once_and_allowed(one: Both, two: Both) -> None:
    init(one.memory)
    commit(one.memory, {"human.md": b"x\n", "mods/a.js": b"1\n"})
    one.sync()
    out = two.sync()
    assert f"memory of {AGENT}: code stays out until --allow-code lets it in: mods/a.js" in out
    assert not (two.memory / "mods").exists()
    assert "--allow-code" not in two.sync()
    two.sync("--allow-code")
    assert (two.memory / "mods" / "a.js").read_bytes() == b"1\n"


def test_a_person_is_told_in_characters_that_do_nothing(one: Both, two: Both) -> None:
    init(one.memory)
    commit(one.memory, {"mods/a\x1b[31m\n.js": b"1\n"})
    one.sync()
    assert "\x1b" not in two.sync()


def test_followed_on_both_machines(one: Both, two: Both) -> None:
    """What Letta writes on one is in the other one's directory, while both are followed."""
    two.sync()
    init(one.memory)
    watching = [Watching(each, "--letta", each.path) for each in (one, two)]
    try:
        for each, machine in zip(watching, (one, two), strict=True):
            each.until(lambda e=each, m=machine: f"Following {m.path} and" in " ".join(e.lines))
        one.turn(5, "On one")
        watching[1].until(lambda: two.window()[-1] == "On one!")
        two.turn(7, "On two", name="b")
        watching[0].until(lambda: one.window()[-1] == "On two!")
        commit(one.memory, {"human.md": b"Likes figs.\n"})
        one.turn(9, "Noted", name="c")
        watching[1].until(lambda: two.window()[-1] == "Noted!")
        watching[1].until(lambda: (two.memory / "human.md").exists())
        assert [each.stop() for each in watching] == ["", ""]
    finally:
        for each in watching:
            each.kill()
    assert one.keys == two.keys == [KEY]
    before = digest(one.path), digest(two.path)
    one.sync()
    two.sync()
    assert (digest(one.path), digest(two.path)) == before


def both_changed_the_agent(one: Both, two: Both) -> None:
    """On one its name, which is at the host; on two its description, which is in the file."""
    two.sync()
    one.store.agent(name="Otter the second")
    one.sync()
    two.store.agent(description="Keeps the jars")


def is_merged(machine: Both) -> bool:
    (agent,) = machine("agents", "--json").json
    (file,) = (machine.path / "agents").glob("*.json")
    wanted = "Otter the second", "Keeps the jars"
    return all((each["name"], each["description"]) == wanted for each in (agent, read_small(file)))


def read_small(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def test_what_the_host_has_comes_before_what_is_followed(one: Both, two: Both) -> None:
    both_changed_the_agent(one, two)
    watching = Watching(two, "--letta", two.path)
    try:
        watching.until(lambda: is_merged(two))
        assert f"From {one.world.origin}: 1 changed record" in watching.lines
        assert watching.stop() == ""
    finally:
        watching.kill()
    one.sync()
    assert is_merged(one)


def test_up_takes_what_the_host_has_first(one: Both, two: Both) -> None:
    both_changed_the_agent(one, two)
    with up(two.home, "--letta", two.path, "--port", "0") as (process, _):
        until(lambda: is_merged(two))
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_up_brings_what_others_write(one: Both, two: Both) -> None:
    with up(two.home, "--letta", two.path, "--port", "0") as (process, _):
        until(lambda: two.keys == [KEY])
        assert two.window() == TALK
        one.turn(5, "On one")
        one.sync()
        until(lambda: two.window()[-1] == "On one!")
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    before = digest(two.path)
    one.turn(7, "Later", name="b")
    one.sync()
    with up(two.home, "--letta", two.path, "--port", "0", "--read-only") as (process, _):
        until(lambda: bool(two("search", "Later!", "--json").json["hits"]))
        process.terminate()
        assert process.wait(60) == 0
    assert digest(two.path) == before
