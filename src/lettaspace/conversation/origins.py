"""Copies in forks: which message another one is the same as.

A fork begins with copies of its source's messages: other TIDs, but the payloads and the
`createdAt` of the originals. Those are one message, said once.
"""

from functools import cached_property

from sqlalchemy import Connection, func, literal, select

from lettaspace.atproto import cbor
from lettaspace.conversation.records import CONVERSATION, MESSAGE, Address
from lettaspace.space import schema

_index = schema.message_index.c
_names = schema.message_conversations.c
_records = schema.records.c


class Origins:
    """Finds originals, in one snapshot of a store."""

    def __init__(self, connection: Connection, repo: int, address: Address) -> None:
        self._connection = connection
        self._repo = repo
        self._address = address
        self._messages: dict[str, dict[str, list[tuple[int, str]]]] = {}

    def of(self, record: int) -> str | None:
        """The URI of the message, in the conversation that a fork left, that a message (its
        row in `records`) in the fork is a copy of; the first one, where forks were forked.
        None for a message that is no copy."""
        place = self._in_forks.get(record)
        if place is None:
            return None
        conversation, created_at = place
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
            uri: value["forkedFrom"]["conversation"]["uri"]
            for uri, value in values.items()
            if "forkedFrom" in value
        }

    @cached_property
    def _in_forks(self) -> dict[int, tuple[str, str]]:
        """Every message that stands in a fork: which, and its `createdAt`."""
        return {
            record: (fork, created_at)
            for fork in self._sources
            for created_at, messages in self._said(fork).items()
            for record, _ in messages
        }

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
