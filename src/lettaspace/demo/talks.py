"""What the demo's agents and people say. All of it is invented."""

import struct
import zlib
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

Turn = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Agent:
    """One of the demo's agents."""

    id: str
    name: str
    description: str
    system: str
    memory: str


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation. `id` empty: the agent's default conversation."""

    agent: str
    id: str
    title: str | None
    start: str
    cwd: str
    turns: tuple[Turn, ...] = ()


def _user(text: str, *more: Turn, wait: int = 60) -> Turn:
    return {"role": "user", "content": [_text(text), *more], "wait": wait}


def _assistant(*parts: Turn | str) -> Turn:
    content = [_text(part) if isinstance(part, str) else part for part in parts]
    return {"role": "assistant", "content": content}


def _text(text: str) -> Turn:
    return {"type": "text", "text": text}


def _thinking(text: str) -> Turn:
    return {"type": "thinking", "thinking": text}


def _call(call_id: str, name: str, **arguments: Any) -> Turn:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def _result(call_id: str, name: str, text: str, *, failed: bool = False) -> Turn:
    return {
        "role": "toolResult",
        "content": [_text(text)],
        "toolCallId": call_id,
        "toolName": name,
        "isError": failed,
        "wait": 2,
    }


def _summary(text: str, *, keep: int) -> Turn:
    """A compaction that keeps the last so many messages as they are."""
    return {"role": "user", "content": [_text(text)], "keep": keep}


def _tile(side: int = 48) -> Turn:
    """A picture of a glaze running from celadon to iron brown."""
    rows = bytearray()
    for y in range(side):
        rows.append(0)
        for x in range(side):
            run = min(255, (x * x + 3 * y * y) * 255 // (4 * side * side))
            rows += bytes((140 + run // 4, 175 - run // 2, 150 - run // 2))
    return {"type": "image", "mimeType": "image/png", "data": b64encode(_png(side, rows)).decode()}


def _png(side: int, rows: bytes | bytearray) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(rows), 9))
        + chunk(b"IEND", b"")
    )


AGENTS = {
    "kiln": Agent(
        "agent-local-0f5c2a10-6d1e-4c57-9a35-2b7f1a9c0d01",
        "Kiln",
        "Keeps the records of a pottery workshop.",
        "You are Kiln. You keep the workshop's records exact and short.\n\n{CORE_MEMORY}",
        "<memory>\nThe workshop fires on Thursdays. Cones are Orton cones.\n</memory>",
    ),
    "otter": Agent(
        "agent-local-5b9d7e44-1f0a-4b1c-8c62-9e3d2f6a7b02",
        "Otter",
        "Helps with the workshop's small programs.",
        "You are Otter, a careful programmer.\n\n{CORE_MEMORY}",
        "<memory>\nTests are run with `make test`. Nothing is pushed on Fridays.\n</memory>",
    ),
}

_LOG = """\
tile,glaze,cone,result
A1,celadon 4,9,clear
A2,celadon 4,10,runs 6 mm
B1,tenmoku,10,good
B2,shino,10,crawls at the rim"""

TALKS = (
    Talk(
        "kiln",
        "local-conv-1",
        "Glaze tests for the spring kiln",
        "2026-02-12T09:30:00+00:00",
        "/home/mira/workshop",
        (
            _user("Which glazes from the last firing can we use for the mugs?"),
            _assistant(
                _thinking("The firing log has the test tiles. Read it before answering."),
                "I look into the firing log.",
                _call("call_k1", "read_file", path="firings/2026-02-05.csv"),
            ),
            _result("call_k1", "read_file", _LOG),
            _assistant(
                "Two of the four:\n\n- celadon 4, at cone 9 only: at cone 10 it runs 6 mm\n"
                "- tenmoku at cone 10\n\nShino crawls at the rim; not for mugs."
            ),
            _user("Here is tile A2. Would you still call that celadon?", _tile(), wait=400),
            _assistant(
                "At the top, yes. Where it ran it broke to iron brown, so the glaze is too thick "
                "there: one dip less, or cone 9."
            ),
            _user("Note that for Thursday, please.", wait=30),
            _assistant(
                _call(
                    "call_k2",
                    "append_note",
                    file="notes/thursday.md",
                    line="celadon 4: one dip, cone 9",
                    after=None,
                )
            ),
            _result("call_k2", "append_note", "1 line added"),
            _assistant("Noted: celadon 4, one dip, cone 9."),
            _summary(
                "Mugs may be glazed with celadon 4 (one dip, cone 9) or tenmoku (cone 10). Shino "
                "crawls. Tile A2 ran 6 mm at cone 10 because it was dipped too thick. The note for "
                "Thursday is in notes/thursday.md.",
                keep=4,
            ),
            _user("And how many mugs fit on a shelf?", wait=86400),
            _assistant("Eighteen, if the handles point inward; sixteen if they don't. ☕"),
        ),
    ),
    Talk(
        "kiln",
        "local-conv-2",
        "釉薬のメモ 🏺 notes from Yuki",
        "2026-03-03T06:10:00+00:00",
        "/home/mira/workshop",
        (
            _user("天目釉は何度で焼きますか？ Yukiさんが聞いています。"),
            _assistant("オルトンコーン10、約1285℃です。最後の15分は温度を保ちます。"),
            _user("תודה! וגם: what does she call it?", wait=45),
            _assistant("油滴天目 — “oil-drop tenmoku”. 👩🏽‍🎨"),
        ),
    ),
    Talk(
        "otter",
        "local-conv-3",
        "Why does the shelf planner give 17?",
        "2026-03-09T14:00:00+00:00",
        "/home/mira/workshop/planner",
        (
            _user("plan.py says 17 mugs fit on a shelf. It should be 16 or 18."),
            _assistant(
                "I read the code and run its tests at the same time.",
                _call("call_o1", "read_file", path="plan.py"),
                _call("call_o2", "run", command="make test", timeout=1.5e2),
                _call("call_o3", "read_file", path="handles.toml"),
            ),
            _result(
                "call_o1",
                "read_file",
                "def mugs(width: float, depth: float, handle: float) -> int:\n"
                "    across = int(width / (8.2 + handle))\n"
                "    deep = int(depth / 8.2)\n"
                "    return across * deep + 1",
            ),
            _result("call_o2", "run", "1 failed, 11 passed in 0.41s"),
            _result("call_o3", "read_file", "no such file: handles.toml", failed=True),
            _assistant(
                _thinking("across * deep is 16 with handles out. The + 1 has no reason."),
                "The `+ 1` in the last line has no reason: without it the answer is 16 with the "
                "handles out and 18 with them in. `handles.toml` does not exist, so the default "
                "of 1.9 cm was used.",
            ),
            _user("Remove it then.", wait=20),
            _assistant(
                _call("call_o4", "edit", path="plan.py", old=" + 1", new=""),
            ),
            _result("call_o4", "edit", "plan.py: 1 replacement"),
            _assistant("Done. All 12 tests pass."),
        ),
    ),
    Talk("otter", "", None, "2026-03-09T13:58:00+00:00", "/home/mira/workshop/planner"),
)
