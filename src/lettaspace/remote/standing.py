"""How a replica stands to its host: in sync, ahead, behind, parted, waiting, and since when.

What is here is known at any time; what is there only when the host is asked.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from lettaspace.conversation.space import Space
from lettaspace.errors import Conflict, HostRefused, LettaspaceError
from lettaspace.remote import replicas
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.mirror import Mirror
from lettaspace.remote.syncing import problem

_PASSING = frozenset({"unreachable", "signed-out", "rate-limited", "emptied"})
"""Problems that are over once the host answers."""

LOOK = 1_000
"""Records that are counted one by one, here as well as there."""


@dataclass(slots=True)
class Standing:
    """Counts are of records; None: not known. Times are seconds since 1970."""

    host: str
    ahead: int
    """Records here that the host has not, or has in an older version."""
    behind: int | None = None
    """Records that changed at the host since the last sync; at `LOOK`, so many or more."""
    synced_at: int | None = None
    problem: str | None = None
    """What kept the last sync from being one, or keeps the host from answering; see
    `syncing.problem`."""
    problem_since: int | None = None
    until: float | None = None
    """Until when the host asks to be left alone."""
    diverged: list[str] = field(default_factory=list[str])
    """TIDs of conversations that two machines went on with, and of the forks that came of it."""
    held: dict[str, int] = field(default_factory=dict[str, int])
    """Records that stay otherwise here than there, by the reason; see `mirror`."""

    @property
    def in_sync(self) -> bool:
        return not (self.ahead or self.behind or self.problem or self.held) and (
            self.synced_at is not None
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "inSync": self.in_sync,
            "ahead": self.ahead,
            "behind": self.behind,
            "syncedAt": self.synced_at,
            "problem": self.problem,
            "problemSince": self.problem_since,
            "diverged": self.diverged,
            "held": self.held,
        }


def standing(space: Space, host: HostRepo | None = None) -> Standing | None:
    """How the space stands to its host; None if it has none. With `host` given, it is asked
    what is new there; if it does not answer, that is the problem."""
    with space.database.read() as connection:
        replica = replicas.own(connection)
        if replica is None:
            return None
        mirror = Mirror(connection, replica.repo)
        held: dict[str, int] = {}
        for _, reason in mirror.held():
            held[reason] = held.get(reason, 0) + 1
        found = Standing(
            replica.host,
            len(mirror.pending()),
            synced_at=replica.synced_at,
            problem=replica.problem,
            problem_since=replica.problem_since,
            held=held,
        )
    found.diverged = [each.rkey for each in space.conversations() if each.diverged]
    if host is not None:
        try:
            found.behind = _behind(host, replica)
        except LettaspaceError as error:
            if (now := problem(error)) != found.problem:
                found.problem, found.problem_since = now, None
            if isinstance(error, HostRefused) and error.retry_after is not None:
                found.until = time.time() + error.retry_after
        else:
            if found.problem in _PASSING:
                found.problem = found.problem_since = None
    return found


def _behind(host: HostRepo, replica: replicas.Replica) -> int:
    """How many records changed at the host since `replica.rev`. Raises Conflict where the host
    has none of them any more."""
    changed: set[tuple[str, str]] = set()
    commit = None
    for page in host.ops(replica.rev or None, values=False, page=LOOK):
        commit = page.commit
        changed |= {(op.collection, op.rkey) for op in page.ops}
        if len(changed) >= LOOK:
            return len(changed)
    if replica.rev and commit is None and host.latest_commit() is None:
        raise Conflict("the host has nothing of this space any more")
    return len(changed)
