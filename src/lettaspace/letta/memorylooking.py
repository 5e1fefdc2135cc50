"""How the memories in a directory stand to those in the space. Nothing is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lettaspace.conversation.memory import said
from lettaspace.conversation.records import AGENT
from lettaspace.conversation.space import Space
from lettaspace.errors import LettaspaceError
from lettaspace.letta.cloning import is_free
from lettaspace.letta.export import letta_agent_id
from lettaspace.letta.memfs import MEMFS, MEMORY, memory_path
from lettaspace.letta.memoryrecord import Stored, stored_memory
from lettaspace.letta.repository import SYNCED, Repository


@dataclass(frozen=True, slots=True)
class MemoryDifference:
    """An agent's memory that is not the same on both sides, or has something uncommitted."""

    agent: str
    """The agent's record key."""
    reason: str
    """`directory`, `space`, `both`, `notHere`, `unrelated`, `damaged`; "" where both have the
    same commits."""
    head: str | None
    """The commit that the space has."""
    local: str | None
    """The commit that the directory's branch stands at."""
    uncommitted: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "reason": self.reason,
            "head": self.head,
            "local": self.local,
            "uncommitted": list(self.uncommitted),
            "conflicts": list(self.conflicts),
            "note": self.note,
        }


def memory_differences(space: Space, directory: Path) -> list[MemoryDifference]:
    """Of all agents that are not hidden, those whose memory differs. Raises StoreUnavailable
    where the directory cannot be listed."""
    found: list[MemoryDifference] = []
    for record in space.repo.records(AGENT):
        if record.value.get("hidden"):
            continue
        difference = _compare(space, directory, record.rkey)
        if difference is not None:
            found.append(difference)
    return found


def _compare(space: Space, directory: Path, agent: str) -> MemoryDifference | None:
    head: str | None = None
    try:
        stored = stored_memory(space, agent)
        head = stored.head if stored is not None else None
        path = memory_path(directory, agent)
        if path is None or is_free(path):
            return _absent(space, directory, agent, head)
        with said():
            return _looked(Repository(path), stored, agent)
    except LettaspaceError as error:
        return MemoryDifference(agent, "damaged", head, None, note=str(error))


def _absent(space: Space, directory: Path, agent: str, head: str | None) -> MemoryDifference | None:
    if head is None:
        return None
    with space.repo.snapshot() as view:
        agent_id = letta_agent_id(view, agent, space.repo.get_blob) or agent
    place = directory / MEMFS / agent_id / MEMORY
    return MemoryDifference(agent, "notHere", head, None, note=f"nothing at {place}")


def _looked(repository: Repository, stored: Stored | None, agent: str) -> MemoryDifference | None:
    state = repository.memory.state()
    local = state.revision
    tree = repository.memory.work_tree()
    head = stored.head if stored is not None else None
    if local is None and head is None:
        return None
    reason = ""
    if stored is None:
        reason = "directory"
    elif local is None:
        reason = "space"
    elif stored.head != local:
        reason = _reason(repository, stored, local, state.branch or stored.branch)
    if not (reason or tree.uncommitted or tree.conflicts):
        return None
    return MemoryDifference(
        agent, reason, head, local, tuple(tree.uncommitted), tuple(tree.conflicts)
    )


def _reason(repository: Repository, stored: Stored, local: str, branch: str) -> str:
    synced = repository.named(SYNCED + branch)
    went_on_here = local != synced and local not in (stored.head, *stored.others)
    if repository.has(stored.head):
        if repository.is_ancestor(stored.head, local):
            return "directory"
        if repository.is_ancestor(local, stored.head):
            return "space"
        if stored.head == synced:
            return "directory"
        return "both" if repository.are_related(local, stored.head) else "unrelated"
    return "both" if went_on_here else "space"
