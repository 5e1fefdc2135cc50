"""From the space into Letta's directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lettaspace.conversation import jsontext
from lettaspace.conversation.space import Space
from lettaspace.letta.directory import encode_name
from lettaspace.letta.doubt import Rest
from lettaspace.letta.importer import import_directory
from lettaspace.letta.restoring import RestoreReport, restore
from tests.letta.build import (
    AGENT,
    KEY,
    Store,
    at,
    b1,
    compaction,
    jsonl,
    message,
    prompt,
    row,
    rows,
)
from tests.letta.helpers import digest, records

Json = dict[str, Any]

AT_ONCE = Rest(0.0, 0.0)


def outcomes(report: RestoreReport) -> list[str]:
    return [str(each.outcome) for each in report.conversations]


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


def compacted() -> list[Json]:
    made = rows(b1())
    made.append(compaction(message(5, "user", "A"), "e5", "e4", "e3", 4, 3))
    made.append(row(message(6, "user", "g"), "e6", "e5"))
    return made


def fill(store: Store) -> None:
    """An agent, a conversation with a compaction and a prompt, and an empty default one."""
    store.agent()
    store.conversation(compacted(), ["ui-msg-5", "ui-msg-3", "ui-msg-4", "ui-msg-6"])
    (store.directory() / "system-prompt.json").write_text(jsontext.dumps(prompt()))
    store.conversation(b"", key=f"default:{AGENT}", created=at(-5))
    (store.directory(f"default:{AGENT}") / "messages.jsonl").unlink()


def test_into_an_empty_directory_and_back(space: Space, store: Store, tmp_path: Path) -> None:
    fill(store)
    import_directory(space, store.path)
    before, state = records(space), space.repo.set_hash().state
    report = restore(space, tmp_path / "out", rest=AT_ONCE)
    assert outcomes(report) == ["new", "new"]
    assert report.rows == 6
    assert report.written == 3
    assert not report.left
    for name in ("conversation.json", "manifest.json", "system-prompt.json"):
        assert read(tmp_path / "out", name=name) == read(store.path, name=name)
    agent = f"{encode_name(AGENT)}.json"
    assert jsontext.loads((tmp_path / "out" / "agents" / agent).read_bytes()) == jsontext.loads(
        (store.path / "agents" / agent).read_bytes()
    )
    written = read_rows(tmp_path / "out")
    assert [each.get("message") for each in written] == [
        each.get("message") for each in compacted()
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["agents", "conversations"]

    again = import_directory(space, tmp_path / "out")
    assert again.written == 0
    assert not any(each.read for each in again.conversations)
    # Read in full, by a home that knows nothing of it, too.
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert import_directory(space, tmp_path / "copy").written == 0
    assert records(space) == before
    assert space.repo.set_hash().state == state


def test_a_second_restore_changes_no_byte(space: Space, store: Store, tmp_path: Path) -> None:
    fill(store)
    import_directory(space, store.path)
    restore(space, tmp_path / "out", rest=AT_ONCE)
    before = digest(tmp_path / "out")
    report = restore(space, tmp_path / "out")
    assert outcomes(report) == ["unchanged", "unchanged"]
    assert report.written == 0
    assert digest(tmp_path / "out") == before
    # Nor into the directory that it came from.
    before = digest(store.path)
    assert restore(space, store.path).written == 0
    assert digest(store.path) == before
