"""What a compiled prompt is made of: a template, the committed memory, and their names."""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from lettaspace.conversation import codec
from lettaspace.conversation.jsontext import well_formed
from lettaspace.conversation.memory import MemoryDirectory, Snapshot
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION_STATE,
    LOCAL_AGENT,
    LOCAL_CONVERSATION,
    LOCAL_MESSAGE,
    rkey_of,
)
from lettaspace.conversation.render import is_v2, render_core_memory
from lettaspace.errors import Damaged, NotFound
from lettaspace.space.writes import Reader, Record, Value


def template_hash(template: str) -> str:
    """SHA-256, in hex, of the exact UTF-8 of a template; half characters as JavaScript has them."""
    if not well_formed(template):
        template = template.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return hashlib.sha256(template.encode()).hexdigest()


def shown_messages(messages: Iterable[Message]) -> int:
    """How many messages Letta counts: an assistant's message is one for each tool call and each
    run of text or of thinking, every other is one."""
    return sum(map(_shown, messages))


def _shown(message: Message) -> int:
    if message.role != "assistant" or message.format != LOCAL_MESSAGE:
        return 1
    try:
        content = message.payload(images=False).get("content")
    except (Damaged, NotFound, AttributeError):
        return 1
    count = 0
    last = ""
    for part in content if isinstance(content, list) else []:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "toolCall":
            count, last = count + 1, ""
        elif kind == "thinking" and not part.get("thinking"):
            last = "" if last == "text" else last
        elif kind in ("text", "thinking"):
            count, last = count + (last != kind), kind
    return count


def committed(memory: MemoryDirectory) -> Snapshot:
    return memory.read(memory.state().require(), wanted=is_markdown)


def is_markdown(path: str) -> bool:
    return path.endswith(".md")


def has_v2(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and is_v2(snapshot.blobs())


def core_memory(
    reader: Reader, snapshot: Snapshot | None, talk: Record, at: datetime, count: int
) -> str:
    agent = rkey_of(str(talk.value["agent"]))
    return render_core_memory(
        snapshot.blobs() if snapshot is not None else {},
        agent_id=_own_id(reader, AGENT, agent, LOCAL_AGENT),
        conversation_id=_own_id(reader, CONVERSATION_STATE, talk.rkey, LOCAL_CONVERSATION),
        compiled_at=at,
        message_count=count,
        quote_path=snapshot.quote_path if snapshot is not None else True,
    )


def _own_id(reader: Reader, collection: str, rkey: str, name: str) -> str:
    """What the harness itself calls an agent or a conversation; else its record key."""
    found = _payload(reader, reader.get(collection, rkey), name).get("id")
    return found if isinstance(found, str) else rkey


def template_of(reader: Reader, agent: str) -> str:
    """An agent's raw template: in its record, or in its state where it is too long for that."""
    record = reader.get(AGENT, rkey_of(agent))
    if record is not None:
        for found in (
            record.value.get("system"),
            _payload(reader, record, LOCAL_AGENT).get("system"),
        ):
            if isinstance(found, str):
                return found
    raise NotFound(f"{agent} has no template")


def _payload(reader: Reader, record: Record | None, name: str) -> dict[str, Any]:
    """The harness's own record in a sidecar, if it is in the format we know."""
    state = record.value.get("state") if record is not None else None
    if not state or (state["format"], state["version"]) != (name, 1):
        return {}
    data = codec.decode(state["data"], reader.get_blob, images=False)
    return data if isinstance(data, dict) else {}


def stored_prompt(reader: Reader, rkey: str) -> tuple[Value | None, bool]:
    """The fields of a conversation's prompt, and whether they are too large for a record."""
    record = reader.get(COMPILED_PROMPT, rkey)
    if record is not None:
        return record.value, False
    state = reader.get(CONVERSATION_STATE, rkey)
    kept = state.value.get("oversizePrompt") if state is not None else None
    values = codec.decode(kept["data"], reader.get_blob) if kept else None
    return (values, True) if isinstance(values, dict) else (None, False)


def record_of(reader: Reader, collection: str, rkey: str) -> Record:
    record = reader.get(collection, rkey)
    if record is None:
        what = (
            "compiled prompt of conversation" if collection == COMPILED_PROMPT else "conversation"
        )
        raise NotFound(f"there is no {what} {rkey}")
    return record
