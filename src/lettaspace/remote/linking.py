"""What a replica needs to be synced: its account's host, and the keys that commits are checked
with.

    with Space.open(home) as space, Link(space, account) as link:
        report = link.syncer().sync()
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, Self

from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.tokens import ACCOUNT_KEY
from lettaspace.conversation.space import Space
from lettaspace.errors import (
    Conflict,
    Damaged,
    HostRefused,
    InvalidInput,
    NotFound,
    Unreachable,
)
from lettaspace.network.identity import IdentityError, Resolver
from lettaspace.remote import replicas
from lettaspace.remote.account import Account
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.listening import LONGEST
from lettaspace.remote.pulling import Keys
from lettaspace.remote.syncing import Syncer
from lettaspace.space.verify import Progress

SPARE: Final = 20.0
"""Seconds by which an answer that is held may be late."""


def quiet(_what: str, _done: int, _total: int) -> None:
    """Progress that nobody wants to see."""


class Link:
    """A replica and its host. Raises Conflict for a space that is none of the account's.

    `sleep` is what waits where the host has to be left alone; `options` are further ones of
    `xrpc.Client`.
    """

    def __init__(
        self,
        space: Space,
        account: Account,
        *,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        with space.database.read() as connection:
            replica = replicas.own(connection)
        if replica is None:
            raise Conflict(
                f"the space at {space.home} is not {account.name}'s yet: `lettaspace adopt` moves "
                "it there, `lettaspace adopt --dry-run` says what that does"
            )
        if replica.author != account.did:
            raise Conflict(replicas.taken(replica, account.did))
        self.space = space
        self.account = account
        self.client = account.client(sleep=sleep, **options)
        self._sleep = sleep
        self.host = HostRepo(self.client, replica.space, replica.author)
        self._resolver: Resolver | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.client.close()

    @contextmanager
    def waiting(self) -> Iterator[HostRepo]:
        """The repo at its host, asked by a client of its own whose answers may be held."""
        with self.account.client(sleep=self._sleep, tries=1, timeout=LONGEST + SPARE) as client:
            yield HostRepo(client, self.host.space, self.host.author)

    @property
    def resolver(self) -> Resolver:
        """Who others are."""
        if self._resolver is None:
            self._resolver = self.account.resolver()
        return self._resolver

    def syncer(self, progress: Progress = quiet) -> Syncer:
        """What syncs the account's own repo."""
        return Syncer(
            self.space,
            self.host,
            self.keys(self.account.did),
            progress=progress,
            sleep=self._sleep,
        )

    def look_for_leaks(self) -> None:
        """Finds out whether the host gives its blobs to anybody, once, now that it has some."""
        from lettaspace.remote.probe import leaks_blobs

        account = self.account
        if account.capabilities.leaks_blobs is not None:
            return
        with suppress(HostRefused, Unreachable):
            found = leaks_blobs(self.client, self.host.space, account.did, account.fetcher())
            self.account = account.learnt(replace(account.capabilities, leaks_blobs=found))

    def keys(self, did: str) -> Keys:
        """The key of a replica's author: as it was the last time, or asked for again."""

        def key(again: bool) -> VerifyingKey:
            with self.space.database.read() as connection:
                replica = replicas.find(connection, self.host.space, did)
            known = None if replica is None else replica.signing_key
            if known is not None and not again:
                return VerifyingKey.from_did(known)
            with reasons():
                found = self.resolver.key(did, ACCOUNT_KEY, refresh=again)
            if replica is not None and found.did != known:
                with self.space.database.write() as connection:
                    replicas.note(connection, replica.repo, signing_key=found.did)
            return found

        return key


@contextmanager
def reasons() -> Iterator[None]:
    """What keeps one from finding out who a DID is, as the errors that callers know."""
    try:
        yield
    except IdentityError as error:
        if error.transient:
            raise Unreachable(str(error), sent=False) from None
        raise Damaged(str(error)) from None
    except (NotFound, InvalidInput) as error:
        raise Damaged(str(error)) from None
