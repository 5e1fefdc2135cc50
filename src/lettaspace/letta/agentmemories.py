"""The memories of a directory's agents, each brought both ways: what is committed there into the
space, and what the space has into the directory.

docs/memory.md has the rules. An agent whose refs and whose record are as they were when both
last had the same costs a few `stat`s, and no run of git.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lettaspace.conversation.memory import said
from lettaspace.conversation.records import MEMORY
from lettaspace.conversation.space import Space
from lettaspace.errors import LettaspaceError, NotFound
from lettaspace.letta import memories, synced
from lettaspace.letta.cloning import is_free
from lettaspace.letta.memoryrecord import stored_memory
from lettaspace.letta.memoryreport import MemoryReport, Outcome
from lettaspace.letta.repository import HEADS, Repository
from lettaspace.letta.synced import Base, Synced

_SAME = frozenset(
    {
        Outcome.UNCHANGED,
        Outcome.STORED,
        Outcome.CURRENT,
        Outcome.RESTORED,
        Outcome.FORWARDED,
        Outcome.MERGED,
    }
)
_CHANGED = _SAME - {Outcome.UNCHANGED, Outcome.CURRENT}


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """What became of one agent's memory."""

    agent: str
    """The agent's record key."""
    stored: MemoryReport | None = None
    """What storing it found; None: the directory had nothing to be stored."""
    restored: MemoryReport | None = None
    """What restoring it found; None: there was nothing to be restored."""
    problem: str = ""
    """One line, where it could not be read or written."""

    @property
    def reports(self) -> list[MemoryReport]:
        return [each for each in (self.stored, self.restored) if each is not None]

    @property
    def ok(self) -> bool:
        """Whether no person has to do anything."""
        return not self.problem and all(each.ok for each in self.reports)

    @property
    def is_done(self) -> bool:
        """Whether both sides have the same, as far as git can bring them there."""
        return self.ok and all(each.outcome in _SAME for each in self.reports)

    @property
    def written(self) -> bool:
        return any(each.outcome in _CHANGED for each in self.reports)

    @property
    def conflicts(self) -> tuple[str, ...]:
        """Files that a person has to look at."""
        return tuple(sorted({path for each in self.reports for path in each.conflicts}))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Code and links that came from the space and stay out of the work tree."""
        return self.restored.left_out if self.restored is not None else ()

    @property
    def links(self) -> tuple[str, ...]:
        """Those of them that are links, and never come."""
        return self.restored.links if self.restored is not None else ()

    def to_json(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "stored": None if self.stored is None else str(self.stored.outcome),
            "restored": None if self.restored is None else str(self.restored.outcome),
            "ok": self.ok,
            "conflicts": list(self.conflicts),
            "leftOut": list(self.left_out),
            "links": list(self.links),
            "uncommitted": sorted({path for each in self.reports for path in each.uncommitted}),
            "refs": sorted({ref for each in self.reports for ref in each.refs}),
            "message": self.problem or next((r.message for r in self.reports if r.message), ""),
        }


class AgentMemories:
    """Brings memories both ways, each once; a `letta.restoring.Memory`.

    `store`: whether the directory's commits are brought into the space, too.
    """

    def __init__(
        self, space: Space, directory: Path, *, allow_code: bool = False, store: bool = True
    ) -> None:
        self.changes: list[MemoryChange] = []
        """Of those that were looked at, and were not as they had been."""
        self._space = space
        self._name = str(directory.resolve())
        self._allow_code = allow_code
        self._store = store
        self._done: set[str] = set()

    @cached_property
    def _known(self) -> dict[str, Synced]:
        """As it is when the first one is brought: nobody else is in the directory then."""
        return synced.load(self._space, self._name)

    def __call__(self, agent: str, path: Path) -> None:
        """Brings an agent's memory, by its record key, to `path` and from there. Raises what
        `memories.restore` does where there is no memory yet and none could be made: Letta must
        not start there."""
        if agent in self._done:
            return
        self._done.add(agent)
        key = f"{synced.MEMORY}{agent}"
        known = self._known.get(key)
        revs = self._revs(agent)
        is_known = known is not None and known.revs == revs and known.mark == refs_mark(path)
        if is_known and not self._allow_code:
            return
        try:
            is_new = is_free(path)
        except (LettaspaceError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self.changes.append(MemoryChange(agent, problem=reason or "it cannot be read"))
            return
        if is_new and revs == "-":
            return
        change = self._bring(agent, path)
        self.changes.append(change)
        if change.problem and is_new:
            raise NotFound(change.problem)
        if change.is_done and self._store:
            # Marks first: what Letta commits, or a pull brings, from here on makes them others.
            now = Synced(agent, mark=refs_mark(path), revs=self._revs(agent))
            if self._is_all_stored(agent, path):
                synced.remember(self._space, self._name, key, now, Base({}))

    def _is_all_stored(self, agent: str, path: Path) -> bool:
        """Whether the branch is at the commit that the space has; Letta may have made another
        one meanwhile."""
        try:
            stored = stored_memory(self._space, agent)
            with said():
                tip = Repository(path).named(HEADS + stored.branch) if stored is not None else None
        except LettaspaceError:
            return False
        return stored is not None and tip == stored.head

    def _bring(self, agent: str, path: Path) -> MemoryChange:
        stored: MemoryReport | None = None
        restored: MemoryReport | None = None
        try:
            if self._store and not is_free(path):
                stored = memories.store(self._space, agent, path)
            if self._revs(agent) != "-":
                restored = memories.restore(self._space, agent, path, allow_code=self._allow_code)
                if stored is not None and restored.outcome is Outcome.MERGED:
                    stored = memories.store(self._space, agent, path)
        except NotFound as error:
            if stored is None and self._revs(agent) == "-":
                return MemoryChange(agent)  # Letta has committed nothing there yet
            return MemoryChange(agent, stored, restored, str(error))
        except LettaspaceError as error:
            return MemoryChange(agent, stored, restored, str(error))
        return MemoryChange(agent, stored, restored)

    def _revs(self, agent: str) -> str:
        with self._space.repo.snapshot() as view:
            return synced.record_rev(view, MEMORY, agent)


def refs_mark(path: Path) -> str:
    """Changes when a commit is made in a memory directory, and when a branch is moved there; ""
    where there is no repository of the usual kind."""
    git = path / ".git"
    seen: list[str] = []
    try:
        for name in ("HEAD", "packed-refs"):
            seen.append(_stat(git / name))
        for place, _, files in os.walk(git / "refs"):
            seen.extend(_stat(Path(place, name)) for name in sorted(files))
    except OSError:
        return ""
    return " ".join(seen) if seen[0] else ""


def _stat(path: Path) -> str:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return ""
    return f"{path.name}:{found.st_ino}:{found.st_mtime_ns}:{found.st_size}"
