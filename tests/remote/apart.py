"""Two or three machines that hold the same conversations and go on apart, without a network.

A machine takes what another one has as a replica does: what only the other changed it takes, what
both changed is merged, and then branches are parted.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.conversation.origins import copied
from lettaspace.conversation.records import CONVERSATION, MESSAGE, rkey_of
from lettaspace.conversation.space import Space
from lettaspace.remote.branches import Divergence, diverge, mend
from lettaspace.remote.merging import merge, said
from lettaspace.space import schema
from lettaspace.space.repo import Transaction
from lettaspace.space.writes import Create, Update, Value, Write
from tests.conformance.kit import Talk, check_paired

Key = tuple[str, str]
State = dict[Key, Value]


@dataclass
class Host:
    """What the machines exchange their records by."""

    state: State = field(default_factory=dict)
    blobs: dict[CID, bytes] = field(default_factory=dict)

    def copy(self) -> Host:
        return Host(dict(self.state), dict(self.blobs))


@dataclass
class Machine:
    """A space, and what the host has as far as it knows."""

    space: Space
    known: State = field(default_factory=dict)

    @property
    def state(self) -> State:
        table = schema.records.c
        with self.space.database.read() as connection:
            rows = connection.execute(select(table.collection, table.rkey, table.value)).all()
        return {(row.collection, row.rkey): cbor.decode(row.value) for row in rows}

    def twin(self, home: Path) -> Machine:
        """Another machine with the same author and records."""
        self.space.close()
        shutil.copytree(self.space.home, home)
        self.space = Space.open(self.space.home)
        return Machine(Space.open(home), self.known)

    def talk(self, uri: str) -> Talk:
        return Talk(self.space.conversation(uri))

    def window(self, uri: str) -> list[str]:
        return [message.rkey for message in self.space.active(uri)]

    def sync(self, host: Host) -> list[Divergence]:
        done = self.pull(host)
        self.push(host)
        self.known = dict(host.state)
        return done

    def push(self, host: Host) -> None:
        """Writes what the host has not, as far as this machine knows. It does not learn whether
        that has arrived."""
        for key, value in self.state.items():
            if self.known.get(key) != value:
                host.state[key] = value
                host.blobs |= {cid: self.space.repo.get_blob(cid) for cid in blob_refs(value)}

    def pull(self, host: Host) -> list[Divergence]:
        mine = self.state
        writes: list[Write] = []
        arrived: defaultdict[str, set[str]] = defaultdict(set)
        moved: defaultdict[str, dict[str, str]] = defaultdict(dict)
        touched: set[str] = set()
        for key, value in host.state.items():
            old = mine.get(key)
            new = value if old is None else self._merged(key, old, value)
            if new == old:
                continue
            writes.append(Create(*key, new) if old is None else Update(*key, new))
            if key[0] != MESSAGE:
                continue
            touched.add(new["conversation"])
            if old is None:
                arrived[new["conversation"]].add(key[1])
            elif new["conversation"] != old["conversation"]:
                moved[old["conversation"]][key[1]] = new["conversation"]
                touched.add(old["conversation"])
        unknown = {key[1] for key in mine.keys() - self.known.keys() if key[0] == MESSAGE}

        def work(tx: Transaction) -> list[Divergence]:
            tx.apply(writes, blobs=host.blobs)
            done = []
            address = self.space.address
            for uri in sorted(touched):
                ours = unknown - arrived[uri]
                done.append(diverge(tx, address, uri, ours, arrived[uri], moved=moved[uri]))
            for uri in sorted(touched):
                mend(tx, address, uri, () if arrived[uri] else unknown)
            return [each for each in done if each is not None]

        done = self.space.repo.run(work)
        self.known = dict(host.state)
        return done

    def _merged(self, key: Key, old: Value, new: Value) -> Value:
        base = self.known.get(key)
        if base in (old, new) or old == new:
            return new if base == old else old
        if key[0] == CONVERSATION:
            return new
        return merge(key[0], old, new, said_before=said(key[0], base))


def agree(host: Host, *machines: Machine) -> list[Divergence]:
    """They sync in turn until all have the same."""
    done: list[Divergence] = []
    for _ in range(4):
        for machine in machines:
            done += machine.sync(host)
        states = [machine.state for machine in machines]
        if all(state == host.state for state in states):
            return done
    differing = {key for key in host.state for state in states if state.get(key) != host.state[key]}
    raise AssertionError(f"they never agree on {sorted(differing)}")


def check_all(machine: Machine) -> None:
    """Every conversation is as the contract has it, and marks and seqs alone give its window."""
    problems = [str(problem) for problem in machine.space.verify()]
    assert problems == [], problems
    before = machine.space.repo.rev()
    for info in machine.space.conversations():
        talk = machine.talk(info.uri)
        records = talk.records()
        said = [message.rkey for message in talk.handle.transcript()]
        assert sorted(said) == sorted(each.rkey for each in records)
        assert talk.plain() == machine.window(info.uri)
        assert len({each.value["seq"] for each in records}) == len(records)
        check_paired(talk.handle.window().messages)
        assert talk.handle.repair() == 0
    assert machine.space.repo.rev() == before


def originals(machine: Machine, fork: str, source: str) -> dict[str, str]:
    """The copies in a fork, by their originals."""
    there = [key[1] for key, value in machine.state.items() if value.get("conversation") == fork]
    said = [key[1] for key, value in machine.state.items() if value.get("conversation") == source]
    return {of: rkey for rkey, of in copied(rkey_of(fork), there, said).items()}
