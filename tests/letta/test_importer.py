"""Importing storage directories: the cases, with invented data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation import jsontext
from lettaspace.conversation.records import AGENT, CONVERSATION_STATE, MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged, NotFound
from lettaspace.letta import importer, rows
from lettaspace.letta.directory import encode_name
from lettaspace.letta.importer import import_directory
from tests.letta.build import (
    AGENT as AGENT_ID,
)
from tests.letta.build import (
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
    session,
    text,
)
from tests.letta.build import (
    rows as make_rows,
)
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import (
    digest,
    findings,
    only,
    records,
    state,
    texts,
    transcript,
    window,
    window_ids,
)

Json = dict[str, Any]


def lines(made: list[Json]) -> list[bytes]:
    return jsonl(made).split(b"\n")[:-1]


IDS = ["ui-msg-1", "ui-msg-2", "ui-msg-3", "ui-msg-4"]


def test_o01_torn_last_row(space: Space, store: Store) -> None:
    whole = lines(make_rows(b1()))
    cut = whole[4][: whole[4].index(b'"role":"assi') + len(b'"role":"assi')]
    store.conversation(b"\n".join([*whole[:4], cut]), IDS)
    before = digest(store.path)
    report = import_directory(space, store.path)
    assert findings(report) == [("tornRow", 5)]
    assert str(len(cut)) in report.conversations[0].damage[0].note
    assert list(report.lines()) == [
        f"conversation:local-conv-1, row 5: tornRow (not JSON, {len(cut)} bytes)"
    ]
    assert texts(window(space)) == ["List the jars.", "Looking.", "plum\nfig"]
    assert len(space.search("plum").hits) == 1
    assert space.conversations()[0].incomplete
    again = import_directory(space, store.path)
    assert again.written == 0
    assert findings(again) == [("tornRow", 5)]
    assert digest(store.path) == before

    cids = records(space)
    (store.directory() / "messages.jsonl").write_bytes(b"\n".join([*whole, b""]))
    report = import_directory(space, store.path)
    assert report.messages.to_json() == {"new": 1, "changed": 0, "unchanged": 3}
    assert cids.items() - records(space).items() == {
        item for item in cids.items() if "conversationState" in item[0]
    }
    assert window_ids(space) == IDS
    assert not space.conversations()[0].incomplete


def test_a_row_glued_to_what_a_crash_left(space: Space, store: Store) -> None:
    data = lines(make_rows(b1()))
    whole = b"\n".join([*data[:3], data[3] + data[4], b""])
    path = store.conversation(whole, IDS) / "messages.jsonl"
    assert findings(import_directory(space, store.path)) == []
    assert window_ids(space) == IDS
    path.write_bytes(b"\n".join([*data[:3], data[3][:99] + data[4], b""]))
    report = import_directory(space, store.path)
    assert findings(report)[0] == ("unreadableRow", 4)
    assert "99 bytes" in report.conversations[0].damage[0].note
    assert report.messages.to_json() == {"new": 0, "changed": 0, "unchanged": 3}


@pytest.mark.parametrize("strict", [False, True])
def test_o02_bad_row_in_the_middle(space: Space, store: Store, strict: bool) -> None:
    made = make_rows([message(n, "user", f"m{n}") for n in range(1, 6)])
    made[3]["parentId"] = "e9"
    data = lines(made)
    data.insert(2, b'{"type":"message","id":"e9","par')
    store.conversation(b"\n".join([*data, b""]), [f"ui-msg-{n}" for n in range(1, 6)])
    if strict:
        with pytest.raises(Damaged, match="row 3: unreadableRow"):
            import_directory(space, store.path, strict=True)
        assert records(space) == {}
        return
    report = import_directory(space, store.path)
    assert findings(report) == [("unreadableRow", 3), ("missingParent", 5)]
    assert texts(window(space)) == ["m1", "m2", "m3", "m4", "m5"]
    assert report.incomplete
    assert state(space)["incomplete"] is True
    assert state(space)["damage"][0]["row"] == 3


def test_o02_damage_takes_nothing_away(space: Space, store: Store) -> None:
    data = lines(make_rows(b1()))
    path = store.conversation(b"\n".join([*data, b""]), IDS) / "messages.jsonl"
    import_directory(space, store.path)
    cids = records(space)
    data[2] = data[2][:30]
    path.write_bytes(b"\n".join([*data, b""]))
    report = import_directory(space, store.path)
    assert findings(report) == [
        ("unreadableRow", 3),
        ("missingParent", 4),
        ("olderCopy", None),
    ]
    assert report.messages.written == 0
    assert window_ids(space) == IDS
    assert {k: v for k, v in records(space).items() if MESSAGE in k} == {
        k: v for k, v in cids.items() if MESSAGE in k
    }


def test_o03_odd_files_hide_nothing(space: Space, store: Store) -> None:
    plain = jsonl(make_rows(b1()))
    store.conversation(plain, IDS)
    other = b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n")
    store.conversation(other, IDS, key="conversation:local-conv-2", created=at(100))
    store.conversation(b"", [], key="conversation:local-conv-3", created=at(200))
    report = import_directory(space, store.path)
    assert not report.incomplete
    uris = {c.letta["id"]: c.uri for c in space.conversations()}
    assert len(uris) == 3
    first, second, third = (uris[f"local-conv-{n}"] for n in (1, 2, 3))
    assert [m.payload() for m in window(space, first)] == [
        m.payload() for m in window(space, second)
    ]
    assert window(space, third) == []
    assert findings(report, 2) == []


def test_o05_result_without_a_call(space: Space, store: Store) -> None:
    store.conversation(
        make_rows(
            [message(1, "user", "hi"), result(2, "call_ZZ", "stray"), message(3, "assistant", "ok")]
        )
    )
    report = import_directory(space, store.path)
    assert report.messages.new == 3
    assert [m.flags for m in transcript(space)] == [(), ("orphan-result",), ()]
    assert texts(space.window(only(space)).messages) == ["hi", "ok"]
    assert [problem.kind for problem in space.verify()] == ["orphan-result"]


def test_o13_large_content_among_normal_messages(space: Space, store: Store) -> None:
    made = [message(n, "user", f"m{n}") for n in range(1, 14)]
    made[6] = result(7, "c", "x" * 1_300_000)
    store.conversation(make_rows(made))
    report = import_directory(space, store.path)
    assert report.messages.new == 13
    found = window(space)
    assert [m.seq for m in found] == list(range(1, 14))
    assert [m.payload() for m in found] == made


def test_o16_lone_surrogate(space: Space, store: Store) -> None:
    made = make_rows([message(1, "user", "tag \\ud83c end"), message(2, "user", "fine 🧪")])
    data = jsonl(made).replace(b"\\\\ud83c", b"\\ud83c")
    store.conversation(data, IDS[:2])
    report = import_directory(space, store.path)
    assert findings(report) == [("loneSurrogate", 2)]
    assert texts(window(space)) == ["tag \ud83c end", "fine 🧪"]
    exported = jsontext.dumps(window(space)[0].payload())
    assert "tag \\ud83c end" in exported
    assert len(space.search("tag").hits) == len(space.search("fine").hits) == 1
    import_directory(space, store.path)
    assert len(state(space)["damage"]) == 1


def test_o18_line_separators(space: Space, store: Store) -> None:
    value = "a\u2028b\u2029c\u0085d \u000b e"
    store.conversation(make_rows([message(1, "user", value)]))
    report = import_directory(space, store.path)
    assert findings(report) == []
    assert texts(window(space)) == [value]


def test_o19_nul_in_a_text(space: Space, store: Store) -> None:
    store.conversation(make_rows([message(1, "user", "hi"), message(2, "user", "a\0b")]))
    import_directory(space, store.path)
    assert texts(window(space))[1] == "a\0b"
    assert len(space.search("a").hits) >= 1


def test_o22_numbers(space: Space, store: Store) -> None:
    made = make_rows(b1())
    data = jsonl(made)
    cost = b'"cost":{"input":0.0123,"output":1.0,"total":1e-7,"x":-0.0}'
    data = data.replace(b'"cost":{"input":0,"total":0}', cost, 1)
    data = data.replace(b'{"dir":"jars"}', b'{"id":9007199254740993,"n":1,"f":NaN}')
    store.conversation(data, IDS)
    report = import_directory(space, store.path)
    assert findings(report) == [("notANumber", 3)]
    payload = jsontext.dumps(window(space)[1].payload())
    for part in ('"input":0.0123', '"output":1.0', '"total":1e-7', '"x":-0.0'):
        assert part in payload
    assert '"id":9007199254740993,"n":1,"f":' in payload
    assert "NaN," not in payload
    assert payload.count("NaN") == 1


@pytest.mark.parametrize("times", [(0.5, 0.9, 0.7, 1.0), (0, 0, 0, 0)])
def test_o28_order_is_not_time(space: Space, store: Store, times: tuple[float, ...]) -> None:
    made = b1()
    for each, seconds in zip(made, times, strict=True):
        each["metadata"]["created_at"] = at(seconds)
    store.conversation(make_rows(made))
    import_directory(space, store.path)
    assert window_ids(space) == IDS
    assert [m.payload()["id"] for m in transcript(space)] == IDS
    assert [m.created_at for m in window(space)] == [at(seconds) for seconds in times]
    assert len({m.rkey for m in window(space)}) == 4


def test_o30_importing_old_history(open_space: OpenSpace, store: Store) -> None:
    store.agent()
    store.conversation(make_rows(b1()), prompt=prompt())
    first, second = open_space("a"), open_space("b")
    import_directory(first, store.path)
    import_directory(second, store.path)
    assert records(first) == records(second)
    assert first.repo.set_hash().state == second.repo.set_hash().state
    assert window(first)[0].created_at.startswith("2024-03-05")
    (store.directory() / "messages.jsonl").touch()
    report = import_directory(first, store.path)
    assert report.written == 0
    assert report.conversations[0].read
    assert report.messages.unchanged == 4


def test_o31_counter_ids_meet(space: Space, store: Store, tmp_path: Path) -> None:
    store.conversation(make_rows(b1()))
    other = Store(tmp_path / "other")
    boats = [message(n, "user", f"boat {n}", created=at(5000 + n)) for n in range(1, 4)]
    other.conversation(make_rows(boats), created=at(4999))
    import_directory(space, store.path)
    import_directory(space, other.path)
    found = {c.created_at: c for c in space.conversations()}
    assert len(found) == 2
    assert {c.letta["id"] for c in found.values()} == {"local-conv-1"}
    assert window_ids(space, found[at(0)].uri) == IDS
    assert texts(window(space, found[at(4999)].uri)) == ["boat 1", "boat 2", "boat 3"]


def test_conversations_of_one_moment(open_space: OpenSpace, store: Store) -> None:
    space = open_space("a")
    for number in (2, 10, 1):
        made = [message(1, "user", f"in {number}")]
        store.conversation(make_rows(made), key=f"conversation:local-conv-{number}")
    import_directory(space, store.path)
    assert len(space.conversations()) == 3
    titles = {c.letta["id"]: texts(window(space, c.uri)) for c in space.conversations()}
    assert titles == {f"local-conv-{n}": [f"in {n}"] for n in (1, 2, 10)}
    other = open_space("b")
    import_directory(other, store.path)
    assert records(other) == records(space)


def test_o33_o34_the_directory_it_worked_in_is_kept(space: Space, store: Store) -> None:
    for number, cwd in enumerate(("/gone/otter", "C:\\Work\\Pear"), 1):
        store.conversation(
            make_rows(b1(), cwd=cwd),
            key=f"conversation:local-conv-{number}",
            created=at(number * 100),
        )
    import_directory(space, store.path)
    assert {c.cwd for c in space.conversations()} == {"/gone/otter", "C:\\Work\\Pear"}
    assert all(len(window(space, c.uri)) == 4 for c in space.conversations())


def test_o42_intermediate_steps(space: Space, store: Store) -> None:
    made = [
        message(1, "user", "go"),
        message(2, "assistant", [text("a"), call("c1", "ls", {})], stopReason="toolUse"),
        result(3, "c1", "one"),
        message(4, "assistant", [text("b"), call("c2", "ls", {})], stopReason="toolUse"),
        result(5, "c2", "two"),
        message(6, "assistant", "done"),
    ]
    store.conversation(make_rows(made))
    import_directory(space, store.path)
    assert [m.role for m in window(space)] == [each["role"] for each in made]
    assert [m.payload() for m in window(space)] == made


def test_o43_signed_thinking(space: Space, store: Store) -> None:
    parts: list[Json] = [
        {"type": "thinking", "thinking": " padded \n", "thinkingSignature": "s=="},
        {"type": "thinking", "thinking": "", "thinkingSignature": "t"},
        {"type": "thinking", "thinking": "bare"},
        {"type": "thinking", "thinking": "x", "extra": {"z": 1, "a": [2.5]}},
    ]
    store.conversation(make_rows([message(1, "assistant", parts)]))
    import_directory(space, store.path)
    (found,) = window(space)
    assert jsontext.dumps(found.payload()["content"][3]["extra"]) == '{"z":1,"a":[2.5]}'
    assert found.payload()["content"] == parts


def test_o48_newer_manifest(space: Space, store: Store) -> None:
    store.conversation(make_rows(b1()), manifest={"schema_version": 9, "message_format": "x"})
    other = "conversation:local-conv-2"
    store.conversation(make_rows(b1()), key=other, created=at(100))
    before = digest(store.path)
    report = import_directory(space, store.path)
    assert findings(report) == [("unknownManifest", None)]
    assert "9" in report.conversations[0].damage[0].note
    assert [c.messages for c in sorted(space.conversations(), key=lambda c: c.created_at)] == [0, 4]
    assert digest(store.path) == before


def test_o49_an_interrupted_import_goes_on(
    space: Space, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        key = f"conversation:local-conv-{number}"
        store.conversation(make_rows(b1()), key=key, created=at(100 * number))
    before = digest(store.path)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_directory(space, store.path, progress=interrupt)
    assert len(space.conversations()) == 1
    report = import_directory(space, store.path)
    assert [each.read for each in report.conversations] == [False, True, True]
    assert [each.outcome for each in report.conversations] == ["unchanged", "new", "new"]
    assert len(space.conversations()) == 3
    assert digest(store.path) == before


def test_o49_stopped_within_a_conversation(
    open_space: OpenSpace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = open_space("a")
    store.conversation(make_rows(message(n, "user", f"m{n}") for n in range(1, 451)))
    apply = space.repo.apply_writes
    calls = 0

    def fail(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return apply(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(space.repo, "apply_writes", fail)
        with pytest.raises(KeyboardInterrupt):
            import_directory(space, store.path)
    assert 0 < space.conversations()[0].messages < 450
    report = import_directory(space, store.path)
    assert report.messages.new + report.messages.unchanged == 450
    other = open_space("b")
    import_directory(other, store.path)
    assert records(other) == records(space)


def test_o50_rows_of_another_generation(space: Space, store: Store) -> None:
    legacy = {"id": "old-1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
    made = [session(), legacy, *make_rows(b1()[:2], header=False)]
    store.conversation(made, ["old-1", "ui-msg-1", "ui-msg-2"])
    before = digest(store.path)
    report = import_directory(space, store.path)
    assert report.messages.new == 3
    assert ("legacyRow", 2) in findings(report)
    found = transcript(space)
    assert [m.format for m in found] == [
        "letta.legacyMessage",
        "letta.localMessage",
        "letta.localMessage",
    ]
    assert found[0].payload() == legacy
    assert digest(store.path) == before


def test_o50_manifest_of_version_one(space: Space, store: Store) -> None:
    manifest = {"schema_version": 1, "message_format": "pi-ai-message-jsonl", "created_at": at(0)}
    store.conversation(b1(), IDS, manifest=manifest)
    report = import_directory(space, store.path)
    assert findings(report) == []
    assert [m.payload() for m in window(space)] == b1()


def test_o61_nothing_is_deleted(space: Space, store: Store) -> None:
    store.conversation(make_rows(b1()))
    import_directory(space, store.path)
    before = records(space)
    path = store.directory()
    (path / "messages.jsonl").unlink()
    report = import_directory(space, store.path)
    assert findings(report) == [("olderCopy", None)]
    assert records(space) == before
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    import_directory(space, store.path)
    assert records(space) == before


def test_o62_one_side_is_a_prefix(space: Space, store: Store) -> None:
    made = make_rows(message(n, "user", f"m{n}") for n in range(1, 255))
    store.conversation(made[:252])
    import_directory(space, store.path)
    before = records(space)
    # A copy that is shorter, then equal with newer times, then longer.
    store.conversation(made[:42])
    report = import_directory(space, store.path)
    assert report.written == 0
    assert report.messages.unchanged == 41
    store.conversation(made[:252])
    assert import_directory(space, store.path).written == 0
    assert records(space) == before
    store.conversation(made)
    report = import_directory(space, store.path)
    assert report.messages.new == 3
    assert report.messages.changed == 0


def test_both_sides_went_on(space: Space, store: Store) -> None:
    made = make_rows(b1())
    store.conversation(make_rows([*b1(), message(5, "user", "theirs")]))
    import_directory(space, store.path)
    before = records(space)
    store.conversation([*made, row(message(5, "user", "ours", created=at(99)), "f5", "e4")])
    report = import_directory(space, store.path)
    assert report.conversations[0].outcome == "diverged"
    assert ("diverged", None) in findings(report)
    after = records(space)
    assert {key for key in before | after if before.get(key) != after.get(key)} == {
        f"{CONVERSATION_STATE}/{report.conversations[0].conversation}"
    }


def test_a_file_rewritten_with_the_window_only_goes_on(space: Space, store: Store) -> None:
    made = make_rows(b1())
    made.append(compaction(message(5, "user", "S"), "e5", "e4", "e3", 4, 3))
    kept = ["ui-msg-5", "ui-msg-3", "ui-msg-4"]
    store.conversation(made, kept)
    import_directory(space, store.path)
    old = records(space)
    # Letta wrote the file anew: other row ids, the window only, the summary a plain message.
    short = [message(5, "user", "S"), *b1()[2:], message(6, "user", "next")]
    short[0] = made[-1]["message"]
    store.conversation(make_rows(short), [*kept, "ui-msg-6"])
    report = import_directory(space, store.path)
    assert report.messages.new == 1
    assert window_ids(space) == [*kept, "ui-msg-6"]
    assert len(transcript(space)) == 6
    assert old.items() <= records(space).items()


def test_compaction(space: Space, store: Store) -> None:
    made = make_rows(b1())
    made.append(compaction(message(5, "user", "S"), "e5", "e4", "e3", 4, 3))
    store.conversation(made, ["ui-msg-5", "ui-msg-3", "ui-msg-4"])
    import_directory(space, store.path)
    assert [(m.payload()["id"], m.seq) for m in window(space)] == [
        ("ui-msg-5", 5),
        ("ui-msg-3", 6),
        ("ui-msg-4", 7),
    ]
    found = transcript(space)
    assert [m.payload()["id"] for m in found] == [
        "ui-msg-1",
        "ui-msg-2",
        "ui-msg-5",
        "ui-msg-3",
        "ui-msg-4",
    ]
    assert found[2].compacted_message_ids == [m.rkey for m in found[:2]]
    assert found[0].updated_at == found[3].updated_at == at(5)


def test_growth_equals_the_whole(open_space: OpenSpace, store: Store) -> None:
    made = make_rows(b1())
    made.append(compaction(message(5, "user", "S"), "e5", "e4", "e4", 4, 2))
    made.append(row(message(6, "user", "next"), "e6", "e5"))
    grown, whole = open_space("a"), open_space("b")
    for end in range(len(made) + 1):
        ids = [f"ui-msg-{n}" for n in range(1, end)]
        if end > 5:
            ids = ["ui-msg-5", *ids[3:4], *ids[5:]]
        store.conversation(made[:end], ids)
        import_directory(grown, store.path)
    import_directory(whole, store.path)
    assert records(grown) == records(whole)
    assert grown.repo.set_hash().state == whole.repo.set_hash().state


def test_dry_run(space: Space, store: Store) -> None:
    store.agent()
    store.conversation(make_rows(b1()), prompt=prompt())
    dry = import_directory(space, store.path, dry_run=True)
    assert records(space) == {}
    real = import_directory(space, store.path)
    left, right = dry.to_json(), real.to_json()
    assert left.pop("dryRun")
    right.pop("dryRun")
    assert left == right
    json.dumps(left)


def test_agents_and_their_conversations(space: Space, store: Store) -> None:
    store.agent()
    store.agent("agent-sub", hidden=True, tags=["role:subagent"], name="Sub", extra={"b": 1.5})
    store.agent("odd id/ü")
    store.conversation(make_rows(b1()), key=f"default:{AGENT_ID}")
    store.conversation(make_rows(b1()), key="conversation:local-conv-9", agent=None, created=at(50))
    report = import_directory(space, store.path)
    assert report.agents.new == 3
    agents = {agent.rkey: agent for agent in space.agents()}
    assert agents[AGENT_ID].conversations == 1
    assert agents["agent-sub"].hidden
    assert agents["none"].conversations == 1
    assert len(agents) == 4
    record = space.repo.get(AGENT, AGENT_ID)
    assert record is not None
    assert record.value["system"].startswith("You are Otter.")
    assert "system" not in record.value["state"]["data"]
    assert {c.letta["key"] for c in space.conversations()} == {
        f"default:{AGENT_ID}",
        "conversation:local-conv-9",
    }


def test_prompts(space: Space, store: Store) -> None:
    store.conversation(make_rows(b1()), prompt=prompt())
    import_directory(space, store.path)
    record = space.prompt(only(space).rpartition("/")[2])
    assert record is not None
    assert record.value["coreMemory"] == "<memory>jars</memory>"
    # Too large, in bytes: kept whole beside, and the record stays.
    big = prompt(content="語" * 66_667, compiledAt=at(9))
    store.conversation(make_rows(b1()), prompt=big)
    report = import_directory(space, store.path)
    assert findings(report) == [("oversizePrompt", None)]
    assert space.prompt(only(space).rpartition("/")[2]) == record
    assert "oversizePrompt" in state(space)
    # An older one does not come back over it.
    store.conversation(make_rows(b1()), prompt=prompt(content="old", compiledAt=at(0)))
    import_directory(space, store.path)
    assert space.prompt(only(space).rpartition("/")[2]) == record


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", None])
def test_conversation_json_is_bad(space: Space, store: Store, broken: bytes | None) -> None:
    path = store.conversation(make_rows(b1()), created=at(0)) / "conversation.json"
    if broken is None:
        path.unlink()
    else:
        path.write_bytes(broken)
        os.utime(path, (1, 1))
    report = import_directory(space, store.path)
    assert findings(report) == [("badConversation", None), ("noWindow", None)]
    (found,) = space.conversations()
    assert found.created_at == at(0)
    assert found.agent.endswith(AGENT_ID)
    assert found.letta["id"] == "local-conv-1"
    assert window_ids(space) == IDS
    # When it is back, it is the same conversation.
    store.conversation(make_rows(b1()), created=at(0))
    report = import_directory(space, store.path)
    assert report.conversations[0].outcome == "changed"
    assert report.messages.written == 0
    assert space.conversations()[0].title == "Jars"


def test_an_empty_conversation_whose_file_broke(space: Space, store: Store) -> None:
    path = store.conversation(b"", []) / "conversation.json"
    (store.directory() / "manifest.json").unlink()
    import_directory(space, store.path)
    before = records(space)
    path.write_bytes(b"{")
    report = import_directory(space, store.path)
    assert findings(report)[0] == ("badConversation", None)
    assert records(space) == before


def test_odd_names_are_named_and_never_opened(space: Space, store: Store) -> None:
    store.conversation(make_rows(b1()))
    for name in ("..%2f", "YQ", "YQ==", encode_name("other:x")):
        (store.path / "conversations" / name).mkdir()
    (store.path / "agents" / "x.json").write_text("{}")
    (store.path / "agents" / "x.tmp").write_text("{}")
    report = import_directory(space, store.path)
    assert [damage.note for damage in report.findings] == [
        "agents/x.json",
        "conversations/..%2f",
        "conversations/YQ",
        "conversations/YQ==",
        f"conversations/{encode_name('other:x')}",
    ]
    assert len(space.conversations()) == 1


def test_a_bad_agent_file(space: Space, store: Store) -> None:
    path = store.agent()
    path.write_text("{")
    os.utime(path, (1, 1))
    store.agent("agent-b")
    store.conversation(make_rows(b1()))
    report = import_directory(space, store.path)
    assert [damage.kind for damage in report.findings] == ["badAgent"]
    assert report.agents.new == 1
    assert len(space.conversations()) == 1


def test_no_storage_directory(space: Space, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        import_directory(space, tmp_path / "nowhere")


def test_an_unchanged_directory_is_not_read(
    space: Space, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.conversation(make_rows(b1()))
    import_directory(space, store.path)

    def never(*_: object) -> None:
        raise AssertionError("read")

    monkeypatch.setattr(importer, "read_source", never)
    report = import_directory(space, store.path)
    assert not report.conversations[0].read
    assert report.written == 0


def test_a_file_that_changes_while_it_is_read(
    space: Space, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pad = "." * 4000
    made = make_rows(message(n, "user", f"m{n} {pad}") for n in range(1, 301))
    path = store.conversation(made) / "messages.jsonl"
    original = rows.parse_exact
    seen = 0

    def change(raw: bytes, offset: int) -> Any:
        nonlocal seen
        seen += 1
        if seen == 30:
            data = path.read_bytes().replace(b'"text":"m3', b'"text":"M3')
            path.write_bytes(data)
        return original(raw, offset)

    monkeypatch.setattr(rows, "parse_exact", change)
    report = import_directory(space, store.path)
    assert report.conversations[0].outcome == "new"
    assert texts(window(space))[299] == f"M300 {pad}"
    assert texts(window(space))[2] == f"M3 {pad}"


def test_an_ever_changing_conversation_is_left_alone(
    space: Space, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.conversation(make_rows(b1()))
    monkeypatch.setattr(importer, "is_unchanged", lambda _: False)
    report = import_directory(space, store.path)
    assert findings(report) == [("busy", None)]
    assert report.conversations[0].outcome == "failed"
    assert records(space) == {}


def test_a_key_taken_by_another_conversation(
    open_space: OpenSpace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derived keys of two conversations meet: neither message may overwrite the other."""
    from lettaspace.atproto import tid
    from lettaspace.conversation import derive

    monkeypatch.setattr(tid, "derive", lambda ms, digest: tid.encode(ms * 1000 + digest[0] % 2, 0))
    assert derive.message_tid("a", "user", "x", at(1), "")
    for number in (1, 2, 3):
        key = f"conversation:local-conv-{number}"
        made = [message(1, "user", f"in {number}", created=at(7))] * (number != 3)
        store.conversation(make_rows(made), key=key, created=at(number))
    space = open_space("a")
    import_directory(space, store.path)
    found = {c.letta["id"]: texts(window(space, c.uri)) for c in space.conversations()}
    assert found == {"local-conv-1": ["in 1"], "local-conv-2": ["in 2"], "local-conv-3": []}
    before = records(space)
    for number in (1, 2):
        (store.directory(f"conversation:local-conv-{number}") / "messages.jsonl").touch()
    assert import_directory(space, store.path).written == 0
    assert records(space) == before
