"""A record's new version is later than the one before, whatever the clock says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace import Space
from lettaspace.conversation import compaction, settling
from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.conversation.prompt import compile_prompt, update_memory
from lettaspace.conversation.records import COMPILED_PROMPT, CONVERSATION_STATE
from lettaspace.conversation.times import after, text
from tests.conformance.kit import says, user
from tests.conversation.memories import commit, init

FILES = {"MEMORY.md": b"# Index\n", "persona.md": b"---\ndescription: me\n---\nWarm.\n"}
EARLY, LATE = "2026-05-03T09:05:01.250Z", "2026-05-03T09:15:01.250Z"


@pytest.mark.parametrize(
    ("at", "stored", "wanted"),
    [
        (LATE, EARLY, LATE),
        (EARLY, LATE, "2026-05-03T09:15:01.251Z"),
        (EARLY, EARLY, "2026-05-03T09:05:01.251Z"),
        (EARLY, None, EARLY),
        (EARLY, "yesterday", EARLY),
        (EARLY, "2026-05-03T09:05:01Z", EARLY),
        (EARLY, "2026-05-03T11:05:01.249+02:00", EARLY),
        (EARLY, "2026-05-03T11:05:01.250+02:00", "2026-05-03T09:05:01.251Z"),
        (EARLY, "2026-05-03T09:05:01.250999999Z", "2026-05-03T09:05:01.251Z"),
        (EARLY, "2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00.000Z"),
        (EARLY, "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        (EARLY, "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59-23:59"),
    ],
)
def test_after(at: str, stored: str | None, wanted: str) -> None:
    assert after(at, stored) == wanted


moments = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))


@given(moments, moments)
def test_it_is_later_and_no_later_than_it_has_to_be(now: datetime, stored: datetime) -> None:
    at = text(now)
    found = after(at, stored.isoformat())
    assert datetime.fromisoformat(found) > stored
    if found != at:
        assert datetime.fromisoformat(at) <= stored
        assert datetime.fromisoformat(found) - stored <= timedelta(milliseconds=1)


class Clock:
    """What a space takes for the time."""

    def __init__(self, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = LATE
        monkeypatch.setattr(space, "now", lambda: self.now)


@pytest.fixture
def space(home: Path) -> Any:
    with Space.open(home) as opened:
        yield opened


@pytest.mark.parametrize("at_once", [1, 200])
def test_a_clock_that_went_back(
    space: Space, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Every kind of rewriting, each on what was written by a clock that was ahead."""
    monkeypatch.setattr(compaction, "MAX_WRITES", at_once)
    monkeypatch.setattr(settling, "MAX_WRITES", max(at_once, 3))
    clock = Clock(space, monkeypatch)
    talk = space.create_conversation(space.create_agent("Otter"))
    for number in range(4):
        talk.append(user(f"u{number}"))
    called = talk.append(says("A", "c1"))
    talk.append(user("behind"))
    for message in talk.window().messages:
        talk.rewrite(message.rkey, message.payload())
    times = {each.rkey: each.updated_at for each in talk.transcript()}
    # Written and rewritten in the same millisecond, and yet later than it was created.
    assert set(times.values()) == {after(LATE, LATE)}

    def later() -> set[str]:
        """What was written since it was last asked, each of which has to be later."""
        nonlocal times
        now = {each.rkey: each.updated_at for each in talk.transcript()}
        changed = {rkey for rkey in times if now[rkey] != times[rkey]}
        for rkey in changed:
            assert (now[rkey] or "") > (times[rkey] or ""), rkey
        times = now
        return changed

    clock.now = EARLY
    rkeys = list(times)
    talk.rewrite(rkeys[0], user("u0!"))
    assert later() == {rkeys[0]}
    talk.settle()
    assert later() == {called.rkey, rkeys[-1]}
    talk.compact(lambda _: "SUM", lambda _: 2)
    assert later() >= set(rkeys)
    assert all((times[rkey] or "") > LATE for rkey in rkeys)
    assert not list(space.verify())


def test_a_fork_that_is_complete(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(space, monkeypatch)
    talk = space.create_conversation("otter", incomplete=True)
    clock.now = EARLY
    space.complete(talk.rkey)
    state = space.repo.get(CONVERSATION_STATE, talk.rkey)
    assert state is not None
    assert "incomplete" not in state.value
    assert state.value["updatedAt"] == after(EARLY, LATE)
    space.complete(talk.rkey)
    assert space.repo.get(CONVERSATION_STATE, talk.rkey) == state


def test_a_prompt(space: Space, tmp_path: Path) -> None:
    late, early = datetime.fromisoformat(LATE), datetime.fromisoformat(EARLY)
    talk = space.create_conversation(space.create_agent("Otter", system="You are {CORE_MEMORY}"))
    path = init(tmp_path / "memory")
    commit(path, FILES)
    memory = MemoryDirectory(path)
    first = compile_prompt(space, talk.uri, memory=memory, now=late)
    assert first.value["compiledAt"] == LATE
    assert compile_prompt(space, talk.uri, memory=memory, now=late) == first
    second = compile_prompt(space, talk.uri, memory=memory, template="two", now=early)
    assert second.value["compiledAt"] == "2026-05-03T09:15:01.251Z"
    assert space.repo.get(COMPILED_PROMPT, talk.rkey) == second
    commit(path, {**FILES, "persona.md": b"---\ndescription: me\n---\nCold.\n"})
    third = update_memory(space, talk.uri, memory, now=early).record
    assert third.value["compiledAt"] == "2026-05-03T09:15:01.252Z"
    assert space.repo.get(COMPILED_PROMPT, talk.rkey) == third
