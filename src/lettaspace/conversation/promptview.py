"""A compiled prompt as it is looked at: where core memory stands in it, and whether it is stale.

from lettaspace.conversation.promptview import prompt_view

view = prompt_view(space, talk.rkey, memory)
print(view.state.status, "".join(each.text for each in view.segments if each.core))
print(view.difference.unified() if view.difference else view.problem)

Looking compiles in memory and writes nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lettaspace.conversation.linediff import LineDiff, line_diff
from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.conversation.prompt import PromptState, preview_prompt, prompt_state
from lettaspace.conversation.promptparts import record_of, stored_prompt
from lettaspace.conversation.records import COMPILED_PROMPT, CONVERSATION
from lettaspace.conversation.render import without_metadata
from lettaspace.errors import LettaspaceError, NotFound
from lettaspace.space.writes import Value

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

MAX_MARKS = 100
"""So many times core memory is marked in a prompt; what comes after stays as it is."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a prompt's content. All of them in order are the content."""

    text: str
    core: bool
    """Whether this is core memory."""


@dataclass(frozen=True, slots=True)
class PromptView:
    """A conversation's compiled prompt, and how it stands to what it was compiled from."""

    rkey: str
    conversation: str
    """The conversation's URI."""
    agent: str
    """The agent's URI."""
    fields: Value | None
    """The prompt's fields as stored; None: nothing was compiled yet."""
    uri: str | None
    cid: str | None
    """Of the record; None where there is none, or the state sidecar has the prompt (`oversize`)."""
    state: PromptState
    segments: tuple[Segment, ...]
    sizes: dict[str, int]
    """Bytes of UTF-8 in `content` and `coreMemory`, each of which may have `MAX_BYTES`."""
    difference: LineDiff | None
    """From the stored content to what compiling now would give; None: `problem` says why not."""
    problem: str = ""
    metadata_only: bool = False
    """The difference is the time and the number of messages that layout v1 has in its text,
    which change with every compilation."""

    @property
    def content(self) -> str:
        return _text(self.fields, "content")

    @property
    def core_memory(self) -> str:
        return _text(self.fields, "coreMemory")

    @property
    def marked(self) -> bool:
        """Core memory stands in the content."""
        return any(segment.core for segment in self.segments)


def prompt_view(
    space: "Space",
    conversation: str,
    memory: MemoryDirectory | None,
    *,
    redact: Callable[[str], str] | None = None,
) -> PromptView:
    """The prompt of a conversation, by TID. `memory` is the agent's, where it is on this machine;
    `redact` is what becomes of texts before anything is shown or compared.

    Raises NotFound for a conversation that is not there.
    """
    with space.repo.snapshot() as reader:
        talk = record_of(reader, CONVERSATION, conversation)
        record = reader.get(COMPILED_PROMPT, conversation)
        stored, _ = stored_prompt(reader, conversation)
    seen = _redacted(stored, redact)
    difference, metadata_only, problem = None, False, ""
    try:
        new = _preview(space, conversation, memory, stored)
    except LettaspaceError as error:
        problem = str(error)
    else:
        after = _text(_redacted(new, redact), "content")
        difference = line_diff(_text(seen, "content"), after)
        metadata_only = bool(difference.lines) and _bare(stored) == _bare(new)
    return PromptView(
        rkey=conversation,
        conversation=space.address.conversation(conversation),
        agent=str(talk.value["agent"]),
        fields=seen,
        uri=space.address.uri(COMPILED_PROMPT, conversation) if record is not None else None,
        cid=str(record.cid) if record is not None else None,
        state=prompt_state(space, conversation, memory=memory),
        segments=tuple(_segments(_text(seen, "content"), _text(seen, "coreMemory"))),
        sizes={
            name: len(_text(stored, name).encode("utf-8", "surrogatepass"))
            for name in ("content", "coreMemory")
        },
        difference=difference,
        problem=problem,
        metadata_only=metadata_only,
    )


def _preview(
    space: "Space", conversation: str, memory: MemoryDirectory | None, stored: Value | None
) -> Value:
    if memory is None and (stored is None or stored.get("memfsRevision") is not None):
        # Without it another prompt would come out, which nobody wants to see.
        raise NotFound("the agent's memory is not on this machine")
    return preview_prompt(space, conversation, memory=memory)


def _segments(content: str, core: str) -> Iterator[Segment]:
    pieces = content.split(core, MAX_MARKS) if core else [content]
    for number, piece in enumerate(pieces):
        if number:
            yield Segment(core, True)
        if piece:
            yield Segment(piece, False)


def _redacted(fields: Value | None, redact: Callable[[str], str] | None) -> Value | None:
    if fields is None or redact is None:
        return fields
    return fields | {name: redact(_text(fields, name)) for name in ("content", "coreMemory")}


def _bare(fields: Value | None) -> str:
    """A prompt's content without what layout v1 says of the moment it was compiled."""
    core = _text(fields, "coreMemory")
    return _text(fields, "content").replace(core, without_metadata(core)) if core else ""


def _text(fields: Value | None, name: str) -> str:
    value = fields.get(name) if fields is not None else None
    return value if isinstance(value, str) else ""
