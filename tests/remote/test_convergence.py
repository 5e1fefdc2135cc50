"""Machines and a host, whatever the network does: everybody ends with the same, and all of it.

Random histories of writing and syncing on two or three machines, whose clocks are wrong, through
proxies that lose, repeat, delay and cut. In the end everybody syncs in peace; then all must be
equal, and every message that was ever acknowledged is there once.

CI runs a fixed sample. LETTASPACE_CONVERGENCE=N runs N random histories of each kind instead,
LETTASPACE_CONVERGENCE_STEPS=N makes them so long (30 otherwise), and
LETTASPACE_CONVERGENCE_SEED=N repeats a run.
"""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.message import Message
from lettaspace.conversation.prompt import compile_prompt
from lettaspace.conversation.records import AGENT, CONVERSATION, CONVERSATION_STATE, MESSAGE
from lettaspace.conversation.writing import updated
from lettaspace.errors import LettaspaceError
from lettaspace.space.writes import Create, Reader, Update, Write
from tests.conformance.kit import result, says, user, word
from tests.remote.faults import FAULTS, HELD_ANSWER, HELD_REQUEST
from tests.remote.world import Machine, Setup, World, setup

EXAMPLES = int(os.environ.get("LETTASPACE_CONVERGENCE", "0"))
STEPS = int(os.environ.get("LETTASPACE_CONVERGENCE_STEPS", "30"))
SEED = os.environ.get("LETTASPACE_CONVERGENCE_SEED")

MAX_TALKS = 4
MINUTES = 60.0
SKEWS = st.sampled_from([0.0, -10 * MINUTES, 10 * MINUTES, 0.5, -0.001, 3 * MINUTES])
TROUBLE = st.dictionaries(st.integers(0, 14), st.sampled_from(FAULTS), max_size=4)
MANY = 1000
"""An index of anything, to be taken modulo how many there are."""

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n not really").decode()


class Convergence(RuleBasedStateMachine):
    """`where` is the host that all examples share, `machines` how many there are."""

    where: Setup
    machines = 2

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.world: World | None = None
        self.numbers = itertools.count(1)

    @initialize(
        skews=st.lists(SKEWS, min_size=3, max_size=3),
        batch=st.sampled_from([200, 2, 7]),
        together=st.sampled_from([200, 3, 7]),
        log=st.sampled_from([10_000, 3, 20]),
        gets=st.sampled_from([300, 0, 5]),
        chunk=st.sampled_from([2000, 1, 4]),
    )
    def begin(
        self, skews: list[float], batch: int, together: int, log: int, gets: int, chunk: int
    ) -> None:
        for module in ("compaction", "settling", "forking"):
            self.patch.setattr(f"lettaspace.conversation.{module}.MAX_WRITES", together)
        self.patch.setattr("lettaspace.remote.pulling.MAX_OPS", log)
        self.patch.setattr("lettaspace.remote.pulling.MAX_GETS", gets)
        self.patch.setattr("lettaspace.remote.pulling._CHUNK", chunk)
        self.world = World(self.where, skews[: self.machines], batch=batch)

    # What a rule picks

    def machine(self, index: int) -> Machine:
        assert self.world is not None
        return self.world.machines[index % self.machines]

    def talk(self, machine: Machine, index: int) -> Conversation:
        """One of the machine's conversations, in which it can write; a new one where there is
        none."""
        rkeys = sorted(record.rkey for record in machine.space.repo.records(CONVERSATION))
        if not rkeys:
            return self.new_talk(machine)
        return machine.space.conversation(rkeys[index % len(rkeys)])

    def new_talk(self, machine: Machine) -> Conversation:
        agents = machine.space.agents()
        agent = agents[0].uri if agents else machine.space.create_agent("Otter", key="otter")
        return machine.space.create_conversation(agent, title="Jars")

    def text(self, talk: Conversation) -> str:
        return f"{talk.rkey}.{next(self.numbers)}"

    def write(
        self, machine: Machine, talk: Conversation, work: Callable[[], Any], *, plain: bool = True
    ) -> Any:
        """What `work` does; all that it wrote is acknowledged with it."""
        assert self.world is not None
        space = machine.space
        since, window = space.repo.rev(), space.active(talk.uri)
        done = work()
        self.world.ledger.note(space, since, window, plain)
        self.world.clock.pass_(0.001)
        return done

    def replaced(self, collection: str, rkey: str, text: str) -> None:
        assert self.world is not None
        self.world.ledger.replace(collection, rkey, text)

    # Writing

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY), count=st.integers(1, 3))
    def say(self, at: int, of: int, count: int) -> None:
        machine = self.machine(at)
        talk = self.talk(machine, of)
        for _ in range(count):
            payload = user(self.text(talk))
            self.write(machine, talk, lambda payload=payload: talk.append(payload))

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY), calls=st.integers(0, 2))
    def answer(self, at: int, of: int, calls: int) -> None:
        machine = self.machine(at)
        talk = self.talk(machine, of)
        payload = says(self.text(talk), *[self.text(talk) for _ in range(calls)])
        self.write(machine, talk, lambda: talk.append(payload))

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY), which=st.integers(0, MANY))
    def give_result(self, at: int, of: int, which: int) -> None:
        """Of a call that has none, or that was settled."""
        machine = self.machine(at)
        talk = self.talk(machine, of)
        settled = [word(each)[1:] for each in talk.transcript() if word(each)[0] == "!"]
        calls = talk.pending() + settled
        if calls:
            call = calls[which % len(calls)]
            payload = result(f"{call}=", call)
            message = self.write(machine, talk, lambda: talk.append(payload), plain=False)
            if message.updated_at is not None:
                self.replaced(MESSAGE, message.rkey, f"!{call}")

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY), size=st.sampled_from([10, 200_000]))
    def show(self, at: int, of: int, size: int) -> None:
        """With blobs."""
        machine = self.machine(at)
        talk = self.talk(machine, of)
        payload = user(self.text(talk))
        payload["content"].append({"type": "image", "mimeType": "image/png", "data": PIXEL})
        payload["note"] = "y" * size
        self.write(machine, talk, lambda: talk.append(payload))

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY), which=st.integers(0, MANY))
    def rewrite(self, at: int, of: int, which: int) -> None:
        machine = self.machine(at)
        talk = self.talk(machine, of)
        messages = [each for each in talk.transcript() if each.role != "toolResult"]
        if messages:
            message = messages[which % len(messages)]
            old = word(message)
            payload = message.payload()
            (text,) = [part for part in payload["content"] if part["type"] == "text"]
            text["text"] = f"{old.partition('~')[0]}~{next(self.numbers)}"
            self.write(machine, talk, lambda: talk.rewrite(message.rkey, payload))
            self.replaced(MESSAGE, message.rkey, old)

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY))
    def settle(self, at: int, of: int) -> None:
        machine = self.machine(at)
        talk = self.talk(machine, of)
        self.write(machine, talk, talk.settle, plain=False)

    @rule(
        at=st.integers(0, 2),
        of=st.integers(0, MANY),
        count=st.integers(1, 12),
        whole=st.booleans(),
    )
    def compact(self, at: int, of: int, count: int, whole: bool) -> None:
        """Whole, or cut off after the first batch."""
        machine = self.machine(at)
        talk = self.talk(machine, of)
        text = self.text(talk)
        with self.patch.context() as patch:
            if not whole:
                patch.setattr("lettaspace.conversation.compaction.repair", lambda *_: 0)
            self.write(machine, talk, lambda: talk.compact(lambda _: text, lambda _: count))

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY))
    def repair(self, at: int, of: int) -> None:
        machine = self.machine(at)
        talk = self.talk(machine, of)
        self.write(machine, talk, talk.repair)

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY), which=st.integers(0, MANY))
    def fork(self, at: int, of: int, which: int) -> None:
        machine = self.machine(at)
        talk = self.talk(machine, of)
        messages = list(talk.transcript())
        if messages and len(machine.space.conversations()) < MAX_TALKS:
            message: Message = messages[which % len(messages)]
            self.write(machine, talk, lambda: talk.fork(message.rkey), plain=False)

    @rule(at=st.integers(0, 2))
    def begin_talk(self, at: int) -> None:
        machine = self.machine(at)
        if len(machine.space.conversations()) < MAX_TALKS:
            self.new_talk(machine)

    # Records of which there is one

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY))
    def compile(self, at: int, of: int) -> None:
        machine = self.machine(at)
        talk = self.talk(machine, of)
        old = talk.prompt()
        template = f"Prompt {next(self.numbers)}."
        now = datetime.fromisoformat(machine.space.now())
        compile_prompt(machine.space, talk.uri, memory=None, template=template, now=now)
        if old is not None:
            self.replaced(old.collection, old.rkey, old.value["content"])

    @rule(at=st.integers(0, 2), of=st.integers(0, MANY))
    def entitle(self, at: int, of: int) -> None:
        machine = self.machine(at)
        talk = self.talk(machine, of)
        self.put(machine, CONVERSATION_STATE, talk.rkey, "title", conversation=talk.uri)

    @rule(at=st.integers(0, 2))
    def describe(self, at: int) -> None:
        machine = self.machine(at)
        self.put(machine, AGENT, "otter", "description", name="Otter")

    def put(self, machine: Machine, collection: str, rkey: str, field: str, **others: str) -> None:
        """A new text in a record that is rewritten in place."""
        text = f"{field} {next(self.numbers)}"
        at = machine.space.now()

        def plan(view: Reader) -> list[Write]:
            stored = view.get(collection, rkey)
            if stored is None:
                return [Create(collection, rkey, {**others, field: text, "updatedAt": at})]
            if field in stored.value:
                self.replaced(collection, rkey, stored.value[field])
            return [Update(collection, rkey, updated(stored.value, at, **{field: text}))]

        machine.space.repo.transact(plan)

    # Syncing

    @rule(at=st.integers(0, 2), trouble=TROUBLE)
    def sync(self, at: int, trouble: Mapping[int, Any]) -> None:
        came = self.machine(at).sync(trouble)
        note(f"{came!r}: {self.machine(at).log}")

    @rule(at=st.integers(0, 2))
    def sync_in_peace(self, at: int) -> None:
        came = self.machine(at).sync()
        assert not isinstance(came, LettaspaceError)

    @rule(
        at=st.integers(0, 2),
        number=st.integers(0, 8),
        fault=st.sampled_from([HELD_REQUEST, HELD_ANSWER]),
        other=st.integers(0, 1),
        of=st.integers(0, MANY),
        trouble=TROUBLE,
    )
    def sync_both(
        self, at: int, number: int, fault: Any, other: int, of: int, trouble: Mapping[int, Any]
    ) -> None:
        """A machine syncs, and when it is somewhere in the middle of it another one does."""
        at %= self.machines
        other = at + 1 + other % (self.machines - 1)
        with self.machine(at).syncing(number, fault):
            self.say(other, of, 1)
            self.sync(other, trouble)

    @rule(
        at=st.integers(0, 2),
        number=st.integers(0, 8),
        fault=st.sampled_from([HELD_REQUEST, HELD_ANSWER]),
        of=st.integers(0, MANY),
        work=st.sampled_from(["say", "compact", "rewrite", "settle"]),
    )
    def write_while_syncing(self, at: int, number: int, fault: Any, of: int, work: str) -> None:
        """A machine syncs, and somebody works on it meanwhile."""
        with self.machine(at).syncing(number, fault):
            if work == "say":
                self.say(at, of, 1)
            elif work == "compact":
                self.compact(at, of, 3, True)
            elif work == "rewrite":
                self.rewrite(at, of, 1)
            else:
                self.settle(at, of)

    @rule()
    def deliver(self) -> None:
        """What the network kept back arrives."""
        assert self.world is not None
        self.world.deliver()

    @rule(at=st.integers(0, 2), skew=st.one_of(st.none(), SKEWS))
    def reopen(self, at: int, skew: float | None) -> None:
        self.machine(at).reopen(skew)

    @rule(seconds=st.sampled_from([0.0005, 1.0, 5 * MINUTES]))
    def wait(self, seconds: float) -> None:
        assert self.world is not None
        self.world.clock.pass_(seconds)

    @invariant()
    def every_message_has_its_place(self) -> None:
        for machine in self.world.machines if self.world else ():
            space = machine.space
            shown = [each.rkey for talk in space.conversations()
                     for each in space.transcript(talk.uri)]  # fmt: skip
            stored = sorted(record.rkey for record in space.repo.records(MESSAGE))
            assert sorted(shown) == stored

    def teardown(self) -> None:
        try:
            if self.world is not None:
                self.world.check_converged()
        finally:
            if self.world is not None:
                self.world.close()
            self.patch.undo()


class Three(Convergence):
    machines = 3


class InTurn(Convergence):
    """Whoever writes has what all others wrote, however often an answer was lost: so nobody ever
    goes on where somebody else did."""

    sync_both = None
    last: Machine | None = None

    def machine(self, index: int) -> Machine:
        machine = super().machine(index)
        if self.last is not None and self.last is not machine:
            self.last.sync()
            machine.sync()
        self.last = machine
        return machine

    def teardown(self) -> None:
        for machine in self.world.machines if self.world else ():
            for state in machine.space.repo.records(CONVERSATION_STATE):
                assert "damage" not in state.value
        super().teardown()


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with setup(tmp_path_factory.mktemp("convergence")) as made:
        yield made


@pytest.mark.parametrize(("kind", "examples"), [(Convergence, 30), (Three, 20), (InTurn, 10)])
def test_everybody_ends_with_everything(where: Setup, kind: type[Convergence], examples: int):
    run(where, kind, examples)


def run(where: Setup, kind: type[Convergence], examples: int) -> None:
    """So many histories at a host."""

    class Here(kind):  # type: ignore[valid-type, misc]
        pass

    Here.where = where
    if SEED is not None:
        Here = seeded(int(SEED))(Here)  # noqa: N806
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=EXAMPLES or examples,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not EXAMPLES,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
