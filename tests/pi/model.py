"""What pi gives the model of a session, said as plainly as can be.

Checked against pi 0.73.1 and 1.6.0 themselves: `tests/pi/context.mjs` asks them.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def context(rows: list[Json]) -> list[tuple[str, str, Any]]:
    """The entry, the role and the content of each message, in order. `rows` are the lines of a
    file; of a compaction, the content is its summary."""
    entries = [row for row in rows if row["type"] != "session"]
    if not entries:
        return []
    known = {row["id"]: row for row in entries}
    path: list[Json] = []
    at: Json | None = entries[-1]
    while at is not None:
        path.insert(0, at)
        at = known.get(at["parentId"])
    last = max((n for n, row in enumerate(path) if row["type"] == "compaction"), default=None)
    given: list[tuple[str, str, Any]] = []
    if last is not None:
        given.append((path[last]["id"], "user", path[last]["summary"]))
        ids = [row["id"] for row in path[:last]]
        first = path[last]["firstKeptEntryId"]
        kept = path[ids.index(first) : last] if first in ids else []
        path = [row for row in kept if _role(row) != "system"] + path[last + 1 :]
    edits = {row["targetId"]: row["replacement"] for row in path if row["type"] == "context_edit"}
    given = [each for each in given if edits.get(each[0], "") is not None]
    for row in path:
        role, content = _role(row), _content(row)
        if role is None or row["type"] == "compaction":
            continue
        if row["id"] in edits:
            if edits[row["id"]] is None:
                continue
            if row["type"] == "custom_message" or _own(row) in ("user", "assistant", "toolResult"):
                content = edits[row["id"]]["content"]
        given.append((row["id"], role, content))
    return given


def _own(row: Json) -> str | None:
    return row["message"]["role"] if row["type"] == "message" else None


def _role(row: Json) -> str | None:
    own = _own(row)
    if own == "bashExecution":
        return None if row["message"].get("excludeFromContext") else "user"
    if own is not None:
        return own if own in ("system", "user", "assistant", "toolResult") else None
    if row["type"] == "branch_summary":
        return "user" if row["summary"] else None
    return "user" if row["type"] in ("custom_message", "compaction") else None


def _content(row: Json) -> Any:
    if row["type"] == "message":
        return row["message"].get("content")
    return row.get("content", row.get("summary"))
