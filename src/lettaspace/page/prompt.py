"""A compiled prompt as people look at it: the texts of `prompt.html`."""

from dataclasses import dataclass

from markupsafe import Markup

from lettaspace.conversation.memory import MemoryKind
from lettaspace.conversation.prompt import MAX_BYTES, PromptState, PromptStatus
from lettaspace.conversation.promptview import PromptView, Segment
from lettaspace.page import diff

MAX_SHOWN = 400_000
"""Characters of a prompt that are shown: all of any but those too large for a record."""

MAX_PATHS = 50
"""Paths that are named one by one."""

_SAID = {
    PromptStatus.MISSING: "No prompt was compiled yet.",
    PromptStatus.FRESH: "Compiling now gives the same text.",
    PromptStatus.TEMPLATE_CHANGED: "The agent's template is another than the one compiled.",
    PromptStatus.MEMORY_CHANGED: "The committed memory renders to another text.",
    PromptStatus.BOTH: "The agent's template and the committed memory have both changed.",
    PromptStatus.UNKNOWN: "It cannot be told whether this prompt is stale.",
}
_BADGE = {
    PromptStatus.FRESH: "badge-good",
    PromptStatus.UNKNOWN: "",
    PromptStatus.MISSING: "",
}


@dataclass(frozen=True, slots=True)
class Paths:
    """The first of some paths, and how many there are besides."""

    shown: tuple[str, ...]
    more: int

    @classmethod
    def of(cls, paths: tuple[str, ...]) -> "Paths":
        return cls(paths[:MAX_PATHS], max(0, len(paths) - MAX_PATHS))


@dataclass(frozen=True, slots=True)
class Size:
    """How large a text is, of what it may be."""

    name: str
    size: int
    limit: int = MAX_BYTES

    @property
    def over(self) -> bool:
        return self.size > self.limit


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """What the page of a prompt says."""

    status: str
    badge: str
    """The class of the status."""
    said: str
    """The status in a sentence."""
    notes: tuple[str, ...]
    """What else there is to know, in sentences."""
    compiled_at: str | None
    template_hash: str | None
    revision: str | None
    uri: str | None
    cid: str | None
    sizes: tuple[Size, ...]
    uncommitted: Paths
    conflicts: Paths
    segments: tuple[Segment, ...]
    """The content, up to `MAX_SHOWN`."""
    cut: int
    """Characters of the content that are not shown."""
    core: str | None
    """Core memory, where it does not stand in the content."""
    changed: str
    """What compiling now would change, in a sentence."""
    difference: Markup | None


def present(view: PromptView) -> ShownPrompt:
    """The texts of a prompt's page."""
    fields = view.fields or {}
    stored = view.fields is not None
    segments, cut = _cut(view.segments)
    diff_ = view.difference
    return ShownPrompt(
        status=view.state.status.value,
        badge=_BADGE.get(view.state.status, "badge-incomplete"),
        said=_SAID[view.state.status],
        notes=tuple(_notes(view)),
        compiled_at=_str(fields.get("compiledAt")),
        template_hash=_str(fields.get("rawSystemHash")),
        revision=_str(fields.get("memfsRevision")),
        uri=view.uri,
        cid=view.cid,
        sizes=tuple(Size(name, size) for name, size in view.sizes.items()) if stored else (),
        uncommitted=Paths.of(view.state.uncommitted),
        conflicts=Paths.of(view.state.conflicts),
        segments=segments,
        cut=cut,
        core=view.core_memory[:MAX_SHOWN] if stored and not view.marked else None,
        changed=_changed(view),
        difference=diff.highlight(diff_.unified()) if diff_ is not None and diff_.lines else None,
    )


def _notes(view: PromptView) -> list[str]:
    state = view.state
    notes = []
    if state.reason:
        notes.append(f"Why: {state.reason}.")
    if view.fields is not None and not view.marked and not state.updated and view.core_memory:
        notes.append("Core memory does not stand in it as one text.")
    if state.updated:
        notes.append(
            "Updated: the model was told of a newer core memory in the middle of the conversation. "
            "The prompt it began with stays, and the newer one stands below it."
        )
    if state.text_same:
        notes.append("Memory has a newer commit, but it renders to the same text.")
    if state.oversize:
        notes.append("It is too large for a record of its own, and was kept as it was imported.")
    if said := _memory_said(state):
        notes.append(said)
    return notes


def _memory_said(state: PromptState) -> str:
    if state.memory is None:
        return "The agent's memory is not on this machine, so only its template was compared."
    if state.memory.kind in (MemoryKind.OK, MemoryKind.DETACHED) or state.reason:
        return ""
    return f"Memory: {state.memory.message}."


def _changed(view: PromptView) -> str:
    found = view.difference
    if found is None:
        return f"What compiling now would give cannot be told: {view.problem}."
    if not found.lines:
        return "Compiling now would give the same text."
    if view.fields is None:
        return f"Compiling now would give {_lines(found.added)}."
    if view.metadata_only:
        return "Compiling now would change only the time and the number of messages in it."
    said = f"Compiling now would add {_lines(found.added)} and remove {_lines(found.removed)}."
    return f"{said} {_lines(found.left_out)} are not shown." if found.left_out else said


def _lines(count: int) -> str:
    return f"{count:,} {'line' if count == 1 else 'lines'}"


def _cut(segments: tuple[Segment, ...]) -> tuple[tuple[Segment, ...], int]:
    shown = []
    room = MAX_SHOWN
    for segment in segments:
        if room > 0:
            shown.append(Segment(segment.text[:room], segment.core))
        room -= len(segment.text)
    return tuple(shown), max(0, -room)


def _str(value: object) -> str | None:
    return value if isinstance(value, str) else None
