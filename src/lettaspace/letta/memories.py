"""An agent's memory in the space: its git repository is stored as bundles, and restored.

from lettaspace.letta.memories import restore, store

print(store(space, "agent-local-1", directory).outcome)     # on one machine
print(restore(space, "agent-local-1", directory).outcome)   # on another one

docs/memory.md has the rules. Two hold above all: no commit that was ever stored is lost, and
nothing of the user's is ever reset, deleted or left in conflict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from lettaspace.conversation.memory import said
from lettaspace.conversation.records import MEMORY
from lettaspace.conversation.times import after
from lettaspace.errors import Conflict, Damaged
from lettaspace.letta import bundles, cloning, merging
from lettaspace.letta.checkout import Checkout, Moved
from lettaspace.letta.code import held
from lettaspace.letta.memoryrecord import Part, Stored, stored_memory
from lettaspace.letta.repository import (
    APART,
    HEADS,
    LOCAL,
    OURS,
    STORED,
    SYNCED,
    Repository,
    alone,
)
from lettaspace.space.writes import Create, Update, Write

if TYPE_CHECKING:
    from lettaspace.atproto.cid import CID
    from lettaspace.conversation.space import Space

MAX_BUNDLES = 20
"""So many bundles are packed into one again."""

MAX_HEADS = 100
"""So many other heads are tied together by one commit."""

_SMALL = 256 << 10
_TRIES = 5


class Outcome(StrEnum):
    """What became of a memory."""

    STORED = "stored"
    """There was something new, and the space has it now."""
    UNCHANGED = "unchanged"
    """The space had all of it already."""
    UNRESOLVED = "unresolved"
    """The work tree has conflicts that nobody resolved, so nothing was stored."""
    RESTORED = "restored"
    """There was no directory, and now there is one."""
    CURRENT = "current"
    """The directory had all of it already; it may have more."""
    FORWARDED = "forwarded"
    """The directory was behind, and was taken forward."""
    MERGED = "merged"
    """Both had gone on, and git merged them cleanly."""
    CONFLICT = "conflict"
    """Both had gone on, and git cannot merge them. Both are kept."""
    UNRELATED = "unrelated"
    """The two have no history in common. Both are kept."""
    UNCOMMITTED = "uncommitted"
    """Something in the work tree is in the way that is not committed. Later, perhaps."""
    BUSY = "busy"
    """git is at work there, or in the middle of something. Later, perhaps."""


_FAILED = {Outcome.UNRESOLVED, Outcome.CONFLICT, Outcome.UNRELATED}
_LATER = {Outcome.UNCOMMITTED, Outcome.BUSY}


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What was found and done. Paths are relative to the memory directory."""

    agent: str
    """The agent's record key."""
    outcome: Outcome
    branch: str
    head: str | None
    """The commit that the space has as the memory's, after this; None: it has none."""
    local: str | None = None
    """The commit that the directory's branch stands at, after this."""
    message: str = ""
    """One line on what is odd, or what to do."""
    uncommitted: tuple[str, ...] = ()
    """What in the work tree is not committed, so that it is not stored."""
    conflicts: tuple[str, ...] = ()
    """Files that are in conflict: in the work tree, or between the two histories."""
    code: tuple[str, ...] = ()
    """Code that came from the space, whether it was left out or not."""
    left_out: tuple[str, ...] = ()
    """Files of the commit that are not in the work tree: code that nobody allowed, and links
    that lead outside."""
    refs: tuple[str, ...] = ()
    """Names of the refs under which other histories are kept."""
    identity: str = ""
    """In whose name a merge was committed."""
    bundles: int = 0
    size: int = 0
    """Bytes of all bundles in the space."""

    @property
    def ok(self) -> bool:
        """Whether no person has to do anything."""
        return self.outcome not in _FAILED

    @property
    def later(self) -> bool:
        """Whether trying again is enough."""
        return self.outcome in _LATER


def store(space: "Space", agent: str, directory: Path) -> MemoryReport:
    """Brings what is committed in a memory directory into the space, where it is new.

    `agent` is the agent's record key. Raises NotFound (no repository, no commits), Damaged (a
    repository or record that cannot be read), StoreUnavailable (no git, no answer), InvalidInput,
    or Conflict where others write the record without end.
    """
    with said():
        repository = Repository(directory)
        with alone(repository.directory()):
            Checkout(repository).recover()
            for _ in range(_TRIES):
                report = _Storing(space, agent, repository).run()
                if report is not None:
                    return report
    raise Conflict(f"the memory of {agent} is being written by others")


def restore(
    space: "Space", agent: str, directory: Path, *, allow_code: bool = False
) -> MemoryReport:
    """Brings what the space has into a memory directory, which may not be there yet.

    Without `allow_code`, code that is new here stays out of the work tree. Raises NotFound (the
    space has no such memory, or one of its blobs is missing; the directory holds something else),
    Conflict (something came there meanwhile), Damaged, StoreUnavailable or InvalidInput.
    """
    stored = stored_memory(space, agent, required=True)
    with said():
        if not cloning.is_free(directory):
            repository = Repository(directory)
            with alone(repository.directory()):
                return _Restoring(space, repository, stored, allow_code).run()
        left = cloning.clone(space, stored, directory, allow_code=allow_code)
    return MemoryReport(
        agent, Outcome.RESTORED, stored.branch, stored.head, stored.head,
        code=tuple(sorted(left.code)), left_out=tuple(sorted(left.without(allow_code))),
        refs=tuple(f"{APART}{each}" for each in stored.others),
        bundles=len(stored.parts), size=stored.size,
    )  # fmt: skip


class _Storing:
    def __init__(self, space: "Space", agent: str, repository: Repository) -> None:
        self._space = space
        self._agent = agent
        self._repository = repository
        self._stored = stored_memory(space, agent)

    def run(self) -> MemoryReport | None:
        """None: the record changed meanwhile."""
        repository = self._repository
        state = repository.memory.state()
        revision = state.require()
        if repository.is_shallow():
            raise Damaged(f"{repository.path} was cloned without its whole history")
        stored = self._stored
        branch = state.branch or "main"
        if stored is not None and repository.named(HEADS + stored.branch) is not None:
            branch = stored.branch
        local = repository.named(HEADS + branch) or revision
        tree = repository.memory.work_tree()
        report = MemoryReport(
            self._agent, Outcome.UNCHANGED, branch, stored.head if stored else None, local,
            uncommitted=tree.uncommitted, conflicts=tree.conflicts,
            bundles=len(stored.parts) if stored else 0, size=stored.size if stored else 0,
        )  # fmt: skip
        if tree.conflicts:
            return replace(report, outcome=Outcome.UNRESOLVED)
        if stored is not None:
            take_in(self._space, repository, stored)
        # What a record of ours said must be remembered here: another one may take its place.
        repository.keep(LOCAL + branch, local)
        if not repository.is_ancestor(revision, local):
            repository.point(APART + revision, revision)
        head = self._head(local, branch)
        others = self._others(head)
        if stored is None or (head, others, branch) != (stored.head, stored.others, stored.branch):
            written = self._write(head, others, branch)
            if written is None:
                return None
            report = replace(
                report, outcome=Outcome.STORED, head=head,
                bundles=len(written.parts), size=written.size,
            )  # fmt: skip
        if repository.is_ancestor(head, local):
            repository.keep(SYNCED + branch, head)
        return replace(report, refs=tuple(_kept(repository, local)))

    def _head(self, local: str, branch: str) -> str:
        """The commit that the record is to name as the memory's."""
        stored = self._stored
        if stored is None or self._repository.is_ancestor(stored.head, local):
            return local
        if stored.head == self._repository.named(SYNCED + branch):
            return local  # it was here once, so somebody went back, or wrote it anew
        return stored.head

    def _others(self, head: str) -> tuple[str, ...]:
        """Every other commit that must not be lost: what was here, or is in the record."""
        repository = self._repository
        every = {head, *repository.refs(OURS).values()}
        if self._stored is not None:
            every |= {self._stored.head, *self._stored.others}
        others = tuple(each for each in repository.independent(every) if each != head)
        if len(others) > MAX_HEADS:
            return (merging.tie(repository, others),)
        return others

    def _write(self, head: str, others: tuple[str, ...], branch: str) -> Stored | None:
        stored = self._stored
        parts = list(stored.parts) if stored else []
        known = [stored.head, *stored.others] if stored else []
        blobs: dict[CID, bytes] = {}
        new = self._bundles([head, *others], known, branch, blobs)
        parts += new
        if self._is_many(parts) and len(parts) > 1:
            blobs = {}
            parts = self._bundles([head, *others], [], branch, blobs)
        space = self._space
        before = stored.updated_at if stored else None
        result = Stored(
            self._agent, branch, head, others, tuple(parts), after(space.now(), before), None
        )
        value = result.value(space.address.agent(self._agent))
        write: Write = Create(MEMORY, self._agent, value)
        if stored is not None:
            write = Update(MEMORY, self._agent, value, stored.cid)
        try:
            space.repo.apply_writes([write], blobs=blobs)
        except Conflict:
            return None
        return result

    def _bundles(
        self, heads: Sequence[str], known: Sequence[str], branch: str, blobs: "dict[CID, bytes]"
    ) -> list[Part]:
        """Bundles for those heads that are not known, each after the ones before it."""
        repository = self._repository
        known = list(known)
        parts = []
        for head in heads:
            if any(repository.is_ancestor(head, each) for each in known):
                continue
            bundle = bundles.create(repository, head, known, branch)
            part, more = Part.sealed(bundle)
            blobs.update(more)
            parts.append(part)
            known.append(head)
        return parts

    @staticmethod
    def _is_many(parts: Sequence[Part]) -> bool:
        """Whether bundles are to be packed into one again."""
        later = sum(part.size for part in parts[1:])
        return len(parts) > MAX_BUNDLES or later > max(parts[0].size, _SMALL)


class _Restoring:
    def __init__(
        self, space: "Space", repository: Repository, stored: Stored, allow_code: bool
    ) -> None:
        self._space = space
        self._repository = repository
        self._stored = stored
        self._allow_code = allow_code
        self._checkout = Checkout(repository)

    def run(self) -> MemoryReport:
        repository, stored = self._repository, self._stored
        self._checkout.recover()
        state = repository.memory.state()
        local = state.require()
        report = MemoryReport(
            stored.agent, Outcome.BUSY, stored.branch, stored.head, local,
            uncommitted=repository.memory.work_tree().uncommitted,
            bundles=len(stored.parts), size=stored.size,
        )  # fmt: skip
        if self._checkout.is_busy():
            return replace(report, message="git is at work there, or was stopped in the middle")
        take_in(self._space, repository, stored)
        if state.branch != stored.branch:
            here = state.branch or "no branch"
            said_so = f"the directory is on {here}, the memory on {stored.branch}"
            return self._ended(replace(report, message=said_so), local)
        return self._ended(self._bring(report, local), local)

    def _bring(self, report: MemoryReport, local: str) -> MemoryReport:
        repository, stored = self._repository, self._stored
        synced = repository.named(SYNCED + stored.branch)
        if stored.head == synced or repository.is_ancestor(stored.head, local):
            return self._move(report, local, local, Outcome.CURRENT)
        if repository.is_ancestor(local, stored.head):
            return self._move(report, local, stored.head, Outcome.FORWARDED)
        if not repository.are_related(local, stored.head):
            repository.keep(LOCAL + stored.branch, local)
            unrelated = "the two have no history in common; nothing was changed"
            return replace(report, outcome=Outcome.UNRELATED, message=unrelated)
        if self._checkout.changed():
            return replace(report, outcome=Outcome.UNCOMMITTED)
        merged = merging.merge(repository, local, stored.head)
        if merged.commit is None:
            repository.keep(LOCAL + stored.branch, local)
            return replace(
                report, outcome=Outcome.CONFLICT, conflicts=merged.conflicts, message=merged.message
            )
        report = replace(report, identity=merged.identity)
        return self._move(report, local, merged.commit, Outcome.MERGED)

    def _move(self, report: MemoryReport, old: str, new: str, done: Outcome) -> MemoryReport:
        """Takes the work tree there, with the code that may be in it."""
        repository, checkout = self._repository, self._checkout
        if old == new and not checkout.is_own_sparse:
            return self._done(replace(report, outcome=done), new)
        present, absent = checkout.entries()
        found = held(repository, new, present)
        left_out = found.without(self._allow_code)
        report = replace(
            report,
            code=tuple(sorted(found.code)),
            left_out=tuple(sorted(left_out)),
        )
        if old == new and left_out == absent:
            moved = Moved.DONE
        elif left_out and checkout.is_foreign_sparse:
            own = "the directory has a sparse checkout of its own, so no code can be left out"
            return replace(report, outcome=Outcome.UNCOMMITTED, message=own)
        else:
            moved = checkout.move(old, new, left_out, done.value)
        if moved is Moved.BUSY:
            return replace(report, outcome=Outcome.BUSY)
        if moved is Moved.IN_THE_WAY:
            return replace(report, outcome=Outcome.UNCOMMITTED)
        return self._done(replace(report, outcome=done, local=new), new)

    def _done(self, report: MemoryReport, local: str) -> MemoryReport:
        """Notes that the branch has the stored head in its history, if it does."""
        if self._repository.is_ancestor(self._stored.head, local):
            self._repository.keep(SYNCED + self._stored.branch, self._stored.head)
        return report

    def _ended(self, report: MemoryReport, local: str) -> MemoryReport:
        return replace(report, refs=tuple(_kept(self._repository, report.local or local)))


def take_in(space: "Space", repository: Repository, stored: Stored) -> None:
    """Puts into a repository what the space has of the history, under refs of ours.

    Raises Damaged for bundles that are none or lack something, NotFound for a missing blob.
    """
    heads = (stored.head, *stored.others)
    missing = [each for each in heads if not repository.has(each)]
    if missing:
        for part in stored.parts:
            if not repository.has(part.head):
                bundles.unpack(repository, part.open(space.repo.get_blob))
        for head in missing:
            if not repository.is_commit(head):
                raise Damaged(f"the memory of {stored.agent} has no bundle with commit {head}")
        bundles.check_connected(repository, missing)
        if not repository.is_branch(stored.branch):
            raise Damaged(f"the memory of {stored.agent} names no branch")
    if stored.head in missing:
        repository.keep(STORED + stored.branch, stored.head)
    for head in stored.others:
        if head in missing:
            repository.point(APART + head, head)


def _kept(repository: Repository, local: str) -> list[str]:
    """Refs of ours that name what the branch does not have."""
    named = repository.refs(OURS)
    return [name for name in sorted(named) if not repository.is_ancestor(named[name], local)]
