"""The spaces whose authority is an account here: settings, members, and tombstones.

A deleted space leaves a tombstone, which only its creation anew takes away. What is written
into a space does not touch it: repos exist whether or not there is a space. Source: protocol,
sections 6 (simplespace) and 8 (deletion).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from lettaspace.errors import Conflict, InvalidInput, NotFound
from lettaspace.server import repos, tables
from lettaspace.server.policies import Right, Settings
from lettaspace.server.upsert import upsert
from lettaspace.space.database import Database
from lettaspace.space.statement import Statement

MAX_URI: Final = 1500
"""Characters of a space reference: databases limit what they index."""

MAX_MEMBER: Final = 1000
"""Characters of a member's DID, for the same reason."""


@dataclass(frozen=True, slots=True)
class Space:
    """A space of an account here, as it was when it was looked up."""

    ref: SpaceRef
    settings: Settings
    created_at: int
    """Seconds since 1970."""
    deleted_at: int | None

    @property
    def uri(self) -> str:
        return str(self.ref)


@dataclass(frozen=True, slots=True)
class Member:
    """Who may read or write a space, where its policies go by the list."""

    did: str
    read: bool
    write: bool


_spaces, _members = tables.spaces.c, tables.members.c

_get_rights = Statement(
    lambda: select(_members.read, _members.write).where(
        _members.space == bindparam("space"), _members.did == bindparam("did")
    )
)
_put_member = upsert(tables.members, "read", "write")


class Spaces:
    """The spaces in a database. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def find(self, uri: str) -> Space | None:
        """The space, which may be a tombstone, or None."""
        with self._database.read() as connection:
            row = connection.execute(select(tables.spaces).where(_spaces.uri == uri)).first()
        return None if row is None else _space(row)

    def get(self, uri: str) -> Space:
        """Raises NotFound if there is no such space, or no longer."""
        found = self.find(uri)
        if found is None or found.deleted_at is not None:
            raise NotFound("no such space here")
        return found

    def all(self, authority: str | None = None, *, deleted: bool = False) -> list[Space]:
        """Those of an account, or of all, by URI; with `deleted`, the tombstones instead."""
        query = select(tables.spaces).order_by(_spaces.uri)
        query = query.where(_spaces.deleted_at.is_not(None) == deleted)
        if authority is not None:
            query = query.where(_spaces.authority == authority)
        with self._database.read() as connection:
            return [_space(row) for row in connection.execute(query)]

    def create(self, ref: SpaceRef, settings: Settings) -> Space:
        """A new space, or one in a tombstone's place. Raises Conflict if there is one.

        Records that were written before it was there stay.
        """
        if len(uri := str(ref)) > MAX_URI:
            raise InvalidInput(f"a space's URI has at most {MAX_URI} characters")
        changing = {**settings.columns, "created_at": int(self._clock()), "deleted_at": None}

        def work(connection: Connection) -> bool:
            revived = connection.execute(
                update(tables.spaces)
                .where(_spaces.uri == uri, _spaces.deleted_at.is_not(None))
                .values(changing)
            )
            if not revived.rowcount:
                parts = {"authority": ref.authority, "type": ref.type, "skey": ref.skey}
                connection.execute(insert(tables.spaces).values(uri=uri, **parts, **changing))
            return True

        try:
            self._database.run(work)
        except IntegrityError:
            raise Conflict("there is such a space already") from None
        return self.get(uri)

    def change(self, uri: str, settings: Callable[[Settings], Settings]) -> Space:
        """Replaces the settings by what is made of them. Raises NotFound."""

        def work(connection: Connection) -> None:
            space = _locked(connection, uri)
            changed = settings(space.settings)
            connection.execute(
                update(tables.spaces).where(_spaces.uri == uri).values(changed.columns)
            )

        self._database.run(work)
        return self.get(uri)

    def delete(self, uri: str) -> list[str]:
        """Makes the space a tombstone, and removes its authority's own repo and all that is
        known of members, writers and services. Returns those services that were to be told of
        writes; none if it is a tombstone already. Raises NotFound if it never was.
        """
        now = int(self._clock())

        def work(connection: Connection) -> list[str]:
            # Repo first, then space, as writes do: they would wait for each other in a circle.
            repos.empty(connection, uri, parse_space_ref(uri).authority)
            row = connection.execute(
                select(tables.spaces).where(_spaces.uri == uri).with_for_update()
            ).first()
            if row is None:
                raise NotFound("no such space here")
            if row.deleted_at is not None:
                return []
            registrations = tables.registrations.c
            services = connection.execute(
                select(registrations.service)
                .where(registrations.space == uri, registrations.expires_at > now)
                .order_by(registrations.service)
            )
            told = list(services.scalars())
            for table in (tables.members, tables.writers, tables.registrations):
                connection.execute(delete(table).where(table.c.space == uri))
            connection.execute(
                update(tables.spaces).where(_spaces.uri == uri).values(deleted_at=now)
            )
            return told

        return self._database.run(work)

    # Members

    def put_member(self, uri: str, member: Member) -> None:
        """Gives a member these rights, and no others. Raises NotFound if there is no such
        space, InvalidInput for its authority, which is no member and may do everything."""
        if len(member.did) > MAX_MEMBER:
            raise InvalidInput(f"a member's DID has at most {MAX_MEMBER} characters")

        def work(connection: Connection) -> None:
            if member.did == _locked(connection, uri).ref.authority:
                raise InvalidInput("the authority of a space may do everything, and is no member")
            _put_member.run(
                connection, space=uri, did=member.did, read=member.read, write=member.write
            )

        self._database.run(work)

    def remove_member(self, uri: str, did: str) -> bool:
        """False if it was none. Raises NotFound if there is no such space."""

        def work(connection: Connection) -> bool:
            _locked(connection, uri)
            gone = connection.execute(
                delete(tables.members).where(_members.space == uri, _members.did == did)
            )
            return gone.rowcount > 0

        return self._database.run(work)

    def members(self, uri: str, *, after: str = "", limit: int | None = None) -> Sequence[Member]:
        """By DID, strictly after `after`."""
        query = (
            select(_members.did, _members.read, _members.write)
            .where(_members.space == uri, _members.did > after)
            .order_by(_members.did)
            .limit(limit)
        )
        with self._database.read() as connection:
            return [Member(*row) for row in connection.execute(query)]


def has_right(connection: Connection, uri: str, did: str, right: Right) -> bool:
    """Whether the list of members gives the right."""
    row = _get_rights.one(connection, space=uri, did=did)
    return row is not None and bool(row[0 if right == "read" else 1])


def _locked(connection: Connection, uri: str) -> Space:
    """The space, which nobody else changes before the transaction ends. Raises NotFound."""
    query = select(tables.spaces).where(_spaces.uri == uri, _spaces.deleted_at.is_(None))
    row = connection.execute(query.with_for_update()).first()
    if row is None:
        raise NotFound("no such space here")
    return _space(row)


def _space(row: Row[Any]) -> Space:
    settings = Settings.of(row.read_policy, row.write_policy, row.app_access)
    return Space(parse_space_ref(row.uri), settings, row.created_at, row.deleted_at)
