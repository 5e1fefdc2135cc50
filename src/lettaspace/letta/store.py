"""From a conversation that was read to its records in the space.

A copy never takes anything away: where the space has messages that the files lack, only what
is new is added, behind what is there; and where both went on, nothing is.
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lettaspace.conversation.derive import message_tid
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    NO_AGENT,
)
from lettaspace.conversation.times import to_millis, valid
from lettaspace.letta import divergence, rows
from lettaspace.letta.build import (
    MAX_DAMAGE,
    Blobs,
    MessageBuilder,
    agent_key,
    conversation_record,
    no_agent_record,
    prompt_record,
    state_record,
)
from lettaspace.letta.continuing import Continuing, Part
from lettaspace.letta.damage import DIVERGED, OLDER_COPY
from lettaspace.letta.live import Baseline, Live
from lettaspace.letta.located import Located, locate
from lettaspace.letta.plan import Plan
from lettaspace.letta.report import CHANGED, NEW, PARTED, UNCHANGED, ConversationReport
from lettaspace.letta.report import DIVERGED as DIVERGED_OUTCOME
from lettaspace.letta.scan import Changed
from lettaspace.letta.source import Source
from lettaspace.letta.synced import Base
from lettaspace.letta.tracking import Stored, stored_messages
from lettaspace.letta.writer import Item, Writer
from lettaspace.space.writes import Value

_CHUNK = 500


@dataclass(slots=True)
class Prepared:
    """A conversation after the first pass."""

    source: Source
    tid: str
    plan: Plan
    fingerprint: str
    live: Live | None = None
    located: Located | None = None
    """Where its messages stand, if the space and the directory both write the conversation."""
    base: Base | None = None
    """What its small files said when both were last the same."""
    size: int = 0
    """The size of messages.jsonl then."""


def store_conversation(
    writer: Writer, prepared: Prepared, report: ConversationReport, part: Part | None = None
) -> None:
    """Writes a conversation's records; counts and findings go into `report`.

    Where both sides went on, `part` puts one of the branches into a fork; without it nothing is
    written. Raises scan.Changed when the file is no longer the one of the first pass.
    """
    _Conversation(writer, prepared, report, part).run()


def open_rows(path: Path) -> BinaryIO:
    """A messages.jsonl; an empty one where there is none."""
    try:
        return path.open("rb", buffering=1 << 18)
    except FileNotFoundError:
        return io.BytesIO()


class _Conversation:
    def __init__(
        self,
        writer: Writer,
        prepared: Prepared,
        report: ConversationReport,
        part: Part | None,
    ) -> None:
        self.prepared = prepared
        self.part = part
        self.writer = writer
        self.space = writer.space
        self.source = prepared.source
        self.plan = prepared.plan
        self.scan = prepared.plan.scan
        self.live = prepared.live
        self.rkey = prepared.tid
        self.report = report
        self.uri = self.space.address.conversation(prepared.tid)
        self.agent = self.space.address.agent(agent_key(self.source.agent_id))

    def run(self) -> None:
        if self.prepared.located is not None:
            with open_rows(self.scan.path) as file:
                self.file = file
                self.go_on(self.prepared.located)
        else:
            self.write_all()
        self.writer.flush()
        report = self.report
        if report.outcome == UNCHANGED and report.messages.written + report.records.written:
            report.outcome = CHANGED

    def go_on(self, located: Located) -> None:
        """Writes what is new in a conversation that the space writes as well."""
        if self.live is not None:
            self.live.baseline = None
        prepared = self.prepared
        continuing = Continuing(
            self.writer,
            self.source,
            self.plan,
            located,
            self.rkey,
            self.agent,
            self.report,
            self.file,
            base=prepared.base,
            size=prepared.size,
        )
        if not (located.new and located.waiting):
            divergence.clear(self.writer, self.rkey)
            continuing.run()
        elif self.part is None:
            self.diverge(len(located.extra), len(located.new))
        else:
            self.report.outcome = PARTED
            continuing.part(self.part)
            divergence.clear(self.writer, self.rkey)

    def write_all(self) -> None:
        """Makes the records what the files say."""
        rev = self.space.repo.rev()
        stored = stored_messages(self.space, self.uri)
        with open_rows(self.scan.path) as file:
            self.file = file
            new, extra = self.compare(stored)
            alive = self.plan.messages()
            is_new = bytearray(len(self.scan))
            for entry in new.tolist():
                is_new[entry] = True
            # Made before anything is said that depends on what is stored.
            state, blobs = self.state()
            baseline = None if self.live is None else self.live.baseline
            if self.live is not None:
                self.live.baseline = None
            if extra.any():
                if len(new) and stored.in_window[extra].any():
                    if self.part is not None:
                        self.go_on(locate(self.space, self.rkey, self.plan))
                        return
                    self.diverge(int(extra.sum()), len(new))
                    return
                note = f"{int(extra.sum())} stored messages are not in these files"
                self.report.findings.add(OLDER_COPY, None, note)
                self.head(state, blobs, is_older=True)
                self.report.messages.unchanged += len(alive) - len(new)
                self.messages(self.behind(new, stored.top), is_new, once=True)
            else:
                self.head(state, blobs)
                order = self.order(is_new, baseline) if len(stored) else alive
                self.report.messages.unchanged += len(alive) - len(order)
                self.messages(order.tolist(), is_new, once=False)
                if self.live is not None:
                    self.live.baseline = Baseline(self.plan, self.agent, rev)

    def compare(self, stored: Stored) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The entries that are not stored, and a flag for every stored message that is none
        of the entries."""
        alive = self.plan.messages()
        tids = self.scan.tid_array()[alive]
        known = np.isin(tids, stored.tids)
        if self.avoid_others(alive[~known], stored):
            tids = self.scan.tid_array()[alive]
            known = np.isin(tids, stored.tids)
        if known.sum() == len(stored):
            return alive[~known], np.zeros(len(stored), np.bool_)
        return alive[~known], ~np.isin(stored.tids, tids)

    def order(self, is_new: bytearray, baseline: Baseline | None) -> NDArray[np.intp]:
        """The entries whose records are to be written or compared: what is new before the
        rest, so that it shows at once, and in both what states an intent before the marks
        that follow from it."""
        order = self.plan.summaries_first()
        new = np.frombuffer(bytes(is_new), np.bool_)
        if baseline is not None:
            differing = baseline.differing(self.plan, self.agent, self.space.repo)
            order = order[(differing | new)[order]]
        return np.concatenate([order[new[order]], order[~new[order]]])

    def diverge(self, theirs: int, ours: int) -> None:
        self.report.outcome = DIVERGED_OUTCOME
        note = divergence.mark(self.writer, self.rkey, theirs, ours)
        self.report.findings.add(DIVERGED, None, note)

    def state(self) -> tuple[Value, Blobs]:
        blobs: Blobs = {}
        state = state_record(self.source, self.uri, self.scan.header, self.report.findings, blobs)
        stored = self.space.repo.get(CONVERSATION_STATE, self.rkey)
        if stored is not None and (parted := divergence.partings(stored.value)):
            state["damage"] = [*parted, *state.get("damage", [])][:MAX_DAMAGE]
        return state, blobs

    def head(self, state: Value, blobs: Blobs, *, is_older: bool = False) -> None:
        """The records beside the messages. Those of a copy that lacks something only count
        if they are newer than what is there; others, if they are not older."""
        divergence.clear(self.writer, self.rkey)
        count, address = self.report.records, self.space.address
        if self.space.repo.get(CONVERSATION, self.rkey) is None:
            self.report.outcome = NEW
            if agent_key(self.source.agent_id) == NO_AGENT:
                self.writer.put(Item(AGENT, NO_AGENT, no_agent_record(), count, once=True))
        conversation = conversation_record(self.source, address)
        self.writer.put(Item(CONVERSATION, self.rkey, conversation, count, once=True))
        if self.is_current(CONVERSATION_STATE, state, "updatedAt", is_older):
            self.writer.put(Item(CONVERSATION_STATE, self.rkey, state, count, blobs=blobs))
        prompt = prompt_record(self.source, self.uri, address)
        if prompt is not None and self.is_current(COMPILED_PROMPT, prompt, "compiledAt", is_older):
            self.writer.put(Item(COMPILED_PROMPT, self.rkey, prompt, count))

    def is_current(self, collection: str, value: Value, field: str, is_older: bool) -> bool:
        """Whether a value may take the place of the stored record."""
        record = self.space.repo.get(collection, self.rkey)
        time = valid(record.value.get(field)) if record is not None else None
        return time is None or to_millis(time) + is_older <= to_millis(value[field])

    def messages(self, order: Iterable[int], new: bytearray, *, once: bool) -> None:
        """The second pass."""
        scan, plan = self.scan, self.plan
        builder = MessageBuilder(plan, self.uri, self.agent)
        count, final = self.report.messages, plan.final
        for entry in order:
            row_entry = final.get(entry, entry)
            raw = scan.raw(self.file, row_entry)
            row = rows.parse_exact(raw, scan.offsets[row_entry])
            message = rows.recognise(row)[1]
            blobs: Blobs = {}
            value = builder.record(entry, scan.identity(row, message), message, blobs)
            tid = scan.tid(entry)
            self.writer.put(Item(MESSAGE, tid, value, count, once, bool(new[entry]), blobs))

    def behind(self, new: NDArray[np.intp], top: int) -> list[int]:
        """The new entries in their order, with seqs after the highest that is stored."""
        plan = self.plan
        for entry in new.tolist():
            plan.covers(entry)
        order: list[int] = sorted(new.tolist(), key=lambda entry: plan.seqs[entry])
        for seq, entry in enumerate(order, top + 1):
            plan.seqs[entry] = seq
        return order

    def avoid_others(self, unknown: NDArray[np.intp], stored: Stored) -> bool:
        """Gives another TID to the message whose derived one a message of another
        conversation has already: about one in a million of those made in the same
        millisecond, as a fork's messages and their originals are. Says whether there was one.

        Raises scan.Changed if another import is just writing this conversation."""
        scan, found = self.scan, False
        tids = scan.tid_array()
        for start in range(0, len(unknown), _CHUNK):
            some: dict[str, int] = {
                scan.tid(entry): entry for entry in unknown[start : start + _CHUNK].tolist()
            }
            for taken in self.space.repo.cids(MESSAGE, list(some)):
                record = self.space.repo.get(MESSAGE, taken)
                if record is not None and record.value["conversation"] == self.uri:
                    # Another import has written it since we looked: the same message.
                    raise Changed
                self.probe(some[taken], tids, stored)
                found = True
        return found

    def probe(self, entry: int, tids: NDArray[Any], stored: Stored) -> None:
        scan = self.scan
        row = scan.reread(self.file, entry)
        identity = scan.identity(row, rows.recognise(row)[1])
        probe = 0
        while True:
            probe += 1
            tid = message_tid(scan.conversation, *identity, self.plan.ordinals.get(entry, 0), probe)
            name = tid.encode()
            if (tids == name).any():
                continue
            if (stored.tids == name).any() or not self.space.repo.cids(MESSAGE, [tid]):
                scan.set_tid(entry, tid)
                return
