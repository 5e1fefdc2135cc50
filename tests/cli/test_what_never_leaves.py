"""Secrets, planted wherever Letta keeps them on one machine, and the whole way to another one."""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.codec import decode
from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.records import AGENT as AGENTS
from lettaspace.conversation.records import (
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MEMORY,
    MESSAGE,
)
from lettaspace.conversation.space import Space
from lettaspace.letta.bundles import unpack
from lettaspace.letta.memoryrecord import stored_memory
from lettaspace.letta.repository import Repository
from tests.cli.conftest import on
from tests.cli.machines import Machine, World, real_time_host
from tests.conversation.memories import commit, git, init
from tests.letta.build import AGENT, Store, b1, message, prompt, rows

FOLLOWS = "THIS-GOES-WITH-YOU"
"""Said in the conversation and kept in the memory, so it has to be found everywhere."""

LETTA = ".letta/lc-local-backend"
MEMFS = f"{LETTA}/memfs/{AGENT}/memory"

PLANTED = (
    # Letta's own, in the storage directory
    f"{LETTA}/providers/auth.json",
    f"{LETTA}/providers/lmstudio.json",
    f"{LETTA}/secrets/{AGENT}.json",
    f"{LETTA}/agents/notes.txt",
    f"{LETTA}/agents/b3R0ZXI.json.bak",
    f"{LETTA}/conversations/loose.json",
    f"{LETTA}/channels/telegram/auth.json",
    # beside it
    ".letta/settings.json",
    ".letta/settings.local.json",
    ".letta/mcp/auth.json",
    ".letta/mcp.json",
    ".letta/channels/slack/accounts.json",
    ".letta/mods/private.js",
    ".letta/tool-output/overflow.txt",
    ".letta/.env",
    "project/.letta/settings.local.json",
    ".gitconfig",
    ".git-credentials",
    ".netrc",
    # of the memory's repository
    f"{MEMFS}/.git/hooks/post-commit",
    f"{MEMFS}/.git/hooks/letta-memory-constraints.cjs",
    f"{MEMFS}/.git/letta-memory-layout-policy",
    f"{MEMFS}/.git/info/attributes.off",
    f"{MEMFS}/uncommitted.md",
    f"{MEMFS}/.env",
)


class Secrets:
    """One for each place, so that what is found says where it comes from."""

    def __init__(self) -> None:
        self._places: dict[str, bytes] = {}

    @property
    def places(self) -> list[str]:
        return list(self._places)

    def new(self, place: str) -> str:
        text = f"sk-never-leaves-{len(self._places):04d}-this-machine"
        self._places[place] = text.encode()
        return text

    def found(self, data: bytes) -> list[str]:
        """The places whose secrets are in there, as they are or in base64."""
        return [p for p, secret in self._places.items() if any(f in data for f in forms(secret))]


def forms(secret: bytes) -> Iterator[bytes]:
    yield secret
    for shift in range(3):
        # Whole groups of three bytes are the same wherever they stand.
        inside = secret[shift:][: (len(secret) - shift) // 3 * 3]
        yield b64encode(inside)


class Wire:
    """All that goes through a socket of Python's in this process: the commands' requests, and the
    answers to them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        plain = socket.socket

        def send(connection: socket.socket, data: Any, *flags: int) -> int:
            count = plain_send(connection, data, *flags)
            self.sent.append(bytes(data)[:count])
            return count

        def sendall(connection: socket.socket, data: Any, *flags: int) -> None:
            plain_sendall(connection, data, *flags)
            self.sent.append(bytes(data))

        def recv(connection: socket.socket, *arguments: int) -> bytes:
            data = plain_recv(connection, *arguments)
            self.received.append(data)
            return data

        def recv_into(connection: socket.socket, buffer: Any, *arguments: int) -> int:
            count = plain_recv_into(connection, buffer, *arguments)
            self.received.append(bytes(buffer[:count]))
            return count

        plain_send, plain_sendall = plain.send, plain.sendall
        plain_recv, plain_recv_into = plain.recv, plain.recv_into
        for spy in (send, sendall, recv, recv_into):
            patch.setattr(plain, spy.__name__, spy)


def plant(user: Path, secrets: Secrets) -> None:
    """What a machine knows that no other one is to know."""
    for name in PLANTED:
        path = user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(("settings.json", "settings.local.json")):
            path.write_text(json.dumps(settings(name, secrets)))
        elif name.endswith(".gitconfig"):
            secret = secrets.new(name)
            path.write_text(f'[http]\n\textraHeader = "Authorization: Bearer {secret}"\n')
        else:
            path.write_text(json.dumps({"key": secrets.new(name)}) + "\n")


def settings(name: str, secrets: Secrets) -> dict[str, Any]:
    hook = {"type": "command", "command": f"notify --token {secrets.new(f'{name} hooks')}"}
    return {
        "env": {"OPENAI_API_KEY": secrets.new(f"{name} env")},
        "refreshToken": secrets.new(f"{name} refreshToken"),
        "deviceId": secrets.new(f"{name} deviceId"),
        "hooks": {"Stop": [{"hooks": [hook]}]},
        "mcpServers": {"x": {"headers": {"X-Key": secrets.new(f"{name} mcp")}}},
        "letta.memoryRepository.url": f"https://x:{secrets.new(f'{name} url')}@h.example/r.git",
    }


def remember(memory: Path, secrets: Secrets) -> None:
    """A memory whose branch has nothing secret, in a repository that knows much more."""
    init(memory)
    first = commit(memory, {"human.md": b"Likes figs.\n"})
    git(memory, "checkout", "-q", "-b", "private")
    commit(memory, {"human.md": f"{secrets.new('another branch')}\n".encode()})
    git(memory, "checkout", "-q", "main")
    commit(memory, {"human.md": f"{secrets.new('an amended commit')}\n".encode()})
    git(memory, "reset", "-q", "--hard", first)
    (memory / "human.md").write_text(f"{secrets.new('a stash')}\n")
    git(memory, "stash")
    commit(memory, {"human.md": f"Likes figs. {FOLLOWS}\n".encode()})
    (memory / "staged.md").write_text(f"{secrets.new('the index')}\n")
    git(memory, "add", "staged.md")
    url = f"https://x:{secrets.new('a remote')}@h.example/r.git"
    git(memory, "remote", "add", "origin", url)
    git(memory, "config", "http.extraHeader", f"Authorization: {secrets.new('a header')}")


def talk(secrets: Secrets) -> list[dict[str, Any]]:
    """What was said, with what some providers note of their requests."""
    bearer = f"Bearer {secrets.new('a header of a request')}"
    provider = {"id": "x", "request": {"headers": {"authorization": bearer}}}
    return [
        *b1(),
        message(5, "user", f"{FOLLOWS}, and so do the jars."),
        message(6, "assistant", "They do.", metadata={"provider": provider}),
    ]


def written(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file, and what git keeps packed."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()
        if path.name == ".git":
            yield path, objects(path.parent)


def objects(repository: Path) -> bytes:
    """All that a repository has, named by a ref or not."""
    listed = git(repository, "cat-file", "--batch", "--batch-all-objects")
    return listed.encode("utf-8", "surrogateescape")


def opened(space: Space, place: Path) -> Iterator[tuple[str, bytes]]:
    """Every record with its blobs opened; bundles are unpacked at `place`."""
    get_blob = space.repo.get_blob
    collections = AGENTS, CONVERSATION, CONVERSATION_STATE, COMPILED_PROMPT, MESSAGE
    for collection in collections:
        for record in space.repo.records(collection):
            yield record.rkey, dumps(decode(record.value, get_blob)).encode()
    for record in space.repo.records(MEMORY):
        stored = stored_memory(space, record.rkey)
        assert stored is not None
        repository = Repository(init(place / record.rkey))
        for part in stored.parts:
            unpack(repository, part.open(get_blob))
        yield record.rkey, objects(repository.path)


def test_what_never_leaves_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = Secrets()
    users = {name: tmp_path / f"user-{name}" for name in "ab"}
    store = Store(users["a"] / LETTA)
    store.agent()
    store.conversation(rows(talk(secrets)), prompt=prompt())
    remember(users["a"] / MEMFS, secrets)
    plant(users["a"], secrets)
    before = {path: data for path, data in written(users["a"]) if ".git/" not in str(path)}
    wire = Wire(monkeypatch)
    said: list[str] = []

    def run(machine: Machine, *arguments: str) -> None:
        monkeypatch.setenv("HOME", str(users[machine.home.name]))
        done = machine(*arguments)
        assert (done.code, done.err) == (0, "")
        said.append(done.out)

    with real_time_host(tmp_path / "host.db") as server:
        world = World(server, tmp_path, monkeypatch, on)
        a, b = world.machine("a"), world.machine("b")
        run(a, "sync")
        run(b, "clone", world.handle)
        run(b, "letta", "restore")
        run(b, "letta", "resume", "local-conv-1", "--pin", "--cwd", str(users["b"]))
        with b.open() as space:
            (rkey,) = [each.rkey for each in space.conversations()]
        b.say(rkey, "on the other machine")
        run(b, "sync")
        run(a, "sync")
        run(a, "sync")
        host = b"".join(path.read_bytes() for path in tmp_path.glob("host.db*"))

    passed = {"the host": host, "sent": b"".join(wire.sent), "received": b"".join(wire.received)}
    for what, data in passed.items():
        assert FOLLOWS.encode() in data, what
        assert secrets.found(data) == [], what
    assert secrets.found("".join(said).encode()) == []
    for machine in (a, b):
        seen = b""
        with machine.open() as space:
            for name, data in opened(space, tmp_path / f"unpacked-{machine.home.name}"):
                assert secrets.found(data) == [], name
                seen += data
        assert seen.count(FOLLOWS.encode()) == 2, "in a message, and in the memory"
        for path, data in written(machine.home):
            assert secrets.found(data) == [], path
    restored = dict(written(users["b"]))
    for path, data in restored.items():
        assert secrets.found(data) == [], path
    assert sum(FOLLOWS.encode() in data for data in restored.values()) >= 3
    # And on the machine that has them they are as they were.
    after = {path: data for path, data in written(users["a"]) if path in before}
    changed = {path.name for path, data in before.items() if after[path] != data}
    assert changed == {"conversation.json", "messages.jsonl"}
    everything = b"".join(data for _, data in written(users["a"]))
    assert secrets.found(everything) == secrets.places
