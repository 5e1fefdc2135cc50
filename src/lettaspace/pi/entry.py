"""A message as an entry of a session of pi, whichever harness wrote it."""

from collections.abc import Mapping
from typing import Any

from lettaspace.conversation import formats
from lettaspace.conversation.message import Message
from lettaspace.conversation.pi_entry import PI_ENTRY
from lettaspace.conversation.times import to_millis
from lettaspace.pi.tree import COMPACTION

STORED = "lettaspace.message"
"""The `customType` of an entry that holds a message which pi gives no model."""


def row_of(message: Message) -> int | None:
    """The row of a session file that a message stood in."""
    data = message.payload(images=False) if message.format == PI_ENTRY else None
    row = data.get("row") if isinstance(data, dict) else None
    return row if type(row) is int else None


def entry_in(message: Message) -> dict[str, Any] | None:
    """The entry that a message holds, as it stood in the file."""
    data = message.payload() if message.format == PI_ENTRY else None
    entry = data.get("entry") if isinstance(data, dict) else None
    return entry if isinstance(entry, dict) else None


def entry_of(message: Message, *, ends: bool) -> dict[str, Any]:
    """The entry of a message; as a compaction if a summary `ends` what stands before it."""
    own = entry_in(message)
    if own is not None:
        if own.get("type") == COMPACTION and not ends:
            return _note(message, own.get("summary", ""))
        return _edited(own, message.payload())
    entry = {"type": "message", "timestamp": message.created_at}
    known = formats.of(message.value)
    if known is None or known.form is None or message.format == PI_ENTRY:
        kept = {"format": message.format, "version": message.version, "data": message.payload()}
        return entry | {"type": "custom", "customType": STORED, "data": kept}
    form = message.form()
    if not isinstance(form, dict):
        return entry | {"message": _filled({}, message)}
    if not ends:
        return entry | {"message": _filled(form, message)}
    return entry | {
        "type": COMPACTION,
        "summary": _summary(form),
        "tokensBefore": _number(form, "metadata", "compaction", "stats", "context_tokens_before"),
        "message": form,
    }


def _edited(entry: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as pi reads one today, with the content that it gives the model."""
    message = entry.get("message")
    if entry.get("type") == "message" and isinstance(message, dict):
        if message.get("role") == "hookMessage":
            message = {**message, "role": "custom"}
        if "content" in data:
            content = data["content"]
            if isinstance(content, str) and message.get("role") in ("assistant", "toolResult"):
                content = [{"type": "text", "text": content}]
            message = {**message, "content": content}
        return {**entry, "message": message}
    return {**entry, "content": data["content"]} if "content" in data else entry


def _note(message: Message, text: Any) -> dict[str, Any]:
    """A summary that stands for nothing, as a message."""
    return {
        "type": "custom_message",
        "timestamp": message.created_at,
        "customType": STORED,
        "content": text,
        "display": True,
    }


def _summary(form: Mapping[str, Any]) -> str:
    said = _at(form, "metadata", "compaction", "summary")
    if isinstance(said, str):
        return said
    content = form.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


_COUNTED = ("input", "output", "cacheRead", "cacheWrite")


def _filled(form: Mapping[str, Any], message: Message) -> dict[str, Any]:
    """A message with what pi cannot do without, where it is missing."""
    made = dict(form)
    made.setdefault("role", message.role)
    made.setdefault("timestamp", to_millis(message.created_at))
    role, content = made["role"], made.get("content")
    if not isinstance(content, list) and not (role == "user" and isinstance(content, str)):
        made["content"] = [{"type": "text", "text": content}] if isinstance(content, str) else []
    if role == "toolResult":
        made.setdefault("toolName", "")
        made.setdefault("isError", False)
    if role == "assistant":
        noted = _at(made, "metadata", "provider") or {}
        made.setdefault("api", "unknown")
        made.setdefault("provider", noted.get("provider_id", "unknown"))
        made.setdefault("model", noted.get("model_id", "unknown"))
        made.setdefault("stopReason", "stop")
        usage = made.get("usage")
        usage = dict(usage) if isinstance(usage, Mapping) else dict(noted.get("usage") or {})
        cost = usage.get("cost")
        usage["cost"] = dict.fromkeys((*_COUNTED, "total"), 0) | (
            dict(cost) if isinstance(cost, Mapping) else {}
        )
        made["usage"] = dict.fromkeys((*_COUNTED, "totalTokens"), 0) | usage
    return made


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _number(value: Any, *keys: str) -> Any:
    found = _at(value, *keys)
    return found if type(found) is int else 0
