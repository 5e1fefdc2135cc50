"""Importing a conversation that the space and the directory both write.

Of what is stored nothing is written anew because a file would say it in another way: what Letta
added since is added, and what it changed is changed. docs/letta-restore.md has the rules.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, NamedTuple, Protocol

from sqlalchemy import select

from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.records import (
    COMPACTED,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    Address,
)
from lettaspace.conversation.space import Space
from lettaspace.conversation.times import after, to_millis, valid
from lettaspace.letta import divergence, fields, rows
from lettaspace.letta.build import MAX_DAMAGE, Blobs, MessageBuilder, prompt_record, state_record
from lettaspace.letta.directory import ConversationDir
from lettaspace.letta.export import files_in, letta_state
from lettaspace.letta.located import Located
from lettaspace.letta.plan import Plan
from lettaspace.letta.report import ConversationReport
from lettaspace.letta.scan import Entry
from lettaspace.letta.source import Source, prompt_digest
from lettaspace.letta.synced import Base
from lettaspace.letta.writer import Item, Writer
from lettaspace.space.repo import Transaction
from lettaspace.space.schema import message_index
from lettaspace.space.writes import Create, Value


class Part(Protocol):
    """Puts into a fork one of two branches of a conversation (its URI) that are both stored:
    the messages, by TID, that were written here, and those that came from elsewhere."""

    def __call__(
        self,
        tx: Transaction,
        address: Address,
        conversation: str,
        ours: Collection[str],
        theirs: Collection[str],
        /,
    ) -> object: ...


class _Stored(NamedTuple):
    """Where a stored message of the window stands."""

    rkey: str
    seq: int


class Continuing:
    """Writes what a file has that the space has not. `base` is what the small files said when
    both were last the same; `size` the size of messages.jsonl then."""

    def __init__(
        self,
        writer: Writer,
        source: Source,
        plan: Plan,
        located: Located,
        rkey: str,
        agent: str,
        report: ConversationReport,
        file: BinaryIO,
        *,
        base: Base | None,
        size: int,
    ) -> None:
        self.writer = writer
        self.space = writer.space
        self.source = source
        self.plan = plan
        self.scan = plan.scan
        self.located = located
        self.rkey = rkey
        self.agent = agent
        self.report = report
        self.file = file
        self.base = base
        self.size = size
        self.tids = {self.scan.tid(entry): entry for entry in (*located.here, *located.new)}

    def part(self, part: Part) -> None:
        """Stores what is new here, and parts it from what is new in the space, in one step."""
        items = [self.item(entry) for entry in self.behind()]
        blobs: Blobs = {}
        for item in items:
            blobs |= item.blobs
        creates = [Create(item.collection, item.rkey, item.value) for item in items]
        ours = [item.rkey for item in items]

        def work(tx: Transaction) -> None:
            tx.apply(creates, blobs=blobs)
            part(tx, self.space.address, self.located.uri, ours, self.located.extra)

        if not self.writer.dry:
            self.space.repo.run(work)
        self.report.messages.new += len(items)

    def run(self) -> None:
        """Writes what is new, and what follows from it."""
        self.head()
        self.snapshots()
        self.writer.flush()
        listed = self.base is None or self.base.window != self.source.window
        if self.located.new or (listed and not self.located.waiting):
            self.window()
        self.report.messages.unchanged += len(self.located.here)

    # The records beside the messages

    def head(self) -> None:
        source, count = self.source, self.report.records
        value = self.state()
        if value is not None:
            state, blobs = value
            item = Item(CONVERSATION_STATE, self.rkey, state, count, blobs=blobs)
            self.writer.put(item)
        if self.base is not None and prompt_digest(source.prompt) == self.base.prompt:
            return
        prompt = prompt_record(source, self.located.uri, self.space.address)
        if prompt is None:
            return
        stored = self.space.repo.get(COMPILED_PROMPT, self.rkey)
        time = valid(stored.value.get("compiledAt")) if stored is not None else None
        if time is None or to_millis(time) <= to_millis(prompt["compiledAt"]):
            self.writer.put(Item(COMPILED_PROMPT, self.rkey, prompt, count))

    def state(self) -> tuple[Value, Blobs] | None:
        """The conversationState to be written, if that is another than the stored one."""
        findings = self.report.findings
        stored = self.space.repo.get(CONVERSATION_STATE, self.rkey)
        source, header = told(
            self.writer.space, self.rkey, self.source, self.scan.header, self.base
        )
        blobs: Blobs = {}
        value = state_record(source, self.located.uri, header, findings, blobs)
        if stored is None:
            return value, blobs
        old = stored.value
        if not findings.entries:
            for key in ("incomplete", "damage"):
                if key in old:
                    value[key] = old[key]
        elif parted := divergence.partings(old):
            value["damage"] = [*parted, *value["damage"]][:MAX_DAMAGE]
        if "oversizePrompt" in old and prompt_digest(self.source.prompt) == (
            self.base.prompt if self.base is not None else None
        ):
            value["oversizePrompt"] = old["oversizePrompt"]
        if _said(value) == _said(old):
            return None
        value["updatedAt"] = after(value["updatedAt"], old.get("updatedAt"))
        return value, blobs

    # Messages

    def behind(self) -> list[int]:
        """The new entries in their order, with seqs behind all that is stored."""
        plan, top = self.plan, self.located.stored.top
        for entry in self.located.new:
            plan.covers(entry)
        order = sorted(self.located.new, key=lambda entry: plan.seqs[entry])
        for seq, entry in enumerate(order, top + 1):
            plan.seqs[entry] = seq
        return order

    def item(self, entry: int) -> Item:
        """A new message's record, at its seq in the plan."""
        blobs: Blobs = {}
        value = self.record(entry, entry, blobs)
        if "compactedMessageIds" in value:
            listed = value["compactedMessageIds"]
            value["compactedMessageIds"] = [tid for tid in listed if tid in self.tids]
        tid = self.scan.tid(entry)
        return Item(MESSAGE, tid, value, self.report.messages, True, True, blobs)

    def record(self, entry: int, row_entry: int, blobs: Blobs) -> Value:
        scan = self.scan
        row_entry = self.plan.final.get(row_entry, row_entry)
        row = rows.parse_exact(scan.raw(self.file, row_entry), scan.offsets[row_entry])
        message = rows.recognise(row)[1]
        builder = MessageBuilder(self.plan, self.located.uri, self.agent)
        return builder.record(entry, scan.identity(row, message), message, blobs)

    def snapshots(self) -> None:
        """Newer snapshots of messages that are stored, which Letta has written since."""
        scan = self.scan
        for entry, row_entry in self.plan.final.items():
            if entry not in self.located.here or scan.given[row_entry]:
                continue
            if scan.offsets[row_entry] < self.size:
                continue
            blobs: Blobs = {}
            new = self.record(entry, row_entry, blobs)
            stored = self.space.repo.get(MESSAGE, scan.tid(entry))
            if stored is not None and stored.value["message"] != new["message"]:
                self.rewrite(stored.value, scan.tid(entry), blobs, message=new["message"])

    def window(self) -> None:
        """Adds what is new and makes the stored window the one that Letta lists."""
        plan, scan, located = self.plan, self.scan, self.located
        stored = self.stored_window()
        inside = [entry for entry in plan.window if entry not in located.elsewhere]
        listed = {scan.tid(entry) for entry in inside}
        known = {scan.tid(entry) for entry in located.here} - located.waiting
        new = set(located.new)
        leaving = [each.rkey for each in stored if each.rkey in known and each.rkey not in listed]
        entering = listed - {each.rkey for each in stored} - {scan.tid(entry) for entry in new}
        for entry in new:
            plan.covers(entry)
        seqs = {each.rkey: each.seq for each in stored}
        for rkey in entering:
            value = self.space.repo.get(MESSAGE, rkey)
            seqs[rkey] = value.value["seq"] if value is not None else 0
        top, last = located.stored.top, 0
        moved: dict[str, int] = {}
        for entry in sorted({*new, *inside}, key=lambda entry: plan.seqs[entry]):
            tid = scan.tid(entry)
            seq = 0 if entry in new else seqs[tid]
            if seq <= last:
                seq = top = top + 1
                if entry not in new:
                    moved[tid] = seq
            if tid in listed:
                last = seq
            plan.seqs[entry] = seq
        # Summaries first: what states an intent before the marks that follow from it.
        for entry in sorted(new, key=lambda entry: scan.kinds[entry] != Entry.SUMMARY):
            self.writer.put(self.item(entry))
        for rkey in {*leaving, *entering, *moved}:
            self.mark(rkey, active=rkey not in leaving, seq=moved.get(rkey))
        if entering:
            self.writer.flush()
            self.release(entering)

    def mark(self, rkey: str, *, active: bool, seq: int | None) -> None:
        """Marks a stored message, or gives it another place."""
        stored = self.space.repo.get(MESSAGE, rkey)
        if stored is None:
            return
        value = {key: each for key, each in stored.value.items() if key != "status"}
        if not active:
            value["status"] = COMPACTED
        changes: dict[str, Any] = {} if seq is None else {"seq": seq}
        self.rewrite(value, rkey, {}, at=self.time(rkey), **changes)

    def time(self, rkey: str) -> str | None:
        """When a compaction that is new touched a message."""
        entry = self.tids[rkey]
        index = self.plan.updated[entry]
        if index < 0 or self.scan.compactions[index].entry not in self.located.new:
            return None
        return self.scan.compactions[index].time

    def release(self, rkeys: Collection[str]) -> None:
        """Takes messages that Letta lists again out of the summaries that list them."""
        for record in self.summaries():
            value = self.space.repo.get(MESSAGE, record)
            listed = value.value.get("compactedMessageIds", []) if value is not None else []
            left = [rkey for rkey in listed if rkey not in rkeys]
            if value is not None and left != listed:
                self.rewrite(value.value, record, {}, compactedMessageIds=left)

    def rewrite(
        self, value: Value, rkey: str, blobs: Blobs, *, at: str | None = None, **changes: Any
    ) -> None:
        before: str = value.get("updatedAt") or value["createdAt"]
        new = {**value, **changes, "updatedAt": after(at or before, before)}
        self.writer.put(Item(MESSAGE, rkey, new, self.report.messages, blobs=blobs))
        self.report.messages.unchanged -= 1

    def stored_window(self) -> list[_Stored]:
        columns = message_index.c
        with self.space.database.read() as connection:
            number = find_conversation_id(connection, self.located.uri)
            found = connection.execute(
                select(columns.rkey, columns.seq)
                .where(columns.conversation == number, columns.in_window)
                .order_by(columns.place, columns.rkey)
            ).all()
        return [_Stored(*row) for row in found]

    def summaries(self) -> Sequence[str]:
        columns = message_index.c
        with self.space.database.read() as connection:
            number = find_conversation_id(connection, self.located.uri)
            query = select(columns.rkey).where(columns.conversation == number, columns.summary)
            return connection.execute(query).scalars().all()


def local_names(source: Source) -> dict[str, Any]:
    """What tells a conversation from others in its directory, as its file has it."""
    return {name: source.value[name] for name in ("id", "created_at") if name in source.value}


def _said(state: Value) -> Value:
    return {key: each for key, each in state.items() if key not in ("$type", "updatedAt")}


def told(
    space: Space, rkey: str, source: Source, header: dict[str, Any] | None, base: Base | None
) -> tuple[Source, dict[str, Any] | None]:
    """What a conversation's state is to say: what the file says, merged with what the space
    does, and with the id and the age that the conversation has there. Here it may be called
    otherwise; and where it became a fork, its file is older than that."""
    local = local_names(source)
    with space.repo.snapshot() as view:
        if view.get(CONVERSATION, rkey) is None:
            return source, header
        stored = view.get(CONVERSATION_STATE, rkey)
        there = files_in(space, view, rkey)
    own = {name: there.conversation[name] for name in local if name in there.conversation}
    old = base.value if base is not None else None
    theirs = {**there.conversation, **local}
    known = True
    if stored is None or not letta_state(stored.value, space.repo.get_blob):
        # What is not said there is not taken away.
        theirs = {**(old or source.value), **theirs}
        known = False
    value = {**fields.merge(old, source.value, theirs), **own}
    if header is not None and header.get("id") == local.get("id"):
        header = {**header, "id": there.conversation["id"]}
    created_at = valid(value.get("created_at")) or source.created_at
    if header is not None and header.get("timestamp") == source.created_at:
        header = {**header, "timestamp": created_at}
    directory = ConversationDir(there.key, source.directory.path)
    manifest = source.manifest
    if known and _kind(manifest) == _kind(there.manifest):
        # Each machine's files have their own; what was said first stays said.
        header, manifest = there.header, there.manifest
    elif manifest is not None and manifest.get("created_at") == source.created_at:
        manifest = {**manifest, "created_at": created_at}
    changed = replace(
        source, value=value, directory=directory, created_at=created_at, manifest=manifest
    )
    return changed, header


def _kind(manifest: dict[str, Any] | None) -> tuple[Any, ...] | None:
    """What kind of rows a manifest speaks of: Letta migrates those of older kinds."""
    if manifest is None:
        return None
    return manifest.get("schema_version"), manifest.get("message_format")
