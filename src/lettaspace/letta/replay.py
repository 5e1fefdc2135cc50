"""From the rows to the records: which messages there are, their order, their window.

The rows are followed in file order, then the outcome is compared with conversation.json's
list of ids, which is the truth about the window. docs/letta-import.md states the rules.
"""

from array import array
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from lettaspace.conversation.derive import message_tid
from lettaspace.letta import rows
from lettaspace.letta.damage import (
    MISSING_PARENT,
    NO_WINDOW,
    SAME_ID,
    Findings,
)
from lettaspace.letta.identity import Identity, given_tid
from lettaspace.letta.plan import NOBODY, NOT_UPDATED, OWN_TIME, Plan, Status
from lettaspace.letta.scan import TID_LENGTH, Compaction, Entry, Scan
from lettaspace.letta.window import follow


def replay(scan: Scan, file: BinaryIO, listed: Sequence[str] | None) -> Plan:
    """The plan for scanned rows and the ids of conversation.json (None: there are none).

    `file` is the scanned file, read again where hashes meet. Raises scan.Changed.
    """
    replay = _Replay(scan, file)
    replay.run()
    plan = replay.plan()
    if listed:
        follow(plan, listed)
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
        again = _written_again(scan)
        compactions = {c.entry: i for i, c in enumerate(scan.compactions)}
        for entry, kind in enumerate(scan.kinds):
            if kind == Entry.DAMAGED:
                # What stood there gets its place when the file is repaired.
                self.top += 1
                continue
            takes = None
            if (message := again.get(entry)) is not None:
                self.rewritten(message, entry)
                continue
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

    def rewritten(self, message: int, entry: int) -> None:
        """A row of ours that says what a message became that has a row before."""
        self.final[message] = entry
        self.message_of[entry] = message
        ids = self.scan.ids
        if ids[message] != ids[entry]:
            # Others may hold the same array.
            self.scan.ids = array("q", ids)
            self.scan.ids[message] = ids[entry]

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


def _written_again(scan: Scan) -> dict[int, int]:
    """The rows of ours that carry the TID of a message with an earlier row, which is named."""
    if 1 not in scan.given:
        return {}
    tids = scan.tid_array()
    _, first, inverse, counts = np.unique(
        tids, return_index=True, return_inverse=True, return_counts=True
    )
    given = np.frombuffer(bytes(scan.given), np.uint8).astype(np.bool_)
    later = np.flatnonzero(given & (counts[inverse] > 1))
    found = {int(entry): int(first[inverse[entry]]) for entry in later}
    return {entry: message for entry, message in found.items() if entry != message}


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
    alive = plan.messages()
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
