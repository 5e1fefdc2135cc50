"""Letta Code's own local store, doing the same work: its JavaScript, in the Node that the
installed `letta` brings. `letta_store.mjs` is the other end."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from bench.directory import write_agents
from bench.measure import Cost
from bench.rows import Json
from bench.words import Writer

AGENT = "agent-local-00000000-0000-4000-8000-000000000000"

_DRIVER = Path(__file__).with_name("letta_store.mjs")


class LettaStore:
    """The store of one storage directory, in a process of its own. Costs are taken there."""

    def __init__(self, directory: Path) -> None:
        node, bundle = _payload()
        if not directory.exists():
            write_agents(directory)
        self.directory = directory
        self.prompt = _prompt(Writer(Random(0)))
        self._process = subprocess.Popen(
            [str(node), "--expose-gc", str(_DRIVER), str(bundle)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._ask("open", directory=str(directory))

    def __enter__(self) -> "LettaStore":
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        # Its input ends, so the process does.
        self._process.communicate()

    def create(self, conversation: str) -> None:
        """A conversation with a compiled prompt, as every one that was used has it."""
        self._ask("create", conversation=conversation, prompt=self.prompt)

    def append(self, conversation: str, messages: Sequence[Json]) -> Cost:
        return self._cost("append", conversation=conversation, messages=messages)

    def compact(self, conversation: str, keep: int, summary: str) -> Cost:
        """Puts a summary in the place of all but the last `keep` messages, and stores the
        prompt, which Letta Code then compiles anew."""
        stats = {
            "trigger": "manual",
            "context_tokens_before": 100_000,
            "context_tokens_after": 10_000,
            "context_window": 128_000,
            "messages_count_before": 1000,
            "messages_count_after": keep + 1,
        }
        return self._cost(
            "compact",
            conversation=conversation,
            keep=keep,
            summary=summary,
            stats=stats,
            prompt=self.prompt,
        )

    def opening(self, conversation: str, active: int) -> Callable[[], Cost]:
        """Opens the store anew and reads a window, which must have so many messages."""

        def open_window() -> Cost:
            answer = self._ask("reopen", conversation=conversation, directory=str(self.directory))
            if answer["messages"] != active:
                raise RuntimeError(f"{answer['messages']} messages in Letta Code's window")
            return Cost(answer["wall"], answer["cpu"])

        return open_window

    def _cost(self, task: str, **request: Any) -> Cost:
        answer = self._ask(task, **request)
        return Cost(answer["wall"], answer["cpu"])

    def _ask(self, task: str, **request: Any) -> dict[str, Any]:
        send, receive = self._process.stdin, self._process.stdout
        if send is None or receive is None:
            raise RuntimeError("no pipes to Letta Code's store")
        line = json.dumps({"task": task, "agent": AGENT, **request})
        send.write(line.encode() + b"\n")
        send.flush()
        answer = receive.readline()
        if not answer:
            raise RuntimeError(f"Letta Code's store ended while it was to {task}")
        found: dict[str, Any] = json.loads(answer)
        return found


def installed() -> bool:
    """Whether Letta Code is there, with the Node that it brings."""
    return find_spec("letta_code") is not None and all(path.is_file() for path in _payload())


def _payload() -> tuple[Path, Path]:
    spec = find_spec("letta_code")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package letta is not installed")
    payload = Path(spec.origin).with_name("_payload")
    node = "node.exe" if os.name == "nt" else "node"
    return payload / "bin" / node, payload / "app" / "letta.js"


def _prompt(writer: Writer) -> Json:
    memory = writer.prose(900)
    return {
        "content": f"You are helpful.\n\n{memory}",
        "coreMemory": memory,
        "compiledAt": "2024-03-05T10:00:00.000Z",
        "rawSystemHash": "0" * 64,
        "memfsRevision": "1" * 40,
    }
