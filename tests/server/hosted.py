"""Hosts as processes of their own: `lettaspace serve`, as whoever runs one starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.waiting import SECONDS

PASSWORD = "correct horse battery"


@dataclass
class Hosted:
    """A development host in `home`, on a port of its own that it keeps over restarts."""

    home: Path
    database: str
    arguments: tuple[str, ...] = ()
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.port}"

    def add_account(self, handle: str) -> str:
        """Adds an account by the command line; returns its DID."""
        command = ("account", "add", handle, "--origin", self.origin, "--development")
        added = self._run(*command, "--password-stdin", "--json", text=PASSWORD)
        return str(json.loads(added)["did"])

    def start(self) -> None:
        """Returns when it listens. Requests made before it answers wait."""
        arguments = ("serve", "--development", "--port", str(self.port), *self.arguments, "--json")
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(*arguments), stdout=subprocess.PIPE, stderr=log, env=_environment()
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), (self.home / "log").read_text()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self._wait()

    def kill(self) -> None:
        """SIGKILL: it has no chance to finish anything."""
        assert self.process is not None
        self.process.kill()
        self._wait()

    def memory(self) -> int:
        """Bytes that its process has in memory."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in text.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def log(self) -> str:
        return (self.home / "log").read_text()

    def _wait(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.wait(timeout=SECONDS)
        self.process.stdout.close()
        self.process = None

    def _command(self, *arguments: str) -> list[str]:
        name, *rest = arguments
        database = () if name == "host" else ("--database", self.database)
        main = [sys.executable, "-m", "lettaspace", "--home", str(self.home)]
        if name == "account":
            return [*main, name, rest[0], *database, *rest[1:]]
        return [*main, name, *database, *rest]

    def _run(self, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            self._command(*arguments),
            input=text, capture_output=True, text=True, check=False, env=_environment(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def hosted(home: Path, database: str | None = None, *arguments: str) -> Iterator[Hosted]:
    """A host that is not started yet, and is stopped in the end."""
    home.mkdir(parents=True)
    host = Hosted(home, database or str(home / "host.db"), arguments, free_port())
    try:
        yield host
    finally:
        host.stop()


def _environment() -> dict[str, Any]:
    """This process's, without settings for lettaspace."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LETTASPACE_")}
