"""Drives the `letta` command line: isolated homes, one-shot prompts, sessions, the app server."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.lab.provider import MODEL, FakeProvider
from tests.waiting import SECONDS, until

Json = dict[str, Any]

_GIT_CONFIG = """[user]
\tname = lab
\temail = lab@example.invalid
[init]
\tdefaultBranch = main
"""


def find_letta() -> Path | None:
    """The `letta` binary: `LETTA_BIN`, beside this Python, or on the path."""
    named = os.environ.get("LETTA_BIN")
    if named:
        return Path(named)
    beside = Path(sys.executable).with_name("letta")
    if beside.exists():
        return beside
    found = shutil.which("letta")
    return Path(found) if found else None


def png(width: int = 8, height: int = 8, colour: tuple[int, int, int] = (200, 40, 90)) -> bytes:
    """A small picture, the same bytes every time."""
    pixels = b"".join(b"\0" + bytes(colour) * width for _ in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(pixels)
    signature = b"\x89PNG\r\n\x1a\n"
    return signature + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


class LettaError(RuntimeError):
    """The command line ended with an error where none was expected."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a one-shot prompt printed."""

    returncode: int
    output: Json
    stderr: str

    @property
    def text(self) -> str:
        return str(self.output.get("result", ""))

    @property
    def conversation_id(self) -> str:
        return str(self.output["conversation_id"])

    @property
    def agent_id(self) -> str:
        return str(self.output["agent_id"])


class Process:
    """A child in its own process group, which is gone when the block ends."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: Path, pipes: bool) -> None:
        self._child = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if pipes else subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ask for an end, then insist."""
        if self._child.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(5)
        self.kill()

    def kill(self) -> None:
        """`kill -9` for the whole group, and reap."""
        self._signal(signal.SIGKILL)
        self._child.wait(10)
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def kill_when(self, what: Callable[[], bool]) -> None:
        """`kill` at a moment when this is so: everybody stands still while it is looked at."""

        def is_so() -> bool:
            self._signal(signal.SIGSTOP)
            until(lambda: _standing(self._child.pid), about="a group that stands still")
            if what():
                return True
            self._signal(signal.SIGCONT)
            return False

        until(is_so, about="the moment to kill")
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        # The group may outlive its leader: a background tool, say.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)


class Session(Process):
    """A bidirectional stream-json session: several turns in one process."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        super().__init__(command, env, cwd, pipes=True)
        self.events: list[Json] = []
        self._inbox: queue.Queue[Json | None] = queue.Queue()
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True),
            # Unread, a full pipe would stop the child.
            threading.Thread(target=_drain, args=(self._child.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def send(self, content: str | list[Json]) -> None:
        """Start a turn."""
        self._write({"type": "user", "message": {"role": "user", "content": content}})

    def ask(self, content: str | list[Json], timeout: float = SECONDS) -> Json:
        """One whole turn; the closing `result` event."""
        self.send(content)
        return self.result(timeout)

    def result(self, timeout: float = SECONDS) -> Json:
        return self.wait(lambda event: event.get("type") == "result", timeout)

    def wait(self, wanted: Callable[[Json], bool], timeout: float = SECONDS) -> Json:
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            try:
                event = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            if event is None:
                raise LettaError("the session ended early")
            if wanted(event):
                return event
        raise TimeoutError("no such event")

    def interrupt(self) -> None:
        """What Escape does in the terminal."""
        request = {"subtype": "interrupt"}
        self._write({"type": "control_request", "request_id": "stop", "request": request})

    def close(self) -> None:
        # End of input is this mode's orderly way out; everything is on disk then.
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(15)
        super().close()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        for reader in self._readers:
            reader.join(5)
        super().kill()

    def _write(self, message: Json) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(message) + "\n")
        self._child.stdin.flush()

    def _read(self, stream: IO[str]) -> None:
        with contextlib.suppress(ValueError):
            for line in stream:
                with contextlib.suppress(json.JSONDecodeError):
                    event: Json = json.loads(line)
                    self.events.append(event)
                    self._inbox.put(event)
        self._inbox.put(None)


class AppServer(Process):
    """`letta server --listen`: the websocket that can fork, compact, list and retrieve."""

    def __init__(self, letta: Path, env: dict[str, str], cwd: Path) -> None:
        # The test extra brings it; only this class needs it.
        from websockets.sync.client import connect

        command = [str(letta), "server", "--listen", "ws://127.0.0.1:0"]
        super().__init__(command, env, cwd, pipes=False)
        self._said: list[str] = []
        assert self._child.stdout is not None
        self._reader = threading.Thread(
            target=_drain, args=(self._child.stdout, self._said), daemon=True
        )
        self._reader.start()
        try:
            self._socket = connect(
                until(self._address, about="app server"), max_size=None, open_timeout=SECONDS
            )
        except BaseException:
            super().close()
            raise

    def _address(self) -> str | None:
        found = re.search(r"ws://127\.0\.0\.1:(\d+)\S*", "".join(self._said))
        return found[0] if found and found[1] != "0" else None

    def call(self, kind: str, **fields: Any) -> Json:
        """One request; its answer, which must be a success."""
        request_id = str(uuid.uuid4())
        self._socket.send(json.dumps({"type": kind, "request_id": request_id, **fields}))
        end = time.monotonic() + SECONDS
        while (left := end - time.monotonic()) > 0:
            answer: Json = json.loads(self._socket.recv(timeout=left))
            if answer.get("request_id") == request_id:
                if not answer.get("success"):
                    raise LettaError(f"{kind}: {answer.get('error')}")
                return answer
        raise TimeoutError(kind)

    def fork(self, conversation: str, message_id: str | None = None) -> str:
        """The new conversation's id."""
        body = {"body": {"message_id": message_id}} if message_id else {}
        answer = self.call("conversation_fork", conversation_id=conversation, **body)
        return str(answer["conversation"]["id"])

    def compact(self, conversation: str, mode: str, share: float | None = None) -> Json:
        settings: Json = {"mode": mode}
        if share is not None:
            settings["sliding_window_percentage"] = share
        answer = self.call(
            "conversation_compact",
            conversation_id=conversation,
            body={"compaction_settings": settings},
        )
        compaction: Json = answer["compaction"]
        return compaction

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._socket.close()
        super().close()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._reader.join(5)
        super().kill()


def _standing(group: int) -> bool:
    """Whether every thread of every process of a group is stopped."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(path.name)) == group:
                for thread in path.glob("task/*/stat"):
                    if thread.read_text().rpartition(") ")[2][0] not in "TZX":
                        return False
    return True


def _drain(stream: IO[str], into: list[str] | None = None) -> None:
    with contextlib.suppress(ValueError):
        for line in stream:
            if into is not None:
                into.append(line)


class LettaHome:
    """One user's home directory with its Letta store, on one imaginary machine."""

    def __init__(
        self, path: Path, provider: FakeProvider, letta: Path, node_cache: Path | None = None
    ) -> None:
        self.path = path
        self._node_cache = node_cache
        self.provider = provider
        self.letta = letta
        self.work.mkdir(parents=True, exist_ok=True)
        self.temporary.mkdir(exist_ok=True)
        (path / ".gitconfig").write_text(_GIT_CONFIG)
        (self.work / "note.txt").write_text("plum\nfig\n")
        (self.work / "picture.png").write_bytes(png())

    @property
    def work(self) -> Path:
        """The project directory that Letta runs in."""
        return self.path / "work"

    @property
    def temporary(self) -> Path:
        """Letta's background tasks leave logs in the temporary directory."""
        return self.path / "tmp"

    @property
    def storage(self) -> Path:
        return self.path / ".letta" / "lc-local-backend"

    def env(self, **extra: str) -> dict[str, str]:
        """Built from nothing, so that no key or setting of the real user leaks in."""
        # Compiled code kept between runs halves the start of the 24 MB program.
        cache = {"NODE_COMPILE_CACHE": str(self._node_cache)} if self._node_cache else {}
        return {
            "HOME": str(self.path),
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.temporary),
            "TZ": "UTC",
            "GIT_CONFIG_NOSYSTEM": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "LETTA_LOCAL_BACKEND_EXPERIMENTAL": "1",
            "LETTA_CODE_TELEM": "0",
            "DISABLE_AUTOUPDATER": "1",
            "LETTA_SKIP_KEYCHAIN_CHECK": "1",
            **cache,
            **extra,
        }

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Any `letta` command, to its end."""
        command = [str(self.letta), *arguments]
        child = subprocess.Popen(
            command,
            env=self.env(**extra),
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            output, errors = child.communicate(timeout=SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(10)
        return subprocess.CompletedProcess(command, child.returncode, output, errors)

    def connect(self, *names: str) -> None:
        """Make the fake provider known as LM Studio, OpenAI or Anthropic."""
        for name in names:
            # Anthropic's client adds the version itself.
            url = self.provider.url if name == "anthropic" else f"{self.provider.url}/v1"
            key = () if name == "lmstudio" else ("--api-key", "lab-not-a-key")
            done = self.run("--backend", "local", "connect", name, "--base-url", url, *key)
            if done.returncode:
                raise LettaError(f"connect {name}: {done.stderr[-500:]}")

    def ask(
        self,
        prompt: str,
        *flags: str,
        model: str | None = f"lmstudio/{MODEL}",
        conversation: str | None = None,
        check: bool = True,
        env: dict[str, str] | None = None,
    ) -> Answer:
        """A one-shot prompt in a process of its own; a new conversation unless one is named."""
        arguments = ["-p", prompt, "--yolo", "--output-format", "json"]
        arguments += self._flags(model, conversation)
        done = self.run(*arguments, *flags, **(env or {}))
        output: Json = {}
        with contextlib.suppress(json.JSONDecodeError):
            output = json.loads(done.stdout)
        if check and (done.returncode or "result" not in output):
            raise LettaError(f"{prompt!r}: {done.returncode} {done.stdout} {done.stderr[-800:]}")
        return Answer(done.returncode, output, done.stderr)

    def session(
        self,
        *flags: str,
        model: str | None = f"lmstudio/{MODEL}",
        conversation: str | None = None,
    ) -> Session:
        command = [str(self.letta), "-p", "--input-format", "stream-json"]
        command += ["--output-format", "stream-json", "--yolo"]
        command += [*self._flags(model, conversation), *flags]
        return Session(command, self.env(), self.work)

    @contextlib.contextmanager
    def app_server(self) -> Iterator[AppServer]:
        with AppServer(self.letta, self.env(), self.work) as server:
            yield server

    @staticmethod
    def _flags(model: str | None, conversation: str | None) -> list[str]:
        flags = ["-m", model] if model else []
        return [*flags, "--conversation", conversation] if conversation else flags
