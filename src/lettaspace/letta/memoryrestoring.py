"""Brings what the space has of a memory into a directory that is there already."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lettaspace.errors import Damaged
from lettaspace.letta import bundles, mergecommit
from lettaspace.letta.checkout import Checkout, Moved
from lettaspace.letta.code import held
from lettaspace.letta.memoryrecord import Stored
from lettaspace.letta.memoryreport import MemoryReport, Outcome
from lettaspace.letta.repository import APART, LOCAL, OURS, STORED, SYNCED, Repository

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

_AT_WORK = "git is at work there, or was stopped in the middle"
_IN_THE_WAY = "something that is not committed would have been overwritten"


class Restoring:
    """One attempt."""

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
            return replace(report, message=_AT_WORK)
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
            return replace(report, outcome=Outcome.UNCOMMITTED, message=_IN_THE_WAY)
        merged = mergecommit.merge(repository, local, stored.head)
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
            links=tuple(sorted(found.links)),
        )
        if old == new and left_out == absent:
            moved = Moved.DONE
        elif left_out and checkout.is_foreign_sparse:
            own = "the directory has a sparse checkout of its own, so no code can be left out"
            return replace(report, outcome=Outcome.UNCOMMITTED, message=own)
        else:
            moved = checkout.move(old, new, left_out, done.value)
        if moved is Moved.BUSY:
            return replace(report, outcome=Outcome.BUSY, message=_AT_WORK)
        if moved is Moved.IN_THE_WAY:
            return replace(report, outcome=Outcome.UNCOMMITTED, message=_IN_THE_WAY)
        return self._done(replace(report, outcome=done, local=new), new)

    def _done(self, report: MemoryReport, local: str) -> MemoryReport:
        """Notes that the branch has the stored head in its history, if it does."""
        if self._repository.is_ancestor(self._stored.head, local):
            self._repository.keep(SYNCED + self._stored.branch, self._stored.head)
        return report

    def _ended(self, report: MemoryReport, local: str) -> MemoryReport:
        return replace(report, refs=tuple(kept(self._repository, report.local or local)))


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


def kept(repository: Repository, local: str) -> list[str]:
    """Refs of ours that name what the branch does not have."""
    named = repository.refs(OURS)
    return [name for name in sorted(named) if not repository.is_ancestor(named[name], local)]
