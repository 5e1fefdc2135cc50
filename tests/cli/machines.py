"""A host that is served for real, accounts on it, and homes that stand for their machines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from lettaspace.atproto.uri import parse_space_ref
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.space import Space
from lettaspace.remote.account import Account
from lettaspace.remote.capabilities import Capabilities
from lettaspace.remote.sessions import Tokens
from lettaspace.server import repos
from lettaspace.server.policies import AppAccess, MemberList, Settings
from lettaspace.server.rates import Rates
from lettaspace.server.spaces import Member
from lettaspace.space import schema
from tests.conformance.kit import user
from tests.server.hosts import PASSWORD, Server, serving

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Outcome

_numbers = count(1)
_records = schema.records.c


class Machine:
    """A home, and the command line on it."""

    def __init__(self, home: Path, world: World) -> None:
        self.home = home
        self.world = world
        self._cli = world.on(home)

    def __call__(self, *arguments: str | Path) -> Outcome:
        return self._cli(*arguments)

    def login(self) -> None:
        """As `lettaspace login` leaves it, without the work of passwords."""
        world = self.world
        known = Capabilities("signature", delegates=True, leaks_blobs=False)
        account = Account(self.home, world.did, world.handle, world.origin, "password", True, known)
        given = world.server.host.sessions.open(world.account)
        account.keeping.save(Tokens(given.access, given.refresh).json())
        account.save()

    def with_password(self, *arguments: str | Path) -> Outcome:
        """A command that reads the password from standard input."""
        with self.world.patch.context() as patch:
            patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(PASSWORD.encode() + b"\n")))
            return self(*arguments, "--password-stdin")

    def open(self) -> Space:
        return Space.open(self.home, create=False)

    def talk(self, *texts: str, title: str = "Talk") -> str:
        """A new conversation with these messages; returns its TID."""
        with self.open() as space:
            agents = space.agents()
            agent = agents[0].uri if agents else space.create_agent("Otter")
            talk = space.create_conversation(agent, title=title)
            for text in texts:
                talk.append(user(text))
            return talk.rkey

    def say(self, rkey: str, *texts: str) -> None:
        with self.open() as space:
            talk: Conversation = space.conversation(rkey)
            for text in texts:
                talk.append(user(text))

    def said(self, rkey: str) -> list[str]:
        """What was said in a conversation's window."""
        with self.open() as space:
            return [
                part["text"]
                for each in space.conversation(rkey).window().messages
                for part in each.payload()["content"]
            ]

    def records(self) -> dict[tuple[str, str], str]:
        """The CID of every record of the own repo."""
        query = select(_records.collection, _records.rkey, _records.cid)
        with self.open() as space, space.database.read() as connection:
            rows = connection.execute(query.where(_records.repo == space.repo.id))
            return {(row.collection, row.rkey): bytes(row.cid).hex() for row in rows}

    def remote(self, *options: str) -> dict[str, Any]:
        """What `status` says of the host."""
        done = self("status", "--json", *options)
        assert (done.code, done.err) == (0, "")
        found: dict[str, Any] = done.json["remote"]
        return found

    def told(self, *options: str) -> str:
        """The same in words."""
        done = self("status", *options)
        assert (done.code, done.err) == (0, "")
        return done.out


class World:
    """An account of its own, and as many machines as are asked for."""

    def __init__(
        self,
        server: Server,
        base: Path,
        patch: pytest.MonkeyPatch,
        on: Callable[[Path], Cli],
    ) -> None:
        """`on` gives the command line on a home."""
        self.server = server
        self.on = on
        self.base = base
        self.patch = patch
        self.account = server.add_account(f"mira{next(_numbers)}")
        self.did = self.account.did
        self.handle = self.account.handle
        self.origin = server.host.config.origin

    @property
    def space(self) -> str:
        return f"at://{self.did}/space/xyz.quasigod.lab.letta.space/self"

    def machine(self, name: str, *, login: bool = True) -> Machine:
        made = Machine(self.base / name, self)
        if login:
            made.login()
        return made

    def lose_everything(self) -> None:
        """The host has nothing of the account's space any more."""
        with self.server.host.database.write() as connection:
            repos.empty(connection, self.space, self.did)

    def share(self, *members: str) -> None:
        """The space is shared: what is asked of its host is answered to these."""
        host = self.server.host
        host.spaces.create(
            parse_space_ref(self.space), Settings(MemberList(), MemberList(), AppAccess())
        )
        host.writers.note_own(self.space)
        for did in members:
            self.let_in(did)

    def let_in(self, did: str) -> None:
        self.server.host.spaces.put_member(self.space, Member(did, read=True, write=True))

    def end_sessions(self) -> None:
        """Whoever was signed in is no more."""
        self.server.host.accounts.sign_out(self.account)


@contextmanager
def real_time_host(target: Path) -> Iterator[Server]:
    """A host whose clock is this machine's."""
    clock: Callable[[], float] = time.time
    with serving(target, clock, rates=Rates.none()) as server:  # type: ignore[arg-type]
        yield server
