"""Sessions as pi might have written them: by hand, and by chance."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from lettaspace.pi.session import Session, parse_session

Json = dict[str, Any]

USAGE = {
    "input": 90,
    "output": 7,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 97,
    "cost": {"input": 0.0003, "output": 0.0009, "cacheRead": 0, "cacheWrite": 0, "total": 0.0012},
}


def at(second: int) -> str:
    return f"2026-03-09T14:{second // 60:02}:{second % 60:02}.000Z"


def text(said: str) -> Json:
    return {"type": "text", "text": said}


@dataclass
class Writer:
    """Writes a session as pi does: each entry follows the one where the session stands."""

    id: str = "019cd2e5-cae8-71a8-b9e5-f468cedf81fa"
    version: int = 3
    rows: list[Json] = field(default_factory=list[Json])
    leaf: str | None = None

    def __post_init__(self) -> None:
        header = {"type": "session", "version": self.version, "id": self.id, "timestamp": at(0)}
        self.rows.append({**header, "cwd": "/home/mira/kiln"})

    def add(self, kind: str, **fields: Any) -> str:
        number = len(self.rows)
        name = f"{number:08x}"
        row = {"type": kind, "id": name, "parentId": self.leaf, "timestamp": at(number)}
        self.rows.append(row | fields)
        self.leaf = name
        return name

    def message(self, role: str, content: Any, **fields: Any) -> str:
        message = {"role": role, "content": content, "timestamp": 1773064800000 + len(self.rows)}
        return self.add("message", message=message | fields)

    def user(self, said: str) -> str:
        return self.message("user", [text(said)])

    def says(self, said: str, *calls: str) -> str:
        parts = [text(said)] if said else []
        parts += [{"type": "toolCall", "id": id_, "name": "ls", "arguments": {}} for id_ in calls]
        named = {"api": "a", "provider": "acme", "model": "m-1", "usage": USAGE}
        stop = "toolUse" if calls else "stop"
        return self.message("assistant", parts, **named, stopReason=stop)

    def result(self, call: str, said: str) -> str:
        named = {"toolCallId": call, "toolName": "ls", "isError": False}
        return self.message("toolResult", [text(said)], **named)

    def compact(self, summary: str, first_kept: str | None = None, **fields: Any) -> str:
        name = f"{len(self.rows):08x}"
        kept = first_kept or name
        return self.add(
            "compaction", summary=summary, firstKeptEntryId=kept, tokensBefore=9, **fields
        )

    def lines(self) -> bytes:
        return lines(self.rows)

    def session(self) -> Session:
        return session(self.rows)


def lines(rows: Iterable[Any]) -> bytes:
    """As JavaScript writes them: compact, half characters as escapes."""
    texts = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return b"".join(text.encode(errors="backslashreplace") + b"\n" for text in texts)


def session(rows: Iterable[Any]) -> Session:
    return parse_session(io.BytesIO(lines(rows)), "a file")


_KINDS = (
    "user", "user", "says", "says", "calls", "system", "bash", "hidden", "custom", "summary",
    "label", "model_change", "compact", "compact", "edit", "omit", "odd",
)  # fmt: skip


@st.composite
def writers(draw: st.DrawFn, most: int = 24, *, edits: bool = True, system: bool = True) -> Writer:
    """A session of a few entries, with branches, compactions and edits anywhere."""
    made = Writer()
    kinds = [
        kind
        for kind in _KINDS
        if (edits or kind not in ("edit", "omit")) and (system or kind != "system")
    ]
    for number in range(draw(st.integers(0, most))):
        before = [row["id"] for row in made.rows[1:]]
        if before and draw(st.integers(0, 5)) == 0:
            made.leaf = draw(st.sampled_from([None, *before]))
        _one(draw, made, draw(st.sampled_from(kinds)), before, f"said {number}")
    return made


def _one(draw: st.DrawFn, made: Writer, kind: str, before: list[str], said: str) -> None:
    match kind:
        case "user":
            made.user(said)
        case "says":
            made.says(said)
        case "calls":
            call = f"c{len(made.rows)}"
            made.says("", call)
            if draw(st.booleans()):
                made.result(call, said)
        case "system":
            made.message("system", said, sections={"place": said})
        case "bash" | "hidden":
            more = {"excludeFromContext": True} if kind == "hidden" else {}
            ran = {"command": "ls", "output": said, "exitCode": 0, "cancelled": False}
            made.add("message", message={"role": "bashExecution", **ran, "timestamp": 1, **more})
        case "custom":
            made.add("custom_message", customType="note", content=said, display=True)
        case "summary":
            made.add("branch_summary", fromId="root", summary=draw(st.sampled_from([said, ""])))
        case "compact":
            kept = draw(st.sampled_from([None, *before, "nowhere"]))
            more = {"systemMessage": {"role": "system", "content": said, "timestamp": 1}}
            made.compact(said, kept, **(more if draw(st.booleans()) else {}))
        case "edit" if before:
            made.add(
                "context_edit",
                targetId=draw(st.sampled_from(before)),
                replacement={"content": [text(f"instead: {said}")]},
            )
        case "omit" if before:
            made.add("context_edit", targetId=draw(st.sampled_from(before)), replacement=None)
        case "odd":
            made.message("stranger", said)
        case "model_change":
            made.add("model_change", provider="acme", modelId="m-2")
        case _:
            made.add("label", targetId=(before or ["none"])[0], label=said)
