"""Copies in forks: which message another one is the same as.

A fork begins with copies of its source's messages: other TIDs, but the payloads and the
`createdAt` of the originals. Those are one message, said once.

Where two machines went on with one conversation, the fork's keys are derived, so that every
machine that parts the two writes the same records. Then the keys alone tell copies from the
messages that moved there, which keep theirs.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy import Connection, func, literal, select

from lettaspace.atproto import cbor, tid
from lettaspace.conversation.records import CONVERSATION, MESSAGE, Address, rkey_of
from lettaspace.space import schema
from lettaspace.space.writes import Value

_index = schema.message_index.c
_names = schema.message_conversations.c
_records = schema.records.c


PROBES = 8
"""Keys that are tried for a copy, where others have the first ones."""

_LAST = tid.MAX_MICROS // 1000 - 1
"""The last millisecond that a derived TID can name."""

_FORK = "xyz.quasigod.lab.letta.fork"
_COPY = "xyz.quasigod.lab.letta.copy"


def fork_tid(conversation: str, first: str) -> str | None:
    """The key of the fork that a branch of a conversation (its TID) becomes, from the TID of
    the branch's first message; always higher than that of the conversation. None where no such
    TID is left."""
    millis = max(_millis(first), _millis(conversation) + 1)
    if millis > _LAST:
        return None
    return tid.derive(millis, _digest(_FORK, conversation, first))


def is_fork(fork: str, conversation: str, first: str) -> bool:
    """Whether a conversation is the fork that such a branch became."""
    near = max(_millis(first), _millis(conversation) + 1) == _millis(fork)
    return near and fork_tid(conversation, first) == fork


def copy_tid(fork: str, original: str, probe: int = 0) -> str:
    """The key of the copy of a message in such a fork, all by their TIDs. `probe` counts how
    often another message had it."""
    return tid.derive(min(_millis(original), _LAST), _digest(_COPY, fork, original, str(probe)))


def copied(fork: str, rkeys: Iterable[str], originals: Iterable[str]) -> dict[str, str]:
    """Those of some messages in such a fork that have the key of a copy, with their originals."""
    by_time: defaultdict[int, list[str]] = defaultdict(list)
    for original in originals:
        by_time[min(_millis(original), _LAST)].append(original)
    return {
        rkey: original
        for rkey in rkeys
        for original in by_time.get(_millis(rkey), ())
        if any(copy_tid(fork, original, probe) == rkey for probe in range(PROBES))
    }


def near(connection: Connection, repo: int, rkeys: Iterable[str]) -> set[str]:
    """The messages of a repo, wherever they stand, that some TIDs may be derived from."""
    found: set[str] = set()
    for millis in {_millis(rkey) for rkey in rkeys}:
        if millis > _LAST:
            continue
        first = tid.encode(millis * 1000, 0)
        last = tid.encode(millis * 1000 + 999, tid.MAX_CLOCK_ID)
        within = _records.rkey >= first if millis == _LAST else _records.rkey.between(first, last)
        rows = connection.execute(
            select(_records.rkey).where(
                _records.repo == repo,
                _records.collection == MESSAGE,
                within,
            )
        )
        found.update(rows.scalars())
    return found


def _millis(rkey: str) -> int:
    return tid.decode(rkey)[0] // 1000


def _digest(*parts: str) -> bytes:
    return sha256("\n".join(parts).encode()).digest()


class _Place(NamedTuple):
    """A message in a fork."""

    fork: str
    rkey: str
    created_at: str


class Origins:
    """Finds originals, in one snapshot of a store."""

    def __init__(self, connection: Connection, repo: int, address: Address) -> None:
        self._connection = connection
        self._repo = repo
        self._address = address
        self._messages: dict[str, dict[str, list[tuple[int, str]]]] = {}
        self._moves: dict[str, set[str]] = {}

    def of(self, record: int) -> str | None:
        """The URI of the message, in the conversation that a fork left, that a message (its
        row in `records`) in the fork is a copy of; the first one, where forks were forked.
        None for a message that is no copy."""
        place = self._in_forks.get(record)
        if place is None or place.rkey in self._moved(place.fork):
            return None
        conversation, created_at = place.fork, place.created_at
        payload = self._payload(record)
        found: str | None = None
        passed = {conversation}
        while (source := self._sources.get(conversation)) is not None and source not in passed:
            passed.add(source)
            conversation = source
            for original, rkey in self._said(source).get(created_at, ()):
                if self._payload(original) == payload:
                    found = self._address.uri(MESSAGE, rkey)
                    break
        return found

    @cached_property
    def _sources(self) -> dict[str, str]:
        """The conversation that each fork left."""
        rows = self._connection.execute(
            select(_records.rkey, _records.value).where(
                _records.repo == self._repo,
                _records.collection == CONVERSATION,
                func.instr(_records.value, literal(b"forkedFrom")) > 0,
            )
        )
        values = {self._address.conversation(row.rkey): cbor.decode(row.value) for row in rows}
        return {
            uri: self._source(value["forkedFrom"])
            for uri, value in values.items()
            if "forkedFrom" in value
        }

    def _source(self, left: Value) -> str:
        """Where the message stands now that a fork left from: it may have moved since."""
        named: str = left["conversation"]["uri"]
        prefix = self._address.uri(MESSAGE, "")
        uri: str = left["message"]["uri"]
        if not uri.startswith(prefix):
            return named
        value = self._connection.execute(
            select(_records.value).where(
                _records.repo == self._repo,
                _records.collection == MESSAGE,
                _records.rkey == uri.removeprefix(prefix),
            )
        ).scalar()
        return named if value is None else str(cbor.decode(value)["conversation"])

    @cached_property
    def _in_forks(self) -> dict[int, "_Place"]:
        """Every message that stands in a fork."""
        return {
            record: _Place(fork, rkey, created_at)
            for fork in self._sources
            for created_at, messages in self._said(fork).items()
            for record, rkey in messages
        }

    def _moved(self, fork: str) -> set[str]:
        """The messages of a fork with derived keys that are no copies: they were said in the
        source, by the other machine. None in another fork."""
        if fork not in self._moves:
            self._moves[fork] = self._find_moved(fork)
        return self._moves[fork]

    def _find_moved(self, fork: str) -> set[str]:
        source, name = self._sources[fork], rkey_of(fork)
        there = {rkey for each in self._said(fork).values() for _, rkey in each}
        if not any(is_fork(name, rkey_of(source), rkey) for rkey in there):
            return set()
        originals = [rkey for each in self._said(source).values() for _, rkey in each]
        return there - copied(name, there, originals).keys()

    def _said(self, conversation: str) -> dict[str, list[tuple[int, str]]]:
        """The messages of a conversation, row and TID, by their `createdAt`."""
        if conversation not in self._messages:
            said = self._messages.setdefault(conversation, {})
            rows = self._connection.execute(
                select(_index.record, _index.rkey, _index.created_at)
                .join(schema.message_conversations, _names.id == _index.conversation)
                .where(_names.uri == conversation)
            )
            for row in rows:
                said.setdefault(row.created_at, []).append((row.record, row.rkey))
        return self._messages[conversation]

    def _payload(self, record: int) -> object:
        """Role and envelope of a message of this repo; of another, nothing that equals."""
        row = self._connection.execute(
            select(_records.value).where(_records.id == record, _records.repo == self._repo)
        ).one_or_none()
        if row is None:
            return object()
        value = cbor.decode(row.value)
        return value["role"], value["message"]
