"""What became of agents and conversations that were to be brought into Letta's directory."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Outcome(StrEnum):
    """What became of a conversation or agent in the directory."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    AHEAD = "ahead"
    """The directory has what the space has not; nothing was written."""
    DIVERGED = "diverged"
    """Each has what the other has not; nothing was written."""
    BUSY = "busy"
    """Letta is at work there. Later, perhaps."""
    LEFT = "left"
    """It is not brought there, for the reason that is given."""


@dataclass(frozen=True, slots=True)
class Brought:
    """One conversation or agent."""

    key: str
    """Its key in the directory: `conversation:<id>`, `default:<agent id>` or `agent:<id>`; ""
    for what has none."""
    name: str
    """The conversation's TID, or the agent's record key."""
    outcome: Outcome
    rows: int = 0
    """Rows that were written."""
    note: str = ""
    aside: Path | None = None
    """Where half of a row is kept that was cut off."""

    @property
    def is_done(self) -> bool:
        """Whether both sides say the same."""
        return self.outcome in (Outcome.NEW, Outcome.CHANGED, Outcome.UNCHANGED)

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.name,
            "outcome": str(self.outcome),
            "rows": self.rows,
            "note": self.note,
            "aside": None if self.aside is None else str(self.aside),
        }
