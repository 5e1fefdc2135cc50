"""What people are shown of a message: its parts, marks and facts, ready for a template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class TextPart:
    kind: ClassVar[str] = "text"
    html: Markup


@dataclass(frozen=True, slots=True)
class Folded:
    """Something told beside the conversation: thinking, a reminder of the harness."""

    kind: ClassVar[str] = "folded"
    label: str
    html: Markup
    about: str = ""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """What a tool printed."""

    kind: ClassVar[str] = "output"
    html: Markup
    lines: int
    long: bool
    cut: int = 0
    """How many characters are not shown."""


@dataclass(frozen=True, slots=True)
class ImagePart:
    kind: ClassVar[str] = "image"
    url: str | None
    about: str
    source: Markup | None = None
    """Of a drawing that is a text: no browser is asked to draw it."""


@dataclass(frozen=True, slots=True)
class CallPart:
    kind: ClassVar[str] = "call"
    id: str
    name: str
    arguments: Markup
    results: "tuple[Shown, ...]" = ()


@dataclass(frozen=True, slots=True)
class RawPart:
    """JSON that no rule here knows."""

    kind: ClassVar[str] = "raw"
    html: Markup
    about: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    kind: ClassVar[str] = "problem"
    text: str


Part = TextPart | Folded | OutputPart | ImagePart | CallPart | RawPart | Problem


@dataclass(frozen=True, slots=True)
class SummaryOf:
    """What a summary covers, and by how much it made the window smaller."""

    count: int
    first: str | None
    link: str | None
    facts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    rkey: str
    seq: int
    role: str
    """`user`, `assistant`, `toolResult`, `summary`, or what the record says."""
    label: str
    at: str
    """The stored datetime."""
    time: str
    """The same in the reader's zone, to the second."""
    version: str
    """Another one when the record is."""
    active: bool
    marks: Sequence[str] = ()
    """`compacted`, `orphan-result`, `unknown-format`, `unreadable`, `failed`, `edited`."""
    facts: Sequence[str] = ()
    """Model, tokens, cost: short texts."""
    parts: Sequence[Part] = ()
    summary: SummaryOf | None = None
    covered_by: str | None = None
    link: str | None = None
    record: str | None = None
    alone: str | None = None
    covered_link: str | None = None
