"""Bringing one conversation or agent from the space into Letta's directory."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import select

from lettaspace.conversation import reading
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import AGENT
from lettaspace.conversation.space import Space
from lettaspace.conversation.unstored import without_authentication
from lettaspace.errors import Conflict, Damaged
from lettaspace.letta import directory as names
from lettaspace.letta import fields, rows, synced, tracking
from lettaspace.letta.continuing import local_names, told
from lettaspace.letta.damage import TORN_ROW
from lettaspace.letta.directory import (
    MANIFEST,
    MESSAGES,
    PROMPT,
    AgentFile,
    ConversationDir,
    read_small,
)
from lettaspace.letta.doubt import Rest, is_idle
from lettaspace.letta.export import (
    Files,
    agent_file,
    files_in,
    is_letta,
    line,
    message_row,
    missing_rows,
    payload_id,
    prompt_in,
)
from lettaspace.letta.importer import Importer
from lettaspace.letta.located import Located, locate
from lettaspace.letta.placing import Placing
from lettaspace.letta.report import ConversationReport
from lettaspace.letta.scan import Changed
from lettaspace.letta.source import IDS, Source, is_unchanged, prompt_digest
from lettaspace.letta.store import Prepared, open_rows
from lettaspace.letta.synced import Base, Synced
from lettaspace.letta.watched import mark
from lettaspace.space.schema import message_index
from lettaspace.space.view import View


class Outcome(StrEnum):
    """What became of a conversation or agent in the directory."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    AHEAD = "ahead"
    """The directory has what the space has not; nothing was written."""
    DIVERGED = "diverged"
    """Each has what the other has not; nothing was written."""
    BUSY = "busy"
    """Letta is at work there. Later, perhaps."""
    LEFT = "left"
    """It is not brought there, for the reason that is given."""


@dataclass(frozen=True, slots=True)
class Brought:
    """One conversation or agent."""

    key: str
    """Its key in the directory: `conversation:<id>`, `default:<agent id>` or `agent:<id>`; ""
    for what has none."""
    name: str
    """The conversation's TID, or the agent's record key."""
    outcome: Outcome
    rows: int = 0
    """Rows that were written."""
    note: str = ""
    aside: Path | None = None
    """Where half of a row is kept that was cut off."""

    @property
    def is_done(self) -> bool:
        """Whether both sides say the same."""
        return self.outcome in (Outcome.NEW, Outcome.CHANGED, Outcome.UNCHANGED)

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.name,
            "outcome": str(self.outcome),
            "rows": self.rows,
            "note": self.note,
            "aside": None if self.aside is None else str(self.aside),
        }


class Bringing:
    """Writes into one directory. `dry` only says what would be done."""

    def __init__(
        self, space: Space, importer: Importer, placing: Placing, rest: Rest, *, dry: bool = False
    ) -> None:
        self.space = space
        self.importer = importer
        self.placing = placing
        self.rest = rest
        self.dry = dry

    # Agents

    def agent(self, rkey: str, agent_id: str) -> Brought:
        """An agent's file, which is new, or is changed where only the record was."""
        key = f"{synced.AGENT}{agent_id}"
        path = self.placing.directory / "agents" / f"{names.encode_name(agent_id)}.json"
        with self.space.repo.snapshot() as view:
            theirs = agent_file(self.space, view, rkey)
            revs = synced.record_rev(view, AGENT, rkey)
        if theirs is None:
            return Brought(key, rkey, Outcome.LEFT, note="there is no such agent")
        theirs["id"] = agent_id
        small = read_small(path)
        last = self.importer.last(key)
        if small.raw is None:
            value, outcome = theirs, Outcome.NEW
        elif small.value is None:
            return Brought(key, rkey, Outcome.LEFT, note=f"its file is {small.problem}")
        elif last is None and small.value != theirs:
            return Brought(key, rkey, Outcome.AHEAD, note="the two differ")
        else:
            base = None if last is None else last[1].value
            value, outcome = fields.merge(base, small.value, theirs), Outcome.CHANGED
        if value == small.value:
            outcome = Outcome.UNCHANGED
        elif self.dry:
            return Brought(key, rkey, outcome)
        else:
            path.parent.mkdir(exist_ok=True)
            self.placing.file(path, text(value))
        if not self.dry:
            known = Synced(rkey, mark=mark(AgentFile(agent_id, path)), revs=revs)
            # What is only in the file is brought in by the next import.
            if value == theirs and (last is None or last[0] != known or last[1].value != value):
                self.importer.note(key, known, Base(value))
        return Brought(key, rkey, outcome)

    # Conversations

    def new(self, directory: ConversationDir, tid: str) -> Brought:
        """A conversation that the directory does not have, at a key that is free."""
        with self.space.repo.snapshot() as view:
            found = files_in(self.space, view, tid, local_id=directory.id)
            window = self.active(view, tid)
            prompt = prompt_in(self.space, view, tid)
            revs = self.revs(view, tid)
            count = self.messages(view, tid)
            if self.dry:
                return Brought(directory.key, tid, Outcome.NEW, rows=count)
            ids = [payload_id(message) for message in window]
            files = {
                MANIFEST: text(found.manifest),
                names.CONVERSATION: text({**found.conversation, IDS: ids}),
            }
            if prompt is not None:
                files[PROMPT] = text(prompt)
            counted = _Counted(missing_rows(self.space, view.connection, tid))
            written = _behind(line(found.header), counted)
            size = self.placing.conversation(directory.path, files, written)
        base = Base(found.conversation, ids, prompt_digest(prompt))
        known = Synced(tid, tid, "", revs, size)
        self.remember(directory, known, base, text({**found.conversation, IDS: ids}))
        return Brought(directory.key, tid, Outcome.NEW, rows=counted.count)

    def adopt(self, directory: ConversationDir, tid: str) -> None:
        """Gives an empty conversation that Letta made to one of the space."""
        value = read_small(directory.path / names.CONVERSATION).value or {}
        window = value.pop(IDS, None)
        prompt = read_small(directory.path / PROMPT).value
        self.importer.note(
            directory.key, Synced(tid, tid), Base(value, window, prompt_digest(prompt))
        )

    def existing(self, directory: ConversationDir) -> Brought:
        """A conversation that is in the directory: what only the space has is added."""
        try:
            return _Existing(self, directory).run()
        except (Changed, Conflict):
            note = "it changed while it was read"
            return Brought(directory.key, "", Outcome.BUSY, note=note)
        except Damaged as error:
            return Brought(directory.key, "", Outcome.LEFT, note=str(error))

    def remember(self, directory: ConversationDir, known: Synced, base: Base, raw: bytes) -> bool:
        """Notes that both say the same, if the files are still as they were written."""
        seen = tracking.mark(directory)
        size = names.size(directory.path / MESSAGES)
        now = read_small(directory.path / names.CONVERSATION, patience=0).raw
        if size != known.size or now != raw or tracking.mark(directory) != seen:
            self.importer.note(directory.key, known, base)
            return False
        complete = Synced(known.name, known.derived, seen, known.revs, known.size)
        self.importer.note(directory.key, complete, base)
        return True

    def revs(self, view: View, tid: str) -> str:
        return synced.conversation_revs(view, self.space.address.conversation(tid), tid)

    def active(self, view: View, tid: str) -> list[Message]:
        """The window's messages that Letta can read, by seq."""
        uri = self.space.address.conversation(tid)
        found = reading.active(view.connection, uri, self.space.repo.get_blob)
        return sorted(filter(is_letta, found), key=lambda message: message.seq)

    def messages(self, view: View, tid: str) -> int:
        """How many messages Letta could read: none where the first and the last are another
        harness's."""
        number = find_conversation_id(view.connection, self.space.address.conversation(tid))
        columns = message_index.c
        query = select(columns.rkey).where(columns.conversation == number).order_by(columns.seq)
        rkeys = view.connection.execute(query).scalars().all()
        for rkey in (*rkeys[:1], *rkeys[-1:]):
            uri = self.space.address.conversation(tid)
            if is_letta(reading.one(view.connection, uri, rkey, self.space.repo.get_blob)):
                return len(rkeys)
        return 0


class _Existing:
    def __init__(self, bringing: Bringing, directory: ConversationDir) -> None:
        self.bringing = bringing
        self.directory = directory
        self.space = bringing.space
        self.importer = bringing.importer
        self.placing = bringing.placing
        self.path = directory.path
        self.aside: Path | None = None

    def run(self) -> Brought:
        for _ in range(2):
            prepared = self.read()
            if isinstance(prepared, Brought):
                return prepared
            located = prepared.located or locate(self.space, prepared.tid, prepared.plan)
            if located.new:
                outcome = Outcome.DIVERGED if located.waiting else Outcome.AHEAD
                return self.said(prepared, outcome)
            with open_rows(self.path / MESSAGES) as file:
                change = _Change(self.bringing, self.directory, prepared, located, file)
                if change.is_none:
                    self.done(prepared, change)
                    return self.said(prepared, Outcome.UNCHANGED)
                if self.bringing.dry:
                    return self.said(prepared, Outcome.CHANGED, rows=change.count)
                if change.has_rows and self.version(prepared) == 1:
                    note = "its rows are of an older kind: Letta itself can migrate them"
                    return self.said(prepared, Outcome.LEFT, note=note)
                if not self.is_idle(prepared, file):
                    return self.said(prepared, Outcome.BUSY, note="Letta is at work in it")
                if self.aside is None and change.has_rows and self.mend():
                    continue
                return self.write(prepared, change)
        raise Conflict("it kept changing")

    def read(self) -> Prepared | Brought:
        entry = ConversationReport(self.directory.key)
        prepared = self.importer.prepare(self.directory, entry, patient=False)
        if prepared is None:
            raise Changed
        losses = [each.kind for each in entry.damage if each.is_loss and each.kind != TORN_ROW]
        if losses:
            note = f"its files are damaged: {losses[0]}"
            return Brought(self.directory.key, prepared.tid, Outcome.LEFT, note=note)
        return prepared

    def mend(self) -> bool:
        """Makes the rows end with a whole one; whether that took anything."""
        before = names.size(self.path / MESSAGES)
        self.aside = self.placing.mend(self.path / MESSAGES, self.directory.key)
        return names.size(self.path / MESSAGES) != before

    def is_idle(self, prepared: Prepared, file: BinaryIO) -> bool:
        last = self.importer.synced.get(self.directory.key)
        if last is not None and last.mark == prepared.fingerprint:
            # Nobody has written since both were the same: only a turn may be going on.
            rest = Rest(0.0, self.bringing.rest.within_turn)
        else:
            rest = self.bringing.rest
        return is_idle(self.directory, prepared.plan, prepared.source, file, rest)

    def write(self, prepared: Prepared, change: "_Change") -> Brought:
        """Rows, then the prompt, then conversation.json; Letta reads the rest when that is
        another. Before, what is there now is noted, so that rows which are not listed yet are
        known for ours."""
        source, key = prepared.source, self.directory.key
        before = Synced(prepared.tid, prepared.plan.scan.conversation, "", "", change.size)
        self.importer.note(key, before, _base(source))
        if prepared.source.manifest is None and change.has_rows:
            self.placing.file(self.path / MANIFEST, text(change.files.manifest))
        size = change.size
        if change.has_rows:
            size = self.placing.append(self.path / MESSAGES, change.rows(), size)
        if change.prompt is not None:
            self.placing.file(self.path / PROMPT, text(change.prompt))
        raw = source.raw or b""
        if change.value is not None:
            if not is_unchanged(source):
                raise Conflict("conversation.json changed meanwhile")
            raw = text(change.value)
            self.placing.file(self.path / names.CONVERSATION, raw)
        known = Synced(prepared.tid, prepared.plan.scan.conversation, "", change.revs, size)
        self.bringing.remember(self.directory, known, change.base, raw)
        return self.said(prepared, Outcome.CHANGED, rows=change.count)

    def done(self, prepared: Prepared, change: "_Change") -> None:
        """Notes that nothing differs, unless that is known."""
        if self.bringing.dry or prepared.source.raw is None or prepared.plan.findings.losses:
            return
        known = Synced(
            prepared.tid,
            prepared.plan.scan.conversation,
            prepared.fingerprint,
            change.revs,
            change.size,
        )
        if self.importer.synced.get(self.directory.key) != known:
            self.importer.note(self.directory.key, known, change.base)

    def said(
        self, prepared: Prepared, outcome: Outcome, *, rows: int = 0, note: str = ""
    ) -> Brought:
        return Brought(self.directory.key, prepared.tid, outcome, rows, note, self.aside)

    @staticmethod
    def version(prepared: Prepared) -> object:
        return (prepared.source.manifest or {}).get("schema_version")


class _Change:
    """What of a conversation the directory says otherwise than the space."""

    def __init__(
        self,
        bringing: Bringing,
        directory: ConversationDir,
        prepared: Prepared,
        located: Located,
        file: BinaryIO,
    ) -> None:
        self._bringing = bringing
        self._prepared = prepared
        self._file = file
        space, tid, source = bringing.space, prepared.tid, prepared.source
        self._scan = prepared.plan.scan
        self._entries = {self._scan.tid(entry): entry for entry in located.here}
        self.size = names.size(directory.path / MESSAGES)
        with space.repo.snapshot() as view:
            self.files: Files = files_in(space, view, tid, local_id=directory.id)
            window = bringing.active(view, tid)
            ids = [payload_id(message) for message in window]
            prompt = prompt_in(space, view, tid)
            self.revs = bringing.revs(view, tid)
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
        uri = self._bringing.space.address.conversation(self._prepared.tid)
        get_blob = self._bringing.space.repo.get_blob
        with self._bringing.space.database.read() as connection:
            return any(
                is_letta(reading.one(connection, uri, rkey, get_blob)) for rkey in self._lacking
            )

    def rows(self) -> Iterator[bytes]:
        """The rows to be appended."""
        space, parent = self._bringing.space, self.last_row()
        with space.database.read() as connection:
            yield from missing_rows(
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


class _Counted:
    def __init__(self, rows: Iterator[bytes]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for row in self._rows:
            self.count += 1
            yield row


def _behind(header: bytes, rows: _Counted) -> Iterator[bytes]:
    """The rows behind their header; nothing at all where there are none."""
    for row in rows:
        if rows.count == 1:
            yield header
        yield row


def _base(source: Source) -> Base:
    return Base(source.value, source.window, prompt_digest(source.prompt))


def text(value: dict[str, Any]) -> bytes:
    """A small file, as Letta writes them."""
    return (dumps(value, indent=2) + "\n").encode()
