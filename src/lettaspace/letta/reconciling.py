"""Reconciling: Letta's directory and the space, each brought what only the other has.

from lettaspace.letta.reconciling import reconcile

report = reconcile(space, directory, part=diverge)

Three are compared: how a conversation stood when both last said the same, the directory, and
the space. docs/letta-restore.md has the rules.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lettaspace.conversation.records import AGENT
from lettaspace.conversation.space import Space
from lettaspace.errors import LettaspaceError
from lettaspace.letta import synced
from lettaspace.letta.agentmemories import AgentMemories, MemoryChange
from lettaspace.letta.brought import Outcome
from lettaspace.letta.build import agent_key
from lettaspace.letta.continuing import Part
from lettaspace.letta.damage import BAD_NAME
from lettaspace.letta.directory import AgentFile, ConversationDir, list_directory
from lettaspace.letta.doubt import Rest
from lettaspace.letta.looking import Changes, Looking
from lettaspace.letta.report import DIVERGED, FAILED, PARTED, ConversationReport, Report
from lettaspace.letta.restoring import RestoreReport, Restoring
from lettaspace.letta.synced import Synced
from lettaspace.letta.watched import mark

_TRIES = 4


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
    memories: list[MemoryChange] = field(default_factory=list[MemoryChange])
    """Of agents whose memory was not as it had been."""

    @property
    def written(self) -> int:
        """Records, agents, conversations and memories that were written, on either side."""
        memories = sum(each.written for each in self.memories)
        return self.imported.written + self.restored.written + memories

    @property
    def is_done(self) -> bool:
        """Whether both sides say the same, but for what is never brought here."""
        later = (Outcome.BUSY, Outcome.AHEAD, Outcome.DIVERGED)
        left = any(each.outcome in later for each in self.restored.left)
        memories = all(each.is_done for each in self.memories)
        return not left and memories and not self.imported.incomplete

    def add(self, later: "ReconcileReport") -> None:
        """Adds what a later run moved into the directory; `imported` is the caller's."""
        self.restored.add(later.restored)
        self.parted += [key for key in later.parted if key not in self.parted]
        self.unchanged = min(self.unchanged, later.unchanged)
        again = {each.agent for each in later.memories}
        self.memories = [m for m in self.memories if m.agent not in again] + later.memories

    def to_json(self) -> dict[str, Any]:
        return {
            "imported": self.imported.to_json(),
            "restored": self.restored.to_json(),
            "parted": self.parted,
            "unchanged": self.unchanged,
            "memories": [each.to_json() for each in self.memories],
        }


def reconcile(
    space: Space,
    directory: Path | str,
    *,
    part: Part,
    allow_code: bool = False,
    rest: Rest | None = None,
    progress: Callable[[ConversationReport], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> ReconcileReport:
    """Brings each side what only the other has.

    `part` parts the two branches of a conversation that both went on with. `allow_code` lets
    code into memories' work trees that comes from elsewhere. `rest`: how long Letta must have
    written nothing for its files to be written. `check` is called again and again; what it
    raises ends the run, and the next one goes on from there. Raises NotFound if the directory is
    none of Letta's, StoreUnavailable, or Conflict.
    """
    directory = Path(directory)
    _check(directory)
    memories = AgentMemories(space, directory, allow_code=allow_code)
    with Restoring.opened(space, directory, rest=rest, memory=memories, part=part) as restoring:
        run = _Reconciling(space, restoring.importer, restoring)
        run.check = check
        report = run.run(progress)
    report.memories = memories.changes
    return report


def reconcile_memories(
    space: Space, directory: Path | str, *, allow_code: bool = False
) -> ReconcileReport:
    """The same, of the agents' memories alone. Raises NotFound or StoreUnavailable."""
    directory = Path(directory)
    _check(directory)
    memories = AgentMemories(space, directory, allow_code=allow_code)
    with Restoring.opened(space, directory, memory=memories) as restoring:
        _Reconciling(space, restoring.importer, restoring).memories()
        report = ReconcileReport(restoring.importer.report, restoring.report)
    report.memories = memories.changes
    return report


def _check(directory: Path) -> None:
    """Raises NotFound where there is nothing that could be locked."""
    if not directory.is_dir():
        list_directory(directory)


class _Reconciling(Looking):
    check: Callable[[], None] = staticmethod(lambda: None)

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
                known = importer.synced[each.key]
                entry = ConversationReport(each.key, known.name, read=False)
                importer.report.conversations.append(entry)
            else:
                entry = self.conversation(each)
            if progress is not None:
                progress(entry)
        done = self.new(self.changes.conversations)
        # What became a fork just now, and what gave its place to one.
        done = self.new(Changes(self.space, self.changes.head).conversations) and done
        done = done and not restoring.lacks_memory
        head = self.changes.head
        if done and head is not None and head != synced.rev(self.space, importer.name):
            synced.set_rev(self.space, importer.name, head)
        return self.report

    def agent(self, agent: AgentFile) -> None:
        """An agent's file: what was changed there is brought in, then the other way."""
        rkey = agent_key(agent.id)
        known = self.importer.synced.get(f"{synced.AGENT}{agent.id}")
        is_same = known is not None and known.mark == mark(agent)
        if is_same:
            self.importer.report.agents.unchanged += 1
        else:
            self.importer.agent(agent)
            self.importer.writer.flush()
        self.memory(agent)
        if not is_same or rkey in self.changes.agents:
            self.restoring.agent(rkey)

    def memories(self) -> None:
        """The memories of all agents that are there."""
        for agent in self.importer.listing.agents:
            self.memory(agent)

    def memory(self, agent: AgentFile) -> None:
        self.check()
        rkey = agent_key(agent.id)
        if self.space.repo.get(AGENT, rkey) is not None and not self.is_hidden(rkey):
            with suppress(LettaspaceError):  # which the report has
                self.restoring.memory(rkey, agent.id)

    def conversation(self, directory: ConversationDir) -> ConversationReport:
        self.check()
        entry = self.bring_in(directory)
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
        self.restoring.keys.refresh()
        done = True
        for tid in self.missing(tids):
            self.check()
            brought = self.restoring.conversation(tid, again=False)
            done = done and (brought is None or brought.outcome is not Outcome.BUSY)
        return done
