"""Whatever two or three machines did, apart from each other: each has its branch whole, and all
end with the same. `test_branches` has it case by case."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.origins import fork_tid
from lettaspace.conversation.records import (
    CONVERSATION_STATE,
    MESSAGE,
    rkey_of,
)
from lettaspace.conversation.space import Space
from lettaspace.space.writes import Update
from tests.conformance.kit import result, says, user
from tests.remote.apart import Host, Machine, agree, check_all, originals

Op = tuple[Any, ...]

EXAMPLES = int(os.environ.get("LETTASPACE_BRANCHES", "5"))
"""How many random histories of each kind."""

OPS: st.SearchStrategy[Op] = st.one_of(
    st.tuples(st.just("user")),
    st.tuples(st.just("call"), st.integers(1, 2)),
    st.tuples(st.just("result"), st.integers(0, 3)),
    st.tuples(st.just("settle")),
    st.tuples(st.just("compact"), st.integers(0, 8)),
    st.tuples(st.just("rewrite"), st.integers(0, 9)),
    st.tuples(st.just("fork"), st.integers(0, 9)),
    st.tuples(st.just("title")),
)
HISTORY = st.lists(OPS, max_size=6)


class Actor:
    """Does to a conversation what an example says; every message has a text of its own."""

    def __init__(self, machine: Machine, uri: str, name: str) -> None:
        self.machine = machine
        self.uri = uri
        self.name = name
        self.count = 0

    def text(self) -> str:
        self.count += 1
        return f"{self.name}{self.count}"

    def act(self, op: Op) -> None:
        talk = self.machine.talk(self.uri)
        messages = talk.handle.window().messages
        match op:
            case ("user",):
                talk.handle.append(user(self.text()))
            case ("call", count):
                text = self.text()
                talk.handle.append(says(text, *(f"{text}.{at}" for at in range(count))))
            case ("result", at):
                if calls := talk.handle.pending() + settled(talk.handle):
                    talk.handle.append(result(self.text(), calls[at % len(calls)]))
            case ("settle",):
                talk.handle.settle()
            case ("compact", count):
                talk.compact(count, self.text())
            case ("rewrite", at):
                if said := [message for message in messages if message.role == "user"]:
                    talk.handle.rewrite(said[at % len(said)].rkey, user(self.text()))
            case ("fork", at):
                if messages:
                    talk.handle.fork(messages[at % len(messages)].rkey)
            case ("title",):
                self.retitle(talk.handle.rkey)

    def retitle(self, rkey: str) -> None:
        space = self.machine.space
        value = space.repo.get(CONVERSATION_STATE, rkey).value
        value |= {"title": self.text(), "updatedAt": space.now()}
        space.repo.apply_writes([Update(CONVERSATION_STATE, rkey, value)])


def settled(handle: Conversation) -> list[str]:
    payloads = [message.payload() for message in handle.window().messages]
    return [payload["toolCallId"] for payload in payloads if payload.get("isError")]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a home that has an agent, to be copied."""
    root = tmp_path_factory.mktemp("room")
    with Space.open(root / "home") as space:
        space.create_agent("Otter", key="otter")
    return root


class Apart:
    """Machines that went on from the same conversation, each in its own way."""

    def __init__(self, root: Path, common: Sequence[Op], sides: Sequence[Sequence[Op]]) -> None:
        self.root = Path(tempfile.mkdtemp(dir=root))
        shutil.copytree(root / "home", self.root / "0")
        self.host = Host()
        first = Machine(Space.open(self.root / "0"))
        self.uri = first.space.create_conversation("otter", title="Jars").uri
        self.machines = [first]
        self._opened = [first]
        self._act(first, "m", common)
        first.sync(self.host)
        for number, _ in enumerate(sides[1:], 1):
            self.machines.append(self._twin(first, str(number)))
        for machine, name, ops in zip(self.machines, "abc", sides, strict=False):
            self._act(machine, name, ops)
        self.windows = [machine.window(self.uri) for machine in self.machines]
        self.own = [self._own(machine) for machine in self.machines]
        self.said = {rkey for machine in self.machines for rkey in messages(machine)}

    def _act(self, machine: Machine, name: str, ops: Sequence[Op]) -> None:
        actor = Actor(machine, self.uri, name)
        for op in ops:
            actor.act(op)

    def _twin(self, machine: Machine, name: str) -> Machine:
        twin = machine.twin(self.root / name)
        self._opened.append(twin)
        return twin

    def _own(self, machine: Machine) -> set[str]:
        return {
            key[1]
            for key, value in machine.state.items()
            if key not in machine.known and value.get("conversation") == self.uri
            if key[0] == MESSAGE
        }

    def again(self, name: str) -> tuple[Host, list[Machine]]:
        """The same machines and host, to be synced in another order."""
        twins = [self._twin(each, f"{name}.{number}") for number, each in enumerate(self.machines)]
        return self.host.copy(), twins

    def check(self, machine: Machine, *, ordered: bool = True) -> None:
        """Every branch has its window, and every message is there once."""
        check_all(machine)
        branches = sorted((min(own), at) for at, own in enumerate(self.own) if own)
        copied: set[str] = set()
        for rank, (tid_, at) in enumerate(branches):
            uri, window = self.uri, self.windows[at]
            if rank:
                fork = fork_tid(rkey_of(self.uri), tid_)
                assert fork is not None
                uri = machine.space.address.conversation(fork)
                copies = originals(machine, uri, self.uri)
                window = [copies.get(rkey, rkey) for rkey in window]
                copied |= set(copies.values())
            found = machine.window(uri)
            assert (found if ordered else sorted(found)) == (window if ordered else sorted(window))
        assert messages(machine) == self.said | copied

    def close(self) -> None:
        for machine in self._opened:
            machine.space.close()
        shutil.rmtree(self.root)


def messages(machine: Machine) -> set[str]:
    return {rkey for collection, rkey in machine.state if collection == MESSAGE}


quick = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@quick
@given(HISTORY, HISTORY, HISTORY)
@example([("call", 2)], [("user",)], [("result", 0), ("settle",), ("user",)])
@example([("call", 1), ("user",)], [("compact", 1)], [("result", 0), ("user",), ("settle",)])
@example(
    [("user",), ("call", 1), ("user",), ("user",)],
    [("user",), ("settle",), ("compact", 1)],
    [("result", 0), ("user",), ("compact", 1)],
)
@example(
    [("call", 2), ("user",), ("call", 2), ("user",)],
    [("call", 2), ("compact", 2), ("rewrite", 3), ("user",), ("result", 2)],
    [("user",), ("result", 0), ("compact", 1), ("settle",), ("call", 1)],
)
def test_two_machines(room: Path, common: list[Op], left: list[Op], right: list[Op]) -> None:
    both_went_on(room, common, left, right)


def both_went_on(room: Path, common: list[Op], left: list[Op], right: list[Op]) -> None:
    apart = Apart(room, common, [left, right])
    try:
        states = []
        for number, order in enumerate(permutations(range(2))):
            host, machines = apart.again(str(number))
            agree(host, *(machines[at] for at in order))
            apart.check(machines[0])
            states.append(machines[0].state)
        # Whichever of them comes first, the same records.
        assert states[0] == states[1]
        # Both write before they know of each other, and both part the branches. What one made of
        # the order of common messages is lost at the host then.
        host, machines = apart.again("race")
        for machine in machines:
            machine.push(host)
        for machine in machines:
            machine.pull(host)
        for machine in reversed(machines):
            machine.push(host)
        agree(host, *machines)
        apart.check(machines[0], ordered=False)
    finally:
        apart.close()


@quick
@given(HISTORY, st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_three_machines_in_any_order(room: Path, common: list[Op], counts: list[int]) -> None:
    apart = Apart(room, common, [[("user",)] * count for count in counts])
    try:
        states = []
        for number, order in enumerate(permutations(range(3))):
            host, machines = apart.again(str(number))
            agree(host, *(machines[at] for at in order))
            apart.check(machines[0])
            states.append(machines[0].state)
        assert all(state == states[0] for state in states)
    finally:
        apart.close()


@quick
@given(HISTORY, st.lists(HISTORY, min_size=3, max_size=3), st.permutations(range(3)))
def test_three_machines(
    room: Path, common: list[Op], sides: list[list[Op]], order: list[int]
) -> None:
    apart = Apart(room, common, sides)
    try:
        agree(apart.host, *(apart.machines[at] for at in order))
        apart.check(apart.machines[0])
    finally:
        apart.close()
