"""Memory directories for tests: real git repositories, and what the real Letta makes of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lettaspace.conversation.memory import MemoryDirectory, Snapshot
from lettaspace.conversation.render import render_core_memory
from tests.lab.driver import AppServer, LettaHome
from tests.lab.lab import Lab
from tests.lab.store import conversation_dir, read_agents

DETERMINISTIC = {"LETTA_LOCAL_BACKEND_EXECUTOR": "deterministic"}
CONVERSATION = "local-conv-1"


@dataclass(frozen=True)
class Link:
    """A symbolic link in a tree of files."""

    target: str


Tree = Mapping[str, bytes | Link]


def git(path: Path, *arguments: str, check: bool = True, **env: str) -> str:
    """Any git command, untouched by the settings and hooks of anybody."""
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    settings += ["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false"]
    done = subprocess.run(
        ["git", *settings, *arguments],
        cwd=path,
        env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", **env},
        capture_output=True,
        check=check,
    )
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def init(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "-q", "-b", "main")
    return path


def commit(path: Path, files: Tree, *, submodules: tuple[str, ...] = ()) -> str:
    """Makes exactly `files` the content of a new commit; its id."""
    for old in path.iterdir():
        if old.name == ".git":
            continue
        shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            file.symlink_to(content.target)
        else:
            file.write_bytes(content)
    git(path, "add", "--all", "--force", ".")
    for module in submodules:
        git(path, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{module}")
    git(path, "commit", "-q", "--allow-empty", "-m", "change")
    return git(path, "rev-parse", "HEAD")


@dataclass
class Prompts:
    """A running Letta whose agent's memory can be changed and compiled again."""

    home: LettaHome
    server: AppServer
    agent: str

    @property
    def memory(self) -> Path:
        return self.home.storage / "memfs" / self.agent / "memory"

    @property
    def template(self) -> str:
        (agent,) = read_agents(self.home.storage)
        return str(agent["system"])

    def record(self) -> dict[str, Any]:
        path = conversation_dir(self.home.storage, f"conversation:{CONVERSATION}")
        value: dict[str, Any] = json.loads((path / "system-prompt.json").read_text("utf-8"))
        return value

    def compile(self) -> dict[str, Any]:
        """What Letta writes when it is told to compile."""
        content = self.server.call("conversation_recompile", conversation_id=CONVERSATION)
        assert content["result"] == self.record()["content"]
        return self.record()

    def core_memory(self, record: Mapping[str, Any], messages: int = 2) -> str:
        """What we render of the same commit at the same time."""
        snapshot = MemoryDirectory(self.memory).read(record["memfsRevision"])
        return core_memory(snapshot, self.agent, record["compiledAt"], messages)


def core_memory(snapshot: Snapshot, agent: str, compiled_at: str, messages: int) -> str:
    return render_core_memory(
        snapshot.blobs(),
        agent_id=agent,
        conversation_id=CONVERSATION,
        compiled_at=datetime.fromisoformat(compiled_at),
        message_count=messages,
        quote_path=snapshot.quote_path,
    )


@contextmanager
def running_letta(lab: Lab, name: str) -> Iterator[Prompts]:
    home = lab.bare_home(name)
    answer = home.ask("hello", model=None, env=DETERMINISTIC)
    with home.app_server() as server:
        yield Prompts(home, server, answer.agent_id)
