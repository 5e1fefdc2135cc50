"""The list of conversations and agents, kept current by a process that runs for long."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from lettaspace.conversation import overview
from lettaspace.conversation.overview import AgentInfo, ConversationInfo
from lettaspace.conversation.roster import Roster
from lettaspace.errors import InvalidInput
from lettaspace.space import schema
from lettaspace.space.database import Database
from lettaspace.space.view import View
from lettaspace.space.writes import Op

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

MAX_OPS = 10_000
"""After more writes than that everything is read anew, which costs no more."""


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
    """Tells, in microseconds, whether anybody wrote to a store: this process or another.

    SQLite tells a connection when others have written, so this one is for nothing else.
    """

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

    def forget(self) -> None:
        """Makes the next answer True."""
        self._seen = None

    def close(self) -> None:
        self._connection.close()


class Listing:
    """A space's conversations and agents in memory. Safe to use from several threads.

    Built once, in time that grows with the number of messages; `refresh` then costs what was
    written since. Close it, or use it in `with`, before its space is closed.
    """

    def __init__(self, space: "Space") -> None:
        self.space = space
        self._lock = threading.RLock()
        self._version = 0
        self._built = 0
        """The version of which `_roster` was read anew."""
        self._changed: tuple[dict[str, int], dict[str, int]] = ({}, {})
        """By conversation and by agent the version that changed it, the newest last."""
        self._heads: dict[int, str | None] = {}
        """The revisions of the repos that `_roster` is of; empty: it is not to be relied on."""
        self._pulse = Pulse(space.database)
        try:
            with space.database.read() as connection:
                self._pulse.changed()
                self._build(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self._lock:
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
            before = self._version
            # Asked before the store is read: what is written meanwhile is found the next time.
            if self._pulse.changed():
                try:
                    with self.space.database.read() as connection:
                        self._read(connection)
                except BaseException:
                    self._pulse.forget()
                    self._heads = {}
                    raise
            return self.changed_since(before)

    def changed_since(self, version: int) -> Changes:
        """What the refreshes after a `version` changed; for several observers of one listing."""
        with self._lock:
            if version < self._built:
                return Changes(self._version, everything=True)
            conversations, agents = (_newer(each, version) for each in self._changed)
            return Changes(self._version, conversations, agents)

    def conversations(
        self, agent: str | None = None, *, start: int = 0, limit: int | None = None
    ) -> tuple[list[ConversationInfo], int]:
        """Some conversations, the most recently used first, and how many there are in all.

        With `agent` (its URI or key) only its own.
        """
        with self._lock:
            roster = self._roster
            keys = roster.keys
            if agent is not None:
                uri = agent if agent.startswith("at://") else self.space.address.agent(agent)
                keys = roster.keys_of.get(uri, [])
            end = max(len(keys) - start, 0)
            some = keys[0 if limit is None else max(end - limit, 0) : end]
            return [roster.infos[key[-1]] for key in reversed(some)], len(keys)

    def get(self, rkey: str) -> ConversationInfo | None:
        """The conversation with this TID."""
        with self._lock:
            return self._roster.infos.get(self._roster.uris.get(rkey, ""))

    def find(self, name: str) -> ConversationInfo:
        """The conversation called by a TID, URI, Letta id or an unambiguous prefix.

        Raises NotFound or Ambiguous.
        """
        with self._lock:
            exact = self.get(name) or self._roster.infos.get(name)
            return exact or overview.find(self._roster.infos.values(), name)

    def agents(self) -> list[AgentInfo]:
        """All agents, by name."""
        with self._lock:
            return list(self._roster.agents().values())

    def agent(self, rkey: str) -> AgentInfo | None:
        """The agent with this key."""
        with self._lock:
            return self._roster.agent(rkey)

    def _read(self, connection: Connection) -> None:
        heads = _heads(connection)
        if heads == self._heads:
            return
        touched = None
        ops = self._ops(connection, heads)
        if ops is not None:
            with suppress(InvalidInput):  # a damaged message: the index says what is needed
                touched = self._roster.apply(connection, self._view(connection), ops)
        if touched is None:
            self._build(connection)
            return
        self._heads = heads
        if touched.conversations or touched.agents:
            self._version += 1
            for changed, now in zip(
                self._changed, (touched.conversations, touched.agents), strict=True
            ):
                for rkey in now:
                    changed.pop(rkey, None)
                    changed[rkey] = self._version

    def _ops(self, connection: Connection, heads: dict[int, str | None]) -> list[Op] | None:
        """What was written since; None where the log does not tell, or tells too much."""
        own = self.space.repo.id
        last = self._heads.get(own)
        if last is None or heads != self._heads | {own: heads.get(own)}:
            return None
        # With the last one seen: a log that lacks it is another, or was cut off.
        ops = list(self._view(connection).ops((last, -1), MAX_OPS + 1))
        if not ops or len(ops) > MAX_OPS or (ops[0].rev, ops[-1].rev) != (last, heads[own]):
            return None
        return [op for op in ops if op.rev != last]

    def _build(self, connection: Connection) -> None:
        self._roster = Roster(connection, self._view(connection), self.space.address)
        self._heads = _heads(connection)
        self._version += 1
        self._built = self._version
        self._changed = ({}, {})

    def _view(self, connection: Connection) -> View:
        return View(connection, self.space.repo.id)


def _heads(connection: Connection) -> dict[int, str | None]:
    rows = connection.execute(select(schema.repos.c.id, schema.repos.c.rev))
    return {row.id: row.rev for row in rows}


def _newer(changed: dict[str, int], version: int) -> frozenset[str]:
    found = []
    for rkey, at in reversed(changed.items()):
        if at <= version:
            break
        found.append(rkey)
    return frozenset(found)
