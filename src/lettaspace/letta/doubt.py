"""Whether what was read of a conversation may be half of what Letta is writing just now.

Letta writes a small file in place, and a message by its id in conversation.json first and by
its row a moment later. Whoever is told of each write meets what lies between.
"""

import time
from collections.abc import Iterator

import numpy as np

from lettaspace.letta.damage import BAD_CONVERSATION, BAD_MANIFEST, BAD_PROMPT, NO_WINDOW
from lettaspace.letta.directory import FILES, ConversationDir
from lettaspace.letta.plan import NOBODY, Plan, Status
from lettaspace.letta.source import Source

REST = 10.0
"""Seconds after which nobody is writing a file any more."""

_SMALL = (BAD_CONVERSATION, BAD_MANIFEST, BAD_PROMPT)


class Unsettled(Exception):
    """It may be half of what is being written; `doubts` say why."""

    def __init__(self, doubts: frozenset[str]) -> None:
        super().__init__("half written")
        self.doubts = doubts


def doubts(source: Source, plan: Plan) -> frozenset[str]:
    """What a write in progress would explain."""
    found = {f"{each.kind} {each.note}" for each in source.findings if each.kind in _SMALL}
    found.update(each.kind for each in plan.findings if each.kind == NO_WINDOW)
    found.update(_unwritten(source, plan, to_the_end=False))
    messages = plan.messages()
    if len(messages):
        last = int(messages[-1])
        if plan.status[last] == Status.COMPACTED and plan.covered_by[last] == NOBODY:
            found.add(f"not listed: {plan.scan.tid(last)}")
    return frozenset(found)


def accepted(source: Source, plan: Plan) -> frozenset[str]:
    """Of an import that was stored: what is no reason to wait at the next one."""
    # An answer that ended before its row was written stays in the list.
    return doubts(source, plan) | frozenset(_unwritten(source, plan, to_the_end=True))


def at_rest(directory: ConversationDir) -> bool:
    """Whether none of a conversation's files was written lately."""
    newest = 0.0
    for name in FILES:
        try:
            newest = max(newest, (directory.path / name).stat().st_mtime)
        except OSError:
            continue
    return time.time() - newest > REST


def _unwritten(source: Source, plan: Plan, *, to_the_end: bool) -> Iterator[str]:
    """Ids in conversation.json without a row. The last ones are of messages that are being
    streamed, so they count only `to_the_end`."""
    listed = source.window or []
    known = np.isin(np.array([hash(each) for each in listed], np.int64), np.array(plan.scan.ids))
    end = len(listed) if to_the_end else int(np.flatnonzero(known)[-1]) if known.any() else 0
    for place in np.flatnonzero(~known[:end]).tolist():
        yield f"no row: {listed[place]}"
