"""The list of conversations and agents, kept current by a process that runs for long."""

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from lettaspace.conversation import overview
from lettaspace.conversation.overview import AgentInfo, ConversationInfo
from lettaspace.space.database import Database

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space


@dataclass(frozen=True, slots=True)
class Changes:
    """What is not as it was."""

    version: int
    """Of the listing; to be given to `Listing.changed_since`."""
    conversations: frozenset[str] = frozenset()
    """The TIDs of conversations that are new, gone, or have other messages, state or prompt."""
    agents: frozenset[str] = frozenset()
    """The keys of agents whose record is another."""
    everything: bool = False
    """The listing was built anew: anything may have changed."""

    def __bool__(self) -> bool:
        return bool(self.everything or self.conversations or self.agents)


class Pulse:
    """Tells, in microseconds, whether anybody wrote to a store: this process or another."""

    def __init__(self, database: Database) -> None:
        self._connection = database.engine.raw_connection()
        self._seen: int | None = None

    def changed(self) -> bool:
        """Whether there were writes since it was last asked; True at first."""
        cursor = self._connection.cursor()
        try:
            (version,) = cursor.execute("PRAGMA data_version").fetchone()
        finally:
            cursor.close()
        changed: bool = version != self._seen
        self._seen = version
        return changed

    def close(self) -> None:
        self._connection.close()


class Listing:
    """A space's conversations and agents in memory. Safe to use from several threads.

    Built once, in time that grows with the number of messages; `refresh` then costs what was
    written since. Close it, or use it in `with`, before its space is closed.
    """

    def __init__(self, space: "Space") -> None:
        self.space = space
        self._pulse = Pulse(space.database)
        self._lock = threading.RLock()
        self._version = 0
        self.refresh()

    def close(self) -> None:
        self._pulse.close()

    def __enter__(self) -> "Listing":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def version(self) -> int:
        """Rises with every refresh that found changes."""
        return self._version

    def refresh(self) -> Changes:
        """Takes in what was written since, by any process; returns what that changed."""
        with self._lock:
            if not self._pulse.changed():
                return Changes(self._version)
            self._version += 1
            self._all = self.space.conversations()
            self._agents = self.space.agents()
            return Changes(self._version, everything=True)

    def changed_since(self, version: int) -> Changes:
        """What the refreshes after a `version` changed; for several observers of one listing."""
        with self._lock:
            return Changes(self._version, everything=version < self._version)

    def conversations(
        self, agent: str | None = None, *, start: int = 0, limit: int | None = None
    ) -> tuple[list[ConversationInfo], int]:
        """Some conversations, the most recently used first, and how many there are in all.

        With `agent` (its URI or key) only its own.
        """
        with self._lock:
            uri = None if agent is None else self.space._agent_uri(agent)
            found = [each for each in self._all if uri is None or each.agent == uri]
            end = None if limit is None else start + limit
            return found[start:end], len(found)

    def get(self, rkey: str) -> ConversationInfo | None:
        """The conversation with this TID."""
        with self._lock:
            return next((each for each in self._all if each.rkey == rkey), None)

    def find(self, name: str) -> ConversationInfo:
        """The conversation called by a TID, URI, Letta id or an unambiguous prefix.

        Raises NotFound or Ambiguous.
        """
        with self._lock:
            return overview.find(self._all, name)

    def agents(self) -> list[AgentInfo]:
        """All agents, by name."""
        with self._lock:
            return list(self._agents)

    def agent(self, rkey: str) -> AgentInfo | None:
        """The agent with this key."""
        with self._lock:
            return next((each for each in self._agents if each.rkey == rkey), None)
