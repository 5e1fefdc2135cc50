"""Rows of a stored conversation: the same bytes whichever way they come about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cbrrr
import pytest
from sqlalchemy import select, update

from lettaspace.atproto import cbor
from lettaspace.conversation.jsontext import Number, dumps
from lettaspace.errors import Damaged
from lettaspace.letta import lines, synced
from lettaspace.letta.brought import Outcome
from lettaspace.letta.importer import import_directory
from lettaspace.letta.restoring import restore
from lettaspace.space.schema import records
from tests.letta.build import Store, compaction, message, row, rows
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import only, window


def _odd() -> list[dict[str, Any]]:
    """Messages with whatever is not stored as itself."""
    found = [message(number, "assistant", "plain") for number in range(1, 9)]
    found[0]["usage"] = {"cost": {"total": Number("1e-7"), "input": Number("-0")}, "input": 1 << 60}
    found[1]["content"] = [{"type": "toolCall", "arguments": {"path": "a", "all": [Number("1.0")]}}]
    found[2]["content"] = [{"type": "text", "text": "half \ud83e, \u2028, \x00 and \x7f"}]
    found[3]["content"] = [{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}]
    found[4]["content"] = [{"type": "text", "text": "long " * 40_000}]
    found[5]["note"] = {"$type": "xyz.quasigod.lab.letta.defs#json", "json": "1"}
    found[6]["metadata"]["deep"] = [[[[[Number("NaN")]]]]]
    del found[7]["id"]
    return found


def _files(directory: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_the_quick_way_and_the_long_one_give_the_same_files(
    open_space: OpenSpace, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rows(_odd())
    summary = compaction(message(9, "user", "A"), "e9", "e8", "e7", 8, 3)
    store.agent()
    made += [summary, row(message(10, "user", "b"), "ea", "e9")]
    texts = b"".join(dumps(each).encode() + b"\n" for each in made)
    store.conversation(texts, ["ui-msg-9", "ui-msg-7", "ui-msg-10"])
    space = open_space("a")
    import_directory(space, store.path)
    taken: list[bool] = []
    quick = lines.quick_text

    def watched(*arguments: Any) -> bytes | None:
        text = quick(*arguments)
        taken.append(text is not None)
        return text

    monkeypatch.setattr(lines, "quick_text", watched)
    restore(space, tmp_path / "quick")
    assert taken.count(True) == 4, "numbers, arguments, texts: what most messages hold"
    assert taken.count(False) >= 2
    other = open_space("b")
    import_directory(other, store.path)
    monkeypatch.setattr(lines, "quick_text", lambda *_: None)
    restore(other, tmp_path / "long")
    written = _files(tmp_path / "quick")
    assert written == _files(tmp_path / "long")
    assert len(written) == 4


def test_a_record_that_is_not_what_was_stored_is_looked_over(
    open_space: OpenSpace, store: Store, tmp_path: Path
) -> None:
    """Its conversation is left, and said."""
    store.agent()
    store.conversation(rows([message(1, "user", "a"), message(2, "user", "b")]))
    space = open_space("a")
    import_directory(space, store.path)
    (first, *_) = space.window(only(space)).messages
    with space.database.write() as connection:
        query = select(records.c.value).where(records.c.rkey == first.rkey)
        value = cbor.decode(connection.execute(query).scalar_one())
        value["message"]["data"]["timestamp"] = 0.5
        damaged = cbrrr.encode_dag_cbor(value)
        connection.execute(
            update(records).where(records.c.rkey == first.rkey).values(value=damaged)
        )
    with space.repo.snapshot() as view, pytest.raises(Damaged, match="float"):
        list(lines.Rows(space, view.connection, only(space).rpartition("/")[2]))
    report = restore(space, tmp_path / "restored")
    assert [each.outcome for each in report.conversations] == [Outcome.LEFT]
    assert not list((tmp_path / "restored" / "conversations").iterdir())


def test_what_was_read_tells_whether_records_change(
    open_space: OpenSpace, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revisions that a restore notes are those that the next look finds, in however many
    pieces the records were read."""
    monkeypatch.setattr(lines, "_CHUNK", 2)
    made = rows([message(number, "user", "a") for number in range(1, 8)])
    summary = compaction(message(8, "user", "A"), "e8", "e7", "e6", 7, 3)
    store.agent()
    store.conversation([*made, summary], ["ui-msg-8", "ui-msg-6", "ui-msg-7"])
    space = open_space("a")
    import_directory(space, store.path)
    (kept,) = (each for each in window(space) if each.data["id"] == "ui-msg-6")
    space.conversation(only(space)).rewrite(kept.rkey, {**kept.payload(), "note": "b"})
    restore(space, tmp_path / "restored")
    with space.repo.snapshot() as view:
        uri = only(space)
        tid = uri.rpartition("/")[2]
        told = lines.Rows(space, view.connection, tid)
        assert len(list(told)) == told.read == 8
        expected = synced.conversation_revs(view, uri, tid)
        assert expected.split(" ")[:2] == [str(told.read), told.newest]
    known = synced.load(space, str(tmp_path / "restored"))
    assert [each.revs for each in known.values() if each.name == tid] == [expected]
