"""The rows of a messages.jsonl as Letta Code writes them, with invented content."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from bench.words import Writer

Json = dict[str, Any]

START = datetime(2024, 3, 5, 10, 0, 0, tzinfo=UTC)

_PRICES = (0.0000025, 0.00001, 0.00000125, 0.0000003)


def iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def line(row: Json) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


@dataclass(slots=True)
class Clock:
    """When the next thing happens."""

    now: datetime

    def pass_time(self, seconds: float) -> datetime:
        self.now += timedelta(milliseconds=round(seconds * 1000) + 1)
        return self.now


@dataclass(slots=True)
class Placed:
    """A message in the window."""

    row_id: str
    message_id: str
    may_begin: bool
    """A kept tail may begin with it: no tool call is parted from its result."""


@dataclass(slots=True)
class Talk:
    """One conversation: makes its messages, one row after another."""

    agent_id: str
    conversation_id: str
    rng: Random
    created: datetime = START
    count: int = 0
    window: list[Placed] = field(default_factory=list[Placed])
    parent: str | None = None
    clock: Clock = field(init=False)
    writer: Writer = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.created)
        self.writer = Writer(self.rng)

    def reseed(self, rng: Random) -> None:
        """What is said from here on depends on nothing said before."""
        self.rng, self.writer = rng, Writer(rng)

    def header(self) -> Json:
        return {
            "type": "session",
            "version": 3,
            "id": self.conversation_id,
            "timestamp": iso(self.created),
            "cwd": "/home/somebody/project",
        }

    def turn(self, most: int) -> list[Json]:
        """Rows of one turn, at most `most`: a question, calls with their results, an answer."""
        rng = self.rng
        self.clock.pass_time(rng.uniform(20, 600))
        made = [self.user()]
        first = True
        calls = rng.choices((0, 1, 2, 3, 6), (3, 4, 3, 2, 1))[0]
        while calls and len(made) + 3 <= most:
            calls -= 1
            wide = 2 if rng.random() < 0.15 and len(made) + 4 <= most else 1
            made += self.step(wide, first)
            first = False
        if len(made) < most:
            made.append(self.assistant([], first))
        return made

    def user(self) -> Json:
        parts = [_text(self.writer.prose(self.rng.randrange(4, 60)))]
        if self.rng.random() < 0.1:
            reminder = self.writer.prose(60)
            parts.insert(0, _text(f"<system-reminder>\n{reminder}\n</system-reminder>"))
        bits = f"{self.rng.getrandbits(128):032x}"
        otid = "-".join((bits[:8], bits[8:12], bits[12:16], bits[16:20], bits[20:]))
        moment = self.clock.now
        message: Json = {"id": self.next_id(), "role": "user", "otid": otid}
        message |= {"metadata": self.metadata(moment), "content": parts}
        return self.row(message | {"timestamp": _millis(moment)}, moment)

    def step(self, wide: int, first: bool) -> list[Json]:
        calls = [
            {
                "type": "toolCall",
                "id": f"call_{self.count}_{index}",
                "name": "Bash" if self.rng.random() < 0.6 else "Read",
                "arguments": {
                    "command": f"grep -rn {self.writer.name()} {self.writer.path()}",
                    "description": self.writer.prose(6),
                },
            }
            for index in range(wide)
        ]
        made = [self.assistant(calls, first)]
        for call in calls:
            moment = self.clock.pass_time(self.rng.uniform(0.01, 4))
            failed = self.rng.random() < 0.05
            message: Json = {"id": self.next_id(), "role": "toolResult"}
            message["toolCallId"] = call["id"]
            output = self.writer.listing(int(self.rng.expovariate(1 / 11)))
            message |= {"toolName": call["name"], "content": [_text(output)], "isError": failed}
            message |= {"timestamp": _millis(moment), "metadata": self.metadata(moment)}
            made.append(self.row(message, moment))
        return made

    def assistant(self, calls: list[Json], first: bool) -> Json:
        rng = self.rng
        started = self.clock.pass_time(rng.uniform(0.5, 5))
        moment = self.clock.pass_time(rng.uniform(0.005, 0.03))
        content: list[Json] = []
        if rng.random() < 0.5:
            thought = self.writer.prose(rng.randrange(10, 90))
            content.append(
                {"type": "thinking", "thinking": thought, "thinkingSignature": "reasoning_content"}
            )
        if not calls or rng.random() < 0.4:
            words = rng.randrange(5, 30) if calls else int(rng.expovariate(1 / 110))
            content.append(_text(self.writer.prose(words)))
        usage = self.usage()
        response = f"chatcmpl-{rng.getrandbits(96):024x}"
        message: Json = {"id": self.next_id(), "role": "assistant", "content": content + calls}
        message |= {"api": "openai-completions", "provider": "openrouter", "model": "big-model-4"}
        message |= {"responseId": response, "usage": usage}
        message |= {"stopReason": "toolUse" if calls else "stop", "timestamp": _millis(started)}
        provider: Json = {"provider_id": "openrouter", "model_id": "big-model-4"}
        provider |= {"response_id": response, "usage": usage}
        message["metadata"] = self.metadata(moment) | {"provider": provider}
        return self.row(message, moment, may_begin=first)

    def usage(self) -> Json:
        rng = self.rng
        tokens = [rng.randrange(400, 30_000), rng.randrange(40, 900)]
        tokens += [rng.randrange(1000, 90_000), rng.choice((0, 0, 2048))]
        names = ("input", "output", "cacheRead", "cacheWrite")
        costs = [
            count * price if count else 0 for count, price in zip(tokens, _PRICES, strict=True)
        ]
        usage: Json = dict(zip(names, tokens, strict=True))
        usage |= {"reasoning": rng.randrange(200), "totalTokens": sum(tokens)}
        usage["cost"] = dict(zip(names, costs, strict=True)) | {"total": sum(costs)}
        return usage

    def compaction(self, keep: int) -> Json:
        """Summarises the window but for about `keep` messages at its end."""
        rng, window = self.rng, self.window
        moment = self.clock.pass_time(rng.uniform(5, 20))
        cut = len(window)
        if keep:
            cut = max(len(window) - keep, 1)
            while cut < len(window) and not window[cut].may_begin:
                cut += 1
        kept = window[cut:]
        stats = {
            "trigger": "context_window_limit",
            "context_tokens_before": rng.randrange(90_000, 128_000),
            "context_tokens_after": rng.randrange(9_000, 40_000),
            "context_window": 128_000,
            "messages_count_before": len(window),
            "messages_count_after": 1 + len(kept),
        }
        summary = self.writer.prose(300)
        alert: Json = {"type": "system_alert", "message": f"Note: {cut - 1} messages.\n{summary}"}
        alert |= {"time": iso(moment), "compaction_stats": stats}
        message: Json = {"id": self.next_id(), "role": "user", "metadata": self.metadata(moment)}
        message["metadata"]["compaction"] = {"summary": summary, "stats": stats}
        message |= {"content": [_text(json.dumps(alert))], "timestamp": _millis(moment)}
        row: Json = {"type": "compaction", "id": self.row_id(), "parentId": self.parent}
        row |= {"timestamp": iso(moment), "summary": summary}
        row |= {"firstKeptEntryId": kept[0].row_id if kept else None}
        row |= {"tokensBefore": stats["context_tokens_before"], "message": message}
        self.parent = row["id"]
        self.window = [Placed(row["id"], message["id"], False), *kept]
        return row | {"details": {"stats": stats}}

    def row(self, message: Json, moment: datetime, *, may_begin: bool = False) -> Json:
        row_id, parent = self.row_id(), self.parent
        self.parent = row_id
        self.window.append(Placed(row_id, message["id"], may_begin))
        row = {"type": "message", "id": row_id, "parentId": parent, "timestamp": iso(moment)}
        return row | {"message": message}

    def row_id(self) -> str:
        # Unique in the file: an odd factor permutes the numbers of 32 bits.
        return f"{(self.count * 2654435761) & 0xFFFFFFFF:08x}"

    def next_id(self) -> str:
        self.count += 1
        return f"ui-msg-{self.count}"

    def metadata(self, moment: datetime) -> Json:
        created = iso(moment)
        return {
            "created_at": created,
            "updated_at": created,
            "agent_id": self.agent_id,
            "conversation_id": self.conversation_id,
        }


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
