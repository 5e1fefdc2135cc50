"""What is shown of conversations and records, to people and to programs."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from lettaspace.space.writes import Update
from tests.cli.conftest import Cli, process
from tests.conversation.memories import commit, init
from tests.letta.build import AGENT, Store, at, b1, call, jsonl, message, prompt, result, rows, text

LONG = "clay " * 60_000
HOSTILE = "\x1b]52;c;aGk=\x07 \x1b[2J \x9b1m \u202etxt.exe"
MIXED = "שלום hello עולם"

MESSAGE_KEYS = ["rkey", "uri", "cid", "seq", "role", "status", "createdAt"]
CONVERSATION_KEYS = [
    "rkey", "uri", "agent", "title", "createdAt", "updatedAt", "messages", "active", "letta",
]  # fmt: skip


def _bring_in(home: Path, tmp_path: Path, messages: Any, **more: Any) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(messages, prompt=prompt(), **more)
    with Space.open(home) as space:
        import_directory(space, store.path)


def test_the_shape_of_conversations(demo: Cli) -> None:
    listed = demo("conversations", "--json").json
    assert len(listed) == 4
    for each in listed:
        assert list(each)[:9] == CONVERSATION_KEYS
        assert set(list(each)[9:]) <= {"archived", "hidden", "tags", "cwd", "incomplete", "damage",
                                       "forkedFrom", "unrecorded"}  # fmt: skip
        assert {"id", "key"} <= each["letta"].keys()
    assert [each["updatedAt"] for each in listed] == sorted(
        (each["updatedAt"] for each in listed), reverse=True
    )


def _projects(store: Store, *directories: str | None) -> None:
    """A conversation in each, the last one the most recently used."""
    for number, directory in enumerate(directories, 1):
        name = f"local-conv-{number}"
        made = [message(1, "user", "Jars.", created=at(number), conversation=name)]
        header = directory is not None
        store.conversation(
            rows(made, header=header, cwd=directory or ""),
            key=f"conversation:{name}",
            created=at(number),
        )


def test_o34_one_directory_however_it_is_spelt(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    pear, plum = str(tmp_path / "pear"), str(tmp_path / "plum")
    _projects(store, pear, "C:\\Work\\Pear", plum, None, "c:/Work/Pear", f"{pear}/")
    assert cli("sync", "--letta", store.path).code == 0

    # All conversations are all of them, and so is what is grouped.
    everyone = cli("conversations", "--json").json
    assert len(everyone) == 6
    groups = cli("conversations", "--by-project", "--json").json
    assert [list(each) for each in groups] == [["directory", "conversations"]] * 4
    assert [(each["directory"], len(each["conversations"])) for each in groups] == [
        (f"{pear}/", 2), ("c:/Work/Pear", 2), (plum, 1), (None, 1),
    ]  # fmt: skip
    held = [talk for each in groups for talk in each["conversations"]]
    assert sorted(talk["rkey"] for talk in held) == sorted(talk["rkey"] for talk in everyone)
    assert all(talk in everyone for talk in held)

    out = cli("conversations", "--by-project").out
    assert "c:/Work/Pear: 2 conversations\n" in out
    assert "no directory is known: 1 conversation\n" in out
    assert all(talk["rkey"] in out for talk in everyone)

    for name in ("C:/Work/Pear", "c:\\work\\pear\\"):
        listed = cli("conversations", "--project", name, "--json").json
        assert [talk["cwd"] for talk in listed] == ["c:/Work/Pear", "C:\\Work\\Pear"]
    missing = cli("conversations", "--project", str(tmp_path / "fig"))
    assert (missing.code, missing.out) == (1, "")
    assert "fig" in missing.err


def test_o34_here(cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    _projects(store, str(tmp_path / "pear"), str(tmp_path / "plum"))
    assert cli("sync", "--letta", store.path).code == 0
    (tmp_path / "pear").mkdir()
    monkeypatch.chdir(tmp_path / "pear")
    (talk,) = cli("conversations", "--project", ".", "--by-project", "--json").json
    assert talk["directory"] == str(tmp_path / "pear")


def test_the_shape_of_agents(demo: Cli) -> None:
    kiln, otter = demo("agents", "--json").json
    keys = ["rkey", "uri", "name", "description", "createdAt", "updatedAt"]
    keys += ["conversations", "messages"]
    assert list(kiln)[:8] == list(otter)[:8] == keys
    assert (kiln["name"], kiln["conversations"], kiln["messages"]) == ("Kiln", 2, 17)


def test_the_shape_of_a_transcript(demo: Cli) -> None:
    shown = demo("show", "local-conv-1", "--json").json
    assert list(shown) == ["conversation", "messages"]
    listed = {each["rkey"]: each for each in demo("conversations", "--json").json}
    assert shown["conversation"] == listed[shown["conversation"]["rkey"]]
    assert len(shown["messages"]) == shown["conversation"]["messages"] == 13
    for each in shown["messages"]:
        keys = list(each)
        assert keys[:7] == MESSAGE_KEYS
        assert keys[-1] == "message"
        assert set(keys[7:-1]) <= {"updatedAt", "compactedMessageIds"}
        assert list(each["message"]) == ["format", "version", "data"]
    summary = next(each for each in shown["messages"] if "compactedMessageIds" in each)
    at = shown["messages"].index(summary)
    before = [each["rkey"] for each in shown["messages"][:at]]
    assert summary["compactedMessageIds"] == before
    assert {each["status"] for each in shown["messages"][:at]} == {"compacted"}
    picture = shown["messages"][4]["message"]["data"]["content"][1]
    assert picture["data"].startswith("iVBOR")


def test_the_shape_of_a_window(demo: Cli) -> None:
    shown = demo("show", "local-conv-1", "--window", "--json").json
    assert list(shown) == ["conversation", "messages", "leftOut"]
    assert len(shown["messages"]) == shown["conversation"]["active"] == 7
    assert {each["status"] for each in shown["messages"]} == {"active"}
    assert "compactedMessageIds" in shown["messages"][0]
    assert shown["leftOut"] == []


def test_the_shape_of_a_prompt(demo: Cli, tmp_path: Path) -> None:
    nowhere = ["--letta", tmp_path / "nowhere"]
    shown = demo("prompt", "local-conv-1", "--json", *nowhere).json
    assert list(shown) == [
        "rkey", "uri", "cid", "conversation", "agent", "content", "coreMemory", "rawSystemHash",
        "memfsRevision", "compiledAt",
    ]  # fmt: skip
    assert shown["coreMemory"] in shown["content"]
    people = demo("prompt", "local-conv-1", *nowhere).out
    assert shown["content"] in people
    assert "status" not in people.partition("\n\n")[0]


def test_the_status_of_a_prompt(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    path = init(store.path / "memfs" / AGENT / "memory")
    commit(path, {"MEMORY.md": b"jars"})
    with Space.open(home) as space:
        import_directory(space, store.path)
        talk = space.conversation("local-conv-1")
        talk.compile_prompt(MemoryDirectory(path))
    asked = ["prompt", "local-conv-1", "--letta", store.path]
    status = cli(*asked, "--json").json["status"]
    assert status == {
        "status": "fresh",
        "updated": False,
        "memory": str(path),
        "uncommitted": [],
        "conflicts": [],
    }
    assert "\nstatus    fresh\n" in cli(*asked).out
    commit(path, {"MEMORY.md": b"figs"})
    (path / "a\nb.md").write_bytes(b"x")
    status = cli(*asked, "--json").json["status"]
    assert (status["status"], status["uncommitted"]) == ("memory-changed", ["a\nb.md"])
    assert "\nstatus    memory-changed; 1 file not committed\n" in cli(*asked).out
    shutil.rmtree(path / ".git")
    status = cli(*asked, "--json").json["status"]
    assert status["status"] == "unknown"
    assert "not a git repository" in status["reason"]
    shutil.rmtree(path)
    assert "only the template was compared" in cli(*asked).out


def test_a_prompt_too_large_for_a_record(cli: Cli, home: Path, tmp_path: Path) -> None:
    large = "語" * 66_667
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()), prompt=prompt(content=large, coreMemory="x"))
    with Space.open(home) as space:
        import_directory(space, store.path)
    shown = cli("prompt", "local-conv-1", "--json").json
    assert shown["oversize"] is True
    assert shown["content"] == large
    assert shown["conversation"].endswith(shown["rkey"])


def test_a_conversation_without_a_prompt(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    with Space.open(home) as space:
        import_directory(space, store.path)
    assert cli("prompt", "local-conv-1", "--json").json["error"] == "NotFound"


def test_a_record_as_stored(demo: Cli) -> None:
    uri = demo("show", "local-conv-1", "--json").json["messages"][1]["uri"]
    shown = demo("record", uri, "--json").json
    assert list(shown) == ["uri", "cid", "value", "lexicon"]
    assert shown["lexicon"] == {"id": "xyz.quasigod.lab.letta.message", "valid": True}
    assert shown["value"]["message"]["data"]["usage"]["cost"]["input"] == {
        "$type": "xyz.quasigod.lab.letta.defs#json",
        "json": "4.9e-05",
    }
    people = demo("record", uri).out
    assert "message: valid" in people
    assert shown["cid"] in people


def test_the_transcript_for_people(demo: Cli) -> None:
    shown = demo("show", "local-conv-1").out
    assert shown.index("Which glazes") < shown.index("── compaction: #11 summarises 6 messages ──")
    assert "  → read_file  call_k1\n" in shown
    assert "  ← read_file  call_k1\n" in shown
    assert "[image image/png, 1,334 bytes]" in shown
    assert "thinking: The firing log" in shown
    assert shown.count("[compacted]") == 6
    window = demo("show", "local-conv-1", "--window").out
    assert "Which glazes" not in window
    assert "read_file failed" in demo("show", "local-conv-3").out


def test_o21_nothing_stored_drives_the_terminal(cli: Cli, home: Path, tmp_path: Path) -> None:
    talk = [
        message(1, "user", HOSTILE),
        message(2, "assistant", [text(MIXED), call("call_1", HOSTILE, {HOSTILE: HOSTILE})]),
        result(3, "call_1", HOSTILE) | {"toolName": HOSTILE},
        message(4, "assistant", "done", errorMessage=HOSTILE),
    ]
    _bring_in(home, tmp_path, rows(talk, cwd=HOSTILE), summary=HOSTILE)
    uri = cli("show", "local-conv-1", "--json").json["messages"][0]["uri"]
    for arguments in (
        ["conversations"],
        ["show", "local-conv-1"],
        ["search", "txt.exe"],
        ["record", uri],
        ["verify"],
        ["agents"],
        ["status"],
    ):
        people = cli(*arguments)
        programs = cli(*arguments, "--json")
        assert people.code == programs.code == 0
        for bad in "\x1b\x07\x9b\u202e":
            assert bad not in people.out
        assert programs.out.isascii()
        assert not set(map(ord, programs.out)) & ({*range(32), 127} - {10})
    shown = cli("show", "local-conv-1")
    assert "␛]52;c;aGk=␇ ␛[2J \\x9b1m \\u202etxt.exe" in shown.out
    data = cli("show", "local-conv-1", "--json").json["messages"][0]["message"]["data"]
    assert data["content"][0]["text"] == HOSTILE
    assert cli("conversations", "--json").json[0]["title"] == HOSTILE


def test_o21_right_to_left_text_stays_in_its_field(cli: Cli, home: Path, tmp_path: Path) -> None:
    _bring_in(home, tmp_path, rows([message(1, "user", MIXED)]), summary=MIXED)
    for arguments in (["conversations"], ["show", "local-conv-1"], ["search", "hello"]):
        assert f"\u2068{MIXED}\u2069" in cli(*arguments).out


def test_o20_titles_in_a_table_are_cut_between_characters(
    cli: Cli, home: Path, tmp_path: Path
) -> None:
    title = "a" * 28 + "👩‍🚀" * 30 + " fix the kiln"
    _bring_in(home, tmp_path, rows(b1()), summary=title)
    out = cli("conversations").out
    assert "\ufffd" not in out
    assert "\u200d…" not in out
    assert out.splitlines()[1].endswith("👩‍🚀…")
    assert cli("conversations", "--json").json[0]["title"] == title


def test_o22_numbers_come_back_as_they_were_written(cli: Cli, home: Path, tmp_path: Path) -> None:
    cost = '{"input":0.0123,"output":1.0,"total":1e-7,"x":-0.0}'
    lines = jsonl(rows(b1())).decode()
    lines = lines.replace('"cost":{"input":0,"total":0}', f'"cost":{cost}', 1)
    lines = lines.replace('{"dir":"jars"}', '{"id":9007199254740993,"n":1,"nan":NaN}')
    window = [f"ui-msg-{number}" for number in range(1, 5)]
    store = Store(tmp_path / "letta")
    store.conversation(lines.encode(), window)
    assert "row 3: notANumber" in cli("sync", "--letta", store.path).out
    shown = cli("show", "local-conv-1", "--json")
    for pair in cost.strip("{}").split(","):
        assert pair in shown.out
    assert '{"id":9007199254740993,"n":1,"nan":{"$type":' in shown.out
    assert shown.json  # no bare NaN
    uri = shown.json["messages"][1]["uri"]
    stored = cli("record", uri, "--json").json["value"]
    assert not [each for each in _leaves(stored) if type(each) is float]
    assert max(each for each in _leaves(stored) if type(each) is int) < 2**53


def test_o48_unknown_formats_hide_nothing(cli: Cli, home: Path, tmp_path: Path) -> None:
    _bring_in(home, tmp_path, rows(b1()))
    with Space.open(home) as space:
        uris = [each.uri for each in space.transcript(space.conversation("local-conv-1").uri)]
        second, third = (space.record(uri) for uri in uris[1:3])
        newer = second.value | {"message": second.value["message"] | {"version": 7}}
        other = {"format": "acme.msg", "version": 1, "data": {"b": "secret word", "a": 1}}
        strange = third.value | {"role": "observer", "message": other}
        space.repo.apply_writes(
            [
                Update(second.collection, second.rkey, newer),
                Update(third.collection, third.rkey, strange),
            ]
        )
    shown = cli("show", "local-conv-1", "--json").json
    assert [each["seq"] for each in shown["messages"]] == [1, 2, 3, 4]
    assert [each.get("flags") for each in shown["messages"]] == [
        None, ["unknown-format"], ["unknown-format"], None,
    ]  # fmt: skip
    assert shown["messages"][2]["message"] == other
    assert shown["messages"][2]["role"] == "observer"
    window = cli("show", "local-conv-1", "--window", "--json").json
    assert [each["seq"] for each in window["messages"]] == [1, 4]
    assert [(each["seq"], each["reason"]) for each in window["leftOut"]] == [
        (2, "unknown-format"),
        (3, "unknown-format"),
    ]
    people = cli("show", "local-conv-1").out
    assert "format acme.msg, version 1, shown raw:" in people
    assert "secret word" in people
    assert cli("show", "local-conv-1", "--window").out.count("left out: #") == 2
    assert cli("search", "secret word", "--json").json["total"] == 1


def test_orphan_results_are_flagged(cli: Cli, home: Path, tmp_path: Path) -> None:
    talk = [message(1, "user", "hi"), result(2, "call_ZZ", "stray"), message(3, "assistant", "ok")]
    _bring_in(home, tmp_path, rows(talk))
    assert "[orphan-result]" in cli("show", "local-conv-1").out
    window = cli("show", "local-conv-1", "--window", "--json").json
    assert [each["reason"] for each in window["leftOut"]] == ["orphan-result"]


def test_a_damaged_payload_does_not_hide_the_others(cli: Cli, home: Path, tmp_path: Path) -> None:
    talk = [message(1, "user", "before"), message(2, "user", LONG), message(3, "user", "after")]
    _bring_in(home, tmp_path, rows(talk))
    whole = cli("show", "local-conv-1", "--json").json["messages"][1]
    assert whole["message"]["data"]["content"] == [text(LONG)]
    with sqlite3.connect(home / "space.db") as database:
        database.execute("DELETE FROM blobs")
    database.close()
    for part in ("--transcript", "--window"):
        shown = cli("show", "local-conv-1", part, "--json")
        assert shown.code == 0
        messages = shown.json["messages"]
        assert [each["seq"] for each in messages] == [1, 2, 3]
        assert "no blob" in messages[1]["unreadable"]
        assert "unreadable" not in messages[0]
        people = cli("show", "local-conv-1", part).out
        assert people.index("before") < people.index("[unreadable]") < people.index("after")
    verified = cli("verify")
    assert verified.code == 1
    assert "missing-blob" in verified.out
    assert cli("verify", "--json").code == 1
    assert {"kind", "where", "detail"} == cli("verify", "--json").json[0].keys()


def test_a_damaged_list_of_parts_does_not_hide_the_others(
    cli: Cli, home: Path, tmp_path: Path
) -> None:
    many = [call(f"call_{number}", "ls", {"dir": "jars"}) for number in range(4000)]
    talk = [
        message(1, "user", "before"),
        message(2, "assistant", many),
        message(3, "user", "after"),
    ]
    _bring_in(home, tmp_path, rows(talk))
    with sqlite3.connect(home / "space.db") as database:
        database.execute("DELETE FROM blobs")
    database.close()
    for part in ("--transcript", "--window"):
        shown = cli("show", "local-conv-1", part, "--json")
        assert shown.code == 0
        assert [each["seq"] for each in shown.json["messages"]] == [1, 2, 3]


def test_long_transcripts_are_streamed(
    demo: Cli, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    given: list[int] = []
    written: list[int] = []
    original = Space.transcript

    def transcript(space: Space, conversation: str) -> Any:
        for each in original(space, conversation):
            given.append(len(written))
            yield each

    from lettaspace.cli.output import Output

    write = Output.write

    def noted(out: Output, content: str) -> None:
        written.append(len(content))
        write(out, content)

    monkeypatch.setattr(Space, "transcript", transcript)
    monkeypatch.setattr(Output, "write", noted)
    demo("show", "local-conv-1", "--json")
    assert len(set(given)) == len(given)  # something was written between any two messages


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_encoding_of_the_locale(demo_home: Path, encoding: str) -> None:
    start = ["--home", str(demo_home), "show", "local-conv-2"]
    env = {"PYTHONIOENCODING": encoding}
    people = process(*start, env=env, encoding=encoding)
    assert (people.code, people.err) == (0, "")
    assert ("天目釉" if encoding == "utf-8" else "\\u5929\\u76ee\\u91c9") in people.out
    programs = process(*start, "--json", env=env, encoding=encoding)
    assert programs.out.isascii()
    assert "天目釉" in programs.json["messages"][0]["message"]["data"]["content"][0]["text"]


def _leaves(value: Any) -> Any:
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value
