"""Out of the space and back in."""

from __future__ import annotations

from pathlib import Path

from lettaspace.conversation import jsontext
from lettaspace.conversation.records import MESSAGE
from lettaspace.letta.importer import import_directory
from tests.letta.build import (
    Store,
    at,
    b1,
    compaction,
    jsonl,
    message,
    result,
    row,
    rows,
    text,
)
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import export, only, records, transcript, window, window_ids


def test_o41_nothing_flattened_nothing_restamped(
    open_space: OpenSpace, store: Store, tmp_path: Path
) -> None:
    made = b1()
    made[1]["content"].insert(0, {"type": "thinking", "thinking": "t", "thinkingSignature": "s"})
    made[2]["content"].append({"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="})
    store.agent()
    store.conversation(rows(made), x_unknown={"b": 1.0, "a": 2})
    first, second, third = (open_space(name) for name in "abc")
    import_directory(first, store.path)
    one = export(first, only(first), tmp_path / "one")
    import_directory(second, tmp_path / "one")
    two = export(second, only(second), tmp_path / "two")
    import_directory(third, tmp_path / "two")
    assert [m.payload() for m in window(third)] == made
    for name in ("messages.jsonl", "conversation.json", "manifest.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert one.name == store.directory().name
    original = jsontext.loads((store.directory() / "conversation.json").read_bytes())
    assert jsontext.loads((one / "conversation.json").read_bytes()) == original
    assert {k: v for k, v in records(first).items() if MESSAGE in k} == {
        k: v for k, v in records(third).items() if MESSAGE in k
    }


def test_o32_import_again(open_space: OpenSpace, store: Store, tmp_path: Path) -> None:
    a, b = open_space("a"), open_space("b")
    store.conversation(rows(b1()))
    import_directory(a, store.path)
    before = {m.rkey: m.cid for m in window(a)}
    trip = export(a, only(a), tmp_path / "trip")
    import_directory(b, tmp_path / "trip")
    # Letta goes on at B: rows with ids of its own kind.
    more = [row(message(5, "user", "and?"), "0a1b2c3d", None)]
    more.append(row(message(6, "assistant", "none"), "0a1b2c3e", "0a1b2c3d"))
    with (trip / "messages.jsonl").open("ab") as file:
        file.write(jsonl(more))
    value = jsontext.loads((trip / "conversation.json").read_bytes())
    value["in_context_message_ids"] += ["ui-msg-5", "ui-msg-6"]
    (trip / "conversation.json").write_text(jsontext.dumps(value))
    import_directory(b, tmp_path / "trip")
    export(b, only(b), tmp_path / "back")
    report = import_directory(a, tmp_path / "back")
    assert report.messages.to_json() == {"new": 2, "changed": 0, "unchanged": 4}
    assert len(window(a)) == 6
    assert before.items() <= {m.rkey: m.cid for m in window(a)}.items()
    (tmp_path / "back").rename(tmp_path / "again")
    assert import_directory(a, tmp_path / "again").messages.written == 0
    export(a, only(a), tmp_path / "own")
    assert import_directory(a, tmp_path / "own").messages.written == 0


def test_compactions_come_back_as_rows(open_space: OpenSpace, store: Store, tmp_path: Path) -> None:
    made = rows(b1())
    made.append(compaction(message(5, "user", "A"), "e5", "e4", "e3", 4, 3))
    made.append(row(message(6, "user", "g"), "e6", "e5"))
    made.append(compaction(message(7, "user", "B"), "e7", "e6", "e4", 4, 3))
    made.append(compaction(message(8, "user", "C"), "e8", "e7", None, 3, 1))
    made.append(row(message(9, "user", "h"), "e9", "e8"))
    store.conversation(made, ["ui-msg-8", "ui-msg-9"])
    a, b = open_space("a"), open_space("b")
    import_directory(a, store.path)
    assert window_ids(a) == ["ui-msg-8", "ui-msg-9"]
    trip = export(a, only(a), tmp_path / "trip")
    data = (trip / "messages.jsonl").read_bytes()
    written = [jsontext.loads(line) for line in data.split(b"\n") if line]
    assert [each["type"] for each in written] == [each["type"] for each in made]
    assert [each.get("message", {}).get("id") for each in written] == [
        each.get("message", {}).get("id") for each in made
    ]
    ids = {each["id"]: each["message"]["id"] for each in written[1:]}
    kept = [each["firstKeptEntryId"] for each in written if "firstKeptEntryId" in each]
    assert [ids.get(each) for each in kept] == ["ui-msg-3", "ui-msg-4", None]
    import_directory(b, tmp_path / "trip")
    assert [(m.rkey, m.cid) for m in transcript(a)] == [(m.rkey, m.cid) for m in transcript(b)]


def test_a_message_made_elsewhere_keeps_its_key(
    open_space: OpenSpace, store: Store, tmp_path: Path
) -> None:
    a, b = open_space("a"), open_space("b")
    store.conversation(rows([*b1(), result(5, "x", "y", created=at(9))]))
    path = store.directory() / "messages.jsonl"
    # As an export of a message that the library minted a TID for.
    path.write_bytes(path.read_bytes().replace(b'"id":"e5"', b'"id":"3kmwvnvv46nym"'))
    import_directory(a, store.path)
    assert window(a)[4].rkey == "3kmwvnvv46nym"
    export(a, only(a), tmp_path / "trip")
    import_directory(b, tmp_path / "trip")
    assert [m.rkey for m in window(b)] == [m.rkey for m in window(a)]
    assert text("y") in window(b)[4].payload()["content"]


def test_a_message_without_an_id_is_named_by_its_tid(
    open_space: OpenSpace, store: Store, tmp_path: Path
) -> None:
    space = open_space("a")
    store.agent()
    store.conversation(rows(b1()))
    import_directory(space, store.path)
    talk = space.conversation(only(space))
    added = talk.append({"role": "user", "content": [{"type": "text", "text": "and?"}]})
    out = export(space, talk.rkey, tmp_path / "out")
    listed = jsontext.loads((out / "conversation.json").read_bytes())["in_context_message_ids"]
    last = jsontext.loads((out / "messages.jsonl").read_bytes().splitlines()[-1])
    assert listed[-1] == last["message"]["id"] == added.rkey
    assert len(listed) == 5
