"""What of Letta's directory is not as the space has it, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from lettaspace.conversation.records import AGENT, CONVERSATION
from lettaspace.conversation.space import Space
from lettaspace.letta import synced
from lettaspace.letta.bringing import Bringing
from lettaspace.letta.brought import Outcome
from lettaspace.letta.build import agent_key
from lettaspace.letta.change import Reading
from lettaspace.letta.directory import AgentFile, ConversationDir, read_small
from lettaspace.letta.doubt import Rest
from lettaspace.letta.export import agent_file
from lettaspace.letta.importer import Importer
from lettaspace.letta.looking import Looking
from lettaspace.letta.placing import Placing
from lettaspace.letta.report import DIVERGED, FAILED, ConversationReport
from lettaspace.letta.restoring import Restoring


class Reason(StrEnum):
    """Why a conversation is not the same in the directory and in the space."""

    DIRECTORY = "directory"
    """Letta went on with it, or changed something of it."""
    SPACE = "space"
    """Somebody else did, on another machine or by the library."""
    BOTH = "both"
    """Both went on: the next sync makes one of the two a fork."""
    NOT_HERE = "notHere"
    """The directory does not have it yet."""
    DELETED = "deleted"
    """It was deleted from the directory. It stays in the space, and is only brought back when
    that is asked for."""
    DAMAGED = "damaged"
    """Its files cannot be read."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A conversation that is not the same on both sides."""

    key: str
    conversation: str
    """Its TID; "" where it is not in the space."""
    reason: Reason
    here: int = 0
    """Messages that only the directory has."""
    there: int = 0
    """Messages that only the space has."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "conversation": self.conversation,
            "reason": str(self.reason),
            "here": self.here,
            "there": self.there,
            "note": self.note,
        }


def differences(space: Space, directory: Path | str) -> list[Difference]:
    """What `reconcile` would find, conversation by conversation; nothing is written. Raises
    NotFound if the directory is none of Letta's."""
    directory = Path(directory)
    importer = Importer(space, directory, dry_run=True)
    bringing = Bringing(space, importer, Placing(directory, space.home), Rest(0, 0), dry=True)
    restoring = Restoring(space, importer, bringing, None)
    return list(_Comparing(space, importer, restoring).run())


@dataclass(frozen=True, slots=True)
class AgentDifference:
    """An agent whose file does not say what its record does."""

    key: str
    """`agent:<id>`."""
    agent: str
    """Its record key."""
    name: str
    reason: Reason

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "agent": self.agent,
            "name": self.name,
            "reason": str(self.reason),
        }


def agent_differences(space: Space, directory: Path | str) -> list[AgentDifference]:
    """The same of agents that are not hidden. Raises NotFound if the directory is none of
    Letta's."""
    directory = Path(directory)
    importer = Importer(space, directory, dry_run=True)
    bringing = Bringing(space, importer, Placing(directory, space.home), Rest(0, 0), dry=True)
    restoring = Restoring(space, importer, bringing, None)
    return list(_Comparing(space, importer, restoring).agents())


class _Comparing(Looking):
    def agents(self) -> Iterator[AgentDifference]:
        here = {agent_key(each.id): each for each in self.importer.listing.agents}
        stored = {
            each.rkey: str(each.value.get("name") or "")
            for each in self.space.repo.records(AGENT)
            if not each.value.get("hidden")
        }
        for rkey, file in here.items():
            value = read_small(file.path).value or {}
            if rkey not in stored:
                if not value.get("hidden") and self.space.repo.get(AGENT, rkey) is None:
                    yield AgentDifference(
                        f"{synced.AGENT}{file.id}", rkey, str(value.get("name")), Reason.DIRECTORY
                    )
                continue
            reason = self.reason(file, rkey, value)
            if reason is not None:
                yield AgentDifference(f"{synced.AGENT}{file.id}", rkey, stored[rkey], reason)
        for rkey, name in stored.items():
            if rkey not in here:
                reason = Reason.DELETED if self.is_hidden(rkey) else Reason.NOT_HERE
                yield AgentDifference(f"{synced.AGENT}{rkey}", rkey, name, reason)

    def reason(self, file: AgentFile, rkey: str, value: dict[str, Any]) -> Reason | None:
        """Which of the two was changed."""
        with self.space.repo.snapshot() as view:
            theirs = agent_file(self.space, view, rkey)
        if not value:
            return Reason.DAMAGED
        if theirs is None or {**theirs, "id": file.id} == value:
            return None
        known = self.importer.last(f"{synced.AGENT}{file.id}")
        if known is None:
            return Reason.DIRECTORY
        base = known[1].value
        went_on = [value != base, {**theirs, "id": file.id} != base]
        if all(went_on):
            return Reason.BOTH
        return Reason.DIRECTORY if went_on[0] else Reason.SPACE

    def run(self) -> Iterator[Difference]:
        for each in self.importer.listing.conversations:
            if not self.is_same(each) and (found := self.compare(each)) is not None:
                yield found
        for tid in self.missing({each.rkey for each in self.space.repo.records(CONVERSATION)}):
            key = self.restoring.keys.get(tid)
            if key is not None:
                yield Difference(key, tid, Reason.DELETED)
                continue
            with self.space.repo.snapshot() as view:
                count = Reading(self.space, view).messages(tid)
            if count:
                yield Difference("", tid, Reason.NOT_HERE, there=count)

    def compare(self, directory: ConversationDir) -> Difference | None:
        entry = ConversationReport(directory.key)
        self.importer.conversation(directory, entry)
        written = entry.messages.written + entry.records.written
        reason, there, note = Reason.DIRECTORY, 0, ""
        if entry.outcome == FAILED:
            return Difference(directory.key, entry.conversation, Reason.DAMAGED)
        if entry.outcome == DIVERGED:
            reason = Reason.BOTH
        else:
            brought = self.restoring.bringing.existing(directory)
            there, note = brought.rows, brought.note
            if brought.outcome is Outcome.LEFT:
                reason = Reason.DAMAGED
            elif brought.outcome is Outcome.CHANGED:
                reason = Reason.BOTH if written else Reason.SPACE
            elif not written:
                return None
        here = entry.messages.new
        return Difference(directory.key, entry.conversation, reason, here, there, note)
