"""What a host has of a repo, as we know it: each record's CID, and the set hash of them all.

Comparing it with what is stored here says what is to be pushed, and what a pull brings that is
new. It is only ever set to what the host's signed commit covers.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from lettaspace.atproto.cid import CID
from lettaspace.conversation.records import MESSAGE
from lettaspace.space import schema
from lettaspace.space.statement import Statement

DELETED = "deleted"
"""The host's log says that somebody deleted it there. It is kept here."""
INVALID = "invalid"
"""What the host has does not satisfy its lexicon, or is not what its CID says. It is kept out."""
NO_BLOB = "blob"
"""It refers to a blob that the host does not have. It is kept out until the host does."""
REFUSED = "refused"
"""The host does not take it. It is kept here alone."""

_PAGE = 400

_replicas = schema.replicas.c
_mirror = schema.mirror.c
_records = schema.records.c
_ops = schema.ops.c
_held = schema.held.c

_put = Statement(
    lambda: (
        insert(schema.mirror)
        .values({name: bindparam(name) for name in ("repo", "collection", "rkey", "cid", "said")})
        .on_conflict_do_update(
            index_elements=["repo", "collection", "rkey"],
            set_={
                "cid": bindparam("cid"),
                "said": bindparam("said"),
                "said_before": case(
                    (_mirror.said.is_distinct_from(bindparam("said")), _mirror.said),
                    else_=_mirror.said_before,
                ),
            },
        )
    )
)
_drop = Statement(
    lambda: delete(schema.mirror).where(
        _mirror.repo == bindparam("repo"),
        _mirror.collection == bindparam("collection"),
        _mirror.rkey == bindparam("rkey"),
    )
)


class Key(NamedTuple):
    """Which record."""

    collection: str
    rkey: str


class There(NamedTuple):
    """What the host has at a key. `cid` None: nothing. `said`: of a message, what it says
    (`merging.said`)."""

    key: Key
    cid: CID | None
    said: CID | None = None


class Head(NamedTuple):
    """How far a replica is. `rev` None: what the host has is not known."""

    rev: str | None
    set_hash: bytes
    pushed: str | None


class Pending(NamedTuple):
    """A record that is here otherwise than at the host. `cid` None: not here; `there` None: not
    there. `rev` is that of its last change here; `said` as in `There`, once it was looked at."""

    key: Key
    cid: CID | None
    there: CID | None
    rev: str
    said: CID | None = None


class Mirror:
    """The rows of one replica, within a transaction."""

    def __init__(self, connection: Connection, repo: int) -> None:
        self.connection = connection
        self.repo = repo

    def head(self) -> Head:
        row = self.connection.execute(
            select(_replicas.rev, _replicas.set_hash, _replicas.pushed).where(
                _replicas.repo == self.repo
            )
        ).one()
        return Head(row.rev, row.set_hash, row.pushed)

    def set_head(self, rev: str | None, set_hash: bytes) -> None:
        """The host's head that the rows are from now on those of."""
        self._update(rev=rev, set_hash=set_hash)

    def set_pushed(self, rev: str | None) -> None:
        """Up to this revision of our own the host has it all; None: all is to be compared."""
        self._update(pushed=rev)

    def cids(self, keys: Iterable[Key]) -> dict[Key, CID]:
        """The CIDs of those that the host has."""
        found: dict[Key, CID] = {}
        wanted = list(keys)
        for start in range(0, len(wanted), _PAGE):
            rows = self.connection.execute(
                select(_mirror.collection, _mirror.rkey, _mirror.cid).where(
                    _mirror.repo == self.repo,
                    tuple_(_mirror.collection, _mirror.rkey).in_(wanted[start : start + _PAGE]),
                )
            )
            found |= {Key(row.collection, row.rkey): CID.from_bytes(row.cid) for row in rows}
        return found

    def all(self) -> Iterator[tuple[Key, CID]]:
        """Everything that the host has."""
        rows = self.connection.execute(
            select(_mirror.collection, _mirror.rkey, _mirror.cid).where(_mirror.repo == self.repo)
        )
        for collection, rkey, cid in rows:
            yield Key(collection, rkey), CID.from_bytes(cid)

    def said(self, key: Key) -> tuple[CID | None, CID | None]:
        """What a message says at the host, and what it said there before that."""
        row = self.connection.execute(
            select(_mirror.said, _mirror.said_before).where(
                _mirror.repo == self.repo,
                _mirror.collection == key.collection,
                _mirror.rkey == key.rkey,
            )
        ).one_or_none()
        said, before = row or (None, None)
        return said and CID.from_bytes(said), before and CID.from_bytes(before)

    def put(self, there: Iterable[There]) -> None:
        """Takes over what the host has now."""
        present, gone = [], []
        for (collection, rkey), cid, said in there:
            row = {"repo": self.repo, "collection": collection, "rkey": rkey}
            if cid is None:
                gone.append(row)
            else:
                present.append({**row, "cid": bytes(cid), "said": said and bytes(said)})
        _put.many(self.connection, present)
        _drop.many(self.connection, gone)

    def clear(self) -> None:
        """Forgets the host's records."""
        self.connection.execute(delete(schema.mirror).where(_mirror.repo == self.repo))

    def pending(self, limit: int | None = None) -> list[Pending]:
        """What is to be pushed: in the order of the last changes, so that whatever part of it
        has arrived is a state in which every reader sees all there is."""
        pushed = self.head().pushed
        last = (
            # SQLite takes the place from the row that has the highest revision.
            select(_ops.collection, _ops.rkey, func.max(_ops.rev).label("rev"), _ops.idx)
            .where(_ops.repo == self.repo, _ops.rev > (pushed or ""))
            .group_by(_ops.collection, _ops.rkey)
            .subquery()
        )
        query = (
            select(last.c.collection, last.c.rkey, last.c.rev, _records.cid, _mirror.cid)
            .select_from(
                last.outerjoin(
                    schema.records,
                    and_(
                        _records.repo == self.repo,
                        _records.collection == last.c.collection,
                        _records.rkey == last.c.rkey,
                    ),
                )
                .outerjoin(
                    schema.mirror,
                    and_(
                        _mirror.repo == self.repo,
                        _mirror.collection == last.c.collection,
                        _mirror.rkey == last.c.rkey,
                    ),
                )
                .outerjoin(
                    schema.held,
                    and_(
                        _held.repo == self.repo,
                        _held.collection == last.c.collection,
                        _held.rkey == last.c.rkey,
                    ),
                )
            )
            .where(_held.reason.is_(None), _records.cid.is_distinct_from(_mirror.cid))
            # What a batch of ours wrote stays together; in it, conversations come first, and then
            # what it wrote first: a summary before the marks that follow from it.
            .order_by(last.c.rev, last.c.collection == MESSAGE, last.c.idx)
            .limit(limit)
        )
        return [
            Pending(
                Key(collection, rkey),
                None if cid is None else CID.from_bytes(cid),
                None if there is None else CID.from_bytes(there),
                rev,
            )
            for collection, rkey, rev, cid, there in self.connection.execute(query)
        ]

    def unknown(self, collection: str) -> set[str]:
        """The rkeys of records here that the host has not in any version, as far as we know."""
        pushed = self.head().pushed
        rows = self.connection.execute(
            select(_ops.rkey)
            .distinct()
            .select_from(
                schema.ops.outerjoin(
                    schema.mirror,
                    and_(
                        _mirror.repo == self.repo,
                        _mirror.collection == _ops.collection,
                        _mirror.rkey == _ops.rkey,
                    ),
                )
            )
            .where(
                _ops.repo == self.repo,
                _ops.rev > (pushed or ""),
                _ops.collection == collection,
                _mirror.cid.is_(None),
            )
        )
        return set(rows.scalars())

    def hold(self, key: Key, reason: str) -> None:
        """Notes that a record stays otherwise here than there."""
        self.connection.execute(
            insert(schema.held)
            .values(repo=self.repo, collection=key.collection, rkey=key.rkey, reason=reason)
            .on_conflict_do_update(
                index_elements=["repo", "collection", "rkey"], set_={"reason": reason}
            )
        )

    def release(self, keys: Sequence[Key]) -> None:
        """They are held no more."""
        for start in range(0, len(keys), _PAGE):
            self.connection.execute(
                delete(schema.held).where(
                    _held.repo == self.repo,
                    tuple_(_held.collection, _held.rkey).in_(keys[start : start + _PAGE]),
                )
            )

    def held(self, *reasons: str) -> list[tuple[Key, str]]:
        """The records that are held, for these reasons or any."""
        query = select(_held.collection, _held.rkey, _held.reason).where(_held.repo == self.repo)
        if reasons:
            query = query.where(_held.reason.in_(reasons))
        rows = self.connection.execute(query.order_by(_held.collection, _held.rkey))
        return [(Key(collection, rkey), reason) for collection, rkey, reason in rows]

    def blobs(self, cids: Iterable[CID]) -> set[CID]:
        """Those of the blobs that the host was given."""
        known = schema.mirror_blobs.c
        wanted = [bytes(cid) for cid in cids]
        found: set[CID] = set()
        for start in range(0, len(wanted), _PAGE):
            rows = self.connection.execute(
                select(known.cid).where(
                    known.repo == self.repo, known.cid.in_(wanted[start : start + _PAGE])
                )
            ).scalars()
            found.update(map(CID.from_bytes, rows))
        return found

    def note_blobs(self, cids: Iterable[CID]) -> None:
        """Remembers that the host has these blobs."""
        rows = [{"repo": self.repo, "cid": bytes(cid)} for cid in cids]
        if rows:
            self.connection.execute(insert(schema.mirror_blobs).on_conflict_do_nothing(), rows)

    def forget_blobs(self, cids: Iterable[CID] | None = None) -> None:
        """The host may have lost these blobs, or any."""
        known = schema.mirror_blobs.c
        gone = delete(schema.mirror_blobs).where(known.repo == self.repo)
        if cids is None:
            self.connection.execute(gone)
            return
        for cid in cids:
            self.connection.execute(gone.where(known.cid == bytes(cid)))

    def _update(self, **values: object) -> None:
        self.connection.execute(
            update(schema.replicas).where(_replicas.repo == self.repo).values(**values)
        )
