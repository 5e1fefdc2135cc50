"""Reconciling: Letta's directory and the space, each brought what only the other has.

from lettaspace.letta.reconciling import reconcile

report = reconcile(space, directory, part=diverge)

Three are compared: how a conversation stood when both last said the same, the directory, and
the space. docs/letta-restore.md has the rules.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    rkey_of,
)
from lettaspace.conversation.space import Space
from lettaspace.letta import synced, tracking
from lettaspace.letta.bringing import Bringing, Outcome
from lettaspace.letta.build import agent_key
from lettaspace.letta.continuing import Part
from lettaspace.letta.damage import BAD_NAME
from lettaspace.letta.directory import AgentFile, ConversationDir
from lettaspace.letta.doubt import Rest
from lettaspace.letta.importer import Importer
from lettaspace.letta.placing import Placing
from lettaspace.letta.report import DIVERGED, FAILED, PARTED, ConversationReport, Report
from lettaspace.letta.restoring import Memory, RestoreReport, Restoring
from lettaspace.letta.synced import Synced
from lettaspace.letta.watched import mark
from lettaspace.space.view import View

_TRIES = 4

_OF_CONVERSATIONS = (CONVERSATION, CONVERSATION_STATE, COMPILED_PROMPT)


@dataclass(slots=True)
class ReconcileReport:
    """What went which way."""

    imported: Report
    """From the directory into the space: what had changed there."""
    restored: RestoreReport
    """From the space into the directory: what was not the same there."""
    parted: list[str] = field(default_factory=list[str])
    """Keys of conversations that both sides had gone on with: one of the two is a fork now."""
    unchanged: int = 0
    """Conversations that were not read, because nothing of them had changed."""

    @property
    def written(self) -> int:
        """Records, agents and conversations that were written, on either side."""
        return self.imported.written + self.restored.written

    @property
    def is_done(self) -> bool:
        """Whether both sides say the same, but for what is never brought here."""
        later = (Outcome.BUSY, Outcome.AHEAD, Outcome.DIVERGED)
        left = any(each.outcome in later for each in self.restored.left)
        return not left and not self.imported.incomplete

    def to_json(self) -> dict[str, Any]:
        return {
            "imported": self.imported.to_json(),
            "restored": self.restored.to_json(),
            "parted": self.parted,
            "unchanged": self.unchanged,
        }


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


def reconcile(
    space: Space,
    directory: Path | str,
    *,
    part: Part,
    memory: Memory | None = None,
    rest: Rest | None = None,
    progress: Callable[[ConversationReport], None] | None = None,
) -> ReconcileReport:
    """Brings each side what only the other has.

    `part` parts the two branches of a conversation that both went on with. `rest`: how long
    Letta must have written nothing for its files to be written. Raises NotFound if the directory
    is none of Letta's, StoreUnavailable, or Conflict.
    """
    directory = Path(directory)
    importer = Importer(space, directory, dry_run=False, part=part)
    importer.listing  # noqa: B018 - raises before anything is locked
    with Restoring.opened(
        space, directory, rest=rest, memory=memory, importer=importer
    ) as restoring:
        return _Reconciling(space, importer, restoring).run(progress)


def differences(space: Space, directory: Path | str) -> list[Difference]:
    """What `reconcile` would find, conversation by conversation; nothing is written. Raises
    NotFound if the directory is none of Letta's."""
    directory = Path(directory)
    importer = Importer(space, directory, dry_run=True)
    bringing = Bringing(space, importer, Placing(directory, space.home), Rest(0, 0), dry=True)
    restoring = Restoring(space, importer, bringing, None)
    return list(_Comparing(space, importer, restoring).run())


class _Changes:
    """The names of what was written in the space since the directory was compared with it."""

    def __init__(self, space: Space, since: str | None) -> None:
        self.conversations: set[str] = set()
        self.agents: set[str] = set()
        self.head = space.repo.rev()
        if since == self.head:
            return
        if since is None:
            self.conversations = {each.rkey for each in space.repo.records(CONVERSATION)}
            self.agents = {each.rkey for each in space.repo.records(AGENT)}
            return
        prefix = space.address.conversation("")
        messages: set[str] = set()
        for op in space.repo.ops(since):
            if op.collection in _OF_CONVERSATIONS:
                self.conversations.add(op.rkey)
            elif op.collection == AGENT:
                self.agents.add(op.rkey)
            elif op.collection == MESSAGE:
                messages.add(op.rkey)
        with space.repo.snapshot() as view:
            for rkey in messages:
                record = view.get(MESSAGE, rkey)
                if record is not None:
                    uri = str(record.value["conversation"])
                    self.conversations.add(uri.removeprefix(prefix))


class _Looking:
    """What both need to know: what of the directory is as it was."""

    def __init__(self, space: Space, importer: Importer, restoring: Restoring) -> None:
        self.space = space
        self.importer = importer
        self.restoring = restoring
        self.changes = _Changes(space, synced.rev(space, importer.name))
        self._hidden: dict[str, bool] = {}

    def is_same(self, each: ConversationDir) -> bool:
        """Whether neither the files nor the records of a conversation have changed."""
        known = self.importer.synced.get(each.key)
        if known is None or known.mark != tracking.mark(each):
            return False
        if known.name not in self.changes.conversations:
            return True
        with self.space.repo.snapshot() as view:
            return known.revs == self.revs(view, known.name)

    def revs(self, view: View, tid: str) -> str:
        return synced.conversation_revs(view, self.space.address.conversation(tid), tid)

    def is_hidden(self, agent: str) -> bool:
        """Whether an agent's conversations are not brought here: it is hidden, or somebody
        deleted it from the directory."""
        if agent not in self._hidden:
            record = self.space.repo.get(AGENT, agent)
            here = {agent_key(each.id) for each in self.importer.listing.agents}
            was_here = any(
                key.startswith(synced.AGENT) and each.name == agent
                for key, each in self.importer.synced.items()
            )
            hidden = record is not None and bool(record.value.get("hidden"))
            self._hidden[agent] = hidden or (was_here and agent not in here)
        return self._hidden[agent]

    def missing(self, tids: set[str]) -> Iterator[str]:
        """Those of some conversations that the directory does not have, and is to have."""
        here = {each.key for each in self.importer.listing.conversations}
        for tid in sorted(tids):
            record = self.space.repo.get(CONVERSATION, tid)
            if record is None or self.restoring.keys.get(tid) in here:
                continue
            if not self.is_hidden(rkey_of(record.value["agent"])):
                yield tid


class _Reconciling(_Looking):
    def run(self, progress: Callable[[ConversationReport], None] | None) -> ReconcileReport:
        importer, restoring = self.importer, self.restoring
        self.report = ReconcileReport(importer.report, restoring.report)
        for name in importer.listing.odd:
            importer.report.findings.add(BAD_NAME, None, name)
        for agent in importer.listing.agents:
            self.agent(agent)
        for rkey in sorted(self.changes.agents):
            if not self.is_hidden(rkey):
                restoring.agent(rkey)
        for each in importer.listing.conversations:
            if self.is_same(each):
                self.report.unchanged += 1
                continue
            entry = self.conversation(each)
            if progress is not None:
                progress(entry)
        done = self.new(self.changes.conversations)
        # What became a fork just now, and what gave its place to one.
        done = self.new(_Changes(self.space, self.changes.head).conversations) and done
        head = self.changes.head
        if done and head is not None and head != synced.rev(self.space, importer.name):
            synced.set_rev(self.space, importer.name, head)
        return self.report

    def agent(self, agent: AgentFile) -> None:
        """An agent's file: what was changed there is brought in, then the other way."""
        rkey = agent_key(agent.id)
        known = self.importer.synced.get(f"{synced.AGENT}{agent.id}")
        if known is None or known.mark != mark(agent):
            self.importer.agent(agent)
            self.importer.writer.flush()
        elif rkey not in self.changes.agents:
            return
        self.restoring.agent(rkey)

    def conversation(self, directory: ConversationDir) -> ConversationReport:
        entry = self.bring_in(directory)
        if entry.read:
            self.importer.report.conversations.append(entry)
        if entry.outcome in (FAILED, DIVERGED):
            return entry
        brought = self.restoring.bringing.existing(directory)
        if brought.outcome is not Outcome.UNCHANGED:
            self.restoring.report.conversations.append(brought)
        if not brought.is_done:
            self.again(directory.key)
        return entry

    def bring_in(self, directory: ConversationDir) -> ConversationReport:
        """Imports a conversation; where that parts it, once more, as what it has become."""
        total = ConversationReport(directory.key, outcome=PARTED)
        for _ in range(_TRIES):
            entry = ConversationReport(directory.key)
            prepared = self.importer.conversation(directory, entry)
            entry.messages.add(total.messages)
            entry.records.add(total.records)
            last = self.importer.last(directory.key)
            if prepared is not None and last is not None and last[0].name != prepared.tid:
                # The rows in the file are another conversation's from now on.
                moved = Synced(prepared.tid, last[0].derived, size=last[0].size)
                self.importer.note(directory.key, moved, last[1])
            total = entry
            if entry.outcome != PARTED:
                break
            self.report.parted.append(directory.key)
        return total

    def again(self, key: str) -> None:
        """Has the next run look at a conversation, whether anything changes or not."""
        last = self.importer.last(key)
        if last is not None and (last[0].mark or last[0].revs):
            self.importer.note(key, replace(last[0], mark="", revs=""), last[1])

    def new(self, tids: set[str]) -> bool:
        """Brings conversations that the directory does not have; whether none is left for
        later."""
        self.restoring.refresh()
        done = True
        for tid in self.missing(tids):
            brought = self.restoring.conversation(tid, again=False)
            done = done and (brought is None or brought.outcome is not Outcome.BUSY)
        return done


class _Comparing(_Looking):
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
                count = self.restoring.bringing.messages(view, tid)
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
