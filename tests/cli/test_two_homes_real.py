"""The real Letta Code on two machines with other paths, and a host between them: what is begun on
the one is gone on with on the other, by the commands that people use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lettaspace.cli import hook as running
from lettaspace.conversation.space import STORE_FILE
from lettaspace.letta import hooks
from tests.cli.machines import Machine, World
from tests.conversation.memories import git
from tests.lab.driver import LettaHome
from tests.lab.lab import Lab
from tests.lab.provider import Reply
from tests.lab.scenarios import CONVERSATION, bash
from tests.lab.store import (
    conversation_keys,
    in_context_ids,
    load_window,
    read_rows,
    text_of,
)
from tests.letta.test_restore_real import started
from tests.waiting import SECONDS, until

Json = dict[str, Any]

KEY = f"conversation:{CONVERSATION}"


class Real:
    """A machine: the home of a real Letta, and a home of lettaspace that is signed in."""

    def __init__(self, home: LettaHome, machine: Machine) -> None:
        self.home = home
        self.machine = machine
        self.root = home.storage

    def __call__(self, *arguments: str | Path) -> str:
        done = self.machine(*arguments)
        assert done.code == 0, done.err
        return done.out

    def sync(self) -> Json:
        """A sync when Letta has been at rest for a while."""
        rest(self.root)
        form: Json = json.loads(self("sync", "--letta", self.root, "--json"))
        return form

    def asked(self, prompt: str, conversation: str = CONVERSATION) -> Json:
        """A turn; what the model received for it first."""
        mark = self.home.provider.mark()
        self.home.ask(prompt, conversation=conversation)
        body: Json = self.home.provider.requests[mark].body
        return body

    def resume(self, name: str, prompt: str) -> Json:
        """What `letta resume` says is what is run, with a prompt."""
        rest(self.root)
        form = json.loads(self("letta", "resume", name, "--letta", self.root, "--json"))
        assert form["command"][:3] == ["letta", "--backend", "local"]
        assert form["environment"] in ({}, {"LETTA_LOCAL_BACKEND_DIR": str(self.root)})
        mark = self.home.provider.mark()
        flags = [*form["command"][1:], "--yolo", "-p", prompt, "--output-format", "json"]
        done = self.home.run(*flags, **form["environment"])
        assert done.returncode == 0, done.stderr[-800:]
        body: Json = self.home.provider.requests[mark].body
        return body

    def memory(self) -> Path:
        (path,) = (self.root / "memfs").glob("*/memory")
        return path

    def loaded(self, key: str = KEY) -> list[Json]:
        """The messages that Letta opens a conversation with."""
        return load_window(read_rows(self.root, key), in_context_ids(self.root, key))

    def keys(self) -> list[str]:
        return [key for key in conversation_keys(self.root) if not key.startswith("default:")]

    def key(self, talk: str) -> str:
        """What a conversation is called here."""
        form = json.loads(self("letta", "resume", talk, "--letta", self.root, "--json"))
        return str(form["key"])

    def said(self) -> list[str]:
        """What was said in all conversations, compacted or not."""
        with self.machine.open() as space:
            return sorted(
                text_of(each.payload())
                for info in space.conversations()
                for each in space.transcript(info.uri)
            )

    def compact(self, conversation: str = CONVERSATION) -> None:
        with self.home.app_server() as server:
            server.compact(conversation, "sliding_window", 0.3)


def rest(directory: Path) -> None:
    """Letta has written nothing for a minute."""
    before = time.time() - 60
    for place in ("agents", "conversations"):
        for path in (directory / place).rglob("*"):
            if path.is_file():
                os.utime(path, (before, before))


def edit(lab: Lab, name: str, colour: str) -> str:
    """A turn in which the agent changes its memory."""
    text = (
        f'cd "$MEMORY_DIR" && printf -- "---\\nname: {colour}\\ndescription: f\\n---\\n{colour}\\n"'
    )
    command = f"{text} > {colour}.md && git add -A && git commit -qm {colour}"
    return lab.script(name, Reply("Noting.", calls=(bash(command),)), Reply("Noted."))


def same_context(one: Json, other: Json, prompt: str) -> None:
    """Two models are given the same, byte for byte, up to what is said now."""
    assert one["messages"][0]["role"] == "system"
    assert json.dumps(one["messages"][:-1]) == json.dumps(other["messages"][:-1])
    assert json.dumps(one["tools"]) == json.dumps(other["tools"])
    assert all(prompt in str(body["messages"][-1]) for body in (one, other))


def settle(a: Real, b: Real) -> None:
    """They sync in turn, until nothing is left to be done."""
    for side in (b, a, b, a):
        side.sync()
    for side in (a, b):
        form = side.sync()
        assert form["messages"]["new"] == form["messages"]["changed"] == 0
        assert not form["remote"]["pushed"]
        assert [each["outcome"] for each in form["restored"]["conversations"]] == []
    assert a.machine.records() == b.machine.records()
    assert a.said() == b.said()
    assert all(side.machine("verify").code == 0 for side in (a, b))


def parted(side: Real) -> list[str]:
    """The conversations that two machines went on with, those that were left first."""
    listed = json.loads(side("conversations", "--json"))
    found = [
        each
        for each in listed
        if any(damage["kind"] == "diverged" for damage in each.get("damage", ()))
    ]
    return [each["rkey"] for each in sorted(found, key=lambda each: "forkedFrom" in each)]


def test_the_other_machine_picks_up(letta_lab: Lab, world: World) -> None:
    """O31, O41, O42, O43 with the real thing: tools, a picture, thinking, a compaction, memory."""
    a = Real(started(letta_lab, "homes_a"), world.machine("a"))
    assert a.sync()["remote"]["pushed"] > 0
    b = Real(letta_lab.home("elsewhere/homes_b"), world.machine("b"))
    b("clone", world.handle)
    at_b = b.resume(CONVERSATION, "Go on.")
    assert git(a.memory(), "rev-parse", "HEAD") == git(b.memory(), "rev-parse", "HEAD")
    # A hears nothing of it and says the same, so its model is the measure.
    same_context(a.asked("Go on."), at_b, "Go on.")

    settle(a, b)
    first = parted(a)
    assert first == parted(b)
    assert len(first) == 2
    assert len(a.keys()) == 2
    for side in (a, b):
        assert all("Go on." in str(side.resume(each, "Here.")["messages"]) for each in first)
    settle(a, b)

    # B goes on, edits its memory, compacts; A takes it up there.
    talk = parted(b)[0]
    key = b.key(talk)
    b.home.ask(edit(letta_lab, "homes_edit", "ochre"), conversation=key.partition(":")[2])
    b.compact(key.partition(":")[2])
    b.sync()
    a.sync()
    assert git(a.memory(), "rev-parse", "HEAD") == git(b.memory(), "rev-parse", "HEAD")
    assert (a.memory() / "ochre.md").exists()
    at_a = a.resume(talk, "After that.")
    same_context(b.asked("After that.", key.partition(":")[2]), at_a, "After that.")

    # That was both of them once more, and both edit their memories, too.
    for side, colour in ((a, "umber"), (b, "sienna")):
        name = side.key(talk).partition(":")[2]
        side.home.ask(edit(letta_lab, f"homes_{colour}", colour), conversation=name)
    before = {text for side in (a, b) for text in side.said()}
    settle(a, b)
    assert before <= set(a.said())
    assert len(parted(a)) > 2
    for side in (a, b):
        assert {each.name for each in side.memory().glob("*.md")} >= {
            "facts.md", "ochre.md", "umber.md", "sienna.md"
        }  # fmt: skip
        for each in parted(side):
            assert side.resume(each, "Still there?")["messages"]


ROUNDS = 100
STREAMED = 10
"""Every so many rounds the answer is slow, and the other machine speaks elsewhere meanwhile."""


class Watched:
    """A machine on which `sync --watch` runs, and a Letta for each of two conversations."""

    def __init__(self, real: Real, stack: ExitStack) -> None:
        self.real = real
        command = [sys.executable, "-m", "lettaspace", "--home", str(real.machine.home)]
        self.child = subprocess.Popen(
            [*command, "sync", "--watch", "--letta", str(real.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        stack.callback(self.end)
        self.lines: list[str] = []
        assert self.child.stdout is not None
        self.reader = threading.Thread(target=self.lines.extend, args=(self.child.stdout,))
        self.reader.start()
        until(lambda: any(line.startswith("Following") for line in self.lines))
        self.sessions = [
            stack.enter_context(real.home.session(conversation=f"local-conv-{number}"))
            for number in (1, 2)
        ]

    def end(self) -> None:
        self.child.send_signal(signal.SIGINT)
        try:
            self.child.wait(SECONDS)
        finally:
            self.child.kill()
            self.reader.join(SECONDS)
            if self.child.stdout is not None:
                self.child.stdout.close()

    def hears(self, number: int, text: str) -> None:
        """Waits until Letta would go on behind this here. Nobody but us writes meanwhile, so
        whatever is read is whole."""

        def is_there() -> bool:
            loaded = self.real.loaded(f"conversation:local-conv-{number}")
            return len(loaded) > 1 and text in text_of(loaded[-2])

        until(is_there, about=f"{text} on the other machine")


def test_a_hundred_rounds_while_both_are_followed(letta_lab: Lab, world: World) -> None:
    """No torn file, no turn that is dropped, and nothing that is taken for a divergence."""
    a = Real(letta_lab.home("rounds_a"), world.machine("a"))
    for _ in range(2):
        a.home.ask("first of all")
    a.sync()
    b = Real(letta_lab.home("elsewhere/rounds_b"), world.machine("b"))
    b("clone", world.handle)
    b("letta", "restore", "--letta", b.root)
    with ExitStack() as stack:
        sides = [Watched(real, stack) for real in (a, b)]
        for number in range(ROUNDS):
            here, there = sides if number % 2 else reversed(sides)
            text = f"round {number}"
            if number % STREAMED:
                here.sessions[0].ask(text)
            else:
                gate = f"rounds_{number}"
                slow = letta_lab.script(gate, Reply("Slowly, and at last.", pause=gate))
                here.sessions[0].send(f"{text} {slow}")
                letta_lab.provider.gate(gate).await_arrival()
                there.sessions[1].ask(f"meanwhile {number}")
                here.hears(2, f"meanwhile {number}")
                letta_lab.provider.gate(gate).open()
                here.sessions[0].result()
            there.hears(1, text)
        lines = [line for side in sides for line in side.lines if line.startswith("!")]
    assert lines == []
    settle(a, b)
    assert parted(a) == []
    for side in (a, b):
        said = [text_of(message) for message in side.loaded(KEY) if message["role"] == "user"]
        rounds = [text for text in said if "round " in text]
        assert len(rounds) == ROUNDS
        assert all(f"round {number}" in text for number, text in enumerate(rounds))
        aside = [text_of(m) for m in side.loaded("conversation:local-conv-2")]
        assert sum("meanwhile" in text for text in aside) == ROUNDS // STREAMED


def test_a_finished_turn_is_synced_at_once(letta_lab: Lab, world: World) -> None:
    """Nobody follows the directory: Letta itself starts the sync, by its mod."""
    home = letta_lab.home("hooked")
    a = Real(home, world.machine("a"))
    command = running.command(a.machine.home, a.root)
    assert hooks.install(home.path / ".letta" / "mods", command)
    home.ask("Do you hear me?")
    store = a.machine.home / STORE_FILE
    until(lambda: store.exists() and any("Do you hear me?" in said for said in a.said()))
    until(lambda: a.machine.remote()["state"] == "in-sync" and not _runs(a.machine.home))


def _runs(home: Path) -> bool:
    """Whether a sync that the mod started goes on."""
    return (home / running.AGAIN).exists() or not _is_free(home / running.LOCK)


def _is_free(path: Path) -> bool:
    lock = FileLock(path, timeout=0)
    try:
        with lock:
            return True
    except Timeout:
        return False
