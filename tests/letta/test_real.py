"""Directories that the real Letta Code wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation import jsontext
from lettaspace.letta import directory as letta_directory
from lettaspace.letta.importer import import_directory
from tests.lab.lab import SCENARIOS, Lab
from tests.lab.store import conversation_dir, in_context_ids, read_rows
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import digest, export, records, transcript, window_ids

Json = dict[str, Any]


# Letta settled calls of an assistant that had failed, or lost sight of a call.
ORPHANS = {"orphan"}


def exact_messages(root: Path, key: str) -> list[Json]:
    """The message of every row, each snapshot for itself, numbers by their text."""
    path = conversation_dir(root, key) / "messages.jsonl"
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    found = [jsontext.loads(line) for line in lines if line.strip()]
    return [row["message"] for row in found if "message" in row]


def canonical(value: Any) -> str:
    """Text that is equal for equal messages: the order of known fields means nothing."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{canonical(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return jsontext.dumps(value, ascii=True)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_message_comes_back(letta_lab: Lab, open_space: OpenSpace, name: str) -> None:
    root = letta_lab(name)
    before = digest(root)
    space = open_space("a")
    report = import_directory(space, root)
    assert digest(root) == before
    listing = letta_directory.list_directory(root)
    assert [each.key for each in report.conversations] == [c.key for c in listing.conversations]
    assert not report.incomplete, list(report.lines())

    for entry in report.conversations:
        uri = space.address.conversation(entry.conversation)
        written = exact_messages(root, entry.key)
        stored = [message.payload() for message in transcript(space, uri)]
        assert len(stored) == entry.messages.new
        # Snapshots that were replaced are the only messages of the file that are not there.
        missing = {canonical(m) for m in written} - {canonical(m) for m in stored}
        assert {canonical(m) for m in stored} <= {canonical(m) for m in written}
        assert len(missing) == len(written) - len(stored)
        if name != "snapshot":
            assert not missing
        with_row = {message["id"] for message in written}
        listed = [each for each in in_context_ids(root, entry.key) if each in with_row]
        assert window_ids(space, uri) == listed
        seqs = [message.seq for message in transcript(space, uri)]
        assert len(set(seqs)) == len(seqs)

    problems = {problem.kind for problem in space.verify()}
    assert problems <= {"orphan-result"}
    assert not problems or name in ORPHANS

    again = import_directory(space, root)
    assert again.written == 0
    assert not any(each.read for each in again.conversations)
    other = open_space("b")
    import_directory(other, root)
    assert records(other) == records(space)
    assert other.repo.set_hash().state == space.repo.set_hash().state


# Here the window lacks messages that no summary lists.
UNLISTED = {"race", "orphan", "reused_ids"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_round_trip(letta_lab: Lab, open_space: OpenSpace, tmp_path: Path, name: str) -> None:
    space, other = open_space("a"), open_space("b")
    import_directory(space, letta_lab(name))
    for number, target in enumerate((space, other)):
        for conversation in space.conversations():
            export(target, conversation.uri, tmp_path / f"trip{number}")
        report = import_directory(other, tmp_path / f"trip{number}")
        assert not report.incomplete
        if number:
            assert report.written == 0
    for path in (tmp_path / "trip0").rglob("*"):
        if path.is_file():
            again = tmp_path / "trip1" / path.relative_to(tmp_path / "trip0")
            assert again.read_bytes() == path.read_bytes()
    for conversation in space.conversations():
        assert window_ids(other, conversation.uri) == window_ids(space, conversation.uri)
        here, there = transcript(space, conversation.uri), transcript(other, conversation.uri)
        assert [m.payload() for m in there] == [m.payload() for m in here]
        if name not in UNLISTED:
            assert [(m.rkey, m.cid) for m in there] == [(m.rkey, m.cid) for m in here]


def test_compactions_of_the_real_thing(letta_lab: Lab, open_space: OpenSpace) -> None:
    root = letta_lab("compact_thrice")
    space = open_space("a")
    report = import_directory(space, root)
    for entry in report.conversations:
        uri = space.address.conversation(entry.conversation)
        found = transcript(space, uri)
        by_tid = {message.rkey: message for message in found}
        summaries = [m for m in found if m.compacted_message_ids is not None]
        compactions = [row for row in read_rows(root, entry.key) if row["type"] == "compaction"]
        assert len(summaries) == len(compactions)
        for summary in summaries:
            stats = summary.payload()["metadata"]["compaction"]["stats"]
            covered = summary.compacted_message_ids or []
            kept = stats["messages_count_after"] - 1
            assert len(covered) == stats["messages_count_before"] - kept
            assert [by_tid[t].seq for t in covered] == sorted(by_tid[t].seq for t in covered)
