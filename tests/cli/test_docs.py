"""The sessions in README.md and docs/cli.md are run, and must print what they say."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lettaspace.demo import write_directory
from tests.waiting import SECONDS

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_USER = "/home/mira"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of somebody with a Letta Code directory."""
    directory = tmp_path / "mira"
    write_directory(directory / ".letta" / "lc-local-backend")
    for name in ("XDG_DATA_HOME", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("PYTHONUTF8", "1")
    return directory


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A directory with the commands that the sessions use."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, start in (("lettaspace", "-m lettaspace "), ("python", "")):
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {start}"$@"\n')
        script.chmod(0o755)
    return directory


@pytest.mark.skipif(sys.platform != "linux", reason="the sessions are from Linux")
@pytest.mark.parametrize("page", ["README.md", "docs/cli.md"])
def test_sessions(page: str, user: Path, commands: Path) -> None:
    if page != "README.md":
        _run("lettaspace up --once", user, commands)
    text = (ROOT / page).read_text(encoding="utf-8")
    ran = 0
    for block in _BLOCK.findall(text):
        for command, wanted in _steps(block):
            got = _run(command, user, commands)
            assert _matches(wanted, got), f"$ {command}\n{got}"
            ran += 1
    assert ran >= 5


def test_the_readmes_program(user: Path, commands: Path) -> None:
    _run("lettaspace up --once", user, commands)
    (program,) = _PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    done = subprocess.run(
        [sys.executable, "-c", program.replace(_USER, str(user))],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert len(done.stdout.splitlines()) == 7
    assert done.stdout.startswith("11 user [")


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def _steps(block: str) -> list[tuple[str, str]]:
    """Commands and what they print."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _run(command: str, user: Path, commands: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        encoding="utf-8",
        env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"},
        timeout=SECONDS,
    )
    return done.stdout.replace(str(user), _USER)


def _matches(wanted: str, got: str) -> bool:
    return doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS)
