"""`lettaspace sync` and `pull` with a host: Letta's directory, the space, and the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.machines import Machine, World
from tests.letta.build import Store, b1, message, row, rows

KEYS = [
    "directory", "dryRun", "incomplete", "agents", "outcomes", "messages", "conversations",
    "damage", "remote", "restored", "parted", "memories", "differences",
    "agentDifferences", "memoryDifferences",
]  # fmt: skip


@pytest.fixture
def letta(tmp_path: Path) -> Store:
    made = Store(tmp_path / "letta")
    made.agent()
    made.conversation(rows(b1()))
    return made


def test_nobody_is_signed_in(cli: Cli, letta: Store, world: World) -> None:
    done = cli("sync", "--letta", letta.path, "--json")
    assert (done.code, done.err) == (0, "")
    assert list(done.json) == KEYS
    assert done.json["remote"] is None
    assert "http" not in cli("sync", "--letta", letta.path).out
    missing = cli("sync")
    assert missing.code == 1
    assert "no Letta storage directory" in missing.err
    assert cli("sync", "--members", "--letta", letta.path).code == 1
    assert cli("sync", "--members", "--no-host", "--letta", letta.path).code == 2


def test_all_three(world: World, letta: Store) -> None:
    one = world.machine("one")
    done = one("sync", "--letta", letta.path)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == f"Read {letta.path}"
    assert done.out.splitlines()[-1] == f"To {world.origin}: 7 records"
    again = one("sync", "--letta", letta.path, "--json")
    assert again.json["messages"] == {"new": 0, "changed": 0, "unchanged": 0}
    assert again.json["remote"] == {
        "host": world.origin,
        "created": 0,
        "updated": 0,
        "pushed": 0,
        "blobs": 0,
        "held": 0,
        "refused": 0,
        "forks": [],
        "members": None,
    }
    assert one("sync", "--letta", letta.path).out.splitlines()[-1] == f"In sync with {world.origin}"
    # The space is the account's without a word about it, and nobody need adopt anything.
    assert one("status", "--json").json["did"] == world.did


def test_without_a_directory_there_is_the_host(world: World) -> None:
    one = world.machine("one")
    done = one("sync")
    assert (done.code, done.out, done.err) == (0, f"In sync with {world.origin}\n", "")
    form = one("sync", "--json").json
    assert list(form) == KEYS
    assert (form["directory"], form["conversations"]) == (None, [])
    named = one("sync", "--letta", world.base / "nowhere")
    assert (named.code, named.out) == (1, "")


def test_the_host_may_be_left_alone(world: World, letta: Store) -> None:
    one = world.machine("one")
    dry = one("sync", "--letta", letta.path, "--dry-run", "--json").json
    assert (dry["remote"], dry["messages"]["new"]) == (None, 4)
    assert one("status", "--json").json["did"].startswith("did:key:")
    assert one("sync", "--letta", letta.path).code == 0
    with one.open() as space:
        (rkey,) = [each.rkey for each in space.conversations()]
    one.say(rkey, "not yet")
    assert one("sync", "--letta", letta.path, "--no-host", "--json").json["remote"] is None
    assert one.remote()["ahead"] == 1


def test_a_space_with_content_is_not_taken_over_silently(world: World, letta: Store) -> None:
    one = world.machine("one", login=False)
    assert one("sync", "--letta", letta.path).code == 0
    one.login()
    letta.conversation(
        rows([message(1, "user", "new")]), key="conversation:local-conv-2", created=letta_time()
    )
    done = one("sync", "--letta", letta.path)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "`lettaspace adopt` moves it there" in done.err
    assert "`lettaspace adopt --dry-run`" in done.err
    # Letta's part is in all the same.
    assert len(one("conversations", "--json").json) == 2
    told = one("sync", "--letta", letta.path, "--json")
    assert told.code == 1
    assert list(told.json) == KEYS
    assert told.json["remote"]["error"] == "Conflict"
    assert one("push").code == one("pull").code == 1
    assert one("adopt").code == 0
    assert one("sync", "--letta", letta.path).code == 0
    assert one.remote()["state"] == "in-sync"


def letta_time() -> str:
    return "2024-03-06T10:00:00.000Z"


def test_what_was_done_before_a_failure_is_said(world: World, letta: Store) -> None:
    one = world.machine("one")
    world.end_sessions()
    done = one("sync", "--letta", letta.path)
    assert done.code == 1
    assert "messages         4" in done.out
    assert done.err.startswith("lettaspace: error: signed out: ")


def test_a_pull_brings_and_gives_nothing(world: World) -> None:
    one, two = world.machine("one"), world.machine("two")
    one("sync")
    rkey = one.talk("a")
    one("sync")
    two("sync")
    two.talk("of two")
    one.say(rkey, "b")
    one("push")
    done = two("pull", "--json")
    assert (done.json["created"], done.json["pushed"], done.json["members"]) == (1, 0, None)
    assert two.remote()["state"] == "ahead"


def test_others_do_not_get_into_ones_own_lists(world: World, other_world: World) -> None:
    one, guest = world.machine("one"), other_world.machine("guest")
    one("sync")
    one.talk("mine", title="Mine")
    one("push")
    world.share(other_world.did)
    assert guest("clone", world.space).code == 0
    guest.talk("yours", title="Yours")
    guest("push")
    done = one("sync", "--members")
    assert (done.code, done.out) == (
        0,
        f"From {other_world.did}: 4 new records\n",
    )
    assert [each["title"] for each in one("conversations", "--json").json] == ["Mine"]
    # From now on they come along.
    with guest.open() as space:
        (rkey,) = [each.rkey for each in space.conversations()]
    guest.say(rkey, "more")
    guest("push")
    assert one("sync", "--json").json["remote"]["members"]["synced"][other_world.did]["created"]
    unchanged = one("sync", "--json").json["remote"]["members"]
    assert unchanged == {"synced": {}, "unchanged": [other_world.did], "problems": {}}


# Following.


class Watching:
    """`sync --watch` as a process."""

    def __init__(self, machine: Machine, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lettaspace", "--home", machine.home, "sync", "--watch",
             *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += (line.rstrip("\n") for line in self.process.stdout)

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(600):
            if is_so():
                return
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            threading.Event().wait(0.1)
        pytest.fail(f"it never was; {self.lines}")

    def stop(self) -> str:
        """Ctrl-C; returns what it said on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return err

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def test_watching_the_directory_and_the_host(world: World, letta: Store) -> None:
    one, two = world.machine("one"), world.machine("two")
    watching = Watching(one, "--letta", letta.path)
    try:
        watching.until(lambda: f"To {world.origin}: 7 records" in _said(watching))
        (file,) = letta.path.glob("conversations/*/messages.jsonl")
        with file.open("ab") as out:
            out.write(_line(row(message(5, "user", "And the shelf?"), "e5", "e4")))
        watching.until(lambda: two("pull").code == 0 and _has(two, "And the shelf?"))
        assert "+ 1 message" in _said(watching)
        (rkey,) = [each["rkey"] for each in two("conversations", "--json").json]
        two.say(rkey, "From two.")
        two("push")
        watching.until(lambda: f"From {world.origin}: 1 new record" in _said(watching))
        assert watching.stop() == ""
    finally:
        watching.kill()
    assert f"Following {letta.path} and {world.origin}; Ctrl-C stops." in _said(watching)


def test_watching_needs_no_directory(world: World) -> None:
    one = world.machine("one")
    watching = Watching(one)
    try:
        watching.until(lambda: f"Following {world.origin}; Ctrl-C stops." in _said(watching))
        watching.until(lambda: one.remote()["state"] == "in-sync")
        one.talk("written beside it")
        watching.until(lambda: f"To {world.origin}: 4 records" in _said(watching))
        world.end_sessions()
        one.talk("signed out meanwhile")
        watching.until(lambda: any("! signed out: " in each for each in _said(watching)))
        assert watching.stop() == ""
    finally:
        watching.kill()
    assert len([each for each in _said(watching) if each.startswith("!")]) == 1


@pytest.mark.parametrize("more", ["--json", "--dry-run"])
def test_watching_answers_no_program(cli: Cli, more: str) -> None:
    assert cli("sync", "--watch", more).code == 2


def _said(watching: Watching) -> list[str]:
    return list(watching.lines)


def _has(machine: Machine, text: str) -> bool:
    return bool(machine("search", text, "--json").json["hits"])


def _line(value: object) -> bytes:
    import json

    return json.dumps(value).encode() + b"\n"
