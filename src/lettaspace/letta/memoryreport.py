"""What storing or restoring a memory found and did."""

from dataclasses import dataclass
from enum import StrEnum


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
    links: tuple[str, ...] = ()
    """Those of them that are links, and never come."""
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
