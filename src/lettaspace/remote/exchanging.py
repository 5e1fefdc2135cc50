"""Exchanging: a home's own repo with its host, and where others write in the space, theirs too.

    with Link(space, account) as link:
        done = exchange(link)

What was done until something ends it stays done.
"""

import time
from dataclasses import dataclass
from typing import Any

from lettaspace.atproto.uri import parse_space_ref
from lettaspace.errors import LettaspaceError
from lettaspace.remote import replicas
from lettaspace.remote.linking import Link, quiet
from lettaspace.remote.members import MembersReport, sync_members
from lettaspace.remote.replicas import Replica
from lettaspace.remote.syncing import SyncReport, problem
from lettaspace.space.verify import Progress


@dataclass(slots=True)
class Exchange:
    """What was done. `members`: None where others' repos were not asked for; `kept_out`: they
    would have been, but the session gets no credentials."""

    own: SyncReport
    members: MembersReport | None = None
    kept_out: bool = False

    @property
    def did_something(self) -> bool:
        others = self.members.synced.values() if self.members is not None else ()
        return self.own.did_something or any(each.did_something for each in others)

    @property
    def asked_others(self) -> bool:
        return self.members is not None

    def add(self, later: "Exchange") -> None:
        """Adds what a later exchange with the same host did."""
        self.own.add(later.own)
        if later.members is not None:
            self.members = later.members
        self.kept_out = self.kept_out or later.kept_out

    def to_json(self) -> dict[str, Any]:
        members = None if self.members is None else self.members.to_json()
        return {**self.own.to_json(), "members": members}


def exchange(
    link: Link,
    progress: Progress = quiet,
    *,
    pull: bool = True,
    push: bool = True,
    members: bool | None = None,
) -> Exchange:
    """Syncs the own repo, and reads others' if `members` says so; None: in a pull, if the space
    is another's or others' records are here already, and the session may.

    Raises as `Syncer.sync` and `sync_members` do. What keeps us out of the space is noted for
    `standing`, as what keeps our own repo from being in sync is.
    """
    with link.space.database.read() as connection:
        before = replicas.own(connection)
    done = Exchange(link.syncer(progress).sync(pull=pull, push=push))
    if done.own.blobs:
        link.look_for_leaks()
    if members is None and pull and is_shared(link):
        members = link.account.capabilities.delegates
        done.kept_out = not members
    if members:
        try:
            done.members = sync_members(link, progress)
        except LettaspaceError as error:
            _note(link, before, problem(error))
            raise
    return done


def is_shared(link: Link) -> bool:
    """Whether the space is another's, or others' records are here."""
    if parse_space_ref(link.host.space).authority != link.account.did:
        return True
    with link.space.database.read() as connection:
        return bool(replicas.members(connection))


def _note(link: Link, before: Replica | None, name: str) -> None:
    """What is wrong, and since when: the sync of the own repo has just taken it off."""
    since = before.problem_since if before is not None and before.problem == name else None
    with link.space.database.write() as connection:
        repo = link.space.repo.id
        replicas.note_problem(connection, repo, name, since or int(time.time()))
