"""The repository of a memory directory as it is written to: its refs, and how commits stand.

Refs of ours are all under `refs/lettaspace/`, and no other ref is ever made, moved or deleted,
but for the branch that a checkout takes forward (`checkout`):

- `synced/<branch>`: the stored head that the branch last had in its history;
- `stored/<branch>`: the stored head as it was last seen, where the branch lacks it;
- `local/<branch>`: where the branch stood when it was last stored, or could not be merged;
- `apart/<commit>`: whatever one of these named before and has no more in its history, and the
  other heads of the record. git never collects what they name.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lettaspace.conversation.memory import REVISION, MemoryDirectory
from lettaspace.errors import Damaged

OURS = "refs/lettaspace/"
SYNCED = f"{OURS}synced/"
STORED = f"{OURS}stored/"
LOCAL = f"{OURS}local/"
APART = f"{OURS}apart/"
HEADS = "refs/heads/"

TIMEOUT = 300.0
"""Seconds that one git command may take: some read or write a whole history."""


class Repository:
    """A memory directory's repository.

    Methods raise Damaged for what git cannot do there, and UnusableError, which
    `memory.said` makes the errors of, where it gives no answer.
    """

    def __init__(self, path: Path) -> None:
        self.memory = MemoryDirectory(path, timeout=TIMEOUT)
        self.git = self.memory.git
        self.path = self.memory.path
        self._directory: Path | None = None
        self.settings: Mapping[str, str] = {
            "core.useReplaceRefs": "false",
            "gc.auto": "0",
            "maintenance.auto": "false",
        }

    def ask(
        self,
        what: str,
        *arguments: str,
        given: bytes = b"",
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """What a command prints. `what` it is about is said where it fails."""
        done = self.git.run(*arguments, given=given, settings=self.settings, variables=variables)
        if done.code:
            raise Damaged(f"{self.path}: git cannot work with {what}")
        return done.out

    def bytes(self, what: str, *arguments: str, given: bytes = b"") -> bytes:
        """Like `ask`, for what is no text."""
        code, out, _ = self.git.output(*arguments, given=given, settings=self.settings)
        if code:
            raise Damaged(f"{self.path}: git cannot work with {what}")
        return out

    def directory(self) -> Path:
        """Where git keeps the repository."""
        if self._directory is None:
            found = self.ask("itself", "rev-parse", "--absolute-git-dir")
            self._directory = Path(found.removesuffix("\n"))
        return self._directory

    def is_shallow(self) -> bool:
        return self.ask("itself", "rev-parse", "--is-shallow-repository").strip() == "true"

    def refs(self, prefix: str) -> dict[str, str]:
        """Commits by ref, of those under a prefix that ends in a slash, or of that name."""
        wanted = "--format=%(objecttype) %(objectname) %(refname)"
        listed = self.ask("its refs", "for-each-ref", wanted, prefix)
        lines = (line.split(" ", 2) for line in listed.split("\n")[:-1])
        return {name: commit for kind, commit, name in lines if kind == "commit"}

    def named(self, name: str) -> str | None:
        """The commit that a ref names."""
        return self.refs(name).get(name)

    def is_commit(self, revision: str) -> bool:
        if REVISION.fullmatch(revision) is None:
            return False
        named = f"{revision}^{{commit}}"
        found = self.git.run("rev-parse", "--verify", "--quiet", named, settings=self.settings)
        return found.out.strip() == revision

    def has(self, revision: str) -> bool:
        """Whether a ref leads to that commit, so that all of its history is here, and stays."""
        wanted = ("for-each-ref", "--count=1", f"--contains={revision}")
        found = self.git.run(*wanted, settings=self.settings)
        return not found.code and bool(found.out)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` is `older`, or has it in its history."""
        if older == newer:
            return True
        found = self.git.run("merge-base", "--is-ancestor", older, newer, settings=self.settings)
        if found.code not in (0, 1):
            raise Damaged(f"{self.path}: git cannot compare two commits")
        return not found.code

    def are_related(self, one: str, other: str) -> bool:
        """Whether two commits have any history in common."""
        return not self.git.run("merge-base", one, other, settings=self.settings).code

    def is_branch(self, name: str) -> bool:
        """Whether a branch may be called so."""
        if name.startswith("-") or "\0" in name:
            return False
        return not self.git.run("check-ref-format", f"{HEADS}{name}").code

    def independent(self, commits: Iterable[str]) -> list[str]:
        """Those that are in the history of no other one, sorted."""
        every = sorted(set(commits))
        if len(every) < 2:
            return every
        return sorted(self.ask("its history", "merge-base", "--independent", *every).split())

    def keep(self, name: str, commit: str) -> None:
        """Lets one of our refs name a commit; what it named before is not lost for it."""
        old = self.named(name)
        if old == commit:
            return
        if old is not None and not self.is_ancestor(old, commit):
            self.point(f"{APART}{old}", old)
        self.point(name, commit)

    def point(self, name: str, commit: str) -> None:
        self.ask("its refs", "update-ref", "--no-deref", name, commit)


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Waits until no other process of ours is in a directory, and keeps them out. The end of a
    process, however it comes, lets the next one in."""
    try:
        import fcntl
    except ImportError:  # there is none on Windows, where nothing keeps them out
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
