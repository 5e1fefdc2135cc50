"""What the history of a memory directory is made of: commits, files, and what changed.

Paths, names and texts may hold any character but NUL; bytes that are no UTF-8 are there as
surrogate escapes.
"""

from dataclasses import dataclass
from enum import StrEnum


class EntryKind(StrEnum):
    """What a path names."""

    FILE = "file"
    LINK = "link"
    """A symbolic link: its content is the name of its target, which nobody follows."""
    SUBMODULE = "submodule"
    """Where another repository is mounted, of which nothing is read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a commit."""

    path: str
    kind: EntryKind
    object: str
    """The id of its content; of a submodule, its commit."""
    size: int | None
    """Bytes. None for a submodule, or where the object is missing."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a commit, in git's order."""

    entries: tuple[Entry, ...]
    cut: bool = False
    """There are more than are listed."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it is in a commit."""

    entry: Entry
    data: bytes | None
    """Of a link, the name of its target; None for a submodule, and for what is too large."""


class ChangeKind(StrEnum):
    """What happened to a file, by git's letter."""

    ADDED = "A"
    MODIFIED = "M"
    DELETED = "D"
    RENAMED = "R"
    COPIED = "C"
    TYPE = "T"
    """It is of another kind now, as a link that became a file."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit did to one file."""

    kind: ChangeKind
    path: str
    old_path: str | None = None
    """Where it was before it was renamed, or what it is a copy of."""
    entry: EntryKind = EntryKind.FILE
    """What the path names now; of a deleted one, what it named."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit."""

    revision: str
    parents: tuple[str, ...]
    time: str | None
    """The author's time as records hold it, in UTC; None where it is no time of this calendar."""
    author: str
    subject: str
    """The first paragraph of the message, on one line."""
    changes: tuple[Change, ...] | None = None
    """What it changed, of a merge against its first parent; None: too much to list."""


@dataclass(frozen=True, slots=True)
class Log:
    """A page of commits, the newest first."""

    commits: tuple[Commit, ...]
    more: bool
    """There are older ones."""
    shallow: bool
    """The repository was cloned without its whole history."""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """How one file changed."""

    change: Change
    hunks: str | None
    """Unified, from the first `@@`; "" where only name or mode changed; None: left out."""
    binary: bool = False
    """git takes it for binary, and tells nothing more."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A commit with all it did, of a merge against its first parent."""

    commit: Commit
    message: str
    files: tuple[FileDiff, ...]
    cut: bool
    """There was more than is read of one commit."""
