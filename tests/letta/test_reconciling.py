"""Letta's directories on two machines, and the space between them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lettaspace.conversation import jsontext
from lettaspace.conversation.space import Space
from lettaspace.letta.differing import differences
from lettaspace.letta.directory import encode_name, list_directory
from lettaspace.letta.importer import import_directory
from lettaspace.letta.reconciling import reconcile
from lettaspace.letta.restoring import restore
from lettaspace.remote.branches import diverge
from tests.letta.build import AGENT, KEY, Store, at, b1, compaction, message, rows
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import digest
from tests.letta.killing import killed_writing
from tests.letta.sides import AT_ONCE, Json, Side, append, read, read_rows, settled
from tests.remote.apart import Host, Machine

TALK = ["List the jars.", "Looking.", "plum\nfig", "Two jars: plum and fig."]


def test_nothing_changed(sides: list[Side], host: Host) -> None:
    settled(host, *sides)
    assert sides[0].said() == sides[1].said() == TALK


def test_there_and_back(sides: list[Side], host: Host) -> None:
    a, b = sides
    b.turn(5, "On B", name="b")
    (found,) = b.differences()
    assert (str(found.reason), found.here, found.there) == ("directory", 2, 0)
    b.sync(host)
    a.machine.sync(host)
    (found,) = a.differences()
    assert (str(found.reason), found.here, found.there) == ("space", 0, 2)
    path = a.path / "conversations" / encode_name(KEY) / "messages.jsonl"
    before = path.read_bytes()
    a.sync(host)
    assert path.read_bytes().startswith(before)
    assert a.said() == b.said() == [*TALK, "On B", "On B!"]
    a.turn(7, "On A")
    a.sync(host)
    b.sync(host)
    assert a.said() == b.said() == [*TALK, "On B", "On B!", "On A", "On A!"]
    settled(host, a, b)
    assert a.keys == b.keys == [KEY]
    assert len(a.space.conversations()) == 1


def test_both_went_on(sides: list[Side], host: Host) -> None:
    a, b = sides
    a.turn(5, "On A")
    b.turn(6, "On B", name="b")
    a.sync(host)
    kept = [(side.path / "conversations" / encode_name(KEY) / "messages.jsonl") for side in sides]
    before = [path.read_bytes() for path in kept]
    b.sync(host)
    settled(host, a, b)
    on_a, on_b = (*TALK, "On A", "On A!"), (*TALK, "On B", "On B!")
    assert a.all_said() == b.all_said() == {on_a, on_b}
    # What Letta had in its file there stays in it.
    assert tuple(a.said()) == on_a
    assert tuple(b.said()) == on_b
    assert [path.read_bytes() for path in kept] == before
    titles = {info.title for info in a.space.conversations()}
    assert titles == {"Jars", "Jars (fork)"}
    for side in sides:
        assert {read(side.path, key)["summary"] for key in side.keys} == titles
        assert all(info.diverged for info in side.space.conversations())
    # Both go on with both.
    for side, name, first in ((a, "c", 20), (b, "d", 40)):
        for number, key in enumerate(sorted(side.keys, key=side.said)):
            side.turn(first + 10 * number, "more", key, name=name)
        side.sync(host)
        for other in sides:
            other.sync(host)
    settled(host, a, b)
    assert a.all_said() == b.all_said()
    assert {len(each) for each in a.all_said()} == {10}


def test_imported_before_it_was_pulled(sides: list[Side], host: Host) -> None:
    a, b = sides
    a.turn(5, "On A")
    a.sync(host)
    b.turn(6, "On B", name="b")
    import_directory(b.space, b.path)
    b.machine.sync(host)
    a.sync(host)
    settled(host, a, b)
    assert a.all_said() == b.all_said()
    assert tuple(b.said()) == (*TALK, "On B", "On B!")
    assert len(b.keys) == 2


def test_compacted_here_and_gone_on_there(sides: list[Side], host: Host) -> None:
    a, b = sides
    summary = compaction(message(5, "user", "SUM", created=at(50)), "a0000001", "e4", "e4", 4, 2)
    append(a.path, [summary], window=["ui-msg-5", "ui-msg-4"])
    b.turn(6, "On B", name="b")
    a.sync(host)
    b.sync(host)
    settled(host, a, b)
    assert a.all_said() == b.all_said() == {("SUM", TALK[3]), (*TALK, "On B", "On B!")}


def test_compacted_there(sides: list[Side], host: Host) -> None:
    a, b = sides
    b.turn(5, "On B", name="b")
    summary = compaction(message(7, "user", "SUM", created=at(50)), "b0000009", None, None, 6, 2)
    parent = read_rows(b.path)[-1]["id"]
    append(b.path, [{**summary, "firstKeptEntryId": parent}], window=["ui-msg-7", "ui-msg-6"])
    b.turn(60, "later", name="b")
    b.sync(host)
    a.sync(host)
    settled(host, a, b)
    assert a.said() == b.said() == ["SUM", "On B!", "later", "later!"]
    a.turn(70, "again")
    a.sync(host)
    settled(host, a, b)
    assert a.said() == b.said() == ["SUM", "On B!", "later", "later!", "again", "again!"]


def test_a_field_each(sides: list[Side], host: Host) -> None:
    a, b = sides
    conversations: list[tuple[Side, Json]] = [
        (a, {"summary": "Named on A", "model": "a/old", "updated_at": at(100)}),
        (b, {"archived": True, "model": "b/new", "updated_at": at(200)}),
    ]
    for side, changes in conversations:
        path = side.path / "conversations" / encode_name(KEY) / "conversation.json"
        path.write_text(jsontext.dumps({**jsontext.loads(path.read_bytes()), **changes}))
    agents: list[tuple[Side, Json]] = [
        (a, {"name": "Heron"}),
        (b, {"description": "Fishes", "x": {"y": 1.0}}),
    ]
    for side, changes in agents:
        path = side.path / "agents" / f"{encode_name(AGENT)}.json"
        path.write_text(jsontext.dumps({**jsontext.loads(path.read_bytes()), **changes}))
    settled(host, a, b)
    for side in sides:
        value = read(side.path)
        assert (value["summary"], value["archived"]) == ("Named on A", True)
        assert (value["model"], value["updated_at"]) == ("b/new", at(200))
        agent = jsontext.loads((side.path / "agents" / f"{encode_name(AGENT)}.json").read_bytes())
        assert (agent["name"], agent["description"], agent["x"]) == ("Heron", "Fishes", {"y": 1.0})


def test_deleted_here_is_not_deleted(sides: list[Side], host: Host) -> None:
    a, b = sides
    before = a.machine.state
    shutil.rmtree(b.path / "conversations" / encode_name(KEY))
    b.sync(host)
    assert b.keys == []
    (found,) = b.differences()
    assert str(found.reason) == "deleted"
    assert b.machine.state == before
    a.turn(5, "On A")
    a.sync(host)
    b.sync(host)
    assert b.keys == []
    restore(b.space, b.path, conversations=[found.conversation], rest=AT_ONCE)
    assert b.keys == [KEY]
    settled(host, a, b)
    assert a.said() == b.said()


def test_what_the_library_said(sides: list[Side], host: Host) -> None:
    a, b = sides
    talk = a.space.conversation(a.space.conversations()[0].uri)
    talk.append({"role": "user", "content": [{"type": "text", "text": "by the library"}]})
    settled(host, a, b)
    assert a.said() == b.said() == [*TALK, "by the library"]
    b.turn(9, "On B", name="b")
    settled(host, a, b)
    assert a.said() == b.said() == [*TALK, "by the library", "On B", "On B!"]


def test_what_was_rewritten_is_said_again(sides: list[Side], host: Host) -> None:
    a, b = sides
    talk = a.space.conversation(a.space.conversations()[0].uri)
    last = talk.window().messages[-1]
    content = [{"type": "text", "text": "Something else."}]
    talk.rewrite(last.rkey, {**last.payload(), "content": content})
    settled(host, a, b)
    assert a.said() == b.said() == [*TALK[:3], "Something else."]
    a.turn(9, "On A")
    settled(host, a, b)
    assert b.said()[3:] == ["Something else.", "On A", "On A!"]


def test_o31_counter_ids_meet(
    open_space: OpenSpace, store: Store, tmp_path: Path, host: Host
) -> None:
    store.agent()
    store.conversation(rows(b1()))
    other = Store(tmp_path / "other")
    other.agent("agent-seal")
    boats = [message(n, "user", f"boat {n}", agent="agent-seal") for n in (1, 2, 3)]
    other.conversation(rows(boats), agent="agent-seal", created=at(-60), summary="Boats")
    a = Side(Machine(open_space("a")), store.path)
    b = Side(Machine(open_space("b")), other.path)
    before = [digest(side.path / "conversations" / encode_name(KEY)) for side in (a, b)]
    settled(host, a, b)
    assert [digest(side.path / "conversations" / encode_name(KEY)) for side in (a, b)] == before
    again = f"{KEY}~m2"
    assert a.keys == b.keys == [KEY, again]
    assert (len(a.said()), len(a.said(again))) == (4, 3)
    assert (len(b.said()), len(b.said(again))) == (3, 4)
    assert read(a.path, again)["id"] == "local-conv-1~m2"
    # It goes on under its other name, and comes home as what it was.
    b.turn(8, "On B", again, name="b")
    settled(host, a, b)
    assert a.said() == [*TALK, "On B", "On B!"]
    assert len(a.space.conversations()) == 2
    fresh = restore(a.space, tmp_path / "fresh", rest=AT_ONCE)
    assert sorted(each.key for each in fresh.conversations) == [KEY, again]


def openable(root: Path) -> set[str]:
    """What Letta could open of a directory, which has to be all of it."""
    for path in (root / "agents").glob("*.json"):
        assert type(jsontext.loads(path.read_bytes())) is dict
    keys = [each.key for each in list_directory(root).conversations]
    for key in keys:
        value = read(root, key)
        path = root / "conversations" / encode_name(key) / "messages.jsonl"
        if path.exists():
            assert read(root, key, "manifest.json")["schema_version"] == 2
            assert path.read_bytes().endswith(b"\n")
            listed = set(value["in_context_message_ids"])
            assert listed <= {each["message"]["id"] for each in read_rows(root, key)[1:]}
    return set(keys)


@pytest.mark.parametrize("letta_goes_on", [False, True])
def test_killed_at_any_moment(
    sides: list[Side],
    host: Host,
    tmp_path: Path,
    letta_goes_on: bool,
) -> None:
    """A conversation that is new, one that went on elsewhere, one that both went on with. Letta
    may go on with the second, from what a killed run left."""
    a, b = sides
    store = Store(a.path)
    for number in (2, 3):
        key = f"conversation:local-conv-{number}"
        made = [message(1, "user", f"talk {number}", conversation=f"local-conv-{number}")]
        store.conversation(rows(made), key=key, created=at(-number))
    settled(host, a, b)
    two = "conversation:local-conv-2"
    a.turn(5, "On A")
    a.turn(5, "On A", two)
    b.turn(6, "On B", name="b")
    made = [message(1, "user", "talk 4", conversation="local-conv-4")]
    store.conversation(rows(made), key="conversation:local-conv-4", created=at(-4))
    a.sync(host)
    b.machine.pull(host)
    home = b.space.home
    b.space.close()
    a.space.close()
    template = tmp_path / "template"
    shutil.copytree(home, template / "home")
    shutil.copytree(b.path, template / "letta")
    expected: set[tuple[str, ...]] = set()
    step = 0
    while True:
        # The directory's path is part of what is known of it.
        shutil.rmtree(home)
        shutil.rmtree(b.path)
        shutil.copytree(template / "home", home)
        shutil.copytree(template / "letta", b.path, copy_function=shutil.copy2)

        def work() -> None:
            with Space.open(home) as space:
                reconcile(space, b.path, part=diverge, rest=AT_ONCE)

        was_killed = killed_writing(work, step)
        openable(b.path)
        if letta_goes_on and was_killed:
            b.turn(70, "Then", two, name="c")
        with Space.open(home) as space:
            reconcile(space, b.path, part=diverge, rest=AT_ONCE)
            assert reconcile(space, b.path, part=diverge, rest=AT_ONCE).written == 0
            assert differences(space, b.path) == []
            assert not (b.path / ".lettaspace").exists()
            if step % 5 == 0:
                assert [str(each) for each in space.verify()] == []
            said = sorted(len(list(space.transcript(info.uri))) for info in space.conversations())
        if letta_goes_on and was_killed:
            # It is a fork if Letta had not heard of what was said elsewhere.
            assert said in ([1, 1, 3, 3, 6, 6], [1, 1, 5, 6, 6]), step
            assert b.said(two)[-2:] == ["Then", "Then!"]
        else:
            assert said == [1, 1, 3, 6, 6], step
            expected |= b.all_said()
            assert b.all_said() == expected, step
        if not was_killed:
            break
        step += 3 if letta_goes_on else 1
    assert step > 20
