"""The format `letta.localMessage` version 1: what the contract must know of it.

Source: LocalMessage, as Letta Code's local backend writes it.
"""

import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from lettaspace.conversation import codec
from lettaspace.conversation.formats import Call, Format, OpenBlob, Piece, Stored, register
from lettaspace.conversation.leaves import BLOB_JSON
from lettaspace.conversation.records import LOCAL_MESSAGE
from lettaspace.conversation.shapes import LOCAL_MESSAGE as SHAPE
from lettaspace.conversation.text import plain_strings, strings

_SETTLED = "lettaspace.settled"
"""A key of our own in the metadata; Letta passes over keys it doesn't know, and keeps them."""


def texts(data: Stored, open_blob: OpenBlob) -> Iterator[Piece]:
    """The texts of a LocalMessage."""
    content = data.get("content")
    if isinstance(content, dict) and content.get("$type") == BLOB_JSON:
        for part in codec.decode(content, open_blob):
            yield from _part(part, plain_strings)
    elif isinstance(content, list):
        for part in content:
            yield from _part(part, lambda value: strings(value, open_blob))
    else:
        for text in strings(content, open_blob):
            yield "text", text
    for key in ("toolName", "errorMessage"):
        if key in data:
            for text in strings(data[key], open_blob):
                yield key, text
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("compaction"), dict):
        for text in strings(metadata["compaction"].get("summary"), open_blob):
            yield "summary", text


def _part(part: Any, read: Callable[[Any], Iterator[str]]) -> Iterator[Piece]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "thinking"):
        value = part.get(kind)
        if type(value) is str:
            yield kind, value
            return
        found = read(value)
    elif kind == "toolCall":
        found = read([part.get("name"), part.get("arguments")])
    elif kind == "image":
        return
    else:
        kind, found = "text", read(part)
    for text in found:
        yield kind, text


def calls(data: Stored, open_blob: OpenBlob) -> list[Call]:
    """The tool calls of a LocalMessage."""
    content = data.get("content")
    if isinstance(content, dict) and content.get("$type") == BLOB_JSON:
        content = codec.decode(content, open_blob)
    if not isinstance(content, list):
        return []
    return [
        Call(part["id"], name if isinstance(name := part.get("name"), str) else "")
        for part in content
        if isinstance(part, dict)
        and part.get("type") == "toolCall"
        and isinstance(part.get("id"), str)
    ]


def _answers(data: Stored) -> str | None:
    call = data.get("toolCallId")
    return call if isinstance(call, str) else None


def _placeholder(call: Call, text: str, at: str) -> dict[str, Any]:
    return {
        "id": f"settled-{uuid.uuid4()}",
        "role": "toolResult",
        "toolCallId": call.id,
        "toolName": call.name,
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "timestamp": int(datetime.fromisoformat(at).timestamp() * 1000),
        "metadata": {"created_at": at, "updated_at": at, _SETTLED: True},
    }


def _is_placeholder(data: Stored) -> bool:
    metadata = data.get("metadata")
    return isinstance(metadata, dict) and metadata.get(_SETTLED) is True


def summary_payload(text: str, before: int, after: int, at: str) -> dict[str, Any]:
    """The payload of a summary: a user message whose metadata tell of the compaction.

    `before` and `after` count the messages of the window; `at` is a datetime.
    """
    stats = {"trigger": "manual", "messages_count_before": before, "messages_count_after": after}
    return {
        "id": f"summary-{uuid.uuid4()}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "timestamp": int(datetime.fromisoformat(at).timestamp() * 1000),
        "metadata": {
            "created_at": at,
            "updated_at": at,
            "compaction": {"summary": text, "stats": stats},
        },
    }


FORMAT = Format(
    LOCAL_MESSAGE,
    1,
    texts=texts,
    calls=calls,
    answers=_answers,
    placeholder=_placeholder,
    is_placeholder=_is_placeholder,
    shape=SHAPE,
    form=lambda data, _open_blob: data,
)
register(FORMAT)
