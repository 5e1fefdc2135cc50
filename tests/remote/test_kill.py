"""A sync that is killed anywhere, and then done again, ends as one that was not.

Every scenario is synced once undisturbed, which tells how many SQL statements and how many
requests that takes. Then it is put back as it was and synced again, and killed before one of
the statements, or while one of the requests is on its way to the host, or its answer on the way
back. What is left is good at once; and after another sync by everybody it is, record for record,
what the undisturbed one gave.

CI tries a sample of all places. With LETTASPACE_KILLS=N it is N of each kind in each scenario.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select

from lettaspace.conversation.records import MESSAGE
from lettaspace.errors import StoreUnavailable
from lettaspace.server import tables
from lettaspace.space import schema
from tests.conformance.kit import Talk, says, user
from tests.remote import kill_child
from tests.remote.faults import HELD_ANSWER, HELD_REQUEST, Fault
from tests.remote.world import Machine, Setup, World, held, setup

KILLS = int(os.environ.get("LETTASPACE_KILLS", "5"))
ROOT = Path(__file__).parents[2]

Job = dict[str, Any]

_HOST = (
    schema.repos, schema.records, schema.ops, schema.blobs, schema.blob_refs, tables.uploads,
)  # fmt: skip
"""The tables of a host that a sync changes, each after those that it refers to."""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with setup(tmp_path_factory.mktemp("kill"), machines=2) as made:
        yield made


class Child:
    """Runs jobs; see kill_child."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def start(self, **job: Any) -> int:
        """The process in which it runs."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job, default=str) + "\n")
        self.process.stdin.flush()
        return int(self._told()["process"])

    def end(self) -> Job:
        return self._told()

    def _told(self) -> Job:
        assert self.process.stdout is not None
        told: Job = json.loads(self.process.stdout.readline())
        return told


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with subprocess.Popen(
        [sys.executable, "-m", kill_child.__name__],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Child(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def say(world: World, machine: Machine, talk: Talk, *payloads: Any) -> None:
    since, window = machine.space.repo.rev(), machine.space.active(talk.handle.uri)
    talk.add(*payloads)
    world.ledger.note(machine.space, since, window)
    world.clock.pass_(1)


def begun(world: World) -> Talk:
    """What the first machine has, and nobody else yet."""
    machine = world.machines[0]
    talk = Talk.new(machine.space)
    texts = [f"{talk.handle.rkey}.{number}" for number in range(9)]
    say(world, machine, talk, *map(user, texts[:4]), says(texts[4], f"{talk.handle.rkey}.c"))
    with_blob = user(texts[5])
    with_blob["note"] = "y" * 200_000
    say(world, machine, talk, with_blob, user(texts[6]))
    talk.handle.compact(lambda _: f"{talk.handle.rkey}.s", lambda _: 3)
    say(world, machine, talk, user(texts[7]))
    return talk


def push(world: World) -> None:
    """The host has nothing yet."""
    begun(world)


def pull(world: World) -> None:
    """The machine has nothing yet."""
    begun(world)
    world.machines[0].sync()
    world.machines.reverse()


def both(world: World) -> None:
    """Both machines went on, the other one has synced; blobs on both sides."""
    talk = begun(world)
    first, second = world.machines
    for machine in (first, second):
        machine.sync()
    there = talk.seen_by(second.space)
    text = f"{talk.handle.rkey}.x"
    said = user(f"{text}1")
    said["note"] = "z" * 200_000
    say(world, first, talk, said, user(f"{text}2"))
    say(world, second, there, user(f"{text}3"), user(f"{text}4"))
    old = f"{talk.handle.rkey}.6"
    talk.handle.rewrite(talk.of(old).rkey, user(f"{old}~new"))
    world.ledger.replace(MESSAGE, talk.of(f"{old}~new").rkey, old)
    there.handle.settle()
    second.sync()


class Killing:
    """A scenario that can be put back as it was. The first machine is the one that is killed."""

    def __init__(
        self, where: Setup, child: Child, prepare: Callable[[World], None], sizes: dict[str, int]
    ) -> None:
        self.child = child
        self.sizes = sizes
        self.world = World(where, [-600.0, 600.0], batch=4)
        prepare(self.world)
        self.victim = self.world.machines[0]
        self.kept = self.world.home.with_name("kept")
        self.close()
        shutil.copytree(self.world.home, self.kept)
        with where.server.host.database.read() as connection:
            self.rows = [
                (table, [row._asdict() for row in connection.execute(select(table))])
                for table in _HOST
            ]
        self.now = self.world.clock.now

    def close(self) -> None:
        for machine in self.world.machines:
            machine.space.close()

    def put_back(self) -> None:
        shutil.rmtree(self.world.home)
        shutil.copytree(self.kept, self.world.home)
        with self.world.setup.server.host.database.write() as connection:
            for table, _ in reversed(self.rows):
                connection.execute(delete(table))
            for table, rows in self.rows:
                if rows:
                    connection.execute(insert(table), rows)
        self.world.clock.now = self.now
        self.victim.proxy.forget()

    def start(self, kill: int | None) -> int:
        return self.child.start(
            home=self.victim.home,
            origin=self.victim.proxy.origin,
            key=self.victim.key.did,
            token=self.world.setup.auth.token,
            now=self.victim.now(),
            batch=self.world.batch,
            sizes=self.sizes,
            kill=kill,
        )

    def undisturbed(self) -> tuple[list[str], int]:
        """Its statements, and how many requests it makes."""
        self.put_back()
        self.start(None)
        ended = self.child.end()
        assert not ended["killed"]
        assert not ended["failed"]
        requests = len(self.victim.proxy.log)
        self.after = self.end()
        return ended["statements"], requests

    def killed_before(self, statement: int) -> None:
        self.put_back()
        self.start(statement)
        assert self.child.end()["killed"]
        assert self.end() == self.after

    def killed_at(self, request: int, fault: Fault) -> None:
        """While it waits for the answer to a request, which was held up on its way."""
        self.put_back()
        self.victim.proxy.schedule({request: fault})
        process = self.start(None)
        self.victim.proxy.wait_held()
        os.kill(process, signal.SIGKILL)
        assert self.child.end()["killed"]
        self.victim.proxy.release(discard=True)
        self.victim.proxy.schedule([])
        assert self.end() == self.after

    def end(self) -> dict[tuple[str, str], str]:
        """What all records are, once everybody has synced again."""
        for machine in self.world.machines:
            machine.reopen()
        try:
            assert [str(each) for each in self.victim.space.verify()] == []
            assert held(self.victim) == []
            self.world.check_converged()
            return self.victim.records()
        finally:
            self.close()


def test_two_syncs_of_a_home_wait_for_each_other(where: Setup, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lettaspace.remote.syncing.LOCK_SECONDS", 0)
    world = World(where, [0.0])
    (machine,) = world.machines
    begun(world)
    with (
        machine.syncing(1, HELD_REQUEST),
        pytest.raises(StoreUnavailable, match="another sync"),
    ):
        machine.syncer().sync()
    machine.sync()
    world.check_converged()
    world.close()


def places(statements: Sequence[str], limit: int) -> list[int]:
    """The numbers of statements before which to kill: half of them around commits."""
    around = {
        number + more
        for number, each in enumerate(statements, 1)
        for more in (0, 1)
        if each == "COMMIT"
    }
    others = [n for n, each in enumerate(statements, 1) if n not in around and each != "SELECT"]
    some = thinned(sorted(around), (limit + 1) // 2)
    return sorted({*some, *thinned(others, limit - len(some))})


def thinned(numbers: Sequence[int], limit: int) -> list[int]:
    if len(numbers) <= limit:
        return list(numbers)
    return [numbers[len(numbers) * at // limit] for at in range(limit)]


WHOLE = {"MAX_OPS": 0, "MAX_GETS": 0, "_CHUNK": 1}
"""So that whole repos are read, in many transactions."""


@pytest.fixture
def killing(where: Setup, child: Child, request: pytest.FixtureRequest) -> Iterator[Killing]:
    prepare, sizes = request.param
    made = Killing(where, child, prepare, sizes)
    yield made
    shutil.rmtree(made.world.home)
    shutil.rmtree(made.kept)


@pytest.mark.parametrize(
    "killing",
    [
        pytest.param((push, {}), id="push"),
        pytest.param((pull, {}), id="pull"),
        pytest.param((both, {}), id="both"),
        pytest.param((both, WHOLE), id="both-by-whole-repos"),
    ],
    indirect=True,
)
def test_a_sync_that_was_killed_goes_on(killing: Killing):
    statements, requests = killing.undisturbed()
    assert len(statements) > 20
    for statement in places(statements, KILLS):
        killing.killed_before(statement)
    killing.killed_before(len(statements) + 1)
    for request in thinned(range(requests), (KILLS + 1) // 2):
        killing.killed_at(request, HELD_REQUEST)
        killing.killed_at(request, HELD_ANSWER)
