"""Pulling: what the host has and we have not, verified, brought into the repo here.

By the log since the last revision; when that does not give what the host's signed commit says,
by a list of all records; when too much differs, by the whole repo. Nothing is taken before its
set hash is that of a commit of the author's.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, NamedTuple

from sqlalchemy import Connection, select
from sqlalchemy.dialects.sqlite import insert

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.commit import Commit
from lettaspace.atproto.data import blob_refs
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.conversation.records import MESSAGE
from lettaspace.errors import Damaged, HostRefused, InvalidInput
from lettaspace.remote.hostrepo import HostRepo, RemoteOp
from lettaspace.remote.mirror import Key, Mirror, There
from lettaspace.remote.taking import Change, Taken, Terms, take
from lettaspace.space import schema
from lettaspace.space.batch import BLOB_MARK
from lettaspace.space.car import read_repo
from lettaspace.space.repo import EmbeddedRepo, Transaction
from lettaspace.space.sethash import SetHash, element
from lettaspace.space.verify import Progress
from lettaspace.space.writes import Value

MAX_OPS = 10_000
"""Entries of the log that are taken at once. With more of them the whole repo is read."""

MAX_GETS = 300
"""Records that are asked for one by one."""

_CHUNK = 2_000
"""Records of a whole repo that are taken in one transaction, unless a conversation has more."""

_SOME = 400
"""Keys that the store is asked about at once."""

_BLOB_BYTES = 16 * 1024 * 1024
"""Blobs that are held in memory until they are stored."""

_FIRST = ""
"""The revision before any: of a repo that the host does not have yet."""

Keys = Callable[[bool], VerifyingKey]
"""The key of the author's commits; with True, asked for anew."""


class Emptied(Exception):
    """The host had this repo, and now has nothing of it."""


class Puller:
    """Brings what a host has into one repo."""

    def __init__(
        self,
        repo: EmbeddedRepo,
        host: HostRepo,
        keys: Keys,
        terms: Terms,
        *,
        progress: Progress = lambda _what, _done, _total: None,
    ) -> None:
        self._repo = repo
        self._host = host
        self._keys = keys
        self._terms = terms
        self._progress = progress

    def pull(self) -> Taken:
        """Raises Unreachable, SignedOut, HostRefused; Damaged where the host's answers do not
        belong together; Emptied."""
        with self._repo.database.read() as connection:
            head = Mirror(connection, self._repo.id).head()
        if head.rev is None:
            return self._whole()
        state = SetHash(head.set_hash)
        found = self._log(head.rev, state)
        if found is None:
            return self._heal()
        rev, changes = found
        if rev == head.rev and not changes:
            return Taken()
        return self._take(changes, (rev, state.state))

    def again(self, keys: Sequence[Key]) -> Taken:
        """Takes what the host has at these keys, which could not be taken before."""
        changes: list[Change] = []
        with self._repo.database.read() as connection:
            there = Mirror(connection, self._repo.id).cids(keys)
        for key, cid in there.items():
            record = self._host.get(*key)
            if record is not None and record.cid == cid and record.value is not None:
                changes.append(_change(key, cid, record.value))
        return self._take(changes, None)

    # The log

    def _log(self, since: str, state: SetHash) -> tuple[str, list[Change]] | None:
        """The host's head and what has changed; brings `state` there. None if the log does not
        lead to what the commit says, or is too long."""
        last: dict[Key, RemoteOp] = {}
        first: dict[Key, int] = {}
        commit: Commit | None = None
        count = 0
        for page in self._host.ops(since or None):
            commit = page.commit
            for op in page.ops:
                key = Key(op.collection, op.rkey)
                if op.prev is not None:
                    state.remove(element(*key, str(op.prev)))
                if op.cid is not None:
                    state.add(element(*key, str(op.cid)))
                last[key] = op
                first.setdefault(key, len(first))
            count += len(page.ops)
            if count > MAX_OPS:
                return None
        if commit is None:
            commit = self._host.latest_commit()
        if commit is None:
            if since == _FIRST:
                return _FIRST, []
            raise Emptied
        self._check(commit)
        if commit.hash != state.digest() or commit.rev < since:
            return None
        changes = [self._change(key, op)._replace(at=first[key]) for key, op in last.items()]
        return commit.rev, changes

    def _change(self, key: Key, op: RemoteOp) -> Change:
        if op.cid is None:
            return Change(key, None)
        value = op.value
        if value is None:
            # Its value was left out, as one that is outdated: the newer one comes with its op.
            found = self._host.get(*key)
            value = found.value if found is not None and found.cid == op.cid else None
            if value is None:
                raise Damaged(f"the host does not give {'/'.join(key)} as its log says it is")
        return _change(key, op.cid, value)

    def _check(self, commit: Commit) -> None:
        """Raises Damaged unless the author gave the commit."""
        space, author = self._host.space, self._host.author
        for again in (False, True):
            if commit.is_valid(space, author, self._keys(again)):
                return
        raise Damaged("the host's commit is not signed by the author of the repo")

    # Everything

    def _heal(self) -> Taken:
        """Compares everything that the host has with what we thought it had."""
        commit = self._host.latest_commit()
        if commit is None:
            raise Emptied
        self._check(commit)
        with self._repo.database.read() as connection:
            known = dict(Mirror(connection, self._repo.id).all())
        state = SetHash()
        there: dict[Key, CID] = {}
        for record in self._host.list(values=False):
            key = Key(record.collection, record.rkey)
            state.add(element(*key, str(record.cid)))
            there[key] = record.cid
        differ = [key for key, cid in there.items() if known.get(key) != cid]
        if state.digest() != commit.hash or len(differ) > MAX_GETS:
            return self._whole()
        changes: list[Change] = []
        for done, key in enumerate(differ, 1):
            record_ = self._host.get(*key)
            if record_ is None or record_.cid != there[key] or record_.value is None:
                return self._whole()
            changes.append(_change(key, record_.cid, record_.value))
            self._progress("records", done, len(differ))
        lost = [key for key in known if key not in there]
        return self._take(changes, (commit.rev, state.state), lost)

    def _whole(self) -> Taken:
        """Reads the whole repo, and takes what differs."""
        total = Taken()
        with tempfile.TemporaryFile(dir=self._spool()) as file:
            try:
                with self._host.car() as pieces:
                    commit, wanted = self._compare(_kept(pieces, file))
            except HostRefused as error:
                if error.error != "RepoNotFound":
                    raise
                return self._nothing()
            with self._repo.database.write() as connection:
                mirror = Mirror(connection, self._repo.id)
                mirror.set_head(None, mirror.head().set_hash)
            done = 0
            for some in _grouped(wanted.entries):
                changes = [_read(file, entry) for entry in some]
                total += self._take(changes, None)
                done += len(some)
                self._progress("records", done, len(wanted.entries))
        with self._repo.database.write() as connection:
            mirror = Mirror(connection, self._repo.id)
            self._lose(mirror, wanted.lost)
            mirror.set_head(commit.rev, wanted.state)
        return total

    def _spool(self) -> str | None:
        """A directory on the store's disk, which is private, for what is read."""
        path = self._repo.database.engine.url.database
        return path.rpartition("/")[0] or None if path else None

    def _compare(self, pieces: Iterable[bytes]) -> tuple[Commit, "_Wanted"]:
        """Checks a CAR as it comes, and finds what differs from what we have."""
        space, author = self._host.space, self._host.author
        offsets: list[_Entry] = []
        conversations: dict[str, int] = {}
        with self._repo.database.read() as connection:
            known = dict(Mirror(connection, self._repo.id).all())
        state = SetHash()
        commit, _, records = read_repo(pieces, space=space, author=author, key=self._keys(False))
        for done, block in enumerate(records, 1):
            key = Key(block.collection, block.rkey)
            state.add(element(*key, str(block.cid)))
            if known.pop(key, None) != block.cid:
                group = 0
                if block.collection == MESSAGE:
                    name = str(block.value.get("conversation"))
                    group = conversations.setdefault(name, len(conversations) + 1)
                offsets.append(_Entry(group, key, block.cid, block.offset, block.size))
            if done % 500 == 0:
                self._progress("reading", done, 0)
        offsets = self._together(offsets, conversations)
        return commit, _Wanted(offsets, list(known), state.state)

    def _together(self, entries: list["_Entry"], groups: dict[str, int]) -> list["_Entry"]:
        """The entries by their groups, those of conversations made one between which messages
        have moved: what became of either can only be told from both."""
        joined = {group: group for group in groups.values()}

        def first(group: int) -> int:
            while joined[group] != group:
                group = joined[group]
            return group

        by_rkey = {entry.key.rkey: entry.group for entry in entries if entry.group}
        index, names = schema.message_index.c, schema.message_conversations.c
        here = select(index.rkey, names.uri).where(names.id == index.conversation)
        rkeys = list(by_rkey)
        with self._repo.database.read() as connection:
            for start in range(0, len(rkeys), _SOME):
                some = here.where(index.rkey.in_(rkeys[start : start + _SOME]))
                for rkey, conversation in connection.execute(some):
                    group = groups.get(conversation)
                    if group is not None:
                        joined[first(by_rkey[rkey])] = first(group)
        together = [entry._replace(group=first(entry.group)) for entry in entries if entry.group]
        others = [entry for entry in entries if not entry.group]
        return sorted([*others, *together], key=lambda entry: (entry.group, entry.key))

    def _nothing(self) -> Taken:
        """The host has no such repo."""
        with self._repo.database.write() as connection:
            mirror = Mirror(connection, self._repo.id)
            if next(mirror.all(), None) is not None:
                raise Emptied
            mirror.set_head(_FIRST, SetHash().state)
        return Taken()

    # Taking

    def _take(
        self,
        changes: Sequence[Change],
        head: tuple[str, bytes] | None,
        lost: Sequence[Key] = (),
    ) -> Taken:
        """Brings changes in, with the blobs that they need, in one transaction."""
        missing = self._fetch_blobs(changes)

        def work(tx: Transaction) -> Taken:
            taken = take(tx, self._repo.id, changes, self._terms, missing)
            mirror = Mirror(tx.connection, self._repo.id)
            self._lose(mirror, lost)
            if head is not None:
                mirror.set_head(*head)
            return taken

        return self._repo.run(work)

    def _lose(self, mirror: Mirror, lost: Sequence[Key]) -> None:
        """The host has these no more, and its log does not say that anybody deleted them: they
        are pushed again."""
        if lost:
            mirror.put(There(key, None) for key in lost)
            mirror.forget_blobs()
            mirror.set_pushed(None)

    def _fetch_blobs(self, changes: Sequence[Change]) -> set[CID]:
        """Stores the blobs that are not here yet; returns those that the host does not have."""
        wanted = dict.fromkeys(
            cid
            for change in changes
            if change.value is not None and BLOB_MARK in change.data
            for cid in blob_refs(change.value)
        )
        if not wanted:
            return set()
        with self._repo.database.read() as connection:
            here = _stored(connection, list(wanted))
        missing: set[CID] = set()
        got: list[tuple[CID, bytes]] = []
        size = 0
        todo = [cid for cid in wanted if cid not in here]
        for done, cid in enumerate(todo, 1):
            data = self._host.get_blob(cid)
            if data is None:
                missing.add(cid)
                continue
            got.append((cid, data))
            size += len(data)
            if size >= _BLOB_BYTES or done == len(todo):
                self._store(got)
                got, size = [], 0
            self._progress("blobs", done, len(todo))
        self._store(got)
        with self._repo.database.write() as connection:
            Mirror(connection, self._repo.id).note_blobs(set(wanted) - missing)
        return missing

    def _store(self, blobs: Sequence[tuple[CID, bytes]]) -> None:
        if blobs:
            rows = [{"cid": bytes(cid), "data": data} for cid, data in blobs]
            with self._repo.database.write() as connection:
                connection.execute(insert(schema.blobs).on_conflict_do_nothing(), rows)


class _Entry(NamedTuple):
    """Where in a spooled CAR a record stands. `group`: 0, or a number of its conversation."""

    group: int
    key: Key
    cid: CID
    offset: int
    size: int


class _Wanted(NamedTuple):
    """What a whole repo has otherwise than we knew, and the state of its set hash."""

    entries: list[_Entry]
    lost: list[Key]
    state: bytes


def _change(key: Key, cid: CID, value: Value) -> Change:
    """A record as a host gave it; without its value if that is not what the CID is of."""
    try:
        data = cbor.encode(value)
    except InvalidInput:
        return Change(key, cid)
    if CID.for_cbor(data) != cid:
        return Change(key, cid)
    return Change(key, cid, value, data)


def _kept(pieces: Iterable[bytes], file: IO[bytes]) -> Iterator[bytes]:
    """The pieces, which are written down as they pass."""
    for piece in pieces:
        file.write(piece)
        yield piece


def _read(file: IO[bytes], entry: _Entry) -> Change:
    file.seek(entry.offset)
    data = file.read(entry.size)
    # It was checked when it came.
    return Change(entry.key, entry.cid, cbor.decode(data, checked=True), data)


def _grouped(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    """The entries in parts that each have all of a conversation."""
    start = 0
    for at in range(1, len(entries) + 1):
        apart = at == len(entries) or entries[at].group != entries[at - 1].group
        if (apart or not entries[at].group) and (at == len(entries) or at - start >= _CHUNK):
            yield entries[start:at]
            start = at


def _stored(connection: Connection, cids: Sequence[CID]) -> set[CID]:
    """Those of the blobs that are stored here."""
    found: set[CID] = set()
    for start in range(0, len(cids), _SOME):
        raw = [bytes(cid) for cid in cids[start : start + _SOME]]
        rows = connection.execute(select(schema.blobs.c.cid).where(schema.blobs.c.cid.in_(raw)))
        found.update(map(CID.from_bytes, rows.scalars()))
    return found
