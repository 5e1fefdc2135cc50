"""Known structure of payloads: where the order of keys carries no meaning.

A shape names what is known of a value. An object of known structure stays an object in the
record, and comes back with its keys in canonical order. Whatever a shape does not name is
free-form: it comes back with its keys in the order they had. A value that is not of the kind
its shape says is free-form too, so a shape never refuses anything.

Source: LocalMessage and its neighbours, as Letta Code's local backend writes them; entries, as
pi writes them in its session files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Shape: TypeAlias = "Known | ListOf | None"

FREE: None = None
"""Nothing is known; the order of keys is kept."""


@dataclass(frozen=True, slots=True)
class Known:
    """An object; `fields` are the shapes of its values, all others are free-form."""

    fields: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    images: bool = False
    """Whether the object, when its `type` is `image`, carries base64 in `data`."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose elements all have one shape."""

    item: Shape


PART = Known({"arguments": FREE}, images=True)
"""A content part: text, thinking, toolCall, image. The arguments of a call are the model's."""

USAGE = Known({"cost": Known()})
"""Tokens and their cost, of one provider response."""

LOCAL_MESSAGE = Known(
    {
        "content": ListOf(PART),
        "metadata": Known(
            {"compaction": Known({"stats": Known()}), "provider": Known({"usage": USAGE})}
        ),
        "usage": USAGE,
    }
)
"""`letta.localMessage` version 1."""

LOCAL_AGENT = Known()
"""`letta.localAgentRecord` version 1."""

LOCAL_CONVERSATION = Known()
"""`letta.localConversation` version 1."""

COMPILED_PROMPT = Known()
"""`letta.compiledPrompt` version 1: the fields of a compiledPrompt record."""

_PI_MESSAGE = Known({"content": ListOf(PART), "usage": USAGE})

PI_ENTRY = Known(
    {
        "entry": Known(
            {
                "message": _PI_MESSAGE,
                "content": ListOf(PART),
                "usage": USAGE,
                "systemMessage": _PI_MESSAGE,
            }
        ),
        "content": ListOf(PART),
    }
)
"""`pi.entry` version 1."""

PI_SESSION = Known({"header": Known(), "entries": ListOf(Known({"entry": Known()}))})
"""`pi.session` version 1."""

SHAPES: Mapping[tuple[str, int], Shape] = {
    ("letta.localMessage", 1): LOCAL_MESSAGE,
    ("letta.localAgentRecord", 1): LOCAL_AGENT,
    ("letta.localConversation", 1): LOCAL_CONVERSATION,
    ("letta.compiledPrompt", 1): COMPILED_PROMPT,
    ("pi.entry", 1): PI_ENTRY,
    ("pi.session", 1): PI_SESSION,
}
"""The shape of an envelope's data by format and version; others are `FREE`."""
