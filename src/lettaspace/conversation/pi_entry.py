"""The format `pi.entry` version 1: an entry of a session of pi, the coding agent.

The data of the envelope has

- `entry`: the entry as it stands in the session file;
- `row`: which line of the file that is, from 1;
- `content`: what a later entry puts in the place of its content (`context_edit`);
- `settled`: true on a result that no tool gave.

Only `entry` is always there. Source: the session files of pi 0.73 and 1.6.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lettaspace.conversation import codec, local_message
from lettaspace.conversation.formats import Call, Format, OpenBlob, Piece, Stored, register
from lettaspace.conversation.jsontext import JSON_ESCAPE, source_text
from lettaspace.conversation.shapes import PI_ENTRY as SHAPE
from lettaspace.conversation.text import plain_strings
from lettaspace.conversation.times import to_millis

PI_ENTRY = "pi.entry"

_SAID = ("user", "assistant", "toolResult")


def form(data: Stored, open_blob: OpenBlob) -> Stored:
    """The message that an entry is, or that pi makes of it, as a LocalMessage has it."""
    entry = data.get("entry")
    if "$type" in data or not isinstance(entry, Mapping) or "$type" in entry:
        # Rare: something was too large, or has a key that records have not.
        plain = codec.decode(data, open_blob)
        entry = plain.get("entry") if isinstance(plain, dict) else None
        made = _form(entry, plain) if isinstance(entry, dict) else {}
        return {"$type": JSON_ESCAPE, "json": source_text(dict(made))}
    return _form(entry, data)


def _form(entry: Stored, data: Stored) -> Stored:
    kind = entry.get("type")
    made: Stored
    if kind == "message":
        message = entry.get("message")
        if not isinstance(message, Mapping):
            return {}
        if "$type" in message:
            return message
        made = _of_message(message)
    elif kind == "custom_message":
        made = {"role": "user", "content": entry.get("content")}
    else:
        text = {"type": "text", "text": entry.get("summary")}
        made = {"role": "user", "content": [text] if "summary" in entry else []}
    return {**made, "content": data["content"]} if "content" in data else made


def _of_message(message: Stored) -> Stored:
    role = message.get("role")
    if role == "bashExecution":
        # No tool call of the model's: what a person ran, and what came of it.
        shown = ("command", "output", "exitCode", "cancelled")
        return {"role": "user", "content": [{key: message[key] for key in shown if key in message}]}
    if role == "system":
        said = message.get("content")
        parts = said if isinstance(said, list) else [said] if said else []
        more = ("sections", "toolsAdded", "toolsRemoved")
        beside = {key: message[key] for key in more if message.get(key)}
        return {"role": role, "content": [*parts, beside] if beside else parts}
    return message


def _texts(data: Stored, open_blob: OpenBlob) -> Iterator[Piece]:
    found = form(data, open_blob)
    if "$type" in found:
        pieces: Iterator[Piece] = (
            ("text", text) for text in plain_strings(codec.decode(found, open_blob, images=False))
        )
    else:
        pieces = local_message.texts(found, open_blob)
    said = _is_said(data.get("entry"))
    for where, text in pieces:
        yield where if said or where != "text" else "aside", text


def _is_said(entry: Any) -> bool:
    """Whether it is a person, the model or a tool that speaks, or else a summary of them."""
    if not isinstance(entry, Mapping):
        return False
    message = entry.get("message")
    role = message.get("role") if isinstance(message, Mapping) else None
    return entry.get("type") == "compaction" or (entry.get("type") == "message" and role in _SAID)


def _calls(data: Stored, open_blob: OpenBlob) -> list[Call]:
    found = form(data, open_blob)
    if "$type" in found:
        found = codec.decode(found, open_blob)
    return local_message.calls(found, open_blob)


def _answers(data: Stored) -> str | None:
    entry = data.get("entry")
    message = entry.get("message") if isinstance(entry, Mapping) else None
    call = message.get("toolCallId") if isinstance(message, Mapping) else None
    return call if isinstance(call, str) else None


def _placeholder(call: Call, text: str, at: str) -> dict[str, Any]:
    message = {
        "role": "toolResult",
        "toolCallId": call.id,
        "toolName": call.name,
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "timestamp": to_millis(at),
    }
    return {"entry": {"type": "message", "timestamp": at, "message": message}, "settled": True}


FORMAT = Format(
    PI_ENTRY,
    1,
    texts=_texts,
    calls=_calls,
    answers=_answers,
    placeholder=_placeholder,
    is_placeholder=lambda data: data.get("settled") is True,
    shape=SHAPE,
    form=form,
)
register(FORMAT)
