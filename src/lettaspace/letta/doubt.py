"""Whether what was read of a conversation may be half of what Letta is writing just now.

Letta writes a small file in place, and a message by its id in conversation.json first and by
its row a moment later. Whoever is told of each write meets what lies between.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from lettaspace.letta import rows
from lettaspace.letta.damage import BAD_CONVERSATION, BAD_MANIFEST, BAD_PROMPT, NO_WINDOW
from lettaspace.letta.directory import FILES, ConversationDir
from lettaspace.letta.plan import NOBODY, Plan, Status
from lettaspace.letta.scan import Entry
from lettaspace.letta.source import Source

REST = 10.0
"""Seconds after which nobody is writing a file any more."""

_SMALL = (BAD_CONVERSATION, BAD_MANIFEST, BAD_PROMPT)


class Unsettled(Exception):
    """It may be half of what is being written; `doubts` say why."""

    def __init__(self, doubts: frozenset[str]) -> None:
        super().__init__("half written")
        self.doubts = doubts


@dataclass(frozen=True, slots=True)
class Doubts:
    """What a write in progress would explain."""

    reasons: frozenset[str]
    """Why to wait."""
    streaming: frozenset[str]
    """What is no reason yet: an answer that is being streamed is listed and has no row. It
    stays so if that was cut off, and then there is nothing to wait for."""


def doubts(source: Source, plan: Plan) -> Doubts:
    """What may be half written in a conversation that was read."""
    found = {f"{each.kind} {each.note}" for each in source.findings if each.kind in _SMALL}
    found.update(each.kind for each in plan.findings if each.kind == NO_WINDOW)
    before, behind = _without_row(source.window or [], plan)
    found.update(before)
    messages = plan.messages()
    if len(messages):
        last = int(messages[-1])
        if plan.status[last] == Status.COMPACTED and plan.covered_by[last] == NOBODY:
            found.add(f"not listed: {plan.scan.tid(last)}")
    return Doubts(frozenset(found), frozenset(behind))


def at_rest(directory: ConversationDir) -> bool:
    """Whether a conversation is there, and none of its files was made or written lately."""
    try:
        newest = directory.path.stat().st_mtime
    except OSError:
        return False
    for name in FILES:
        try:
            newest = max(newest, (directory.path / name).stat().st_mtime)
        except OSError:
            continue
    return time.time() - newest > REST


def _without_row(listed: Sequence[str], plan: Plan) -> tuple[list[str], list[str]]:
    """The listed ids that have no row: those before one that has, and those behind all."""
    if len(listed) == len(plan.window):
        return [], []
    known = set(plan.scan.ids)
    before: list[str] = []
    behind: list[str] = []
    found = behind
    for message_id in reversed(listed):
        if hash(message_id) in known:
            found = before
        else:
            found.append(f"no row: {message_id}")
    return before, behind


@dataclass(frozen=True, slots=True)
class Rest:
    """Seconds for which nobody must have written a conversation before it is written to."""

    after_turn: float = 2.0
    within_turn: float = 3600.0
    """The same where a turn is not complete: a tool may run for long, and a question whether it
    may may stay open for longer."""


def is_idle(
    directory: ConversationDir, plan: Plan, source: Source, file: BinaryIO, rest: Rest
) -> bool:
    """Whether Letta is not at work in a conversation, as far as its files tell."""
    needed = rest.within_turn if in_turn(plan, source, file) else rest.after_turn
    newest = 0.0
    for name in FILES:
        with suppress(OSError):
            newest = max(newest, (directory.path / name).stat().st_mtime)
    # A clock that was set back makes a file seem to be of the future.
    return abs(time.time() - newest) >= needed


def in_turn(plan: Plan, source: Source, file: BinaryIO) -> bool:
    """Whether the newest message waits for another one, that Letta itself wrote here: an answer,
    or the result of a tool."""
    if doubts(source, plan).streaming:
        return True
    messages = plan.messages()
    if not len(messages):
        return False
    last = int(messages[-1])
    last = plan.final.get(last, last)
    scan = plan.scan
    if scan.given[last] or scan.kinds[last] == Entry.SUMMARY:
        return False
    message = rows.recognise(scan.reread(file, last))[1]
    if message.get("role") == "assistant":
        return message.get("stopReason") == "toolUse"
    return True
