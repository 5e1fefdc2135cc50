"""What of a conversation Letta's directory says otherwise than the space."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from sqlalchemy import ColumnElement, bindparam, func, select

from lettaspace.atproto import cbor
from lettaspace.conversation import reading
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.message import Message
from lettaspace.conversation.space import Space
from lettaspace.conversation.unstored import without_authentication
from lettaspace.errors import InvalidInput
from lettaspace.letta import directory as names
from lettaspace.letta import rows, synced
from lettaspace.letta.continuing import local_names, told
from lettaspace.letta.directory import MESSAGES, ConversationDir
from lettaspace.letta.export import Files, files_in, prompt_in
from lettaspace.letta.lines import Rows, is_letta, message_row, payload_id
from lettaspace.letta.located import Located
from lettaspace.letta.source import IDS, prompt_digest
from lettaspace.letta.store import Prepared
from lettaspace.letta.synced import Base
from lettaspace.space.schema import message_index, records
from lettaspace.space.statement import Statement
from lettaspace.space.view import View

_columns = message_index.c
_mine = _columns.conversation == bindparam("conversation")
_count = Statement(lambda: select(func.count()).where(_mine))


def _end(place: ColumnElement[int]) -> Statement:
    """The record of the first message in that order that is in the window, or is not."""
    first = (
        select(_columns.record)
        .where(_mine, _columns.in_window == bindparam("in_window"))
        .order_by(place)
        .limit(1)
        .scalar_subquery()
    )
    return Statement(lambda: select(records.c.value).where(records.c.id == first))


_ends = _end(_columns.place), _end(_columns.place.desc())


class Reading:
    """What is read of conversations in the space, in one snapshot."""

    def __init__(self, space: Space, view: View) -> None:
        self.space = space
        self.view = view

    def revs(self, tid: str, *, messages: tuple[int, str] | None = None) -> str:
        uri = self.space.address.conversation(tid)
        return synced.conversation_revs(self.view, uri, tid, messages=messages)

    def active(self, tid: str) -> list[Message]:
        """The window's messages that Letta can read, by seq."""
        uri = self.space.address.conversation(tid)
        found = reading.active(self.view.connection, uri, self.space.repo.get_blob)
        return [
            message
            for message in sorted(found, key=lambda message: message.seq)
            if is_letta(message.value)
        ]

    def messages(self, tid: str) -> int:
        """How many messages Letta could read."""
        if not self.has_letta(tid):
            return 0
        return int(_count.only(self.view.connection, conversation=self._number(tid))[0])

    def has_letta(self, tid: str) -> bool:
        """Whether there are messages that Letta could read. There are none where the first and
        the last, inside of the window and outside, are another harness's."""
        number, connection = self._number(tid), self.view.connection
        found = (
            end.one(connection, conversation=number, in_window=in_window)
            for end in _ends
            for in_window in (1, 0)
        )
        return any(row is not None and _could_be_letta(row[0]) for row in found)

    def _number(self, tid: str) -> int | None:
        return find_conversation_id(self.view.connection, self.space.address.conversation(tid))


def _could_be_letta(record: bytes) -> bool:
    """A damaged one could: whoever reads all of it says so."""
    try:
        return is_letta(cbor.decode(record, checked=True))
    except InvalidInput:
        return True


class Change:
    """What of a conversation the directory says otherwise than the space."""

    def __init__(
        self,
        space: Space,
        directory: ConversationDir,
        prepared: Prepared,
        located: Located,
        file: BinaryIO,
    ) -> None:
        self._space = space
        self._prepared = prepared
        self._file = file
        tid, source = prepared.tid, prepared.source
        self._scan = prepared.plan.scan
        self._entries = {self._scan.tid(entry): entry for entry in located.here}
        self.size = names.size(directory.path / MESSAGES)
        with space.repo.snapshot() as view:
            self.files: Files = files_in(space, view, tid, local_id=directory.id)
            read = Reading(space, view)
            window = read.active(tid)
            ids = [payload_id(message) for message in window]
            prompt = prompt_in(space, view, tid)
            self.revs = read.revs(tid)
            self._rewritten = [each for each in window if self.is_rewritten(each)]
            self._lacking = [rkey for rkey in located.extra if rkey not in self._entries]
        self.has_rows = bool(self._rewritten or self.lacks_letta())
        self.count = len(self._rewritten) + len(self._lacking) if self.has_rows else 0
        merged = told(space, tid, source, None, prepared.base)[0].value
        self.prompt = prompt if self.is_newer(prompt) else None
        value = {**merged, **local_names(source), "id": directory.id}
        is_same = value == source.value and ids == source.window
        self.value = None if is_same else {**value, IDS: ids}
        told_prompt = source.prompt if self.prompt is None else self.prompt
        self.base = Base(value, ids, prompt_digest(told_prompt))

    @property
    def is_none(self) -> bool:
        return not self.has_rows and self.value is None and self.prompt is None

    def is_newer(self, prompt: dict[str, Any] | None) -> bool:
        """Whether the space's prompt is to take the place of the directory's."""
        source, base = self._prepared.source, self._prepared.base
        if prompt is None or prompt == source.prompt:
            return False
        if source.prompt is None or (
            base is not None and base.prompt == prompt_digest(source.prompt)
        ):
            return True
        times = [str(each.get("compiledAt", "")) for each in (source.prompt, prompt)]
        return times[0] < times[1]

    def is_rewritten(self, message: Message) -> bool:
        """Whether a message that has a row says something else now."""
        entry = self._entries.get(message.rkey)
        if entry is None or message.updated_at is None:
            return False
        entry = self._prepared.plan.final.get(entry, entry)
        row = rows.parse_exact(self._scan.raw(self._file, entry), self._scan.offsets[entry])
        return bool(without_authentication(rows.recognise(row)[1]) != message.payload())

    def lacks_letta(self) -> bool:
        """Whether any message that Letta could read has no row."""
        uri = self._space.address.conversation(self._prepared.tid)
        get_blob = self._space.repo.get_blob
        with self._space.database.read() as connection:
            return any(
                is_letta(reading.one(connection, uri, rkey, get_blob).value)
                for rkey in self._lacking
            )

    def rows(self) -> Iterator[bytes]:
        """The rows to be appended."""
        space, parent = self._space, self.last_row()
        with space.database.read() as connection:
            yield from Rows(
                space,
                connection,
                self._prepared.tid,
                present=self._entries,
                row_id=self.row_id,
                parent=parent,
            )
        for message in self._rewritten:
            yield message_row(message, parent)

    def row_id(self, rkey: str) -> str:
        return str(self._scan.reread(self._file, self._entries[rkey]).get("id", rkey))

    def last_row(self) -> str | None:
        messages = self._prepared.plan.messages()
        if not len(messages):
            return None
        found = self._scan.reread(self._file, int(messages[-1])).get("id")
        return found if type(found) is str else None
