"""Messages for people: one message as lines of inert text."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lettaspace.cli.output import Output
from lettaspace.cli.text import field, inert_lines
from lettaspace.errors import Damaged, InvalidInput, NotFound

if TYPE_CHECKING:
    from lettaspace.conversation.message import Message

_ROLE_STYLES = {"user": "green", "assistant": "cyan", "toolResult": "yellow"}
_INDENT = "  "


def local_time(text: str | None, *, seconds: bool = False) -> str:
    """A stored time in the reader's own time zone; as it stands where it is no time."""
    if not text:
        return "-"
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        return field(text, 24)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def message_lines(message: "Message", out: Output) -> Iterator[str]:
    """A heading and the message's parts, indented."""
    covered = message.compacted_message_ids
    if covered is not None:
        rule = f"── compaction: #{message.seq} summarises {_count(len(covered), 'message')} ──"
        yield out.style(rule, "bold")
    marks = ["compacted"] if not message.active else []
    marks += message.flags
    try:
        payload = message.form(images=False)
    except (Damaged, InvalidInput, NotFound) as error:
        marks.append("unreadable")
        body = [f"{field(str(error))}; as stored:", *_json(_stored(message))]
    else:
        body = list(_payload(message, payload))
    heading = out.style(f"#{message.seq} {field(message.role)}", "bold", _style(message))
    rest = [local_time(message.created_at, seconds=True), message.rkey]
    rest += [f"[{mark}]" for mark in marks]
    yield f"{heading}  {out.style('  '.join(rest), 'dim')}"
    for line in body:
        yield f"{_INDENT}{line}".rstrip()
    yield ""


def _style(message: "Message") -> str:
    return _ROLE_STYLES.get(message.role, "bold")


def _payload(message: "Message", payload: Any) -> Iterator[str]:
    if "unknown-format" in message.flags or not isinstance(payload, dict):
        yield f"format {field(message.format)}, version {message.version}, shown raw:"
        yield from _json(payload)
        return
    if message.role == "toolResult":
        failed = " failed" if payload.get("isError") is True else ""
        yield f"← {_word(payload.get('toolName'))}{failed}  {_word(payload.get('toolCallId'))}"
    content = payload.get("content")
    for part in content if isinstance(content, list) else [content]:
        yield from _part(part)
    if payload.get("errorMessage"):
        yield from _marked("error: ", payload["errorMessage"])


def _part(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield from inert_lines(part)
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        yield from inert_lines(part["text"])
    elif kind == "thinking" and isinstance(part.get("thinking"), str):
        yield from _marked("thinking: ", part["thinking"])
    elif kind == "toolCall":
        call = f"→ {_word(part.get('name'))}  {_word(part.get('id'))}"
        yield call
        for line in _json(part.get("arguments")):
            yield f"{_INDENT}{line}"
    elif kind == "image":
        yield f"[image {_word(part.get('mimeType'))}, {_size(part.get('data'))}]"
    elif part is not None:
        yield from _json(part)


def _marked(mark: str, text: Any) -> Iterator[str]:
    for line in inert_lines(text) if isinstance(text, str) else _json(text):
        yield mark + line
        mark = " " * len(mark)


def _word(value: Any) -> str:
    return field(value, 120) if isinstance(value, str) else "-"


def _size(content: Any) -> str:
    if isinstance(content, dict) and isinstance(content.get("size"), int):
        return _count(content["size"], "byte")
    if isinstance(content, str):
        return f"about {_count(len(content) * 3 // 4, 'byte')}"
    return "no data"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _json(value: Any) -> list[str]:
    from lettaspace.conversation.jsontext import dumps

    compact = dumps(value)
    return inert_lines(compact if len(compact) <= 80 else dumps(value, indent=2))


def _stored(message: "Message") -> Any:
    from lettaspace.atproto.data import to_json

    return to_json(message.data)
