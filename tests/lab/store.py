"""Reading a Letta storage directory for tests, without the product's own reader."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def encode_name(key: str) -> str:
    """The directory or file name Letta gives a key or an id: unpadded base64url."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def decode_name(name: str) -> str:
    return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()


def conversation_key(number: int) -> str:
    return f"conversation:local-conv-{number}"


def conversation_dir(root: Path, key: str) -> Path:
    return root / "conversations" / encode_name(key)


def conversation_keys(root: Path) -> list[str]:
    return sorted(decode_name(path.name) for path in (root / "conversations").iterdir())


def read_conversation(root: Path, key: str) -> Json:
    value: Json = json.loads((conversation_dir(root, key) / "conversation.json").read_text("utf-8"))
    return value


def in_context_ids(root: Path, key: str) -> list[str]:
    """The window as Letta wrote it."""
    ids: list[str] = read_conversation(root, key)["in_context_message_ids"]
    return ids


def read_rows(root: Path, key: str) -> list[Json]:
    """All rows, header first; none when the conversation has no file yet."""
    path = conversation_dir(root, key) / "messages.jsonl"
    if not path.exists():
        return []
    # Not splitlines(): U+2028 and its like stand raw inside the strings.
    lines = path.read_bytes().decode("utf-8").split("\n")
    return [json.loads(line) for line in lines if line.strip()]


def read_messages(root: Path, key: str) -> list[Json]:
    """The message of every row that has one, compaction rows included."""
    return [row["message"] for row in read_rows(root, key) if "message" in row]


def read_agents(root: Path) -> list[Json]:
    return [
        json.loads(path.read_text("utf-8")) for path in sorted((root / "agents").glob("*.json"))
    ]


def text_of(message: Json) -> str:
    """The text parts of a message, one after the other."""
    return "".join(part["text"] for part in message["content"] if part["type"] == "text")


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one compaction did to the window, by message ids."""

    row_id: str
    summary_id: str
    covered: list[str]
    kept: list[str]


@dataclass(slots=True)
class Replay:
    """The window that the rows alone give, and how it came about."""

    window: list[str] = field(default_factory=list[str])
    compactions: list[Compaction] = field(default_factory=list[Compaction])


def replay(rows: list[Json]) -> Replay:
    """Follow the rows in file order.

    A message enters the window at its first row; a later row with its id replaces it in place. A
    compaction leaves its summary and a suffix of the window, which begins at `firstKeptEntryId`.
    """
    result = Replay()
    message_of_row: dict[str, str] = {}
    for row in rows:
        if row["type"] not in ("message", "compaction"):
            continue
        message_id: str = row["message"]["id"]
        message_of_row[row["id"]] = message_id
        if row["type"] == "message":
            if message_id not in result.window:
                result.window.append(message_id)
            continue
        first_kept: str | None = row["firstKeptEntryId"]
        stats = row["message"]["metadata"]["compaction"]["stats"]
        cut = len(result.window)
        if first_kept is not None:
            cut = result.window.index(message_of_row[first_kept])
        kept = result.window[cut:][: stats["messages_count_after"] - 1]
        covered = result.window[:cut]
        result.compactions.append(Compaction(row["id"], message_id, covered, kept))
        result.window = [message_id, *kept]
    return result


def load_window(rows: list[Json], window: list[str]) -> list[Json]:
    """The messages Letta takes as context when it opens a conversation.

    Of several rows with one message id the last counts. Ids without a row are skipped, and so are
    tool results that no call of the answer before them asked for: a failed answer asks for nothing.
    """
    latest = {row["message"]["id"]: row["message"] for row in rows if "message" in row}
    loaded: list[Json] = []
    pending: set[str] = set()
    for message in (latest[message_id] for message_id in window if message_id in latest):
        if message["role"] == "toolResult":
            if message["toolCallId"] not in pending:
                continue
        else:
            pending = _calls(message)
        loaded.append(message)
    return loaded


def _calls(message: Json) -> set[str]:
    if message["role"] != "assistant" or message["stopReason"] in ("error", "aborted"):
        return set()
    return {part["id"] for part in message["content"] if part["type"] == "toolCall"}
