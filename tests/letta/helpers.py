"""Looking at what an import left."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from lettaspace.conversation import jsontext
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import CONVERSATION_STATE
from lettaspace.conversation.space import Space
from lettaspace.letta import export as exporting
from lettaspace.letta.directory import encode_name
from lettaspace.letta.lines import Rows, line
from lettaspace.letta.report import Report

Json = dict[str, Any]


def only(space: Space) -> str:
    """The URI of the one conversation there is."""
    (conversation,) = space.conversations()
    return conversation.uri


def window(space: Space, uri: str | None = None) -> list[Message]:
    """The whole window, what a model is not given included."""
    found = space.window(uri or only(space))
    seqs = [message.seq for message in found.messages]
    assert seqs == sorted(seqs), "seqs alone give the order of the window"
    return sorted([*found.messages, *found.left_out], key=lambda message: message.seq)


def export(space: Space, uri: str, root: Path) -> Path:
    """Writes a conversation into a storage directory; returns the conversation's."""
    rkey = uri.rpartition("/")[2]
    files = exporting.files(space, rkey)
    directory = root / "conversations" / encode_name(files.key)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "messages.jsonl").open("wb") as out:
        out.write(line(files.header))
        with space.database.read() as connection:
            out.writelines(Rows(space, connection, rkey))
    for name, value in (("conversation", files.conversation), ("manifest", files.manifest)):
        (directory / f"{name}.json").write_text(jsontext.dumps(value, indent=2) + "\n")
    return directory


def window_ids(space: Space, uri: str | None = None) -> list[Any]:
    return [message.payload().get("id") for message in window(space, uri)]


def transcript(space: Space, uri: str | None = None) -> list[Message]:
    return list(space.transcript(uri or only(space)))


def texts(messages: list[Message]) -> list[str]:
    return [
        "".join(part.get("text", "") for part in message.payload()["content"])
        for message in messages
    ]


def state(space: Space, uri: str | None = None) -> Json:
    record = space.repo.get(CONVERSATION_STATE, (uri or only(space)).rpartition("/")[2])
    assert record is not None
    return record.value


def findings(report: Report, index: int = 0) -> list[tuple[str, int | None]]:
    return [(damage.kind, damage.row) for damage in report.conversations[index].damage]


def digest(directory: Path) -> str:
    """Changes when any byte, name or time below the directory does."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        stat = path.stat()
        total.update(f"{path} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino}\n".encode())
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()


def records(space: Space) -> dict[str, str]:
    """Every record's CID by `collection/rkey`."""
    found: dict[str, str] = {}
    for op in space.repo.ops():
        found[f"{op.collection}/{op.rkey}"] = str(op.cid)
    return found
