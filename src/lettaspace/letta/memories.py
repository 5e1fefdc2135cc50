"""An agent's memory in the space: its git repository is stored as bundles, and restored.

from lettaspace.letta.memories import restore, store

print(store(space, "agent-local-1", directory).outcome)     # on one machine
print(restore(space, "agent-local-1", directory).outcome)   # on another one

docs/memory.md has the rules. Two hold above all: no commit that was ever stored is lost, and
nothing of the user's is ever reset, deleted or left in conflict.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lettaspace.conversation.memory import said
from lettaspace.errors import Conflict, StoreUnavailable
from lettaspace.letta import cloning
from lettaspace.letta.checkout import Checkout
from lettaspace.letta.memoryrecord import stored_memory
from lettaspace.letta.memoryreport import MemoryReport, Outcome
from lettaspace.letta.memoryrestoring import Restoring
from lettaspace.letta.memorystoring import Storing
from lettaspace.letta.repository import APART, Repository, alone

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

__all__ = ["MemoryReport", "Outcome", "restore", "store"]

TRIES = 5
"""How often the record may be written by others while it is being stored."""


def store(space: "Space", agent: str, directory: Path) -> MemoryReport:
    """Brings what is committed in a memory directory into the space, where it is new.

    `agent` is the agent's record key. Raises NotFound (no repository, no commits), Damaged (a
    repository or record that cannot be read), StoreUnavailable (no git, no answer), InvalidInput,
    or Conflict where others write the record without end.
    """
    with said(), _usable(directory):
        repository = Repository(directory)
        with alone(repository.directory()):
            Checkout(repository).recover()
            for _ in range(TRIES):
                report = Storing(space, agent, repository).run()
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
    with said(), _usable(directory):
        if not cloning.is_free(directory):
            repository = Repository(directory)
            with alone(repository.directory()):
                return Restoring(space, repository, stored, allow_code).run()
        left = cloning.clone(space, stored, directory, allow_code=allow_code)
    return MemoryReport(
        agent, Outcome.RESTORED, stored.branch, stored.head, stored.head,
        code=tuple(sorted(left.code)), left_out=tuple(sorted(left.without(allow_code))),
        links=tuple(sorted(left.links)), refs=tuple(f"{APART}{each}" for each in stored.others),
        bundles=len(stored.parts), size=stored.size,
    )  # fmt: skip


@contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """Raises StoreUnavailable where the system refuses to read or write there."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{directory}: {error.strerror or 'cannot be used'}") from None
