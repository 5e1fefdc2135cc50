"""Writes the demo in the form in which Letta Code keeps its conversations."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from lettaspace.demo.talks import AGENTS, TALKS, Agent, Talk
from lettaspace.letta.directory import encode_name

Json = dict[str, Any]

_WHOLE = "whole"
"""The file that is written last."""


def write_directory(directory: Path) -> None:
    """Writes the demo's storage directory; does nothing where it stands already."""
    if (directory / _WHOLE).exists():
        return
    agents = directory / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    for agent in AGENTS.values():
        _write(agents / f"{encode_name(agent.id)}.json", _agent(agent))
    for talk in TALKS:
        _Conversation(talk, AGENTS[talk.agent]).write(directory / "conversations")
    (directory / _WHOLE).touch()


def _agent(agent: Agent) -> Json:
    return {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "system": agent.system,
        "tags": ["origin:lettaspace-demo"],
        "model": "demo/none",
        "model_settings": {},
    }


class _Conversation:
    """One conversation being made: message after message, with a clock and counters."""

    def __init__(self, talk: Talk, agent: Agent) -> None:
        self.talk = talk
        self.agent = agent
        self.key = f"conversation:{talk.id}" if talk.id else f"default:{agent.id}"
        self.id = talk.id or "default"
        self.start = datetime.fromisoformat(talk.start).astimezone(UTC)
        self.now = self.start
        self.rows: list[Json] = [
            {
                "type": "session",
                "version": 3,
                "id": self.id,
                "timestamp": _iso(self.start),
                "cwd": talk.cwd,
            }
        ]
        self.window: list[tuple[str, str]] = []
        """Message ids and row ids."""
        for turn in talk.turns:
            self.add(turn)

    def write(self, conversations: Path) -> None:
        directory = conversations / encode_name(self.key)
        directory.mkdir(parents=True, exist_ok=True)
        created, updated = _iso(self.start), _iso(self.now)
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in self.rows)
        (directory / "messages.jsonl").write_bytes("".join(f"{line}\n" for line in lines).encode())
        _write(
            directory / "manifest.json",
            {
                "schema_version": 2,
                "message_format": "pi-session-entry-jsonl",
                "provider_stack": "pi-ai",
                "created_at": created,
            },
        )
        _write(
            directory / "conversation.json",
            {
                "id": self.id,
                "agent_id": self.agent.id,
                "archived": False,
                "archived_at": None,
                "created_at": created,
                "updated_at": updated,
                "last_message_at": updated if self.window else None,
                "summary": self.talk.title,
                "in_context_message_ids": [message for message, _ in self.window],
            },
        )
        memory = self.agent.memory
        _write(
            directory / "system-prompt.json",
            {
                "content": self.agent.system.replace("{CORE_MEMORY}", memory),
                "coreMemory": memory,
                "compiledAt": created,
                "rawSystemHash": sha256(self.agent.system.encode()).hexdigest(),
                "memfsRevision": sha256(memory.encode()).hexdigest()[:40],
            },
        )

    def add(self, turn: Json) -> None:
        """Adds a turn of a talk: its content, its role, and what else a message holds."""
        turn = dict(turn)
        self.now += timedelta(seconds=turn.pop("wait", 4))
        number = len(self.rows)
        message: Json = {"id": f"ui-msg-{number}", **turn}
        keep: int | None = message.pop("keep", None)
        created = _iso(self.now)
        message["timestamp"] = round(self.now.timestamp() * 1000)
        message["metadata"] = {
            "created_at": created,
            "updated_at": created,
            "agent_id": self.agent.id,
            "conversation_id": self.id,
        }
        if message["role"] == "assistant":
            message |= _assistant(message, number)
        elif message["role"] == "user" and keep is None:
            message["otid"] = f"demo-{self.id}-{number}"
        row: Json = {
            "type": "message",
            "id": f"{crc32(f'{self.key} {number}'.encode()):08x}",
            "parentId": self.rows[-1]["id"] if number > 1 else None,
            "timestamp": created,
        }
        if keep is not None:
            row |= self.compact(message, keep)
        self.rows.append(row | {"message": message})
        self.window.append((message["id"], row["id"]))
        if keep is not None:
            self.window.insert(0, self.window.pop())

    def compact(self, message: Json, keep: int) -> Json:
        """Makes a message the summary of all but the last `keep` of the window."""
        before = len(self.window)
        self.window = self.window[-keep:]
        summary = message["content"][0]["text"]
        stats = {
            "trigger": "manual",
            "context_tokens_before": 1180,
            "context_tokens_after": 410,
            "messages_count_before": before,
            "messages_count_after": keep + 1,
        }
        message["metadata"]["compaction"] = {"summary": summary, "stats": stats}
        return {
            "type": "compaction",
            "summary": summary,
            "firstKeptEntryId": self.window[0][1],
            "tokensBefore": 1180,
            "details": {"stats": stats},
        }


def _assistant(message: Json, number: int) -> Json:
    written = 9 * len(message["content"]) + number
    calls = any(part["type"] == "toolCall" for part in message["content"])
    return {
        "api": "openai-completions",
        "provider": "demo",
        "model": "none",
        "usage": {
            "input": 40 * number,
            "output": written,
            "totalTokens": 40 * number + written,
            "cost": {"input": 0.000049, "output": 0.0001, "total": 0.000149},
        },
        "stopReason": "toolUse" if calls else "stop",
    }


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
