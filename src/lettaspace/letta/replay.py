"""From the rows to the records: which messages there are, their order, their window.

The rows are followed in file order, then the outcome is compared with conversation.json's
list of ids, which is the truth about the window. docs/letta-import.md states the rules.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, BinaryIO

import numpy as np

from lettaspace.letta import rows
from lettaspace.letta.damage import (
    MISSING_PARENT,
    NO_WINDOW,
    SAME_ID,
    WINDOW_DIFFERS,
    WINDOW_ORDER,
    Findings,
)
from lettaspace.letta.derive import message_tid
from lettaspace.letta.scan import TID_LENGTH, Compaction, Entry, Identity, Scan, given_tid

OWN_TIME = -2
"""In `Plan.updated`: the message's own updated_at or createdAt."""
NOT_UPDATED = -1
NOBODY = -1


class Status(IntEnum):
    """What became of an entry."""

    NONE = 0
    """No message of its own: a damaged row, or a snapshot of an earlier message."""
    ACTIVE = 1
    COMPACTED = 2


@dataclass(slots=True)
class Plan:
    """What the records of a conversation will say, by entry of the scan."""

    scan: Scan
    window: Sequence[int]
    """The entries in the window, in order."""
    status: bytearray
    seqs: "array[int]"
    updated: "array[int]"
    """NOT_UPDATED, OWN_TIME, or the index of the compaction that touched it last."""
    covered_by: "array[int]"
    """The summary that lists it, or NOBODY."""
    final: dict[int, int]
    """The entry that holds a message's newest snapshot, where that is another one."""
    top: int
    """The highest seq given."""
    ordinals: dict[int, int]
    """Which of several messages equal in identity it is, where it is not the first."""
    findings: Findings = field(default_factory=Findings)
    _covers: dict[int, "array[int]"] | None = None

    def messages(self) -> Iterable[int]:
        """The entries that are messages: summaries first, so that what states an intent is
        written before the marks that follow from it; then the others, in file order."""
        kinds = np.frombuffer(bytes(self.scan.kinds), dtype=np.uint8)
        alive = np.frombuffer(bytes(self.status), dtype=np.uint8) != Status.NONE
        summaries = kinds == Entry.SUMMARY
        for some in (alive & summaries, alive & ~summaries):
            for entry in np.flatnonzero(some):
                yield int(entry)

    def count(self) -> int:
        return len(self.status) - self.status.count(Status.NONE)

    def covers(self, summary: int) -> "array[int]":
        """The entries a summary lists, in seq order."""
        if self._covers is None:
            self._covers = _group(self.covered_by, self.seqs)
        return self._covers.get(summary, array("q"))

    def updated_at(self, entry: int) -> str | None:
        """When a compaction touched it; None where none did or OWN_TIME is set."""
        index = self.updated[entry]
        return self.scan.compactions[index].time if index >= 0 else None


def replay(scan: Scan, file: BinaryIO, listed: Sequence[str] | None) -> Plan:
    """The plan for scanned rows and the ids of conversation.json (None: there are none).

    `file` is the scanned file, read again where hashes meet. Raises scan.Changed.
    """
    replay = _Replay(scan, file)
    replay.run()
    plan = replay.plan()
    if listed:
        _Window(plan).follow(listed)
    elif len(scan):
        plan.findings.add(NO_WINDOW)
    _settle_tids(scan, file, plan)
    return plan


class _Replay:
    def __init__(self, scan: Scan, file: BinaryIO) -> None:
        self.scan = scan
        self.file = file
        count = len(scan)
        self.status = bytearray(count)
        self.seqs = array("q", bytes(8 * count))
        self.updated = array("i", [NOT_UPDATED]) * count
        self.covered_by = array("i", [NOBODY]) * count
        self.final: dict[int, int] = {}
        self.message_of: dict[int, int] = {}
        self.window: array[int] = array("i")
        self.top = 0
        self.findings = Findings()
        self.ordinals: dict[int, int] = {}
        # The newest message of each identity that occurs more than once, and how many there are.
        self.latest: dict[Identity, tuple[int, int]] = {}
        self.row_ids = np.array(scan.row_ids)

    def plan(self) -> Plan:
        return Plan(
            self.scan,
            self.window,
            self.status,
            self.seqs,
            self.updated,
            self.covered_by,
            self.final,
            self.top,
            self.ordinals,
            self.findings,
        )

    def run(self) -> None:
        scan = self.scan
        twice = _occurring_twice(scan)
        compactions = {c.entry: i for i, c in enumerate(scan.compactions)}
        for entry, kind in enumerate(scan.kinds):
            if kind == Entry.DAMAGED:
                # What stood there gets its place when the file is repaired.
                self.top += 1
                continue
            takes = None
            if twice[entry]:
                known, takes = self.same(entry)
                if known:
                    continue
            self.top += 1
            self.status[entry] = Status.ACTIVE
            self.seqs[entry] = self.top
            if kind == Entry.SUMMARY:
                self.compact(entry, compactions[entry])
            elif takes is not None:
                self.window[takes] = entry
            else:
                self.window.append(entry)

    def same(self, entry: int) -> tuple[bool, int | None]:
        """Compares an entry with the message before it that is equal in identity.

        Returns whether it is that message's newer snapshot; and if it is a message of its
        own, the place in the window it takes from the other, if any.
        """
        row = self.scan.reread(self.file, entry)
        identity = self.scan.identity(row, rows.recognise(row)[1])
        found = self.latest.get(identity)
        if found is None:
            self.latest[identity] = entry, 1
            return False, None
        message, count = found
        last = self.final.get(message, message)
        if self.replaces(last, entry, row):
            self.final[message] = entry
            self.message_of[entry] = message
            return True, None
        self.latest[identity] = entry, count + 1
        self.ordinals[entry] = count
        if self.scan.kinds[entry] == Entry.SUMMARY:
            return False, None
        self.findings.add(SAME_ID, self.scan.numbers[entry])
        if message not in self.window:
            return False, None
        self.leave(message)
        return False, self.window.index(message)

    def replaces(self, earlier: int, later: int, row: dict[str, Any]) -> bool:
        kinds = self.scan.kinds
        if kinds[earlier] != kinds[later]:
            return False
        if self.scan.unfinished[earlier]:
            return True
        before = rows.recognise(self.scan.reread(self.file, earlier))[1]
        after = rows.recognise(row)[1]
        return before == after or contains(after.get("content"), before.get("content"))

    def leave(self, entry: int) -> None:
        """Out of the window, and listed by no summary."""
        self.status[entry] = Status.COMPACTED
        self.updated[entry] = OWN_TIME

    def compact(self, entry: int, index: int) -> None:
        compaction = self.scan.compactions[index]
        covered, kept, dropped = self.split(compaction)
        for message in covered:
            self.status[message] = Status.COMPACTED
            self.covered_by[message] = entry
            self.updated[message] = index
        for message in dropped:
            self.leave(message)
        for message in kept:
            self.top += 1
            self.seqs[message] = self.top
            self.updated[message] = index
        self.window = array("i", [entry]) + kept

    def split(self, compaction: Compaction) -> "tuple[array[int], array[int], array[int]]":
        window, before, after = self.window, compaction.before, compaction.after
        cut = None
        if compaction.first_kept is not None:
            cut = self.place_of(compaction.first_kept, compaction.entry)
            if cut is None:
                self.findings.add(MISSING_PARENT, self.scan.numbers[compaction.entry])
        if cut is None and after is not None and after > 1:
            cut = max(len(window) - (after - 1), 0)
        if cut is None:
            # Nothing is kept. What was appended while the summary was made is in it neither.
            end = len(window) if before is None else min(before, len(window))
            return window[:end], array("i"), window[end:]
        end = len(window) if after is None else min(cut + max(after - 1, 0), len(window))
        return window[:cut], window[cut:end], window[end:]

    def place_of(self, row_id: int, before: int) -> int | None:
        """Where the message of a row id stands in the window; the newest such row counts."""
        for entry in np.flatnonzero(self.row_ids[:before] == row_id)[::-1]:
            message = self.message_of.get(int(entry), int(entry))
            if message in self.window:
                return self.window.index(message)
        return None


class _Window:
    """Makes a plan's window the one that conversation.json lists."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def follow(self, listed: Sequence[str]) -> None:
        plan = self.plan
        hashes = [hash(message_id) for message_id in listed]
        ids = plan.scan.ids
        if len(hashes) != len(plan.window) or any(
            ids[entry] != wanted for entry, wanted in zip(plan.window, hashes, strict=True)
        ):
            window = self.resolve(hashes)
            if not window:
                # All of them without a row: hiding the whole history would follow from it.
                if plan.window:
                    plan.findings.add(NO_WINDOW)
            elif window != list(plan.window):
                self.adopt(window)
        self.order()

    def resolve(self, hashes: Sequence[int]) -> list[int]:
        """The messages that ids name. Where an id names several, the last as many as it
        stands in the list, in order."""
        wanted: dict[int, list[int]] = {}
        for value in hashes:
            wanted.setdefault(value, [])
        for entry, value in enumerate(self.plan.scan.ids):
            if value in wanted and self.plan.status[entry] != Status.NONE:
                wanted[value].append(entry)
        left: dict[int, int] = {}
        for value in hashes:
            left[value] = left.get(value, 0) + 1
        window: dict[int, None] = {}
        for value in hashes:
            found = wanted[value]
            if found:
                window[found[-min(left[value], len(found))]] = None
            left[value] -= 1
        return list(window)

    def adopt(self, window: list[int]) -> None:
        plan = self.plan
        plan.findings.add(WINDOW_DIFFERS, None, f"{len(plan.window)} rows, {len(window)} listed")
        inside = set(window)
        for entry in plan.window:
            if entry not in inside:
                plan.status[entry] = Status.COMPACTED
                plan.updated[entry] = OWN_TIME
        for entry in window:
            if plan.status[entry] != Status.ACTIVE:
                plan.status[entry] = Status.ACTIVE
                plan.covered_by[entry] = NOBODY
                plan.updated[entry] = OWN_TIME
        plan.window = array("i", window)

    def order(self) -> None:
        """Gives the window new seqs if the seqs do not say its order."""
        plan = self.plan
        if self.in_order():
            return
        for entry in plan.window:
            plan.top += 1
            plan.seqs[entry] = plan.top
            plan.updated[entry] = OWN_TIME
        if not self.in_order():
            # A summary that is not first: readers sort it where what it covers stood.
            plan.findings.add(WINDOW_ORDER)

    def in_order(self) -> bool:
        seqs, places = self.plan.seqs, self.places()
        last_seq = last_place = 0
        for entry in self.plan.window:
            seq = seqs[entry]
            place = places.get(entry, seq)
            if seq <= last_seq or place <= last_place:
                return False
            last_seq, last_place = seq, place
        return True

    def places(self) -> dict[int, int]:
        """Where summaries stand for a reader: with the earliest of what they cover."""
        plan = self.plan
        groups = _group(plan.covered_by, plan.seqs)
        places: dict[int, int] = {}
        for summary in sorted(groups):
            earliest = min(places.get(entry, plan.seqs[entry]) for entry in groups[summary])
            places[summary] = min(earliest, plan.seqs[summary])
        return places


def contains(later: Any, earlier: Any) -> bool:
    """Whether a message's content holds all that an earlier one holds: its text from the
    start, and every other part."""
    if later == earlier:
        return True
    if type(later) is not list or type(earlier) is not list:
        return False
    if not _text(later).startswith(_text(earlier)):
        return False
    return all(part in later for part in earlier if not _is_text(part))


def _is_text(part: Any) -> bool:
    return type(part) is dict and part.get("type") == "text" and type(part.get("text")) is str


def _text(content: list[Any]) -> str:
    return "".join(part["text"] for part in content if _is_text(part))


def _occurring_twice(scan: Scan) -> bytearray:
    """A flag for every entry whose identity may occur more than once."""
    identities = np.array(scan.identities)
    _, inverse, counts = np.unique(identities, return_inverse=True, return_counts=True)
    return bytearray((counts[inverse] > 1).astype(np.uint8).tobytes())


def _group(covered_by: "array[int]", seqs: "array[int]") -> dict[int, "array[int]"]:
    """What each summary covers, in seq order."""
    by = np.array(covered_by)
    entries = np.flatnonzero(by != NOBODY)
    order = entries[np.lexsort((np.array(seqs)[entries], by[entries]))]
    groups: dict[int, array[int]] = {}
    if len(order):
        starts = np.flatnonzero(np.diff(by[order])) + 1
        for some in np.split(order, starts):
            groups[int(by[some[0]])] = array("q", some.astype(np.int64).tobytes())
    return groups


def _settle_tids(scan: Scan, file: BinaryIO, plan: Plan) -> None:
    """Gives every message a TID of its own, in file order: an earlier message's never
    depends on a later one."""
    for entry, ordinal in plan.ordinals.items():
        row = scan.reread(file, entry)
        if given_tid(row) is not None:
            continue
        identity = scan.identity(row, rows.recognise(row)[1])
        scan.set_tid(entry, message_tid(scan.conversation, *identity, ordinal))
    tids = scan.tid_array()
    alive = np.flatnonzero(np.frombuffer(bytes(plan.status), dtype=np.uint8) != Status.NONE)
    if len(np.unique(tids[alive])) == len(alive):
        return
    taken: set[bytes] = set()
    for entry in alive.tolist():
        tid: bytes = bytes(scan.tids[entry * TID_LENGTH : (entry + 1) * TID_LENGTH])
        if tid in taken:
            row = scan.reread(file, entry)
            identity = scan.identity(row, rows.recognise(row)[1])
            probe = 0
            while tid in taken:
                probe += 1
                tid = message_tid(
                    scan.conversation, *identity, plan.ordinals.get(entry, 0), probe
                ).encode()
            scan.set_tid(entry, tid.decode())
        taken.add(tid)
