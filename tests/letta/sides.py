"""Machines that each have a space and one of Letta's directories, and a host between them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lettaspace.conversation import jsontext
from lettaspace.conversation.space import Space
from lettaspace.letta.differing import Difference, differences
from lettaspace.letta.directory import encode_name, list_directory
from lettaspace.letta.doubt import Rest
from lettaspace.letta.reconciling import ReconcileReport, reconcile
from lettaspace.remote.branches import diverge
from tests.letta.build import KEY, at, jsonl, message, row
from tests.letta.helpers import digest
from tests.remote.apart import Host, Machine, agree

Json = dict[str, Any]

AT_ONCE = Rest(0.0, 0.0)


def read(root: Path, key: str = KEY, name: str = "conversation.json") -> Json:
    path = root / "conversations" / encode_name(key) / name
    value: Json = jsontext.loads(path.read_bytes())
    return value


def read_rows(root: Path, key: str = KEY) -> list[Json]:
    path = root / "conversations" / encode_name(key) / "messages.jsonl"
    return [jsontext.loads(line) for line in path.read_bytes().split(b"\n") if line]


def append(root: Path, made: list[Json], key: str = KEY, window: list[str] | None = None) -> None:
    """What Letta does in a turn."""
    directory = root / "conversations" / encode_name(key)
    with (directory / "messages.jsonl").open("ab") as file:
        file.write(jsonl(made))
    value = read(root, key)
    ids = [*value["in_context_message_ids"], *(each["message"]["id"] for each in made)]
    value["in_context_message_ids"] = ids if window is None else window
    value["updated_at"] = value["last_message_at"] = made[-1]["timestamp"]
    (directory / "conversation.json").write_text(jsontext.dumps(value, indent=2) + "\n")


@dataclass
class Side:
    """A machine: a space, and Letta's directory."""

    machine: Machine
    path: Path

    @property
    def space(self) -> Space:
        return self.machine.space

    def reconcile(self) -> ReconcileReport:
        return reconcile(self.space, self.path, part=diverge, rest=AT_ONCE)

    def sync(self, host: Host) -> None:
        """First what others wrote: so it is compared with the directory field by field."""
        self.machine.sync(host)
        self.reconcile()
        self.machine.sync(host)

    def differences(self) -> list[Difference]:
        return differences(self.space, self.path)

    def turn(self, number: int, said: str, key: str = KEY, name: str = "a") -> None:
        """Letta answers: two messages with ids and row ids of its own."""
        parent = read_rows(self.path, key)[-1]["id"]
        own = f"{name}{number:07x}", f"{name}{number + 1:07x}"
        append(
            self.path,
            [
                row(message(number, "user", said, created=at(number)), own[0], parent),
                row(message(number + 1, "assistant", f"{said}!"), own[1], own[0]),
            ],
            key,
        )

    def said(self, key: str = KEY) -> list[str]:
        """The texts in the window, as Letta would load them."""
        latest = {each["message"]["id"]: each["message"] for each in read_rows(self.path, key)[1:]}
        ids = read(self.path, key)["in_context_message_ids"]
        return ["".join(p.get("text", "") for p in latest[each]["content"]) for each in ids]

    @property
    def keys(self) -> list[str]:
        return [each.key for each in list_directory(self.path).conversations]

    def all_said(self) -> set[tuple[str, ...]]:
        return {tuple(self.said(key)) for key in self.keys}


def settled(host: Host, *sides: Side) -> None:
    """They sync till nothing is left to be done, and a further sync changes nothing."""
    for _ in range(3):
        for side in sides:
            side.sync(host)
    agree(host, *(side.machine for side in sides))
    before = [(digest(side.path), side.space.repo.rev()) for side in sides]
    for side in sides:
        report = side.reconcile()
        assert report.written == 0, report.to_json()
        assert report.is_done
        assert report.imported.agents.unchanged == len(list_directory(side.path).agents)
        assert side.differences() == []
    assert [(digest(side.path), side.space.repo.rev()) for side in sides] == before
    for side in sides:
        assert [str(problem) for problem in side.space.verify()] == []
