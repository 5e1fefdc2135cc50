"""Random histories of machines that share a host, without a network in between.

A history is a list of steps, so that one that fails can be cut down and written into a test. The
machines take what the host has as a real pull does, and send what is pending as a real push does;
only the requests are left out.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.tid import TidClock
from lettaspace.conversation import times
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.space import Space, validate
from lettaspace.remote import replicas
from lettaspace.remote.merging import said
from lettaspace.remote.mirror import Key, Mirror, There
from lettaspace.remote.taking import Change, Taken, Terms, take
from lettaspace.space import schema
from lettaspace.space.writes import Value
from tests.conformance.kit import Talk, result, says, user, word
from tests.remote.apart import check_all
from tests.remote.ledger import Ledger, check_all_is_there

BEGIN = datetime(2026, 3, 5, 10, tzinfo=UTC).timestamp()
SKEWS = [0.0, 0.0, -600.0, 600.0, 3.0]
"""Seconds by which a machine's clock is ahead."""

ROUNDS = 5
"""Syncs of each machine after which they must be the same."""

MAX_TALKS = 4

WORK = ("say", "say", "say", "call", "result", "settle", "compact", "compact", "rewrite", "fork")
CALM = ("sync", "sync", "sync", "pull")
LOST = (*CALM, "lost", "blind")
"""Of some pushes the answer is lost, and some come when the host has changed since the pull."""
CUT = (*LOST, "cut", "blind cut")
"""And some end before all is sent."""


class Step(NamedTuple):
    """What one machine does. `of` says in which conversation, `size` how much or which."""

    machine: int
    do: str
    of: int = 0
    size: int = 0


def history(seed: int, machines: int, syncs: Sequence[str], most: int = 60) -> list[Step]:
    """As many steps as a seed says, the same for the same seed."""
    chance = random.Random(seed)
    count = chance.randint(3, most)
    return [_step(chance, machines, syncs) for _ in range(count)]


def _step(chance: random.Random, machines: int, syncs: Sequence[str]) -> Step:
    do = chance.choice(WORK if chance.random() < 0.66 else syncs)
    return Step(chance.randrange(machines), do, chance.randrange(12), chance.randrange(9))


class Host:
    """What the machines exchange their records by: a log of them, and how they are now."""

    def __init__(self) -> None:
        self.log: list[tuple[Key, Value]] = []
        self.state: dict[Key, Value] = {}

    def put(self, key: Key, value: Value) -> None:
        if self.state.get(key) != value:
            self.log.append((key, value))
            self.state[key] = value


class Machine:
    """A replica, and how much of the host's log it has read."""

    def __init__(self, home: Path, now: Callable[[], float], clock_id: int) -> None:
        self.space = Space.open(home)
        self.space.repo.clock = TidClock(lambda: round(now() * 1e6) * 1000, clock_id)
        tell = lambda: times.text(datetime.fromtimestamp(now(), UTC))  # noqa: E731
        self.space.now = tell  # type: ignore[method-assign]
        self.read = 0

    @property
    def state(self) -> dict[Key, Value]:
        table = schema.records.c
        with self.space.database.read() as connection:
            rows = connection.execute(select(table.collection, table.rkey, table.value)).all()
        return {Key(row.collection, row.rkey): cbor.decode(row.value) for row in rows}

    def talk(self, uri: str) -> Talk:
        return Talk(self.space.conversation(uri))

    def window(self, uri: str) -> list[str]:
        return [message.rkey for message in self.space.active(uri)]

    def pull(self, host: Host) -> Taken:
        first: dict[Key, int] = {}
        for at, (key, _) in enumerate(host.log[self.read :]):
            first.setdefault(key, at)
        changes = [_change(key, host.state[key], at) for key, at in first.items()]
        terms = Terms(self.space.address, own=True, validate=validate)
        repo = self.space.repo
        taken = repo.run(lambda tx: take(tx, repo.id, changes, terms, set()))
        self.read = len(host.log)
        return taken

    def push(self, host: Host, most: int | None = None) -> None:
        """Sends what is pending, at most so many records. The answer is lost.

        A host refuses to create what is there already, and then all of it."""
        state = self.state
        with self.space.database.write() as connection:
            pending = Mirror(connection, self.space.repo.id).pending()[:most]
        if any(each.there is None and each.key in host.state for each in pending):
            return
        for each in pending:
            host.put(each.key, state[each.key])

    def sync(self, host: Host) -> list[Taken]:
        taken = [self.pull(host)]
        for _ in range(ROUNDS):
            with self.space.database.write() as connection:
                mirror = Mirror(connection, self.space.repo.id)
                pending = mirror.pending()
                if not pending:
                    return taken
                state = self.state
                there = []
                for key, value in ((each.key, state[each.key]) for each in pending):
                    host.put(key, value)
                    there.append(There(key, _cid(value), said(key.collection, value)))
                mirror.put(there)
                mirror.set_pushed(pending[-1].rev)
            self.read = len(host.log)
        raise AssertionError("it is never done")


def _cid(value: Value) -> CID:
    return CID.for_cbor(cbor.encode(value))


def _change(key: Key, value: Value, at: int) -> Change:
    data = cbor.encode(value)
    return Change(key, CID.for_cbor(data), value, data, at)


class World:
    """A host, machines with one conversation, and a ledger of all that they write."""

    def __init__(self, root: Path, template: Path, machines: int, seed: int = 0) -> None:
        chance = random.Random(f"clocks {seed}")
        self.root = root
        self.host = Host()
        self.ledger = Ledger()
        self.time = BEGIN
        self.number = 0
        self.trace: Callable[..., None] = lambda *_: None
        self.machines: list[Machine] = []
        shutil.copytree(template, root / "0")
        self._open(0, 0.0)
        first = self.machines[0]
        with first.space.database.write() as connection:
            author = first.space.address.author
            replicas.put(connection, str(first.space.ref), author, "http://host.test", own=True)
            Mirror(connection, first.space.repo.id).set_head("", b"")
        first.space.create_conversation("otter", title="Jars")
        first.sync(self.host)
        first.space.close()
        for at in range(1, machines):
            shutil.copytree(root / "0", root / str(at))
        self.machines = []
        for at in range(machines):
            self._open(at, chance.choice(SKEWS))
            self.machines[at].read = len(self.host.log)

    def _open(self, at: int, skew: float) -> None:
        self.machines.append(Machine(self.root / str(at), lambda: self.time + skew, at))

    def close(self) -> None:
        for machine in self.machines:
            machine.space.close()
        shutil.rmtree(self.root)

    def run(self, steps: Sequence[Step]) -> None:
        """Does it all; then everybody syncs in peace, and it is checked what came of it."""
        for step in steps:
            self.step(step)
        self.agree()
        check_all(self.machines[0])  # type: ignore[arg-type]
        check_all_is_there(self.ledger, self.machines[0].space)

    def step(self, step: Step) -> None:
        machine = self.machines[step.machine]
        self.time += 0.001
        if step.do == "sync":
            machine.sync(self.host)
        elif step.do == "pull":
            machine.pull(self.host)
        elif step.do in ("lost", "cut", "blind", "blind cut"):
            if "blind" not in step.do:
                machine.pull(self.host)
            machine.push(self.host, step.size if "cut" in step.do else None)
        else:
            infos = sorted(machine.space.conversations(), key=lambda info: info.rkey)
            talk = machine.space.conversation(infos[step.of % len(infos)].uri)
            if step.do != "fork" or len(infos) < MAX_TALKS:
                self._work(machine, talk, step)
        self.trace(self, step)

    def _work(self, machine: Machine, talk: Conversation, step: Step) -> None:
        space = machine.space
        since, window = space.repo.rev(), space.active(talk.uri)
        plain = getattr(self, f"_{step.do}")(talk, step.size)
        self.ledger.note(space, since, window, plain)

    def _text(self, talk: Conversation) -> str:
        self.number += 1
        return f"{talk.rkey}.{self.number}"

    # Each returns whether what it wrote stands behind all that was there.

    def _say(self, talk: Conversation, _size: int) -> bool:
        talk.append(user(self._text(talk)))
        return True

    def _call(self, talk: Conversation, size: int) -> bool:
        text = self._text(talk)
        talk.append(says(text, *(f"{text}/{number}" for number in range(size % 2 + 1))))
        return True

    def _result(self, talk: Conversation, size: int) -> bool:
        if calls := talk.pending():
            call = calls[size % len(calls)]
            talk.append(result(f"{call}=", call))
        return False

    def _settle(self, talk: Conversation, _size: int) -> bool:
        talk.settle()
        return False

    def _compact(self, talk: Conversation, size: int) -> bool:
        text = self._text(talk)
        talk.compact(lambda _: text, lambda _: size)
        return True

    def _rewrite(self, talk: Conversation, size: int) -> bool:
        if messages := [each for each in talk.transcript() if each.role == "user"]:
            message = messages[size % len(messages)]
            old, payload = word(message), message.payload()
            (text,) = [part for part in payload["content"] if part["type"] == "text"]
            self.number += 1
            text["text"] = f"{old.partition('~')[0]}~{self.number}"
            talk.rewrite(message.rkey, payload)
            self.ledger.replace(MESSAGE, message.rkey, old)
        return True

    def _fork(self, talk: Conversation, size: int) -> bool:
        if messages := list(talk.transcript()):
            talk.fork(messages[size % len(messages)].rkey)
        return False

    def agree(self) -> None:
        """They sync in turn until all have the same."""
        for _ in range(ROUNDS):
            for machine in self.machines:
                machine.sync(self.host)
            states = [machine.state for machine in self.machines]
            if all(state == self.host.state for state in states):
                return
        differing = {
            key.rkey
            for key, value in self.host.state.items()
            for state in states
            if state.get(key) != value
        }
        raise AssertionError(f"they never agree on {sorted(differing)}")


def template(home: Path) -> Path:
    """A home with an agent, to make worlds of."""
    with Space.open(home) as space:
        space.create_agent("Otter", key="otter")
    return home


def seen(machine: Machine) -> dict[str, list[str]]:
    """By conversation (its TID): all that was said, in order; `-` before what is in no window."""
    shown = {}
    for info in sorted(machine.space.conversations(), key=lambda info: info.rkey):
        talk: Any = Talk(machine.space.conversation(info.uri))
        inside = {each.rkey for each in talk.handle.window().messages}
        shown[info.rkey] = [
            ("" if each.rkey in inside else "-") + word(each) for each in talk.handle.transcript()
        ]
    return shown
