"""Small invented storage directories of Letta Code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lettaspace.letta.directory import encode_name

Json = dict[str, Any]

START = datetime(2024, 3, 5, 10, 0, 0, tzinfo=UTC)
AGENT = "agent-otter"
KEY = "conversation:local-conv-1"


def at(seconds: float) -> str:
    """A time so long after the beginning of the talk, as JavaScript prints it."""
    moment = START + timedelta(milliseconds=round(seconds * 1000))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def millis(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def call(call_id: str, name: str, arguments: Json) -> Json:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def message(
    number: int,
    role: str,
    content: str | Sequence[Json],
    *,
    created: str | None = None,
    conversation: str = "local-conv-1",
    agent: str = AGENT,
    **more: Any,
) -> Json:
    """A LocalMessage `ui-msg-<number>`."""
    created = created or at(number)
    parts = [text(content)] if isinstance(content, str) else list(content)
    metadata = {
        "created_at": created,
        "updated_at": created,
        "agent_id": agent,
        "conversation_id": conversation,
        **more.pop("metadata", {}),
    }
    base: Json = {"id": f"ui-msg-{number}", "role": role, "content": parts}
    if role == "assistant":
        usage = {"input": 10, "output": 4, "totalTokens": 14, "cost": {"input": 0, "total": 0}}
        base |= {"api": "openai-completions", "provider": "lmstudio", "model": "m"}
        base |= {"usage": usage, "stopReason": "stop"}
    if role == "user":
        base["otid"] = f"otid-{number}"
    return base | more | {"timestamp": millis(created), "metadata": metadata}


def result(number: int, call_id: str, value: str, **more: Any) -> Json:
    return message(
        number, "toolResult", value, toolCallId=call_id, toolName="ls", isError=False, **more
    )


def session(cwd: str = "/home/a/otter", conversation: str = "local-conv-1") -> Json:
    return {"type": "session", "version": 3, "id": conversation, "timestamp": at(0), "cwd": cwd}


def row(message: Json, row_id: str, parent: str | None) -> Json:
    created = message.get("metadata", {}).get("created_at", at(0))
    return {
        "type": "message",
        "id": row_id,
        "parentId": parent,
        "timestamp": created,
        "message": message,
    }


def compaction(
    summary: Json, row_id: str, parent: str | None, first_kept: str | None, before: int, after: int
) -> Json:
    """A compaction row around a user message, which becomes its summary."""
    stats = {
        "trigger": "manual",
        "context_tokens_before": 156,
        "context_tokens_after": 51,
        "messages_count_before": before,
        "messages_count_after": after,
    }
    summary["metadata"]["compaction"] = {"summary": "S", "stats": stats}
    summary.pop("otid", None)
    return {
        "type": "compaction",
        "id": row_id,
        "parentId": parent,
        "timestamp": summary["metadata"]["created_at"],
        "summary": "S",
        "firstKeptEntryId": first_kept,
        "tokensBefore": 156,
        "message": summary,
        "details": {"stats": stats},
    }


def rows(
    messages: Iterable[Json], *, header: bool = True, cwd: str = "/home/a/otter"
) -> list[Json]:
    """A header and one message row each: row ids e1, e2, ..., parents chained."""
    made: list[Json] = [session(cwd)] if header else []
    parent = None
    for index, each in enumerate(messages, 1):
        made.append(row(each, f"e{index}", parent))
        parent = f"e{index}"
    return made


def jsonl(made: Iterable[Json]) -> bytes:
    return b"".join(
        json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for each in made
    )


def b1() -> list[Json]:
    """The four messages of B1."""
    return [
        message(1, "user", "List the jars."),
        message(
            2,
            "assistant",
            [text("Looking."), call("call_A1", "ls", {"dir": "jars"})],
            stopReason="toolUse",
        ),
        result(3, "call_A1", "plum\nfig"),
        message(4, "assistant", "Two jars: plum and fig."),
    ]


class Store:
    """A storage directory being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "conversations").mkdir(parents=True, exist_ok=True)
        (path / "agents").mkdir(exist_ok=True)

    def agent(self, agent_id: str = AGENT, **more: Any) -> Path:
        value = {
            "id": agent_id,
            "name": "Otter",
            "description": None,
            "system": "You are Otter.\n\n{CORE_MEMORY}",
            "tags": ["a"],
            "model": "lmstudio/m",
            "model_settings": {"provider_type": "lmstudio"},
            **more,
        }
        path = self.path / "agents" / f"{encode_name(agent_id)}.json"
        path.write_text(json.dumps(value, indent=2) + "\n")
        return path

    def directory(self, key: str = KEY) -> Path:
        return self.path / "conversations" / encode_name(key)

    def conversation(
        self,
        messages: bytes | Sequence[Json],
        window: Sequence[str] | None = None,
        *,
        key: str = KEY,
        agent: str | None = AGENT,
        created: str | None = None,
        manifest: Json | None = None,
        prompt: Json | None = None,
        **more: Any,
    ) -> Path:
        """Writes a conversation. `messages` are rows, or the bytes of messages.jsonl;
        `window` defaults to the ids of all message rows."""
        directory = self.directory(key)
        directory.mkdir(parents=True, exist_ok=True)
        if not isinstance(messages, bytes):
            if window is None:
                window = [each["message"]["id"] for each in messages if "message" in each]
            messages = jsonl(messages)
        created = created or at(0)
        value = {
            "id": key.partition(":")[2] if key.startswith("conversation:") else "default",
            "agent_id": agent,
            "archived": False,
            "archived_at": None,
            "created_at": created,
            "updated_at": created,
            "last_message_at": None,
            "summary": "Jars",
            "in_context_message_ids": list(window or ()),
            **more,
        }
        (directory / "messages.jsonl").write_bytes(messages)
        (directory / "conversation.json").write_text(json.dumps(value, indent=2) + "\n")
        standard = {
            "schema_version": 2,
            "message_format": "pi-session-entry-jsonl",
            "provider_stack": "pi-ai",
            "created_at": created,
        }
        (directory / "manifest.json").write_text(json.dumps(manifest or standard))
        if prompt is not None:
            (directory / "system-prompt.json").write_text(json.dumps(prompt))
        return directory


def prompt(**more: Any) -> Json:
    return {
        "content": "You are Otter.\n\n<memory>jars</memory>",
        "coreMemory": "<memory>jars</memory>",
        "compiledAt": at(1),
        "rawSystemHash": "0" * 64,
        "memfsRevision": "1" * 40,
        **more,
    }
