"""A counter that is kept always says what counting afresh does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, insert, select, update

from lettaspace.conversation import responses, usage
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.payload import AssistantMessage, Cost, Usage, UserMessage
from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.conversation.usage import Totals, UsageCounter
from lettaspace.space import schema
from lettaspace.space.writes import Delete


@pytest.fixture
def space(home: Path) -> Iterator[Space]:
    with Space.open(home) as opened:
        yield opened


@pytest.fixture
def talk(space: Space) -> Conversation:
    return space.create_conversation(space.create_agent("Otter", key="otter"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The records that were read, as they come."""
    seen: list[bytes] = []
    real = responses.Reader.read

    def spy(self: responses.Reader, record: bytes) -> Any:
        seen.append(record)
        return real(self, record)

    monkeypatch.setattr(responses.Reader, "read", spy)
    return seen


def answer(response: str | None = None, tokens: int = 1, **fields: Any) -> AssistantMessage:
    used = Usage(input=tokens, output=2, cost=Cost(total=tokens / 4))
    return AssistantMessage.text(
        "ok", provider="acme", model="m-1", response_id=response, usage=used, **fields
    )


def same(space: Space, counter: UsageCounter) -> None:
    assert counter.report() == space.usage()
    for each in space.conversations():
        assert counter.report(conversation=each.uri) == space.usage(conversation=each.uri)
    for agent in space.agents():
        assert counter.report(agent=agent.rkey) == space.usage(agent=agent.uri)


STEPS = st.tuples(
    st.sampled_from(["append", "rewrite", "fork", "compact", "settle", "delete", "talk", "user"]),
    st.integers(0, 7),
    st.integers(1, 5),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.lists(STEPS, max_size=6), min_size=1, max_size=4))
def test_whatever_happens(rounds: list[list[tuple[str, int, int]]]) -> None:
    with TemporaryDirectory() as place, Space.open(Path(place)) as space:
        agents = [space.create_agent("a"), space.create_agent("b")]
        talks = [space.create_conversation(agents[0])]
        counter = UsageCounter(space)
        for steps in rounds:
            for kind, which, tokens in steps:
                do(space, agents, talks, kind, which, tokens)
            same(space, counter)
        same(space, UsageCounter(space))


def do(
    space: Space, agents: list[str], talks: list[Conversation], kind: str, which: int, tokens: int
) -> None:
    talk = talks[which % len(talks)]
    messages = [each for each in talk.transcript() if each.role == "assistant"]
    some = messages[which % len(messages)] if messages else None
    if kind == "append":
        model = "m-1" if which % 2 else "m-2"
        at = f"2026-03-0{tokens}T10:00:00Z"
        made = answer(f"r{which}" if which else None, tokens).to_json() | {"model": model}
        talk.append(made, created_at=at)
    elif kind == "user":
        talk.append(UserMessage.text("hm"))
    elif kind == "rewrite" and some is not None:
        talk.rewrite(some.rkey, answer(f"r{which}", tokens + 5))
    elif kind == "fork" and messages:
        talks.append(talk.fork())
    elif kind == "compact" and messages:
        talk.compact(lambda covered: f"{len(covered)} messages")
    elif kind == "settle":
        talk.settle()
    elif kind == "delete" and some is not None:
        space.repo.apply_writes([Delete(MESSAGE, some.rkey)])
    elif kind == "talk":
        talks.append(space.create_conversation(agents[which % 2]))


def test_only_what_changed_is_read(space: Space, talk: Conversation, read: list[bytes]) -> None:
    sent = [talk.append(answer(f"r{number}")) for number in range(20)]
    counter = UsageCounter(space)
    assert counter.report().total.responses == 20
    assert len(read) == 20
    counter.report(conversation=talk.uri)
    assert len(read) == 20
    talk.append(answer("r20"))
    talk.rewrite(sent[0].rkey, answer("r0", 7))
    assert counter.report().total.input == 27
    assert len(read) == 22
    space.repo.apply_writes([Delete(MESSAGE, sent[1].rkey)])
    assert counter.report().total.responses == 20
    assert len(read) == 22


def test_two_processes_share_a_store(space: Space, talk: Conversation) -> None:
    counter = UsageCounter(space)
    assert counter.report().total == Totals()
    with Space.open(space.home) as other:
        other.conversation(talk.rkey).append(answer("r"))
    assert counter.report().total.responses == 1


def test_a_log_that_does_not_go_on_is_no_guide(space: Space, talk: Conversation) -> None:
    talk.append(answer("r1"))
    counter = UsageCounter(space)
    counter.report()
    talk.append(answer("r2"))
    with space.database.write() as connection:
        connection.execute(delete(schema.ops))
    talk.append(answer("r3"))
    assert counter.report().total.responses == 3


def test_what_cannot_be_read_is_tried_again(space: Space, talk: Conversation) -> None:
    long = {**answer("r1").to_json(), "responseId": "r" * 200_000}
    talk.append(long)
    talk.append(answer("r2"))
    blobs = [(row.cid, row.data) for row in _rows(space, select(schema.blobs))]
    assert blobs
    with space.database.write() as connection:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        connection.execute(delete(schema.blobs))
    counter = UsageCounter(space)
    for _ in range(2):
        same(space, counter)
        assert (counter.report().total.responses, counter.report().unreadable) == (1, 1)
    with space.database.write() as connection:
        connection.execute(insert(schema.blobs), [{"cid": c, "data": d} for c, d in blobs])
    same(space, counter)
    assert (counter.report().total.responses, counter.report().unreadable) == (2, 0)


def test_what_is_no_record_at_all_counts_as_unreadable(space: Space, talk: Conversation) -> None:
    talk.append(answer("r1"))
    other = space.create_conversation(space.create_agent("Kiln"))
    other.append(answer("r2"))
    newest = select(func.max(schema.records.c.id)).where(schema.records.c.collection == MESSAGE)
    with space.database.write() as connection:
        record = connection.execute(newest).scalar()
        connection.execute(
            update(schema.records).where(schema.records.c.id == record).values(value=b"\xff")
        )
    counter = UsageCounter(space)
    same(space, counter)
    assert counter.report(conversation=other.uri).unreadable == 1
    assert counter.report(conversation=talk.uri).unreadable == 0
    assert counter.report(agent="otter").unreadable == 1  # it may be


def test_what_broke_off_is_begun_again(
    space: Space, talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk.append(answer("r1"))
    counter = UsageCounter(space)
    counter.report()
    sent = [talk.append(answer(f"s{number}")) for number in range(3)]
    talk.rewrite(sent[0].rkey, answer("s0", 9))
    real, calls = responses.Reader.read, count()

    def breaks(self: responses.Reader, record: bytes) -> Any:
        if next(calls) == 1:
            raise MemoryError
        return real(self, record)

    monkeypatch.setattr(responses.Reader, "read", breaks)
    with pytest.raises(MemoryError):
        counter.report()
    same(space, counter)
    assert counter.report().total.responses == 4


def test_many_threads(space: Space, talk: Conversation) -> None:
    counter = UsageCounter(space)
    seen: list[list[int]] = [[] for _ in range(4)]

    def look(numbers: list[int]) -> None:
        while not numbers or numbers[-1] < 30:
            numbers.append(counter.report().total.responses)

    threads = [threading.Thread(target=look, args=(numbers,)) for numbers in seen]
    for thread in threads:
        thread.start()
    for number in range(30):
        talk.append(answer(f"r{number}"))
    for thread in threads:
        thread.join()
    assert all(numbers == sorted(numbers) for numbers in seen)


def test_few_reports_are_kept(
    space: Space, talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_REPORTS", 3)
    talk.append(answer("r"))
    counter = UsageCounter(space)
    for number in range(10):
        assert counter.report(conversation=f"at://{number}").rows == []
    assert len(counter._reports) <= 3
    same(space, counter)


@pytest.mark.parametrize("seq", [0, 23, 24, 255, 256, 1 << 16, 1 << 32])
def test_only_messages_of_other_roles_are_passed_over(seq: int) -> None:
    from lettaspace.atproto import cbor

    def over(value: dict[str, Any]) -> bool:
        return responses._OTHER_ROLE(cbor.encode(value)) is not None

    more = {f"key{number:02}": number for number in range(30)}
    for value in ({"seq": seq}, {"seq": seq, **more}):
        assert over({**value, "role": "user"})
        assert over({**value, "role": "toolResult"})
        assert not over({**value, "role": "assistant"})
        # Whatever other writers add, nothing looks like a role that is none.
        assert not over({**value, "role": "assistant", "a": "droleduser"})
        assert not over({**value, "role": "assistant", "drol": "duser", "seq": 0x64})


def _rows(space: Space, query: Any) -> list[Any]:
    with space.database.read() as connection:
        return list(connection.execute(query))
