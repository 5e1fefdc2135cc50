"""Reads a memory directory: what is committed there, never what lies in the work tree.

>>> from lettaspace.conversation.memory import MemoryDirectory
>>> MemoryDirectory("/no/such/place").state().kind
<MemoryKind.NO_DIRECTORY: 'no-directory'>

The work tree is looked at only to name what is uncommitted. git's answers are told apart, so
that a memory that cannot be read is never taken for an empty one. Nothing here writes.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lettaspace.conversation.git import Git, MemoryKind, UnusableError
from lettaspace.errors import Damaged, InvalidInput, LettaspaceError, NotFound, StoreUnavailable

__all__ = ["MemoryDirectory", "MemoryKind", "MemoryState", "Snapshot", "WorkTree"]

TIMEOUT = 20.0
"""Seconds that one git command may take."""

MAX_SNAPSHOT = 64 << 20
"""The most bytes of content in a snapshot."""

_MAX_SCAN = 4 << 20
REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CONFLICT = re.compile(
    rb"^<{7}(?: [^\n]*)?\r?$.*?^={7}\r?$.*?^>{7}(?: [^\n]*)?\r?$", re.MULTILINE | re.DOTALL
)

_ERRORS: Mapping[MemoryKind, type[LettaspaceError]] = {
    MemoryKind.NO_DIRECTORY: NotFound,
    MemoryKind.NOT_A_REPOSITORY: NotFound,
    MemoryKind.NO_COMMITS: NotFound,
    MemoryKind.BROKEN_HEAD: Damaged,
}


@dataclass(frozen=True, slots=True)
class MemoryState:
    """What a memory directory is. Only one with a `revision` can be read."""

    kind: MemoryKind
    path: Path
    revision: str | None = None
    """The commit: 40 or 64 hex digits."""
    branch: str | None = None
    """The branch HEAD names, without `refs/heads/`."""
    message: str = ""
    """One line that says what is wrong, or odd."""

    def require(self) -> str:
        """The revision. Raises NotFound (no directory, no repository, no commits), Damaged (a
        broken HEAD) or StoreUnavailable (a foreign owner, no git, a timeout)."""
        if self.revision is None:
            raise _error(self.kind, self.message)
        return self.revision


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of one commit."""

    revision: str
    files: Mapping[str, bytes]
    """Path to content, in the order of the paths' bytes: those that were wanted."""
    links: Mapping[str, bytes]
    """Symbolic links: path to the name of the target. Links are never followed."""
    submodules: tuple[str, ...] = ()
    """Where other repositories are mounted; nothing of theirs is read."""
    quote_path: bool = True
    """git's `core.quotePath` here, which decides which names Letta sees."""

    @property
    def conflicts(self) -> list[str]:
        """Files that were committed with conflict markers in them."""
        return [path for path, data in self.files.items() if has_conflict_markers(data)]

    def blobs(self) -> dict[str, bytes]:
        """Files and links, as Letta reads them: a link's content is the name of its target."""
        every = {**self.files, **self.links}
        return {path: every[path] for path in sorted(every, key=os.fsencode)}


@dataclass(frozen=True, slots=True)
class WorkTree:
    """What in the work tree is not committed."""

    uncommitted: tuple[str, ...]
    """Paths that are changed, staged, deleted or new, with those in conflict."""
    conflicts: tuple[str, ...]
    """Of these, the unmerged ones and those with conflict markers in their text."""


class MemoryDirectory:
    """A directory whose committed state is an agent's memory.

    Raises InvalidInput for a path that git could not be kept inside of.
    """

    def __init__(self, path: Path | str, *, timeout: float = TIMEOUT) -> None:
        # What bounds git's search for a repository must be spelled as git sees it.
        self.path = Path(os.path.realpath(path))
        if os.pathsep in str(self.path.parent):
            raise InvalidInput(f"{self.path}: a memory directory's path may not hold {os.pathsep}")
        self.git = Git(self.path, timeout)

    def state(self) -> MemoryState:
        """What is there. Raises nothing: every answer of git's has its kind."""
        try:
            return self._state()
        except UnusableError as error:
            return MemoryState(error.kind, self.path, message=str(error))

    def read(self, revision: str, *, wanted: Callable[[str], bool] | None = None) -> Snapshot:
        """The files at a commit, from one git process; `wanted` chooses them by path.

        Raises InvalidInput (not a full commit id), NotFound, Damaged (an object cannot be
        read, or all are more than `MAX_SNAPSHOT`) or StoreUnavailable.
        """
        if REVISION.fullmatch(revision) is None:
            raise InvalidInput(f"{revision[:80]!r} is not a full commit id")
        with said():
            listing = self.git.run("ls-tree", "-r", "-z", "--full-tree", f"{revision}^{{commit}}")
            if listing.code:
                raise Damaged(f"{self.path}: commit {revision} cannot be read")
            modes: dict[str, str] = {}
            names: dict[str, str] = {}
            modules = []
            for entry in listing.out.split("\0")[:-1]:
                head, _, path = entry.partition("\t")
                mode, kind, name = head.split(" ")
                if kind == "commit":
                    modules.append(path)
                elif wanted is None or wanted(path):
                    modes[path], names[path] = mode, name
            files: dict[str, bytes] = {}
            links: dict[str, bytes] = {}
            contents = self.git.blobs(list(names.values()), MAX_SNAPSHOT)
            for path, data in zip(names, contents, strict=False):
                if data is None:
                    raise Damaged(f"{self.path}: object {names[path]} is unreadable or too large")
                (links if modes[path] == "120000" else files)[path] = data
            quote = self.git.run(
                "config", "--type=bool", "--default=true", "--get", "core.quotePath"
            )
        return Snapshot(revision, files, links, tuple(modules), quote.out.strip() != "false")

    def uncommitted(self) -> list[str]:
        """Paths in the work tree that differ from the commit. Raises as `work_tree`."""
        return list(self.work_tree().uncommitted)

    def work_tree(self) -> WorkTree:
        """What is not committed, and what of it is in conflict.

        Filters are off, so a file that one would rewrite (`git-lfs`) may be named needlessly.
        Raises NotFound, Damaged or StoreUnavailable.
        """
        with said():
            status = self.git.run(
                "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames",
                "--ignore-submodules=all", settings=self.git.filters_off(),
            )  # fmt: skip
        if status.code:
            if "work tree" in status.err:
                return WorkTree((), ())  # a bare repository has none
            raise Damaged(f"{self.path}: git cannot tell the state of the work tree")
        paths = {}
        for entry in status.out.split("\0")[:-1]:
            mark, path = entry[:2], entry[3:]
            unmerged = "U" in mark or mark in ("AA", "DD")
            paths[path] = unmerged or self._is_conflicted(path)
        return WorkTree(tuple(paths), tuple(path for path, bad in paths.items() if bad))

    def _is_conflicted(self, path: str) -> bool:
        try:
            # No link is followed, and a pipe does not block.
            descriptor = os.open(self.path / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        with open(descriptor, "rb") as file:  # noqa: PTH123, a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return False
            return has_conflict_markers(file.read(_MAX_SCAN))

    def _state(self) -> MemoryState:
        head = self.git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        symbolic = self.git.run("symbolic-ref", "--quiet", "HEAD")
        branch = symbolic.out.strip().removeprefix("refs/heads/") if not symbolic.code else None
        revision = head.out.strip()
        if not head.code and REVISION.fullmatch(revision):
            if branch is not None:
                return MemoryState(MemoryKind.OK, self.path, revision, branch)
            note = f"{self.path}: HEAD is detached at {revision}"
            return MemoryState(MemoryKind.DETACHED, self.path, revision, None, note)
        if branch is not None and not self._has_history():
            raise UnusableError(MemoryKind.NO_COMMITS, self.path, "nothing was ever committed")
        named = f"branch {branch}" if branch else "a commit"
        broken = f"HEAD names {named}, which cannot be read"
        raise UnusableError(MemoryKind.BROKEN_HEAD, self.path, broken)

    def _has_history(self) -> bool:
        """Whether there are traces of commits, though HEAD leads to none."""
        refs = self.git.run("for-each-ref", "--count=1", "--format=%(refname)")
        if refs.code or refs.out or "broken ref" in refs.err:
            return True
        log = self.git.run("rev-parse", "--git-path", "logs/HEAD").out.rstrip("\n")
        try:
            return bool(log) and (self.path / log).stat().st_size > 0
        except OSError:
            return False


def has_conflict_markers(data: bytes) -> bool:
    """Whether a text holds what an unresolved merge leaves: all three markers, in order."""
    return b"<<<<<<<" in data and _CONFLICT.search(data) is not None


def _error(kind: MemoryKind, message: str) -> LettaspaceError:
    return _ERRORS.get(kind, StoreUnavailable)(message)


@contextmanager
def said() -> Iterator[None]:
    """Turns what git refuses into the errors that callers know."""
    try:
        yield
    except UnusableError as error:
        raise _error(error.kind, str(error)) from None
