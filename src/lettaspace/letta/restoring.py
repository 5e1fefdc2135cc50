"""Restoring: what the space has of agents and conversations, written into Letta's directory.

from lettaspace.letta.restoring import restore

report = restore(space, "/home/b/.letta/lc-local-backend")

docs/letta-restore.md has the rules. Above all: what Letta wrote stays, Letta can open all of it
at every moment, and where nothing differs nothing is written.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.records import (
    AGENT,
    CONVERSATION,
    CONVERSATION_STATE,
    NO_AGENT,
    rkey_of,
)
from lettaspace.conversation.space import Space
from lettaspace.errors import Conflict, Damaged, LettaspaceError, NotFound, StoreUnavailable
from lettaspace.letta import synced
from lettaspace.letta.bringing import Bringing
from lettaspace.letta.brought import Brought, Outcome
from lettaspace.letta.change import Reading
from lettaspace.letta.continuing import Part
from lettaspace.letta.directory import ConversationDir, is_name
from lettaspace.letta.doubt import Rest
from lettaspace.letta.export import letta_agent_id
from lettaspace.letta.importer import Importer
from lettaspace.letta.keys import Keys
from lettaspace.letta.memfs import MEMFS, MEMORY
from lettaspace.letta.placing import Placing

Memory = Callable[[str, Path], object]
"""Brings an agent's memory (by its record key) into a directory, if the space has one. Letta
must not start before: without it, it makes an empty one and sends another prompt. So what it
raises, a LettaspaceError, has an agent left that is not there yet."""


@dataclass(slots=True)
class RestoreReport:
    """What was written, and what was not."""

    agents: list[Brought] = field(default_factory=list[Brought])
    conversations: list[Brought] = field(default_factory=list[Brought])

    @property
    def written(self) -> int:
        """Agents and conversations that were written to."""
        changed = (Outcome.NEW, Outcome.CHANGED)
        return sum(each.outcome in changed for each in (*self.agents, *self.conversations))

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.conversations)

    @property
    def left(self) -> list[Brought]:
        """What was not brought to say the same as the space."""
        return [each for each in (*self.agents, *self.conversations) if not each.is_done]

    def add(self, later: "RestoreReport") -> None:
        """Adds what a later run did."""
        for mine, more in (
            (self.agents, later.agents),
            (self.conversations, later.conversations),
        ):
            places = {each.name: index for index, each in enumerate(mine)}
            for each in more:
                index = places.get(each.name)
                if index is None:
                    mine.append(each)
                elif each.outcome is not Outcome.UNCHANGED or not mine[index].is_done:
                    aside = each.aside or mine[index].aside
                    rows = mine[index].rows + each.rows
                    mine[index] = replace(each, rows=rows, aside=aside)

    def to_json(self) -> dict[str, Any]:
        return {
            "agents": [each.to_json() for each in self.agents],
            "conversations": [each.to_json() for each in self.conversations],
        }


def restore(
    space: Space,
    directory: Path | str,
    *,
    agents: Collection[str] | None = None,
    conversations: Collection[str] | None = None,
    memory: Memory | None = None,
    rest: Rest | None = None,
    dry_run: bool = False,
) -> RestoreReport:
    """Writes agents and conversations of the space into one of Letta's storage directories,
    which is made if it is not there.

    `agents` are record keys or URIs: those, and all their conversations. `conversations` are
    names as `Space.conversation` takes them: those, and their agents. By default everything of
    the agents that are not hidden. Nothing is brought in: what only the directory has stays
    there, and is said. Raises NotFound or Ambiguous for what is named and is not there,
    StoreUnavailable, or Conflict.
    """
    directory = Path(directory)
    if dry_run and not directory.exists():
        # As into one that is empty.
        with TemporaryDirectory() as empty:
            (Path(empty) / "agents").mkdir()
            return restore(space, empty, agents=agents, conversations=conversations, dry_run=True)
    try:
        for name in ("agents", "conversations"):
            if not dry_run:
                (directory / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {directory}: {error.strerror}") from error
    with Restoring.opened(space, directory, rest=rest, dry=dry_run, memory=memory) as restoring:
        return restoring.all(agents, conversations)


class Restoring:
    """Writes into one directory, while nobody else of ours does."""

    def __init__(
        self, space: Space, importer: Importer, bringing: Bringing, memory: Memory | None
    ) -> None:
        self.space = space
        self.importer = importer
        self.bringing = bringing
        self.directory = importer.directory
        self.keys = Keys(space, importer, bringing)
        self.report = RestoreReport()
        self.lacks_memory = False
        """Whether an agent was left because its memory could not be restored."""
        self._memory = memory
        self._agents: dict[str, Brought | None] = {}

    @classmethod
    @contextmanager
    def opened(
        cls,
        space: Space,
        directory: Path,
        *,
        rest: Rest | None = None,
        dry: bool = False,
        memory: Memory | None = None,
        part: Part | None = None,
    ) -> Iterator["Restoring"]:
        placing = Placing(directory, space.home)
        with placing.alone():
            # What is known of the directory is read when nobody else changes it any more.
            importer = Importer(space, directory, dry_run=dry, part=part)
            bringing = Bringing(space, importer, placing, rest or Rest(), dry=dry)
            yield cls(space, importer, bringing, memory)

    def all(
        self, agents: Collection[str] | None, conversations: Collection[str] | None
    ) -> RestoreReport:
        if agents is None and conversations is None:
            for record in self.space.repo.records(AGENT):
                if not record.value.get("hidden"):
                    self.agent(record.rkey)
            agents = [rkey for rkey, done in self._agents.items() if done is not None]
            agents.append(NO_AGENT)
        else:
            agents = [self.agent_key(name) for name in agents or ()]
            for rkey in agents:
                self.agent(rkey)
        wanted = {self.space.conversation(name).rkey for name in conversations or ()}
        owners = {self.space.address.agent(rkey) for rkey in agents}
        for record in self.space.repo.records(CONVERSATION):
            if record.rkey in wanted or record.value["agent"] in owners:
                self.conversation(record.rkey)
        return self.report

    def agent_key(self, name: str) -> str:
        """The record key of an agent that is named by key or URI. Raises NotFound."""
        rkey = rkey_of(name) if name.startswith("at://") else name
        if rkey != NO_AGENT and self.space.repo.get(AGENT, rkey) is None:
            raise NotFound(f"no agent {name}")
        return rkey

    def agent(self, rkey: str) -> bool:
        """Brings an agent, its memory first; whether its conversations can follow."""
        if rkey == NO_AGENT:
            return True
        if rkey not in self._agents:
            brought = self._agent(rkey)
            self.report.agents.append(brought)
            self._agents[rkey] = None if brought.outcome is Outcome.LEFT else brought
        return self._agents[rkey] is not None

    def _agent(self, rkey: str) -> Brought:
        with self.space.repo.snapshot() as view:
            agent_id = letta_agent_id(view, rkey, self.space.repo.get_blob) or rkey
        key = f"{synced.AGENT}{agent_id}"
        if not is_name(agent_id, ".json") or not _is_component(agent_id):
            # Letta makes a path of it.
            return Brought(key, rkey, Outcome.LEFT, note="its id cannot be used as a name")
        try:
            self.memory(rkey, agent_id)
        except LettaspaceError as error:
            self.lacks_memory = True
            note = f"its memory cannot be restored: {error}"
            return Brought(key, rkey, Outcome.LEFT, note=note)
        return self.bringing.agent(rkey, agent_id)

    def memory(self, rkey: str, agent_id: str) -> None:
        """Brings an agent's memory. Raises what `Memory` does."""
        if self._memory is not None and not self.bringing.dry and _is_component(agent_id):
            self._memory(rkey, self.directory / MEMFS / agent_id / MEMORY)

    def conversation(self, tid: str, *, again: bool = True) -> Brought | None:
        """Brings a conversation, its agent first. One that somebody deleted from the directory
        is brought `again`, or not at all: then, None."""
        directory, is_there = self.keys.place(tid)
        if directory is None or (not is_there and not again and self.keys.get(tid) is not None):
            return None
        record = self.space.repo.get(CONVERSATION, tid)
        agent = rkey_of(record.value["agent"]) if record is not None else NO_AGENT
        if not self.agent(agent):
            brought = Brought(directory.key, tid, Outcome.LEFT, note="its agent was left")
        elif is_there:
            brought = self.bringing.existing(directory)
        else:
            brought = self._new(directory, tid)
        self.report.conversations.append(brought)
        return brought

    def _new(self, directory: ConversationDir, tid: str) -> Brought:
        with self.space.repo.snapshot() as view:
            uri = self.space.address.conversation(tid)
            has_messages = find_conversation_id(view.connection, uri) is not None
            state = view.get(CONVERSATION_STATE, tid)
            if has_messages and not Reading(self.space, view).has_letta(tid):
                note = "its messages are another harness's"
                return Brought("", tid, Outcome.LEFT, note=note)
        if not has_messages and state is None:
            return Brought("", tid, Outcome.LEFT, note="nothing was ever said in it")
        try:
            brought = self.bringing.new(directory, tid)
        except (Damaged, NotFound) as error:
            return Brought(directory.key, tid, Outcome.LEFT, note=str(error))
        except Conflict as error:
            return Brought(directory.key, tid, Outcome.BUSY, note=str(error))
        self.keys.note(tid, directory.key)
        return brought


def _is_component(name: str) -> bool:
    """Whether a name leads nowhere but into the directory that it stands in."""
    return name not in (".", "..") and name.isprintable() and not set(name) & set("/\\:")
