"""Ways to run the command line: in this process for speed, as a process for the real thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from lettaspace.cli.run import run
from lettaspace.conversation.space import Space
from lettaspace.demo import write_directory
from lettaspace.letta.importer import import_directory
from tests.cli import machines
from tests.server.hosts import Server
from tests.waiting import SECONDS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=_refuse)


Cli = Callable[..., Outcome]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A host for the tests of a whole run, each with accounts of its own."""
    with machines.real_time_host(tmp_path_factory.mktemp("host") / "host.db") as server:
        yield server


@pytest.fixture
def world(served: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> machines.World:
    """An account on a host, and no Letta directory on its machines."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return machines.World(served, tmp_path, monkeypatch, on)


@pytest.fixture
def other_world(served: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> machines.World:
    """Another account."""
    return machines.World(served, tmp_path / "other", monkeypatch, on)


@pytest.fixture
def cli(home: Path) -> Cli:
    """Runs a command line in this process, on `home`."""
    return on(home)


@pytest.fixture
def demo(demo_home: Path) -> Cli:
    """Runs a command line in this process, on the demo."""
    return on(demo_home)


def process(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    code: str | None = None,
    encoding: str = "utf-8",
) -> Outcome:
    """Runs a command line as a process of its own; `code` replaces the usual start."""
    start = ["-c", code] if code is not None else ["-m", "lettaspace"]
    done = subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        capture_output=True,
        check=False,
        env={**os.environ, **(env or {})},
        timeout=SECONDS,
    )
    return Outcome(done.returncode, done.stdout.decode(encoding), done.stderr.decode(encoding))


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose space holds the demo. Not to be written to."""
    place = tmp_path_factory.mktemp("demo")
    write_directory(place / "letta")
    with Space.open(place / "home") as space:
        import_directory(space, place / "letta")
    return place / "home"


def on(home: Path) -> Cli:
    """Runs command lines in this process, on a home."""

    def call(*arguments: str | Path) -> Outcome:
        out = TextIOWrapper(BytesIO(), encoding="utf-8", newline="")
        err = TextIOWrapper(BytesIO(), encoding="utf-8", newline="")
        with redirect_stdout(out), redirect_stderr(err):
            code = run(["--home", str(home), *map(str, arguments)])
        out.flush()
        err.flush()
        return Outcome(code, _written(out), _written(err))

    return call


def _written(stream: TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, BytesIO)
    return buffer.getvalue().decode()


def _refuse(token: str) -> None:
    raise AssertionError(f"bare {token} in JSON")
