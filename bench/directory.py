"""A storage directory of Letta Code of any size, written row by row; equal on every run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

from bench.rows import START, Json, Talk, iso, line
from bench.words import Writer
from lettaspace.letta.directory import encode_name

LIMIT = 400
"""Messages in a window before it is compacted."""

KEEP = 100
"""Messages that a compaction keeps, about."""

_SHARES = (60, 20, 8, 4, 2, 1)
_SMALL = 50
_AGENTS = 3


@dataclass(frozen=True, slots=True)
class Written:
    """What was written."""

    path: Path
    messages: int
    """Messages, summaries among them."""
    bytes: int


def write_mixture(path: Path, messages: int, *, active: int | None = None) -> Written:
    """One long conversation, some of middle length, many short ones. With `active`, the long
    one has exactly that many messages in its window, the same whatever the length."""
    sizes = [messages * share // 100 for share in _SHARES]
    rest = messages - sum(sizes)
    sizes += [_SMALL] * (rest // _SMALL)
    if rest % _SMALL:
        sizes.append(rest % _SMALL)
    write_agents(path)
    size = sum(
        _write(path, number, count, active if number == 1 else None)
        for number, count in enumerate(sizes, 1)
    )
    return Written(path, messages, size)


def write_one(path: Path, messages: int, *, active: int) -> Written:
    """One conversation with exactly `active` messages in its window; those are the same
    whatever the length."""
    write_agents(path)
    return Written(path, messages, _write(path, 1, messages, active))


def write_many(path: Path, conversations: int, messages: int) -> Written:
    """So many conversations, with so many messages each."""
    write_agents(path)
    size = sum(_write(path, number, messages, None) for number in range(1, conversations + 1))
    return Written(path, conversations * messages, size)


def _write(path: Path, number: int, messages: int, active: int | None) -> int:
    """Writes a conversation, and returns the bytes of its rows."""
    rng = Random(number)
    agent_id = _agent_id(number % _AGENTS)
    name = f"local-conv-{number}"
    talk = Talk(agent_id, name, rng, START + timedelta(minutes=number))
    directory = path / "conversations" / encode_name(f"conversation:{name}")
    directory.mkdir(parents=True)
    with (directory / "messages.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        file.write(line(talk.header()))
        if active is not None:
            _talk(talk, file.write, messages - active)
            talk.reseed(Random(-1))
            file.write(line(talk.compaction(0)))
            while len(talk.window) < active:
                for row in talk.turn(active - len(talk.window)):
                    file.write(line(row))
        else:
            _talk(talk, file.write, messages)
        size = file.tell()
    _write_small_files(directory, talk)
    return size


def _talk(talk: Talk, write: Callable[[str], object], messages: int) -> None:
    while talk.count < messages:
        if len(talk.window) >= LIMIT:
            write(line(talk.compaction(KEEP)))
        for row in talk.turn(messages - talk.count):
            write(line(row))


def _write_small_files(directory: Path, talk: Talk) -> None:
    created, ended = iso(talk.created), iso(talk.clock.now)
    conversation = {
        "id": talk.conversation_id,
        "agent_id": talk.agent_id,
        "archived": False,
        "archived_at": None,
        "created_at": created,
        "updated_at": ended,
        "last_message_at": ended,
        "summary": talk.writer.prose(6),
        "in_context_message_ids": [placed.message_id for placed in talk.window],
        "model": "openrouter/big-model-4",
        "model_settings": {"provider_type": "openrouter", "temperature": 0.7},
        "context_window_limit": 128_000,
    }
    memory = talk.writer.prose(900)
    prompt = {
        "content": f"You are helpful.\n\n{memory}",
        "coreMemory": memory,
        "compiledAt": ended,
        "rawSystemHash": "0" * 64,
        "memfsRevision": "1" * 40,
    }
    manifest = {
        "schema_version": 2,
        "message_format": "pi-session-entry-jsonl",
        "provider_stack": "pi-ai",
        "created_at": created,
    }
    _dump(directory / "conversation.json", conversation)
    _dump(directory / "system-prompt.json", prompt)
    _dump(directory / "manifest.json", manifest)


def write_agents(path: Path) -> None:
    (path / "agents").mkdir(parents=True)
    for number in range(_AGENTS):
        agent_id = _agent_id(number)
        system = Writer(Random(number)).prose(600)
        agent: Json = {
            "id": agent_id,
            "name": f"Agent {number}",
            "description": None,
            "system": f"{system}\n\n{{CORE_MEMORY}}",
            "tags": [],
            "model": "openrouter/big-model-4",
            "model_settings": {"provider_type": "openrouter"},
        }
        _dump(path / "agents" / f"{encode_name(agent_id)}.json", agent)


def _agent_id(number: int) -> str:
    return f"agent-local-00000000-0000-4000-8000-{number:012d}"


def _dump(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
