"""Bringing one conversation or agent from the space into Letta's directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.records import AGENT
from lettaspace.conversation.space import Space
from lettaspace.errors import Conflict, Damaged
from lettaspace.letta import directory as names
from lettaspace.letta import fields, synced, tracking
from lettaspace.letta.brought import Brought, Outcome
from lettaspace.letta.change import Change, Reading
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
from lettaspace.letta.export import agent_file, files_in, prompt_in
from lettaspace.letta.importer import Importer
from lettaspace.letta.lines import Rows
from lettaspace.letta.located import locate
from lettaspace.letta.placing import Placing
from lettaspace.letta.report import ConversationReport
from lettaspace.letta.scan import Changed
from lettaspace.letta.source import IDS, Source, is_unchanged, prompt_digest
from lettaspace.letta.store import Prepared, open_rows
from lettaspace.letta.synced import Base, Synced
from lettaspace.letta.watched import mark


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
            read = Reading(self.space, view)
            if self.dry:
                return Brought(directory.key, tid, Outcome.NEW, rows=read.messages(tid))
            prompt = prompt_in(self.space, view, tid)
            rows = Rows(self.space, view.connection, tid)

            def files() -> Mapping[str, bytes]:
                small = {
                    MANIFEST: text(found.manifest),
                    names.CONVERSATION: text({**found.conversation, IDS: rows.window_ids()}),
                }
                return small if prompt is None else {**small, PROMPT: text(prompt)}

            written = rows.behind(found.header)
            size, small = self.placing.conversation(directory.path, written, files)
            revs = read.revs(tid, messages=(rows.read, rows.newest) if rows.read else None)
        base = Base(found.conversation, rows.window_ids(), prompt_digest(prompt))
        known = Synced(tid, tid, "", revs, size)
        self.remember(directory, known, base, small[names.CONVERSATION])
        return Brought(directory.key, tid, Outcome.NEW, rows=rows.count)

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
                change = Change(self.space, self.directory, prepared, located, file)
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

    def write(self, prepared: Prepared, change: Change) -> Brought:
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

    def done(self, prepared: Prepared, change: Change) -> None:
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


def _base(source: Source) -> Base:
    return Base(source.value, source.window, prompt_digest(source.prompt))


def text(value: dict[str, Any]) -> bytes:
    """A small file, as Letta writes them."""
    return (dumps(value, indent=2) + "\n").encode()
