"""From the space into Letta's directory."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation import jsontext
from lettaspace.conversation.records import COMPILED_PROMPT
from lettaspace.conversation.space import Space
from lettaspace.errors import NotFound
from lettaspace.letta.directory import encode_name
from lettaspace.letta.doubt import Rest
from lettaspace.letta.importer import import_directory
from lettaspace.letta.pins import PROJECT_SETTINGS, SETTINGS, pin
from lettaspace.letta.restoring import RestoreReport, restore
from lettaspace.space.writes import Update
from tests.letta.build import (
    AGENT,
    KEY,
    Store,
    at,
    b1,
    call,
    compaction,
    jsonl,
    message,
    prompt,
    result,
    row,
    rows,
    text,
)
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import digest, only, records, transcript, window, window_ids
from tests.letta.sides import AT_ONCE, append, read, read_rows

Json = dict[str, Any]


def outcomes(report: RestoreReport) -> list[str]:
    return [str(each.outcome) for each in report.conversations]


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


def test_named_ones_and_those_that_are_hidden(space: Space, store: Store, tmp_path: Path) -> None:
    fill(store)
    store.agent("agent-sub", hidden=True, tags=["role:subagent"])
    inner = [message(1, "user", "inner", agent="agent-sub")]
    store.conversation(rows(inner), key="default:agent-sub", agent="agent-sub", created=at(30))
    import_directory(space, store.path)
    assert outcomes(restore(space, tmp_path / "all", rest=AT_ONCE)) == ["new", "new"]
    report = restore(space, tmp_path / "sub", agents=["agent-sub"])
    assert [each.key for each in report.conversations] == ["default:agent-sub"]
    report = restore(space, tmp_path / "one", conversations=["local-conv-1"])
    assert [each.key for each in report.conversations] == [KEY]
    assert [each.name for each in report.agents] == [AGENT]
    with pytest.raises(NotFound):
        restore(space, tmp_path / "none", agents=["agent-none"])


def test_ids_are_never_paths(space: Space, tmp_path: Path) -> None:
    (tmp_path / "letta").mkdir()
    store = Store(tmp_path / "letta" / "in")
    for number, name in enumerate(("../up", "..", "/tmp/x", "a\\b", "x" * 500)):
        try:
            store.agent(name)
        except OSError:
            continue  # no name of a file is that long
        made = [message(1, "user", "hi", agent=name, conversation=name)]
        created = at(10 * number)
        store.conversation(
            rows(made), key=f"conversation:{name}", agent=name, id=name, created=created
        )
    # A conversation may be called whatever it likes.
    store.agent()
    store.conversation(rows(b1()), key="conversation:../../etc", created=at(90))
    import_directory(space, store.path)
    before = sorted(path for path in tmp_path.iterdir())
    report = restore(space, tmp_path / "letta" / "out", rest=AT_ONCE)
    assert [str(each.outcome) for each in report.agents if each.name != AGENT] == ["left"] * 4
    assert sorted(path for path in tmp_path.iterdir()) == before
    names = [path.name for path in (tmp_path / "letta" / "out" / "conversations").iterdir()]
    assert names == [encode_name("conversation:../../etc")]
    long = space.create_conversation(space.address.agent(AGENT), title="long")
    long.append({"role": "user", "content": [text("hi")]})
    report = restore(space, tmp_path / "letta" / "out", conversations=[long.rkey])
    assert [each.key for each in report.conversations] == [f"conversation:{long.rkey}"]


def test_o49_what_was_restored_is_kept_for_each(space: Space, store: Store, tmp_path: Path) -> None:
    store.agent()
    for number in (1, 2, 3):
        store.conversation(rows(b1()), key=f"conversation:local-conv-{number}", created=at(-number))
    source = digest(store.path)
    import_directory(space, store.path)
    out = tmp_path / "out"
    restore(space, out, conversations=["local-conv-2"], rest=AT_ONCE)
    report = restore(space, out, rest=AT_ONCE)
    assert sorted(outcomes(report)) == ["new", "new", "unchanged"]
    assert digest(store.path) == source


def test_o50_rows_of_an_older_kind(space: Space, store: Store, tmp_path: Path) -> None:
    legacy = {
        "id": "ui-msg-0",
        "role": "user",
        "parts": [text("old")],
        "metadata": {"created_at": at(-1)},
    }
    made: list[Json] = rows(b1())
    store.agent()
    store.conversation([made[0], legacy, *made[1:]])
    import_directory(space, store.path)
    before = records(space)
    assert len(transcript(space)) == 5
    restore(space, tmp_path / "out", rest=AT_ONCE)
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert import_directory(space, tmp_path / "copy").messages.written == 0
    assert records(space).keys() == before.keys()
    assert legacy in read_rows(tmp_path / "out")


def test_rows_that_letta_migrates_itself(space: Space, store: Store) -> None:
    store.agent()
    manifest = {"schema_version": 1, "message_format": "pi-ai-message-jsonl"}
    store.conversation(jsonl(b1()), [each["id"] for each in b1()], manifest=manifest)
    import_directory(space, store.path)
    space.conversation(only(space)).append({"role": "user", "content": [text("more")]})
    before = digest(store.path)
    report = restore(space, store.path, rest=AT_ONCE)
    assert outcomes(report) == ["left"]
    assert digest(store.path) == before


def test_half_of_a_row_is_kept_aside(space: Space, store: Store) -> None:
    store.agent()
    made = rows(b1())
    path = store.conversation(made) / "messages.jsonl"
    import_directory(space, store.path)
    whole = path.read_bytes()
    torn = b'{"type":"message","id":"0a0b0c0d","mess'
    path.write_bytes(whole + torn)
    space.conversation(only(space)).append({"role": "user", "content": [text("more")]})
    report = restore(space, store.path, rest=AT_ONCE)
    (brought,) = report.conversations
    assert (str(brought.outcome), brought.rows) == ("changed", 1)
    assert brought.aside is not None
    assert brought.aside.read_bytes() == torn
    assert brought.aside.is_relative_to(space.home)
    assert path.read_bytes().startswith(whole)
    assert len(read_rows(store.path)) == 6
    assert window_ids(space)[:4] == ["ui-msg-1", "ui-msg-2", "ui-msg-3", "ui-msg-4"]


def test_a_row_that_only_lacks_its_end(space: Space, store: Store) -> None:
    store.agent()
    path = store.conversation(rows(b1())) / "messages.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    import_directory(space, store.path)
    before = path.read_bytes()
    space.conversation(only(space)).append({"role": "user", "content": [text("more")]})
    (brought,) = restore(space, store.path, rest=AT_ONCE).conversations
    assert (str(brought.outcome), brought.aside) == ("changed", None)
    assert path.read_bytes().startswith(before + b"\n")
    assert len(read_rows(store.path)) == 6


TOOL = [
    message(5, "user", "again"),
    message(6, "assistant", [call("call_B1", "ls", {})], stopReason="toolUse"),
]


def test_letta_is_at_work(space: Space, store: Store) -> None:
    store.agent()
    store.conversation(rows([*b1(), *TOOL]))
    import_directory(space, store.path)
    talk = space.conversation(only(space))
    talk.append({"role": "user", "content": [text("by the library")]})
    before = digest(store.path)
    # A tool is running, for all one knows.
    report = restore(space, store.path, rest=Rest(0.0, 3600.0))
    assert outcomes(report) == ["busy"]
    assert digest(store.path) == before
    assert outcomes(restore(space, store.path, rest=AT_ONCE)) == ["changed"]


def test_nothing_is_written_where_both_went_on(space: Space, store: Store) -> None:
    store.agent()
    store.conversation(rows(b1()))
    import_directory(space, store.path)
    append(store.path, [row(message(5, "user", "here"), "aaaaaaa5", "e4")])
    before = digest(store.path)
    assert outcomes(restore(space, store.path, rest=AT_ONCE)) == ["ahead"]
    space.conversation(only(space)).append({"role": "user", "content": [text("there")]})
    assert outcomes(restore(space, store.path, rest=AT_ONCE)) == ["diverged"]
    assert digest(store.path) == before


def test_an_empty_default_conversation_gives_way(
    space: Space, store: Store, tmp_path: Path
) -> None:
    store.agent()
    store.conversation(rows(b1()), key=f"default:{AGENT}")
    import_directory(space, store.path)
    # Letta was started there before, and made one of its own.
    other = Store(tmp_path / "out")
    other.agent()
    other.conversation(b"", key=f"default:{AGENT}", created=at(500))
    (other.directory(f"default:{AGENT}") / "messages.jsonl").unlink()
    report = restore(space, other.path, rest=AT_ONCE)
    assert [each.key for each in report.conversations] == [f"default:{AGENT}"]
    assert len(read(other.path, f"default:{AGENT}")["in_context_message_ids"]) == 4
    assert import_directory(space, other.path).written == 0
    # One with messages stays, and the other gets another name.
    third = Store(tmp_path / "third")
    third.agent()
    third.conversation(rows(b1()[:1]), key=f"default:{AGENT}", created=at(600))
    report = restore(space, third.path, rest=AT_ONCE)
    assert [each.key for each in report.conversations] == ["conversation:default~m2"]


def test_o33_the_working_directory_is_gone(space: Space, store: Store, tmp_path: Path) -> None:
    store.agent()
    store.conversation(rows(b1(), cwd="/home-of-a/otter"))
    import_directory(space, store.path)
    names = [info.rkey for info in space.conversations()]
    report = restore(space, tmp_path / "out", conversations=names, rest=AT_ONCE)
    assert outcomes(report) == ["new"]
    assert read_rows(tmp_path / "out")[0]["cwd"] == "/home-of-a/otter"
    append(tmp_path / "out", [row(message(5, "user", "here"), "aaaaaaa5", None)])
    import_directory(space, tmp_path / "out")
    (info,) = space.conversations()
    assert info.cwd == "/home-of-a/otter"


def test_o42_intermediate_steps_and_roles(space: Space, store: Store, tmp_path: Path) -> None:
    made = [
        message(1, "user", "go"),
        message(2, "assistant", [text("one"), call("c1", "ls", {})], stopReason="toolUse"),
        result(3, "c1", "r1"),
        message(4, "assistant", [text("two"), call("c2", "ls", {})], stopReason="toolUse"),
        result(5, "c2", "r2"),
        message(6, "assistant", "three"),
    ]
    store.agent()
    store.conversation(rows(made))
    import_directory(space, store.path)
    restore(space, tmp_path / "out", rest=AT_ONCE)
    assert [each["message"] for each in read_rows(tmp_path / "out")[1:]] == made
    append(tmp_path / "out", [row(message(7, "user", "on"), "aaaaaaa7", None)])
    import_directory(space, tmp_path / "out")
    assert [m.role for m in window(space)] == [*(each["role"] for each in made), "user"]


def test_o43_signed_thinking_parts(space: Space, store: Store, tmp_path: Path) -> None:
    parts: list[Json] = [
        {"type": "thinking", "thinking": " t ", "thinkingSignature": "s=="},
        {"type": "thinking", "thinking": "", "thinkingSignature": "s2"},
        {"type": "thinking", "thinking": "none"},
        {"type": "thinking", "thinking": "x", "extra": {"b": 1, "a": [1.0]}},
    ]
    store.agent()
    store.conversation(rows([message(1, "user", "?"), message(2, "assistant", parts)]))
    import_directory(space, store.path)
    restore(space, tmp_path / "out", rest=AT_ONCE)
    line = (tmp_path / "out" / "conversations" / encode_name(KEY) / "messages.jsonl").read_text()
    assert read_rows(tmp_path / "out")[2]["message"]["content"] == parts
    assert '"extra":{"b":1,"a":[1.0]}' in line


def test_o61_nothing_is_taken_away(space: Space, store: Store, tmp_path: Path) -> None:
    fill(store)
    for path in store.path.rglob("*"):
        if path.is_file():
            os.utime(path, (1_000_000_000, 1_000_000_000))
    import_directory(space, store.path)
    before = records(space)
    restore(space, tmp_path / "out", rest=AT_ONCE)
    restore(space, store.path, rest=AT_ONCE)
    assert records(space) == before
    for info in space.conversations():
        assert len(list(space.transcript(info.uri))) == info.messages
    assert {path.name for path in (tmp_path / "out" / "conversations").iterdir()} == {
        path.name for path in (store.path / "conversations").iterdir()
    }


def test_pins_are_all_that_is_touched(tmp_path: Path) -> None:
    path = tmp_path / SETTINGS
    assert pin(path, tmp_path / "store", AGENT, "local-conv-1")
    assert not pin(path, tmp_path / "store", AGENT, "local-conv-1")
    value = jsontext.loads(path.read_bytes())
    server = f"local:{tmp_path / 'store'}"
    assert value["sessionsByServer"] == {
        server: {"agentId": AGENT, "conversationId": "local-conv-1"}
    }
    path = tmp_path / PROJECT_SETTINGS
    path.write_text('{"env": {"KEY": "x"}, "sessionsByServer": {"local:/a": {"agentId": "b"}}}')
    path.chmod(0o640)
    assert pin(path, tmp_path / "store", AGENT, "default")
    value = jsontext.loads(path.read_bytes())
    assert value["env"] == {"KEY": "x"}
    assert value["sessionsByServer"].keys() == {"local:/a", server}
    assert value["lastSession"] == value["sessionsByServer"][server]
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "settings.json",
        "settings.local.json",
    ]


SECRET = "NEVER-LEAVES-THIS-MACHINE"

PLANTED = (
    "providers/lmstudio.json",
    "secrets/agent-otter.json",
    "agents/notes.txt",
    "memfs/agent-otter/memory/.git/hooks/post-commit",
    "memfs/agent-otter/memory/.git/config",
    "../settings.json",
    "../settings.local.json",
    "../mcp/auth.json",
    "../channels/telegram/auth.json",
)


def test_what_never_leaves_the_machine(open_space: OpenSpace, tmp_path: Path) -> None:
    a = open_space("a")
    store = Store(tmp_path / "home-a" / ".letta" / "lc-local-backend")
    fill(store)
    settings = {
        "env": {"TOKEN": SECRET},
        "refreshToken": SECRET,
        "deviceId": SECRET,
        "letta.memoryRepository.url": f"https://x:{SECRET}@h.example/r.git",
    }
    for name in PLANTED:
        path = store.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(jsontext.dumps(settings))
    import_directory(a, store.path)
    restore(a, store.path, rest=AT_ONCE)
    restore(a, tmp_path / "home-b" / "storage", rest=AT_ONCE)
    a.close()
    looked = 0
    for root in (a.home, tmp_path / "home-b"):
        for path in root.rglob("*"):
            if path.is_file():
                looked += 1
                assert SECRET.encode() not in path.read_bytes(), path
    assert looked > 5
    for name in PLANTED:
        assert SECRET in (store.path / name).read_text()


def test_o60_a_prompt_is_as_fresh_as_it_was(space: Space, store: Store, tmp_path: Path) -> None:
    template = "You are Otter.\n\n{CORE_MEMORY}"
    fresh = prompt(rawSystemHash=hashlib.sha256(template.encode()).hexdigest())
    store.agent(system=template)
    store.conversation(rows(b1()), prompt=fresh)
    # One that no record can hold.
    large = prompt(content="x" * 300_000, extra={"kept": 1.5})
    key = "conversation:local-conv-2"
    store.conversation(rows(b1()), prompt=large, key=key, created=at(-9))
    import_directory(space, store.path)
    out = tmp_path / "out"
    restore(space, out, rest=AT_ONCE)
    assert read(out, name="system-prompt.json") == fresh
    assert read(out, key, "system-prompt.json") == large
    agent = jsontext.loads((out / "agents" / f"{encode_name(AGENT)}.json").read_bytes())
    digest_ = hashlib.sha256(agent["system"].encode()).hexdigest()
    assert digest_ == read(out, name="system-prompt.json")["rawSystemHash"]
    # A newer one takes its place, and nothing else is written.
    conversation = digest(out / "conversations" / encode_name(key))
    record = space.repo.get(COMPILED_PROMPT, space.conversation("local-conv-1").rkey)
    assert record is not None
    newer = {**record.value, "compiledAt": at(99), "content": "newer"}
    space.repo.apply_writes([Update(COMPILED_PROMPT, record.rkey, newer)])
    restore(space, out, rest=AT_ONCE)
    assert read(out, name="system-prompt.json")["content"] == "newer"
    assert digest(out / "conversations" / encode_name(key)) == conversation
