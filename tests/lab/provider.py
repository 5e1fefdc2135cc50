"""A fake model provider on loopback: scripted, deterministic, and it records what it was asked.

It speaks the three wire formats Letta Code uses here: OpenAI chat completions (with LM Studio's
model list), OpenAI responses, and Anthropic messages. A script is a list of `Reply`; a prompt names
its script with the directive that `FakeProvider.script` returns.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Literal

from tests.waiting import SECONDS

Json = dict[str, Any]
Speaker = Literal["system", "user", "assistant", "tool"]

MODEL = "lab-large"
SMALL_MODEL = "lab-small"
SMALL_CONTEXT = 40_000
"""Small enough that a few turns over Letta's own 28k-token prompt make it compact by itself."""

_DIRECTIVE = re.compile(r"\[lab:([a-z0-9_/-]+)\]")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; `raw` replaces the serialised arguments, to send broken or odd JSON."""

    name: str
    arguments: Json = field(default_factory=dict[str, Any])
    raw: str | None = None

    @property
    def text(self) -> str:
        return json.dumps(self.arguments) if self.raw is None else self.raw


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error instead of a stream."""

    status: int
    message: str
    code: str = "lab_failure"
    kind: str = "invalid_request_error"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says in one step of a script.

    `pause` names a gate: after the first piece of text the reply waits until a test opens it.
    `cut` ends the connection, in the text or after everything but the proper end, only the first
    time this step is asked for.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    usage: Json | None = None
    failure: Failure | None = None
    pause: str | None = None
    cut: Literal["text", "end"] | None = None

    def pieces(self) -> list[str]:
        """The text in a few chunks, as a real stream would bring it."""
        size = max(1, -(-len(self.text) // 4))
        return [self.text[i : i + size] for i in range(0, len(self.text), size)]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came in."""

    path: str
    body: Json
    seconds: float


class Gate:
    """A meeting point between a streaming reply and a test."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def arrive(self) -> bool:
        """Called by the reply: report, then wait. False when nobody opened the gate in time."""
        self._reached.set()
        return self._opened.wait(SECONDS)

    def await_arrival(self, timeout: float = SECONDS) -> None:
        if not self._reached.wait(timeout):
            raise TimeoutError("no request reached this gate")

    def open(self) -> None:
        self._opened.set()


class AbandonedError(Exception):
    """The reply ends here without a proper end of stream."""


class FakeProvider:
    """The server; use as a context manager."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self._scripts: dict[str, tuple[Reply, ...]] = {}
        self._gates: dict[str, Gate] = {}
        self._served: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> FakeProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self._gates.values():
            gate.open()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, name: str, *replies: Reply) -> str:
        """Register a script; the returned directive goes into a prompt."""
        self._scripts[name] = replies
        return f"[lab:{name}]"

    def gate(self, name: str) -> Gate:
        with self._lock:
            return self._gates.setdefault(name, Gate())

    def mark(self) -> int:
        """A position in `requests`, to look at what came later."""
        return len(self.requests)

    def record(self, path: str, body: Json) -> int:
        with self._lock:
            self._count += 1
            self.requests.append(Recorded(path, body, time.monotonic()))
            return self._count

    def choose(self, turns: Sequence[tuple[Speaker, str]], has_tools: bool) -> Reply:
        """The scripted reply, a summary for a request without tools, else a plain answer."""
        if not has_tools:
            lines = sum(text.count("\n[") for _, text in turns)
            return Reply(text=f"Summary of {lines} lines.")
        name, steps = _position(turns)
        if name is not None:
            script = self._scripts.get(name, ())
            if steps < len(script):
                return self._first_time(name, steps, script[steps])
        asked = sum(speaker == "user" for speaker, _ in turns)
        return Reply(text=f"Answer {asked}.")

    def _first_time(self, name: str, step: int, reply: Reply) -> Reply:
        with self._lock:
            times = self._served.get((name, step), 0)
            self._served[name, step] = times + 1
        if times and reply.cut:
            return Reply(text=reply.text, thinking=reply.thinking, calls=reply.calls)
        if times and reply.failure is not None and reply.failure.code == OVERFLOW.code:
            return Reply(text=reply.text or "Shorter now.")
        return reply


OVERFLOW = Failure(
    400,
    "This model's maximum context length is 4096 tokens. However, your messages resulted in 9999.",
    "context_length_exceeded",
)
REFUSED = Failure(401, "Incorrect API key provided.", "invalid_api_key")


def _position(turns: Sequence[tuple[Speaker, str]]) -> tuple[str | None, int]:
    """The script in force and how many replies it already gave.

    A later user turn in plain words ends a script; the reminders Letta puts in between do not.
    """
    name: str | None = None
    steps = 0
    before: Speaker | None = None
    for speaker, text in turns:
        if speaker == "user":
            found = _DIRECTIVE.findall(text)
            if found:
                name, steps = found[-1], 0
            elif not text.lstrip().startswith("<"):
                name = None
        elif speaker == "assistant" and before != "assistant":
            steps += 1
        before = speaker
    return name, steps


def _speaker(role: str) -> Speaker:
    if role in ("user", "assistant", "tool"):
        return role  # type: ignore[return-value]
    return "system"


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: list[Json] = content or []
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


class Stream:
    """Server-sent events to one client."""

    def __init__(self, handler: _Handler, provider: FakeProvider) -> None:
        self._handler = handler
        self._provider = provider
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()

    def send(self, data: Json | str, event: str | None = None) -> None:
        lines = f"event: {event}\n" if event else ""
        body = data if isinstance(data, str) else json.dumps(data)
        self._handler.wfile.write(f"{lines}data: {body}\n\n".encode())
        self._handler.wfile.flush()

    def pieces(self, reply: Reply) -> Iterator[str]:
        """Text chunks, with the reply's pause or cut between the first and the second."""
        for index, piece in enumerate(reply.pieces()):
            if index == 1 and reply.pause and not self._provider.gate(reply.pause).arrive():
                raise AbandonedError
            if index == 2 and reply.cut == "text":
                raise AbandonedError
            yield piece


def _usage(body: Json, reply: Reply) -> tuple[int, int, int]:
    """(input, output, cached) token counts; made up, but the same for the same request."""
    if reply.usage is not None:
        return reply.usage["input"], reply.usage["output"], reply.usage.get("cached", 0)
    return max(1, len(json.dumps(body)) // 4), max(1, len(reply.text) // 4), 0


class ChatWire:
    """OpenAI chat completions."""

    path: ClassVar[str] = "/chat/completions"

    @staticmethod
    def read(body: Json) -> list[tuple[Speaker, str]]:
        messages: list[Json] = body.get("messages", [])
        return [(_speaker(m["role"]), _plain(m.get("content"))) for m in messages]

    @staticmethod
    def write(stream: Stream, body: Json, reply: Reply, number: int) -> None:
        frame: Json = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1_800_000_000,
            "model": body.get("model"),
        }

        def delta(change: Json, finish: str | None = None) -> None:
            choice = {"index": 0, "delta": change, "finish_reason": finish}
            stream.send({**frame, "choices": [choice]})

        delta({"role": "assistant", "content": ""})
        if reply.thinking:
            delta({"reasoning_content": reply.thinking})
        for piece in stream.pieces(reply):
            delta({"content": piece})
        for index, call in enumerate(reply.calls):
            function = {"name": call.name, "arguments": ""}
            head = {"index": index, "id": f"call_{number}_{index}", "type": "function"}
            delta({"tool_calls": [{**head, "function": function}]})
            delta({"tool_calls": [{"index": index, "function": {"arguments": call.text}}]})
        if reply.cut == "end":
            raise AbandonedError
        delta({}, reply.finish or ("tool_calls" if reply.calls else "stop"))
        asked, said, cached = _usage(body, reply)
        usage = {
            "prompt_tokens": asked,
            "completion_tokens": said,
            "total_tokens": asked + said,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        stream.send({**frame, "choices": [], "usage": usage})
        stream.send("[DONE]")


class ResponsesWire:
    """OpenAI responses, with encrypted reasoning and item ids as signatures."""

    path: ClassVar[str] = "/responses"

    @staticmethod
    def read(body: Json) -> list[tuple[Speaker, str]]:
        turns: list[tuple[Speaker, str]] = []
        for item in body.get("input", []):
            match item.get("type"):
                case "function_call_output":
                    turns.append(("tool", str(item.get("output"))))
                case "function_call":
                    turns.append(("assistant", ""))
                case "reasoning":
                    continue
                case _:
                    turns.append((_speaker(item["role"]), _plain(item.get("content"))))
        return turns

    @staticmethod
    def write(stream: Stream, body: Json, reply: Reply, number: int) -> None:
        sequence = 0
        output: list[Json] = []

        def event(kind: str, **fields: Any) -> None:
            nonlocal sequence
            sequence += 1
            stream.send({"type": kind, "sequence_number": sequence, **fields}, kind)

        def item(opening: Json, closing: Json, middle: Callable[[Json], None]) -> None:
            place = {"item_id": opening["id"], "output_index": len(output)}
            event("response.output_item.added", output_index=len(output), item=opening)
            middle(place)
            event("response.output_item.done", output_index=len(output), item=closing)
            output.append(closing)

        head: Json = {"id": f"resp_{number}", "object": "response", "model": body.get("model")}
        event("response.created", response={**head, "status": "in_progress", "output": []})

        if reply.thinking:
            opening: Json = {"id": f"rs_{number}", "type": "reasoning", "summary": []}
            part = {"type": "summary_text", "text": reply.thinking}
            sealed = "gAAAAA" + base64.b64encode(b"sealed reasoning").decode()

            def think(place: Json) -> None:
                at = {**place, "summary_index": 0}
                empty = {**part, "text": ""}
                event("response.reasoning_summary_part.added", **at, part=empty)
                event("response.reasoning_summary_text.delta", **at, delta=reply.thinking)
                event("response.reasoning_summary_part.done", **at, part=part)

            item(opening, {**opening, "summary": [part], "encrypted_content": sealed}, think)
        if reply.text:
            opening = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": []}
            said = {"type": "output_text", "text": reply.text, "annotations": []}

            def say(place: Json) -> None:
                at = {**place, "content_index": 0}
                event("response.content_part.added", **at, part={**said, "text": ""})
                for piece in stream.pieces(reply):
                    event("response.output_text.delta", **at, delta=piece)

            item(opening, {**opening, "status": "completed", "content": [said]}, say)
        for index, call in enumerate(reply.calls):
            opening = {
                "id": f"fc_{number}_{index}",
                "type": "function_call",
                "call_id": f"call_{number}_{index}",
                "name": call.name,
                "arguments": "",
            }

            def ask(place: Json, text: str = call.text) -> None:
                event("response.function_call_arguments.delta", **place, delta=text)
                event("response.function_call_arguments.done", **place, arguments=text)

            item(opening, {**opening, "status": "completed", "arguments": call.text}, ask)
        asked, answered, cached = _usage(body, reply)
        usage = {
            "input_tokens": asked,
            "output_tokens": answered,
            "total_tokens": asked + answered,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens_details": {"reasoning_tokens": 5},
        }
        final = {**head, "status": "completed", "output": output, "usage": usage}
        event("response.completed", response=final)


class MessagesWire:
    """Anthropic messages; a reply that thinks also carries a redacted block."""

    path: ClassVar[str] = "/messages"

    @staticmethod
    def read(body: Json) -> list[tuple[Speaker, str]]:
        turns: list[tuple[Speaker, str]] = []
        for message in body.get("messages", []):
            content: Any = message.get("content")
            parts: list[Json] = content if isinstance(content, list) else []
            is_result = any(part.get("type") == "tool_result" for part in parts)
            turns.append(("tool", "") if is_result else (message["role"], _plain(content)))
        return turns

    @staticmethod
    def write(stream: Stream, body: Json, reply: Reply, number: int) -> None:
        asked, said, cached = _usage(body, reply)
        blocks = 0

        def event(kind: str, **fields: Any) -> None:
            stream.send({"type": kind, **fields}, kind)

        def block(opening: Json, deltas: Iterator[Json]) -> None:
            nonlocal blocks
            event("content_block_start", index=blocks, content_block=opening)
            for delta in deltas:
                event("content_block_delta", index=blocks, delta=delta)
            event("content_block_stop", index=blocks)
            blocks += 1

        usage = {
            "input_tokens": asked,
            "output_tokens": 1,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 7,
        }
        message: Json = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        event("message_start", message=message)
        if reply.thinking:
            signature = base64.b64encode(b"signed thinking").decode()
            thought = (
                {"type": "thinking_delta", "thinking": reply.thinking},
                {"type": "signature_delta", "signature": signature},
            )
            block({"type": "thinking", "thinking": "", "signature": ""}, iter(thought))
            hidden = base64.b64encode(b"redacted thinking").decode()
            block({"type": "redacted_thinking", "data": hidden}, iter(()))
        if reply.text:
            texts = ({"type": "text_delta", "text": piece} for piece in stream.pieces(reply))
            block({"type": "text", "text": ""}, texts)
        for index, call in enumerate(reply.calls):
            opening: Json = {"type": "tool_use", "id": f"toolu_{number}_{index}"}
            arguments: Json = {"type": "input_json_delta", "partial_json": call.text}
            block({**opening, "name": call.name, "input": {}}, iter((arguments,)))
        reason = reply.finish or ("tool_use" if reply.calls else "end_turn")
        event(
            "message_delta",
            delta={"stop_reason": reason, "stop_sequence": None},
            usage={"output_tokens": said},
        )
        event("message_stop")


Wire = type[ChatWire] | type[ResponsesWire] | type[MessagesWire]
_WIRES: tuple[Wire, ...] = (ChatWire, ResponsesWire, MessagesWire)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A paused reply must not hold up the end of the tests.
    block_on_close = False

    def __init__(self, provider: FakeProvider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def provider(self) -> FakeProvider:
        assert isinstance(self.server, _Server)
        return self.server.provider

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the test output clean."""

    def do_GET(self) -> None:
        if self.path.startswith("/api/v0/models"):
            self._answer(
                200, {"data": [_model(MODEL, 128_000), _model(SMALL_MODEL, SMALL_CONTEXT)]}
            )
        elif self.path.endswith("/models"):
            models = [{"id": name, "object": "model"} for name in (MODEL, SMALL_MODEL)]
            self._answer(200, {"object": "list", "data": models})
        else:
            self._answer(404, {"error": "no such page"})

    def do_POST(self) -> None:
        body: Json = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        path = self.path.partition("?")[0]
        provider = self.provider
        number = provider.record(path, body)
        wire = next((w for w in _WIRES if path.endswith(w.path)), None)
        if wire is None:
            self._answer(404, {"error": "no such page"})
            return
        reply = provider.choose(wire.read(body), bool(body.get("tools")))
        try:
            if reply.failure is not None:
                error = reply.failure
                text = {"message": error.message, "type": error.kind, "code": error.code}
                self._answer(error.status, {"error": text})
            else:
                wire.write(Stream(self, provider), body, reply, number)
        except (AbandonedError, BrokenPipeError, ConnectionResetError):
            # Cut on purpose, or the client was killed: both are part of the game.
            self.close_connection = True

    def _answer(self, status: int, value: Json) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _model(name: str, context: int) -> Json:
    return {
        "id": name,
        "object": "model",
        "type": "vlm",
        "state": "loaded",
        "loaded_context_length": context,
        "max_context_length": context,
        "capabilities": ["tool_use", "reasoning", "vision"],
    }
