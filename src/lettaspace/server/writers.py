"""Who writes into the spaces of accounts here: the newest that is known of each repo.

Each write that is taken note of gives its space a new revision, a TID above all before. The row
of the space is locked meanwhile, so revisions are in the order in which they become visible, and
one that was seen is a safe place to go on from. Source: protocol, section 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, bindparam, func, select, update

from lettaspace.atproto import tid
from lettaspace.atproto.tid import TidClock
from lettaspace.atproto.uri import SpaceRef
from lettaspace.errors import NotFound
from lettaspace.server import managing, tables
from lettaspace.server.errors import XrpcError
from lettaspace.server.policies import ManagingApp, Settings
from lettaspace.server.upsert import upsert
from lettaspace.space import schema
from lettaspace.space.database import Database
from lettaspace.space.statement import Row, Statement

if TYPE_CHECKING:
    from lettaspace.server.host import Host

HASH_BYTES: Final = 32
MAX_AHEAD: Final = 300
"""Seconds that a repo's revision may be in the future."""

_spaces, _writers, _registrations = tables.spaces.c, tables.writers.c, tables.registrations.c

_is_here = Statement(
    lambda: select(tables.accounts.c.id).where(tables.accounts.c.did == bindparam("did"))
)
_lock = Statement(
    lambda: (
        select(
            _spaces.authority,
            _spaces.read_policy,
            _spaces.write_policy,
            _spaces.app_access,
            _spaces.space_rev,
        )
        .where(_spaces.uri == bindparam("space"), _spaces.deleted_at.is_(None))
        .with_for_update(key_share=True)
    )
)
_known = Statement(
    lambda: select(
        select(_writers.repo_rev)
        .where(_writers.space == bindparam("space"), _writers.did == bindparam("did"))
        .scalar_subquery(),
        select(func.max(_writers.space_rev))
        .where(_writers.space == bindparam("space"))
        .scalar_subquery(),
        select(func.max(_registrations.expires_at))
        .where(_registrations.space == bindparam("space"))
        .scalar_subquery(),
    )
)
_put = upsert(tables.writers, "repo_rev", "hash", "space_rev")
_set_rev = Statement(
    lambda: (
        update(tables.spaces)
        .where(_spaces.uri == bindparam("space"))
        .values(space_rev=bindparam("new_rev"))
    )
)
_services = Statement(
    lambda: (
        select(_registrations.service)
        .where(
            _registrations.space == bindparam("space"),
            _registrations.expires_at > bindparam("now"),
        )
        .order_by(_registrations.service)
    )
)
_repo = Statement(
    lambda: select(schema.repos.c.rev, schema.repos.c.set_hash).where(
        schema.repos.c.space == bindparam("space"), schema.repos.c.author == bindparam("did")
    )
)


@dataclass(frozen=True, slots=True)
class Writer:
    """The newest that is known of a repo, and the space's revision that it was given."""

    did: str
    rev: str
    hash: bytes
    space_rev: str


@dataclass(frozen=True, slots=True)
class Change:
    """A write that was taken note of, and the services to tell of it.

    `prev` is the space's revision before this one; None if it is the first.
    """

    space: str
    writer: Writer
    prev: str | None
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A space's row, locked until the transaction ends."""

    uri: str
    authority: str
    settings: Settings
    space_rev: str | None


class Writers:
    """The writers in a database. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._tids = TidClock(lambda: int(clock() * 1_000_000_000))

    def hold(self, connection: Connection, uri: str) -> Held | None:
        """The space, locked; None if there is none, or no longer."""
        row = _lock.one(connection, space=uri)
        return None if row is None else Held(uri, row[0], Settings.of(*row[1:4]), row[4])

    def note(
        self, connection: Connection, space: Held, did: str, rev: str, hash_: bytes
    ) -> Change | None:
        """Takes note of a write; None if that, or a newer one, is known already."""
        now = int(self._clock())
        known, prev, told_until = _known.only(connection, space=space.uri, did=did)
        if known is not None and rev <= known:
            return None
        writer = Writer(did, rev, hash_, self._above(space.space_rev))
        _put.run(
            connection,
            space=space.uri,
            did=did,
            repo_rev=rev,
            hash=hash_,
            space_rev=writer.space_rev,
        )
        _set_rev.run(connection, space=space.uri, new_rev=writer.space_rev)
        services: list[Row] = []
        if told_until is not None and told_until > now:
            services = _services.all(connection, space=space.uri, now=now)
        return Change(space.uri, writer, prev, tuple(service for (service,) in services))

    def note_own(self, uri: str) -> None:
        """Takes note of what the authority wrote before there was a space."""

        def work(connection: Connection) -> None:
            space = self.hold(connection, uri)
            row = space and _repo.one(connection, space=uri, did=space.authority)
            if space and row and row[0] is not None:
                self.note(connection, space, space.authority, row[0], sha256(row[1]).digest())

        self._database.run(work)

    def page(self, uri: str, after: str, limit: int) -> list[Writer]:
        """By the space's revisions, strictly after one of them."""
        query = (
            select(_writers.did, _writers.repo_rev, _writers.hash, _writers.space_rev)
            .where(_writers.space == uri, _writers.space_rev > after)
            .order_by(_writers.space_rev)
            .limit(limit)
        )
        with self._database.read() as connection:
            return [Writer(*row) for row in connection.execute(query)]

    def _above(self, floor: str | None) -> str:
        new = self._tids.mint(floor=floor)
        if floor is not None and new <= floor:
            # Once the clock was far ahead. The order must hold all the same.
            micros, clock_id = tid.decode(floor)
            new = tid.encode(micros + 1, clock_id)
        return new


def written(
    host: "Host", connection: Connection, uri: str, did: str, rev: str, hash_: bytes
) -> Callable[[], None] | None:
    """The host's `WriteHook`: an authority here takes note in the write's own transaction, one
    elsewhere is told through the outbox."""
    authority = uri.removeprefix("at://").partition("/")[0]
    space = host.writers.hold(connection, uri)
    if space is None:
        if _is_here.one(connection, did=authority) is not None:
            return None  # there is no such space, or no longer
        return host.outbox.put(connection, uri, did, rev, hash_)
    policy = space.settings.write
    if isinstance(policy, ManagingApp) and did != authority:
        return host.outbox.put(connection, uri, did, rev, hash_)  # asking takes time
    if not managing.may_at_once(connection, uri, authority, policy, did, "write"):
        return None
    change = host.writers.note(connection, space, did, rev, hash_)
    return partial(host.forwards.tell, change) if change and change.services else None


def receive(host: "Host", ref: SpaceRef, did: str, rev: str, hash_: bytes) -> None:
    """Takes note of a write that a repo's host, or the outbox, tells of.

    Raises XrpcError: SpaceNotFound, FutureRev, Forbidden. What is known already is no error.
    """
    if host.accounts.by_did(ref.authority) is None:
        raise XrpcError("SpaceNotFound", "this host has no such authority")
    if tid.decode(rev)[0] > (host.clock() + MAX_AHEAD) * 1_000_000:
        raise XrpcError("FutureRev", f"repoRev is more than {MAX_AHEAD} s ahead of this clock")
    uri = str(ref)
    try:
        space = host.spaces.get(uri)
    except NotFound as error:
        raise XrpcError("SpaceNotFound", str(error)) from None
    if not managing.may(host, space, did, "write"):
        raise XrpcError("Forbidden", "this account may not write into this space")

    def work(connection: Connection) -> Change | None:
        held = host.writers.hold(connection, uri)
        if held is None:  # deleted meanwhile
            raise XrpcError("SpaceNotFound", "no such space here")
        return host.writers.note(connection, held, did, rev, hash_)

    change = host.database.run(work)
    if change and change.services:
        host.forwards.tell(change)
