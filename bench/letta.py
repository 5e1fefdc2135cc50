"""Letta Code's own local store, doing the same work: its JavaScript, in the Node that the
installed `letta` brings. `letta.mjs` is the other end."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from bench.directory import write_agents
from bench.measure import Cost, spawned
from bench.rows import Json
from bench.words import Writer

AGENT = "agent-local-00000000-0000-4000-8000-000000000000"

_DRIVER = Path(__file__).with_name("letta.mjs")


class Letta:
    """A Node with Letta Code's local store in it. Costs are taken there."""

    def __init__(self) -> None:
        node, bundle = _payload()
        self._process = subprocess.Popen(
            [str(node), "--expose-gc", str(_DRIVER), str(bundle)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def close(self) -> None:
        # Its input ends, so the process does.
        self._process.communicate()

    def ask(self, task: str, **request: Any) -> dict[str, Any]:
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


class LettaStore:
    """The store of one storage directory, which is made if it is not there."""

    def __init__(self, letta: Letta, directory: Path) -> None:
        if not directory.exists():
            write_agents(directory)
        self._letta = letta
        self._directory = directory
        self._prompt = _prompt(Writer(Random(0)))

    def create(self, conversation: str) -> None:
        """A conversation with a compiled prompt, as every one that was used has it."""
        self._ask("create", conversation, prompt=self._prompt)

    def append(self, conversation: str, messages: Sequence[Json]) -> Cost:
        return _cost(self._ask("append", conversation, messages=messages))

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
        return _cost(
            self._ask(
                "compact",
                conversation,
                keep=keep,
                summary=summary,
                stats=stats,
                prompt=self._prompt,
            )
        )

    def opening(self, conversation: str, active: int) -> Callable[[], Cost]:
        """Opens the store anew and reads a window, which must have so many messages."""

        def open_window() -> Cost:
            answer = self._ask("reopen", conversation)
            if answer["messages"] != active:
                raise RuntimeError(f"{answer['messages']} messages in Letta Code's window")
            return _cost(answer)

        return open_window

    def _ask(self, task: str, conversation: str, **request: Any) -> dict[str, Any]:
        return self._letta.ask(
            task, directory=str(self._directory), conversation=conversation, **request
        )


def installed() -> bool:
    """Whether Letta Code is there, with the Node that it brings."""
    return find_spec("letta_code") is not None and all(path.is_file() for path in _payload())


def started(home: Path) -> Cost:
    """The command line, from its start until it has said its version."""
    node, bundle = _payload()
    environment = {**os.environ, "HOME": str(home), "LETTA_LOCAL_BACKEND_EXPERIMENTAL": "1"}
    return spawned([str(node), str(bundle), "--version"], environment)


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


def _cost(answer: dict[str, Any]) -> Cost:
    return Cost(answer["wall"], answer["cpu"])
