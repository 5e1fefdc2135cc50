"""Session files into a space: written by pi itself, damaged, growing, branching."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lettaspace.conversation.message import Message
from lettaspace.conversation.space import Space
from lettaspace.errors import Conflict, InvalidInput, StoreUnavailable
from lettaspace.pi.export import session_lines
from lettaspace.pi.importer import Report, import_file, import_session
from lettaspace.pi.session import parse_session
from lettaspace.space.writes import Update
from tests.letta.conftest import OpenSpace
from tests.pi.model import context
from tests.pi.sessions import Writer, at, lines, session, text, writers

DATA = Path(__file__).parent / "data"
VERSIONS = ("0.73", "1.6")
"""Of pi, which wrote these files and said what it gives a model of them (context.mjs)."""


def parsed(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.split(b"\n") if line]


def entry(message: Message) -> Any:
    return message.payload()["entry"]


def window(space: Space, report: Report) -> list[Message]:
    return space.conversation(report.conversation).window().messages


def ids(space: Space, report: Report) -> list[str]:
    return [entry(message)["id"] for message in window(space, report)]


def exported(space: Space, report: Report) -> list[Any]:
    return parsed(b"".join(session_lines(space, report.conversation)))


def read(data: bytes, space: Space) -> Report:
    return import_session(space, parse_session(io.BytesIO(data), "a file"))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_window_is_what_pi_gives_the_model(space: Space, version: str) -> None:
    report = import_file(space, DATA / f"pi-{version}.jsonl")
    asked = json.loads((DATA / f"pi-{version}.context.json").read_text(encoding="utf-8"))
    messages = asked["messages"]
    if version == "1.6":  # a compaction repeats the system prompt
        assert messages.pop(0)["role"] == "system"
    found = window(space, report)
    assert [message.role for message in found] == [each["role"] for each in messages]
    summary, *rest = found
    assert entry(summary)["summary"] in messages[0]["content"][0]["text"]
    for message, each in zip(rest, messages[1:], strict=True):
        form = message.form()
        for key in ("content", "toolCallId", "toolName", "usage", "stopReason", "model"):
            assert form.get(key) == each.get(key), key
    info = space.conversation(report.conversation).info
    assert (info.title, info.cwd) == (asked["name"], "/home/mira/kiln")
    assert not list(space.verify())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_comes_back_as_it_was(space: Space, version: str) -> None:
    path = DATA / f"pi-{version}.jsonl"
    report = import_file(space, path)
    assert exported(space, report) == parsed(path.read_bytes())
    assert report.aside == 4
    assert [each.kind for each in report.findings] == ["loneSurrogate"]


@pytest.mark.parametrize("version", VERSIONS)
def test_two_machines_write_the_same(open_space: OpenSpace, version: str) -> None:
    one, two = open_space("a"), open_space("b")
    path = DATA / f"pi-{version}.jsonl"
    first = import_file(one, path)
    assert (first.created, first.written) == (first.messages, first.messages + 3)
    again = import_file(one, path)
    assert (again.written, again.unchanged) == (0, first.messages)
    import_file(two, path)
    assert one.repo.set_hash().digest() == two.repo.set_hash().digest()


@settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
@given(made=writers(16), stops=st.lists(st.integers(1, 17), max_size=3))
def test_a_file_that_grows(open_space: OpenSpace, made: Writer, stops: list[int]) -> None:
    """Whenever it was read before, the records are those of reading it once; and what is
    written back is the file."""
    grown, once = open_space("a"), open_space("b")
    made.id = f"{made.id}-{grown.repo.rev()}"  # the spaces serve all examples
    made.rows[0]["id"] = made.id
    for stop in sorted(stops):
        import_session(grown, session(made.rows[:stop]))
    report = import_session(grown, session(made.rows))
    import_session(once, session(made.rows))
    assert grown.repo.set_hash().digest() == once.repo.set_hash().digest()
    given = [id_ for id_, role, _ in context(made.rows)]
    found = space_ids(grown, report)
    assert found == given
    assert exported(grown, report) == made.rows


def space_ids(space: Space, report: Report) -> list[str]:
    """The window with what no model can be given: pi leaves that to providers."""
    uri = space.conversation(report.conversation).uri
    return [entry(message)["id"] for message in space.active(uri)]


def test_a_branch_left_and_taken_up_again(space: Space) -> None:
    made = Writer()
    fork = made.user("one")
    back = made.says("left")
    import_session(space, made.session())
    made.leaf = fork
    made.says("right")
    report = import_session(space, made.session())
    assert (report.created, report.updated, report.aside) == (1, 1, 1)
    made.leaf = back
    made.user("again")
    report = import_session(space, made.session())
    assert ids(space, report) == [fork, back, made.leaf]
    said = space.search("right")
    assert [hit.message.status for hit in said.hits] == ["compacted"]


def test_compactions_are_summaries(space: Space) -> None:
    made = Writer()
    made.user("one")
    kept = made.says("two")
    made.compact("what was said", kept)
    report = import_session(space, made.session())
    summary, tail = window(space, report)
    (covered,) = summary.compacted_message_ids or []
    first = space.conversation(report.conversation).message(covered)
    assert (first.status, first.seq, first.updated_at) == ("compacted", 1, at(3))
    assert (summary.seq, tail.seq, tail.updated_at) == (3, 4, at(3))
    assert entry(summary)["tokensBefore"] == 9


def test_all_of_an_entry_is_kept(space: Space) -> None:
    made = Writer()
    details = {
        "z": 1,
        "a": [1.50, 2**60, {"": "x", "$type": "y"}],
        "half": "\ud83d",
        "bom": "\ufeff",
    }
    made.message("toolResult", [text("ok")], toolCallId="c", toolName="t", details=details, new={})
    made.add("custom", customType="plan", data=details)
    made.add("from_the_future", more=details)
    made.rows[1]["extra"] = {"b": 1, "a": 2}
    data = lines(made.rows).replace(b"1.5", b"1.50")
    report = read(data, space)
    written = b"".join(session_lines(space, report.conversation))
    assert parsed(written) == parsed(data)
    assert b"1.50" in written


def test_large_parts_and_pictures_are_sealed(space: Space) -> None:
    made = Writer()
    picture = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
    made.message("user", [picture])
    made.message("user", [text("x" * 300_000)])
    made.add("message", message={"role": "user", "content": "y", "": "a key that records have not"})
    report = import_session(space, made.session())
    assert exported(space, report) == made.rows
    stored = space.conversation(report.conversation).window().messages[0]
    assert stored.data["entry"]["message"]["content"][0]["data"]["size"] == 8
    assert [form.form()["content"] for form in window(space, report)][2] == "y"
    assert space.search("xxx").total == 1
    assert not list(space.verify())


def test_damage_hides_nothing_else(space: Space) -> None:
    made = Writer()
    made.user("one")
    made.user("two\u2028 with a line's end in it")
    made.user("three")
    made.user("four")
    rows = made.lines().splitlines(keepends=True)
    assert len(rows) == 5  # U+2028 is no line's end in bytes
    rows[3] = rows[3][:40] + b"\n"
    data = b"\xef\xbb\xbf" + b"".join(rows) + b'\n[1]\nnull\n{"type":"message","id":"f'
    report = read(data, space)
    assert [(each.kind, each.row) for each in report.findings] == [
        ("unreadableRow", 4),
        ("unreadableRow", 7),
        ("unreadableRow", 8),
        ("tornRow", 9),
        ("missingParent", 5),
    ]
    assert report.incomplete
    info = space.conversation(report.conversation).info
    assert info.incomplete
    assert len(info.damage) == 5
    # What stood before the lost row is not on the way to the leaf any more, as pi has it.
    assert ids(space, report) == [made.leaf]
    assert space.search("line's end").total == 1
    mended = read(made.lines(), space)
    assert (mended.created, mended.incomplete) == (1, False)
    assert [message.seq for message in window(space, mended)] == [1, 2, 3, 4]


def test_a_row_glued_to_what_a_crash_left(space: Space) -> None:
    made = Writer()
    made.user("one")
    made.says("two")
    header, one, two = made.lines().splitlines(keepends=True)
    report = read(header + one + b'{"type":"message","id":"half' + two, space)
    assert ids(space, report) == [made.rows[1]["id"], made.rows[2]["id"]]
    assert [each.kind for each in report.findings] == ["unreadableRow"]


def test_messages_without_times_or_names(space: Space) -> None:
    made = Writer()
    made.user("one")
    made.user("two")
    for row in made.rows[1:]:
        del row["timestamp"], row["message"]["timestamp"]
    del made.rows[1]["id"]
    made.rows[2]["parentId"] = None
    report = import_session(space, made.session())
    kinds = sorted(each.kind for each in report.findings)
    assert kinds == ["noId", "noTime", "noTime"]
    assert {message.created_at for message in window(space, report)} == {at(0)}


def test_equal_messages_of_one_moment_are_two(space: Space) -> None:
    made = Writer()
    made.user("one")
    made.user("one")
    for row in made.rows[1:]:
        row["timestamp"] = at(1)
    report = import_session(space, made.session())
    assert len({message.rkey for message in window(space, report)}) == 2


def test_keys_do_not_hang_on_the_ids_of_entries(space: Space) -> None:
    """pi gives them to entries of old sessions by chance, when it first opens those."""
    made = Writer(version=1)
    made.user("one")
    made.says("two")
    old = json.loads(json.dumps(made.rows))
    for row in old[1:]:
        del row["id"], row["parentId"]
    first = import_session(space, session(old))
    made.rows[0]["version"] = 3
    second = import_session(space, session(made.rows))
    assert (first.created, second.created, second.updated) == (2, 0, 2)


def test_an_older_copy_takes_nothing_away(space: Space) -> None:
    made = Writer()
    made.user("one")
    made.says("two")
    made.user("three")
    import_session(space, made.session())
    before = space.repo.set_hash().digest()
    report = import_session(space, session(made.rows[:3]))
    assert [each.kind for each in report.findings] == ["olderCopy"]
    assert (report.written, space.repo.set_hash().digest()) == (0, before)


def test_where_both_went_on_nothing_is_stored(space: Space) -> None:
    made = Writer()
    made.user("one")
    report = import_session(space, made.session())
    talk = space.conversation(report.conversation)
    talk.append({"role": "user", "content": [text("in the space")]})
    import_session(space, made.session())  # the file has nothing new
    before = space.repo.set_hash().digest()
    made.says("in the file")
    with pytest.raises(Conflict, match="went on separately"):
        import_session(space, made.session())
    assert space.repo.set_hash().digest() == before


def test_new_messages_of_a_copy_that_lacks_some(space: Space) -> None:
    made = Writer()
    made.user("one")
    kept = made.says("two")
    made.compact("sum", kept)
    import_session(space, made.session())
    rest = [row for row in made.rows if row["id"] != made.rows[1]["id"]]
    rest.append({**made.rows[2], "id": "later", "parentId": made.leaf, "timestamp": at(50)})
    report = import_session(space, session(rest))
    assert (report.created, report.updated) == (1, 0)
    assert ids(space, report)[-1] == "later"
    assert not list(space.verify())


def test_another_conversation_is_never_taken_for_it(space: Space) -> None:
    made = Writer()
    made.user("one")
    first = import_session(space, made.session())
    state = space.repo.get("xyz.quasigod.lab.letta.conversationState", first.conversation)
    assert state is not None
    value = {key: each for key, each in state.value.items() if key != "state"}
    space.repo.apply_writes([Update(state.collection, state.rkey, value)])
    second = import_session(space, made.session())
    assert second.conversation != first.conversation
    assert second.created == 1


def test_titles(space: Space) -> None:
    made = Writer()
    made.user("one")
    made.add("session_info", name="Kiln")
    report = import_session(space, made.session())
    assert space.conversation(report.conversation).info.title == "Kiln"
    made.add("session_info", name=" ")
    import_session(space, made.session())
    assert space.conversation(report.conversation).info.title is None


def test_authentication_in_what_a_provider_answered_is_not_stored(space: Space) -> None:
    made = Writer()
    made.says("one")
    diagnostic = {"requestHeaders": {"authorization": "Bearer sk-planted", "accept": "*/*"}}
    made.rows[1]["message"]["diagnostics"] = [diagnostic]
    report = import_session(space, made.session())
    kept = entry(window(space, report)[0])["message"]["diagnostics"]
    assert kept == [{"requestHeaders": {"authorization": "[not stored]", "accept": "*/*"}}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"{}\n",
        b'{"type":"session"}\n',
        b'{"type":"session","id":""}\n',
        b'{"type":"message","id":"a","message":{"role":"user"}}\n',
        b"\x00\xff\n",
    ],
)
def test_what_is_no_session(space: Space, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match="is no session"):
        import_file(space, path)
    assert space.repo.rev() is None


def test_what_cannot_be_read(space: Space, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing", Path("a\0b")):
        with pytest.raises(StoreUnavailable, match="cannot read"):
            import_file(space, path)


def test_an_empty_session(space: Space) -> None:
    report = import_session(space, Writer().session())
    assert (report.messages, window(space, report)) == (0, [])
    assert exported(space, report) == Writer().rows


def test_nothing_is_stored_of_a_file_that_cannot_be_stored_whole(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lettaspace.pi import build

    made = Writer()
    for number in range(450):
        made.user(f"said {number}")
    whole = build.Built.message
    asked: list[int] = []

    def breaks(self: build.Built, place: int, blobs: build.Blobs) -> Any:
        asked.append(place)
        value = whole(self, place, blobs)
        return value if place < 440 else {**value, "seq": 0}  # which no lexicon allows

    monkeypatch.setattr(build.Built, "message", breaks)
    with pytest.raises(Exception, match="seq"):
        import_session(space, made.session())
    assert len(asked) == 450
    assert space.repo.rev() is None
    monkeypatch.undo()
    assert import_session(space, made.session()).created == 450
