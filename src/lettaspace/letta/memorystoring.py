"""Stores what is committed in a memory directory, as a new version of the agent's record."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lettaspace.conversation.records import MEMORY
from lettaspace.conversation.times import after
from lettaspace.errors import Conflict, Damaged
from lettaspace.letta import bundles, mergecommit
from lettaspace.letta.memoryrecord import Part, Stored, stored_memory
from lettaspace.letta.memoryreport import MemoryReport, Outcome
from lettaspace.letta.memoryrestoring import kept, take_in
from lettaspace.letta.repository import APART, HEADS, LOCAL, OURS, SYNCED, Repository
from lettaspace.space.writes import Create, Update, Write

if TYPE_CHECKING:
    from lettaspace.atproto.cid import CID
    from lettaspace.conversation.space import Space

MAX_BUNDLES = 20
"""So many bundles, besides one for each head, are packed again."""

MAX_HEADS = 100
"""So many other heads are tied together by one commit."""

MAX_INCLUDED = 100

SMALL = 256 << 10
"""Bytes that later bundles may take together, however small the first one is."""


class Storing:
    """One attempt."""

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
        return replace(report, refs=tuple(kept(repository, local)))

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
            tied = mergecommit.tie(repository, others)
            repository.point(APART + tied, tied)
            return (tied,)
        return others

    def _write(self, head: str, others: tuple[str, ...], branch: str) -> Stored | None:
        stored = self._stored
        parts = list(stored.parts) if stored else []
        known = [stored.head, *stored.others] if stored else []
        blobs: dict[CID, bytes] = {}
        new = self._bundles([head, *others], known, branch, blobs)
        parts += new
        if _are_many(parts, 1 + len(others)):
            blobs = {}
            parts = self._bundles([head, *others], [], branch, blobs)
        included = _included(stored, {head, *others, *(part.head for part in parts)})
        space = self._space
        before = stored.updated_at if stored else None
        result = Stored(
            self._agent, branch, head, others, tuple(parts), after(space.now(), before), None,
            included,
        )  # fmt: skip
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


def _included(stored: Stored | None, named: set[str]) -> tuple[str, ...]:
    """What the record replaced names, and the new one does not: so that whoever has that one
    sees without git that nothing of it is lost."""
    if stored is None:
        return ()
    parts = (part.head for part in reversed(stored.parts))
    every = dict.fromkeys((stored.head, *stored.others, *parts, *stored.included))
    return tuple(each for each in every if each not in named)[:MAX_INCLUDED]


def _are_many(parts: Sequence[Part], heads: int) -> bool:
    """Whether bundles are to be packed again, into one for each head."""
    whole = sum(part.size for part in parts[:heads])
    later = sum(part.size for part in parts[heads:])
    return len(parts) - heads >= MAX_BUNDLES or later > max(whole, SMALL)
