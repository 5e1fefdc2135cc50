"""What the records of a conversation will say, before they are made."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lettaspace.letta.damage import Findings
from lettaspace.letta.scan import Entry, Scan

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

    def messages(self) -> NDArray[np.intp]:
        """The entries that are messages, in file order."""
        return np.flatnonzero(np.frombuffer(bytes(self.status), dtype=np.uint8) != Status.NONE)

    def summaries_first(self) -> NDArray[np.intp]:
        """The same, but what states an intent before the marks that follow from it."""
        messages = self.messages()
        kinds = np.frombuffer(bytes(self.scan.kinds), dtype=np.uint8)[messages]
        return messages[np.argsort(kinds != Entry.SUMMARY, kind="stable")]

    def count(self) -> int:
        return len(self.status) - self.status.count(Status.NONE)

    def covers(self, summary: int) -> "array[int]":
        """The entries a summary lists, in seq order."""
        if self._covers is None:
            self._covers = group(self.covered_by, self.seqs)
        return self._covers.get(summary, array("q"))

    def updated_at(self, entry: int) -> str | None:
        """When a compaction touched it; None where none did or OWN_TIME is set."""
        index = self.updated[entry]
        return self.scan.compactions[index].time if index >= 0 else None


def group(covered_by: "array[int]", seqs: "array[int]") -> dict[int, "array[int]"]:
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
