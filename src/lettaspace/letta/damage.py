"""What an import found wrong: by place and kind, never by content."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from lettaspace.conversation.jsonlines import UNREADABLE_ROW as UNREADABLE_ROW

# Something could not be read: the import is incomplete.
TORN_ROW: Final = "tornRow"
MISSING_MESSAGE: Final = "missingMessage"
BAD_CONVERSATION: Final = "badConversation"
BAD_PROMPT: Final = "badPrompt"
BAD_AGENT: Final = "badAgent"
BAD_NAME: Final = "badName"
UNKNOWN_MANIFEST: Final = "unknownManifest"
BUSY: Final = "busy"
DIVERGED: Final = "diverged"

# All is there; somebody may want to know.
BAD_MANIFEST: Final = "badManifest"
BARE_ROW: Final = "bareRow"
UNKNOWN_ROW: Final = "unknownRow"
LEGACY_ROW: Final = "legacyRow"
MISSING_PARENT: Final = "missingParent"
NOT_A_NUMBER: Final = "notANumber"
LONE_SURROGATE: Final = "loneSurrogate"
NO_TIME: Final = "noTime"
SAME_ID: Final = "sameId"
NO_WINDOW: Final = "noWindow"
WINDOW_DIFFERS: Final = "windowDiffers"
WINDOW_ORDER: Final = "windowOrder"
OVERSIZE_PROMPT: Final = "oversizePrompt"
OTHER_ID: Final = "otherId"
OLDER_COPY: Final = "olderCopy"

LOSSES = frozenset(
    {
        TORN_ROW,
        UNREADABLE_ROW,
        MISSING_MESSAGE,
        BAD_CONVERSATION,
        BAD_PROMPT,
        BAD_AGENT,
        BAD_NAME,
        UNKNOWN_MANIFEST,
        BUSY,
        DIVERGED,
    }
)

MAX_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class Damage:
    """One finding."""

    kind: str
    row: int | None = None
    """The line of messages.jsonl, from 1; None for what concerns another file."""
    note: str = ""
    """Lengths, reasons, names of files."""

    @property
    def is_loss(self) -> bool:
        return self.kind in LOSSES

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "row": self.row, "note": self.note, "loss": self.is_loss}


@dataclass(slots=True)
class Findings:
    """Findings in the order they were met; past `MAX_ENTRIES` they are only counted."""

    entries: list[Damage] = field(default_factory=list[Damage])
    left_out: int = 0
    losses: int = 0

    def add(self, kind: str, row: int | None = None, note: str = "") -> None:
        damage = Damage(kind, row, note)
        self.losses += damage.is_loss
        if len(self.entries) < MAX_ENTRIES:
            self.entries.append(damage)
        else:
            self.left_out += 1

    def extend(self, other: "Findings") -> None:
        room = MAX_ENTRIES - len(self.entries)
        self.entries += other.entries[:room]
        self.left_out += other.left_out + len(other.entries[room:])
        self.losses += other.losses

    def copy(self) -> "Findings":
        return Findings(list(self.entries), self.left_out, self.losses)

    def __iter__(self) -> Iterator[Damage]:
        return iter(self.entries)
