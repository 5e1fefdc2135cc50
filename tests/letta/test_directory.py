"""Names, listings, torn files, keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from lettaspace.atproto import tid
from lettaspace.conversation import derive, times
from lettaspace.errors import NotFound
from lettaspace.letta import directory
from lettaspace.letta.directory import decode_name, encode_name, read_small
from tests.letta.build import Store, at, b1, rows


def test_default_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert directory.default_directory() == tmp_path / ".letta" / "lc-local-backend"
    monkeypatch.setenv("LETTA_LOCAL_BACKEND_DIR", "/elsewhere")
    assert directory.default_directory() == Path("/elsewhere")


@pytest.mark.parametrize("key", ["a", "conversation:local-conv-1", "agent-ü/..", "x" * 100])
def test_names(key: str) -> None:
    assert decode_name(encode_name(key)) == key


@pytest.mark.parametrize("name", ["", "YQ==", "Y Q", "YR", "_w", "..", "ü", "A", "\udcff"])
def test_names_that_are_none(name: str) -> None:
    assert decode_name(name) is None


def test_listing(store: Store) -> None:
    for number in (10, 2, 1):
        store.conversation(rows(b1()), key=f"conversation:local-conv-{number}")
    store.conversation(rows(b1()), key="default:agent-a")
    store.agent("agent-b")
    store.agent("agent-a")
    found = directory.list_directory(store.path)
    assert [each.id for each in found.agents] == ["agent-a", "agent-b"]
    assert [each.key for each in found.conversations] == [
        "default:agent-a",
        "conversation:local-conv-1",
        "conversation:local-conv-2",
        "conversation:local-conv-10",
    ]
    assert found.conversations[0].id == "default"
    assert found.conversations[0].default_agent == "agent-a"
    assert found.conversations[1].id == "local-conv-1"


def test_listing_what_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        directory.list_directory(tmp_path)
    (tmp_path / "agents").mkdir()
    assert directory.list_directory(tmp_path).conversations == []


def test_a_torn_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "conversation.json"
    whole = b'{"id":"a","n":1.0}'
    states = [b"", whole[:5], whole[:9], whole[:12], whole]
    path.write_bytes(states.pop(0))

    def write(_: float) -> None:
        path.write_bytes(states.pop(0))

    small = read_small(path, sleep=write)
    assert small.value == {"id": "a", "n": 1.0}
    assert small.raw == whole
    assert states == []


@pytest.mark.parametrize(
    ("data", "problem"), [(b"", "not JSON"), (b'{"a', "not JSON"), (b"[1]", "not an object")]
)
def test_a_broken_file_is_given_up(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(data)
    pauses: list[float] = []
    small = read_small(path, sleep=pauses.append)
    assert (small.value, small.problem) == (None, problem)
    assert 0 < len(pauses) < 10
    assert read_small(tmp_path / "no").problem == "missing"
    assert read_small(tmp_path).problem != ""


def test_fingerprint(store: Store) -> None:
    path = store.conversation(rows(b1()))
    found = directory.ConversationDir("k", path)
    first = directory.fingerprint(found)
    assert directory.fingerprint(found) == first
    (path / "system-prompt.json").write_text("{}")
    assert directory.fingerprint(found) != first


def test_derived_keys_are_pinned() -> None:
    """Other machines have stored these: they may never change."""
    assert derive.conversation_tid("agent-otter", at(0)) == CONVERSATION
    assert derive.message_tid(CONVERSATION, "user", "ui-msg-1", at(1), "") == MESSAGE


CONVERSATION = "3kmwvnvv46nym"
MESSAGE = "3kmwvnwtmnxq6"


def test_derived_keys_tell_everything_apart() -> None:
    variants = [
        ("c", "user", "a", at(1), ""),
        ("d", "user", "a", at(1), ""),
        ("c", "assistant", "a", at(1), ""),
        ("c", "user", "b", at(1), ""),
        ("c", "user", "a", at(2), ""),
        ("c", "user", "a", at(1), "x"),
        ("c", "user", "a\ud800", at(1), ""),
        ("c", "usera", "", at(1), ""),
    ]
    keys = [derive.message_tid(*each) for each in variants]
    keys += [derive.message_tid(*variants[0], 1), derive.message_tid(*variants[0], 0, 1)]
    assert len(set(keys)) == len(keys)
    assert {tid.decode(key)[0] // 1000 for key in keys} == {
        times.to_millis(at(1)),
        times.to_millis(at(2)),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-05T10:00:00.123Z", 1709632800123),
        ("2024-03-05T10:00:00.1239999Z", 1709632800123),
        ("2024-03-05T11:00:00+01:00", 1709632800000),
        ("1969-12-31T23:59:59.000Z", 0),
        ("9999-12-31T23:59:59Z", 9007199254739),
    ],
)
def test_millis(text: str, expected: int) -> None:
    assert times.to_millis(text) == expected
    tid.derive(expected, bytes([255] * 32))


@pytest.mark.parametrize("value", [None, True, "1", 1e300, float("nan"), float("inf"), -1e18])
def test_no_time(value: object) -> None:
    assert times.from_millis(value) is None


def test_a_time_as_javascript_prints_it() -> None:
    assert times.from_millis(1709632800123) == "2024-03-05T10:00:00.123Z"
