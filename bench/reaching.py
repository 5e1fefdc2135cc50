"""From one machine's Letta to another's: what Letta writes there is in Letta's directory here, by
`lettaspace sync --watch` on both and a host between them, all on this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from bench.context import Context
from bench.directory import write_agents, write_one
from bench.figure import Figure, Goal, Side
from bench.letta import installed, started
from bench.measure import Cost, interleaved
from bench.rows import START, Talk, line
from bench.served import DID, NOTE, Served
from lettaspace.conversation.space import STORE_FILE
from lettaspace.letta.directory import CONVERSATION, MESSAGES, encode_name
from lettaspace.remote.account import Account
from lettaspace.remote.capabilities import Capabilities
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.keeping import SESSION_FILE, write_private
from lettaspace.remote.replicas import attach
from lettaspace.remote.sessions import Tokens
from lettaspace.space.database import Database

GOAL = Goal(1)

MESSAGES_BEFORE = 200
LATER = START + timedelta(days=300)
ROUNDS = 15
_POLL = 0.002
_PAUSE = 1.0
"""Seconds between two messages, so that what one sets off is over."""
_LONGEST = 60.0
_COMMAND = [sys.executable, "-m", "lettaspace"]
_TALK = encode_name("conversation:local-conv-1")


class Machine:
    """A home that is signed in, with a Letta directory of its own."""

    def __init__(self, base: Path, host: Served) -> None:
        self.home = base / "home"
        self.letta = base / "letta"
        self.talk = self.letta / "conversations" / _TALK
        self._host = host

    def sign_in(self) -> Account:
        host = self._host
        capabilities = Capabilities("signature", delegates=True, leaks_blobs=False)
        with Database.open(self.home / STORE_FILE) as database:
            attach(database, DID, host.origin, signing_key=host.key.did)
        account = Account(self.home, DID, None, host.origin, "password", True, capabilities)
        account.save()
        write_private(self.home / SESSION_FILE, {"did": DID, **Tokens(*host.tokens).json()})
        return account

    def sync(self) -> None:
        command = [*_COMMAND, "--home", str(self.home), "sync", "--letta", str(self.letta)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """While `lettaspace sync --watch` runs."""
        command = [*_COMMAND, "--home", str(self.home), "sync", "--watch"]
        said = self.home / "said"
        with said.open("wb") as file:
            process = subprocess.Popen([*command, "--letta", str(self.letta)], stdout=file)
        try:
            _until(lambda: b"Following" in said.read_bytes(), 0.05)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()

    def window(self) -> list[str]:
        """What Letta would load: the ids, if all of them have their rows."""
        try:
            ids: list[str] = json.loads((self.talk / CONVERSATION).read_bytes())[
                "in_context_message_ids"
            ]
            rows = (self.talk / MESSAGES).read_bytes()
        except (FileNotFoundError, ValueError):
            return []
        return ids if rows.endswith(b"\n") and json.dumps(ids[-1]).encode() in rows else []


def reach(context: Context) -> list[Figure]:
    """The time from the first byte that Letta writes of a message on one machine until Letta can
    load it on the other one."""
    rounds = context.rounds(ROUNDS)
    with ExitStack() as stack:
        host = stack.enter_context(Served(context.work / "reach-host.db"))
        one, two = (Machine(context.work / f"reach-{name}", host) for name in ("one", "two"))
        write_one(one.letta, MESSAGES_BEFORE, active=MESSAGES_BEFORE // 2)
        write_agents(two.letta)
        account = one.sign_in()
        two.sign_in()
        one.sync()
        two.sync()
        writing = _Writing(one)
        for each in (one, two):
            stack.enter_context(each.followed())
        client = stack.enter_context(account.client(timeout=_LONGEST))
        plain = _Plain(host, HostRepo(client, host.space, DID), context.work / "reach-plain")
        _reached(writing, two)  # the first ones find everything cold
        plain.reached(writing.row)
        measures = [lambda: _reached(writing, two), lambda: plain.reached(writing.row)]
        if installed():
            measures.append(lambda: started(context.work))
        else:
            print("Letta Code is not installed: its side is left out", file=sys.stderr)
        ours, bare, *letta = interleaved(rounds, *measures)
    found = [_figure("reach", ours, "a request, a held answer, a row appended and fsynced", bare)]
    if letta:
        what = "Letta Code starts and says its version"
        found.append(_figure("reach-letta", ours, what, letta[0], GOAL))
    return [replace(each, rounds=rounds) for each in found]


def _figure(name: str, ours: Cost, what: str, base: Cost, goal: Goal | None = None) -> Figure:
    """By the clock alone: what works meanwhile are other processes."""
    measured = Side("from Letta's write until the other Letta can load it", ours.wall)
    return Figure(name, ours.wall / base.wall, measured, Side(what, base.wall), goal)


class _Writing:
    """Letta on one machine, as its files show it."""

    def __init__(self, machine: Machine) -> None:
        self._path = machine.talk
        known: dict[str, Any] = json.loads((self._path / CONVERSATION).read_bytes())
        self._conversation = known
        self._talk = Talk(known["agent_id"], known["id"], Random(11), LATER)
        self._talk.count = MESSAGES_BEFORE
        rows = (self._path / MESSAGES).read_bytes().splitlines()
        self._talk.parent = json.loads(rows[-1])["id"]
        self._is_answer = True
        self.row = ""
        """The newest message's."""

    def prepare(self) -> str:
        """A question, or the answer to it; its id."""
        self._is_answer = not self._is_answer
        self._talk.clock.pass_time(30)
        row = self._talk.assistant([], True) if self._is_answer else self._talk.user()
        self.row = line(row)
        name: str = row["message"]["id"]
        self._conversation["in_context_message_ids"].append(name)
        return name

    def write(self) -> None:
        """Its row, then conversation.json, in place."""
        with (self._path / MESSAGES).open("a", encoding="utf-8", newline="\n") as file:
            file.write(self.row)
        text = json.dumps(self._conversation, ensure_ascii=False, indent=2)
        (self._path / CONVERSATION).write_text(text, encoding="utf-8")


def _reached(writing: _Writing, machine: Machine) -> Cost:
    time.sleep(_PAUSE)
    name = writing.prepare()
    began = time.perf_counter()
    writing.write()
    _until(lambda: name in machine.window()[-1:], _POLL)
    return Cost(time.perf_counter() - began, 0.0)


class _Plain:
    """The least that it takes: one machine sends a row to the host, the other one, which is asking
    the host, is answered, gets it, and appends it to a file."""

    def __init__(self, host: Served, repo: HostRepo, path: Path) -> None:
        self._host = host
        self._repo = repo
        self._path = path
        self._rev = ""

    def reached(self, row: str) -> Cost:
        request = self._host.create({"$type": NOTE, "text": row})
        ended: list[float] = []
        other = threading.Thread(target=lambda: ended.append(self._receive()))
        other.start()
        time.sleep(0.1)  # until it is waiting
        self._host.reconnect()
        began = time.perf_counter()
        self._host.connection.ask(request)
        other.join()
        return Cost(ended[0] - began, 0.0)

    def _receive(self) -> float:
        newer, waits = self._repo.wait(self._rev, 30)
        if not (newer and waits):
            raise RuntimeError("the host does not wait")
        for page in self._repo.ops(self._rev or None):
            for op in page.ops:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write((op.value or {})["text"])
                    file.flush()
                    os.fsync(file.fileno())
                self._rev = op.rev
        return time.perf_counter()


def _until(condition: Callable[[], bool], pause: float) -> None:
    deadline = time.monotonic() + _LONGEST
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it never came")
        time.sleep(pause)
