"""Messages of the format `letta.localMessage` version 1, as typed objects.

    talk.append(UserMessage.text("List the jars."))
    call = ToolCall("c1", "list", {"shelf": 3})
    talk.append(AssistantMessage([Text("Looking."), call], stop_reason="toolUse"))
    talk.append(ToolResult.of(call, "two jars"))

Each has `from_json` and `to_json`, and `parse_message` tells by the role which one a payload
is. What is not known is kept: keys in `extra`, parts as `OtherPart`; so a payload that was
read and written again is equal to what it was. A known key that is absent or null is None;
the null stands in `extra`. Nothing is made up: no id, no time, so that building a message
again gives an equal one, and appending it again under its key is no second message.

Numbers are what `jsontext.loads` gives: some are a `Number`, a float that keeps its text.
Errors name the place and never hold what stands there.

Source: LocalMessage, as Letta Code's local backend writes it.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from lettaspace.conversation.jsonmodel import (
    Model,
    anything,
    boolean,
    json_key,
    number,
    optional,
    string,
    typed,
)
from lettaspace.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Text(Model):
    """What is said."""

    CONSTANT = ("type", "text")
    text: str = field(metadata=json_key("text", string))
    text_signature: str | None = optional("textSignature", string)


@dataclass(frozen=True, slots=True)
class Thinking(Model):
    """What a model thought. Providers refuse one whose text or signature was touched."""

    CONSTANT = ("type", "thinking")
    thinking: str = field(metadata=json_key("thinking", string))
    signature: str | None = optional("thinkingSignature", string)
    redacted: bool | None = optional("redacted", boolean)


@dataclass(frozen=True, slots=True)
class Image(Model):
    """A picture. Stored once, however many messages show it."""

    CONSTANT = ("type", "image")
    data: str = field(metadata=json_key("data", string))
    """Base64."""
    mime_type: str | None = field(default=None, metadata=json_key("mimeType", string))

    @classmethod
    def of(cls, content: bytes, mime_type: str) -> Self:
        """An image from the bytes of its file."""
        return cls(base64.b64encode(content).decode(), mime_type)

    def content(self) -> bytes:
        """The bytes of its file. Raises InvalidInput if `data` is not base64."""
        try:
            return base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput("an image's data is not base64") from None


@dataclass(frozen=True, slots=True)
class ToolCall(Model):
    """A call of a tool, which a ToolResult with its id answers."""

    CONSTANT = ("type", "toolCall")
    id: str = field(metadata=json_key("id", string))
    name: str | None = field(default=None, metadata=json_key("name", string))
    arguments: Any = field(default_factory=dict, metadata=json_key("arguments", anything))
    """Any JSON; the order of its keys is kept."""
    thought_signature: str | None = optional("thoughtSignature", string)


@dataclass(frozen=True, slots=True)
class OtherPart:
    """A part of a kind that is not known, as it is."""

    value: Any

    def to_json(self) -> Any:
        return self.value


Part: TypeAlias = Text | Thinking | Image | ToolCall | OtherPart

_PARTS: Mapping[str, type[Text | Thinking | Image | ToolCall]] = {
    "text": Text,
    "thinking": Thinking,
    "image": Image,
    "toolCall": ToolCall,
}


def _content(value: Any, path: str) -> tuple[Part, ...]:
    parts = typed(value, path, list, "a list")
    return tuple(_part(part, f"{path}[{at}]") for at, part in enumerate(parts))


def _part(value: Any, path: str) -> Part:
    kind = value.get("type") if isinstance(value, Mapping) else None
    known = _PARTS.get(kind) if isinstance(kind, str) else None
    return OtherPart(value) if known is None else known.from_json(value, path)


@dataclass(frozen=True, slots=True)
class Cost(Model):
    """What one provider response cost, in US dollars."""

    input: float | None = optional("input", number)
    output: float | None = optional("output", number)
    cache_read: float | None = optional("cacheRead", number)
    cache_write: float | None = optional("cacheWrite", number)
    total: float | None = optional("total", number)


@dataclass(frozen=True, slots=True)
class Usage(Model):
    """The tokens of one provider response. `input` is without those read from the cache."""

    input: float | None = optional("input", number)
    output: float | None = optional("output", number)
    cache_read: float | None = optional("cacheRead", number)
    cache_write: float | None = optional("cacheWrite", number)
    reasoning: float | None = optional("reasoning", number)
    total: float | None = optional("totalTokens", number)
    cost: Cost | None = field(default=None, metadata=json_key("cost", Cost.from_json), kw_only=True)
    cache_write_1h: float | None = optional("cacheWrite1h", number)


@dataclass(frozen=True, slots=True)
class Provider(Model):
    """Where an assistant message came from. Letta repeats in it what the message says."""

    provider_id: str | None = optional("provider_id", string)
    model_id: str | None = optional("model_id", string)
    response_id: str | None = optional("response_id", string)
    usage: Usage | None = field(
        default=None, metadata=json_key("usage", Usage.from_json), kw_only=True
    )


@dataclass(frozen=True, slots=True)
class CompactionStats(Model):
    """Sizes of the window in tokens and messages, before and after a compaction."""

    trigger: str | None = optional("trigger", string)
    """`manual`, `context_window_limit` or `context_window_overflow`."""
    context_tokens_before: float | None = optional("context_tokens_before", number)
    context_tokens_after: float | None = optional("context_tokens_after", number)
    context_window: float | None = optional("context_window", number)
    messages_count_before: float | None = optional("messages_count_before", number)
    messages_count_after: float | None = optional("messages_count_after", number)


@dataclass(frozen=True, slots=True)
class CompactionMetadata(Model):
    """Marks a user message as the summary of what it replaced."""

    summary: str | None = field(default=None, metadata=json_key("summary", string))
    stats: CompactionStats | None = field(
        default=None, metadata=json_key("stats", CompactionStats.from_json), kw_only=True
    )


@dataclass(frozen=True, slots=True)
class Metadata(Model):
    """What Letta notes about any message. Times are datetimes with milliseconds."""

    created_at: str | None = optional("created_at", string)
    updated_at: str | None = optional("updated_at", string)
    agent_id: str | None = optional("agent_id", string)
    conversation_id: str | None = optional("conversation_id", string)
    compaction: CompactionMetadata | None = field(
        default=None, metadata=json_key("compaction", CompactionMetadata.from_json), kw_only=True
    )
    provider: Provider | None = field(
        default=None, metadata=json_key("provider", Provider.from_json), kw_only=True
    )


@dataclass(frozen=True, slots=True)
class _Message(Model):
    content: Sequence[Part] = field(metadata=json_key("content", _content))
    """A tuple, whatever sequence was given."""
    id: str | None = optional("id", string)
    """The harness's own. Letta Code passes over messages without one."""
    timestamp: float | None = optional("timestamp", number)
    """Milliseconds since 1970."""
    metadata: Metadata | None = field(
        default=None, metadata=json_key("metadata", Metadata.from_json), kw_only=True
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", tuple(self.content))

    @property
    def role(self) -> str:
        return self.CONSTANT[1] if self.CONSTANT else ""

    @property
    def plain_text(self) -> str:
        """The text parts, joined by line breaks."""
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class UserMessage(_Message):
    """What the user said; and a summary, which has `metadata.compaction`."""

    CONSTANT = ("role", "user")
    otid: str | None = optional("otid", string)
    """The client's own id of what it sent."""

    @classmethod
    def text(cls, text: str, **more: Any) -> Self:
        """A message of one text; `more` are fields."""
        return cls([Text(text)], **more)


@dataclass(frozen=True, slots=True)
class AssistantMessage(_Message):
    """What the model answered, in one provider response."""

    CONSTANT = ("role", "assistant")
    api: str | None = optional("api", string)
    provider: str | None = optional("provider", string)
    model: str | None = optional("model", string)
    response_model: str | None = optional("responseModel", string)
    response_id: str | None = optional("responseId", string)
    usage: Usage | None = field(
        default=None, metadata=json_key("usage", Usage.from_json), kw_only=True
    )
    stop_reason: str | None = optional("stopReason", string)
    """`stop`, `toolUse`, `length`, `error` or `aborted`."""
    error_message: str | None = optional("errorMessage", string)

    @classmethod
    def text(cls, text: str, **more: Any) -> Self:
        """An answer of one text; `more` are fields."""
        return cls([Text(text)], **more)

    @property
    def tool_calls(self) -> list[ToolCall]:
        return [part for part in self.content if isinstance(part, ToolCall)]


@dataclass(frozen=True, slots=True)
class ToolResult(_Message):
    """What a tool gave."""

    CONSTANT = ("role", "toolResult")
    tool_call_id: str = field(metadata=json_key("toolCallId", string), kw_only=True)
    tool_name: str | None = optional("toolName", string)
    is_error: bool | None = field(
        default=False, metadata=json_key("isError", boolean), kw_only=True
    )

    @classmethod
    def of(
        cls, call: ToolCall, content: str | Sequence[Part], *, is_error: bool = False, **more: Any
    ) -> Self:
        """The result of a call: a text, or parts; `more` are fields."""
        parts = [Text(content)] if isinstance(content, str) else content
        more = {"tool_call_id": call.id, "tool_name": call.name, "is_error": is_error, **more}
        return cls(parts, **more)


LocalMessage: TypeAlias = UserMessage | AssistantMessage | ToolResult

_ROLES: Mapping[str, type[LocalMessage]] = {
    "user": UserMessage,
    "assistant": AssistantMessage,
    "toolResult": ToolResult,
}


def parse_message(data: Any) -> LocalMessage:
    """The message that a payload is, by its role.

    Raises InvalidInput, naming the place, for what is none: another role, content that is no
    list of parts, a tool result without the id of its call.
    """
    if not isinstance(data, Mapping):
        raise InvalidInput("the message is not an object")
    role = data.get("role")
    known = _ROLES.get(role) if isinstance(role, str) else None
    if known is None:
        raise InvalidInput("role is neither user, assistant nor toolResult")
    return known.from_json(data)
