"""Two machines that both went on: each branch whole, nothing lost, nothing mixed."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lettaspace.atproto import tid
from lettaspace.conversation.origins import copy_tid, fork_tid
from lettaspace.conversation.prompt import compile_prompt
from lettaspace.conversation.records import (
    CONVERSATION,
    MESSAGE,
    envelope,
    new_message,
)
from lettaspace.conversation.space import Space
from lettaspace.remote import parting
from lettaspace.remote.branches import Divergence, diverge, mend
from lettaspace.space.repo import Transaction
from lettaspace.space.writes import Create, Delete
from tests.conformance.kit import TIME, Talk, result, says, user, words
from tests.remote.apart import Host, Machine, agree, check_all, originals

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n not really").decode()


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[..., list[Machine]]]:
    """Makes machines that have all that the first one has by then."""
    opened: list[Machine] = []

    def more(host: Host, first: Machine | None = None, count: int = 1) -> list[Machine]:
        if first is None:
            opened.append(Machine(Space.open(tmp_path / "0")))
            opened[0].space.create_agent("Otter", key="otter", system="You keep the jars.")
            return opened[:1]
        first.sync(host)
        made = [first.twin(tmp_path / f"{len(opened)}.{each}") for each in range(count)]
        opened.extend(made)
        return made

    yield more
    for machine in opened:
        machine.space.close()


@pytest.fixture
def first(machines, host) -> Machine:
    return machines(host)[0]


@pytest.fixture
def talk(first) -> Talk:
    return Talk(first.space.create_conversation("otter", title="Jars"))


def of(machine: Machine, talk: Talk) -> Talk:
    return machine.talk(talk.handle.uri)


def forks(machine: Machine, talk: Talk) -> list[Talk]:
    """What two machines' going on with a conversation made, by TID."""
    infos = [info for info in machine.space.conversations() if info.uri != talk.handle.uri]
    left = [info for info in infos if any(talk.handle.rkey in each["note"] for each in info.damage)]
    return [machine.talk(info.uri) for info in sorted(left, key=lambda info: info.rkey)]


def ends(machine: Machine, talk: Talk) -> list[list[str]]:
    """The windows of a conversation and of its forks."""
    check_all(machine)
    return [of(machine, talk).window, *(fork.window for fork in forks(machine, talk))]


def part(machine: Machine, talk: Talk, ours: Collection[str], theirs: Collection[str]) -> Any:
    address, uri = machine.space.address, talk.handle.uri

    def work(tx: Transaction) -> Divergence | None:
        return diverge(tx, address, uri, set(ours), set(theirs))

    return machine.space.repo.run(work)


def mended(machine: Machine, talk: Talk) -> bool:
    address, uri = machine.space.address, talk.handle.uri
    return machine.space.repo.run(lambda tx: mend(tx, address, uri))


def test_the_branch_with_the_smaller_tid_keeps_the_conversation(machines, host, first, talk):
    talk.users("abc")
    compile_prompt(first.space, talk.handle.uri, memory=None)
    (second,) = machines(host, first)
    of(second, talk).users("pq")
    of(first, talk).users("xyz")
    done = agree(host, first, second)
    assert ends(first, talk) == ends(second, talk) == [list("abcpq"), list("abcxyz")]
    (fork,) = forks(first, talk)
    assert done == [Divergence(talk.handle.uri, fork.handle.uri, "theirs")]
    info = fork.handle.info
    assert info.title == "Jars (fork)"
    left = of(first, talk).of("c")
    assert info.forked_from["conversation"]["uri"] == talk.handle.uri
    # It was never touched: the reference is to the record as it is.
    assert info.forked_from["message"] == {"uri": left.uri, "cid": str(left.cid)}
    assert fork.handle.prompt().value == {
        **of(first, talk).handle.prompt().value,
        "conversation": fork.handle.uri,
    }
    for each, other in ((talk, fork), (fork, talk)):
        (damage,) = of(first, each).handle.info.damage
        assert damage["kind"] == "diverged"
        assert other.handle.rkey in damage["note"]
        assert of(first, each).handle.info.diverged
        assert not of(first, each).handle.info.damaged
    assert fork.seqs == [1, 2, 3, 4, 5, 6]


def test_nothing_is_done_again(machines, host, first, talk):
    talk.users("a")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).users("x")
    mine = {of(first, talk).of("x").rkey}
    others = {of(second, talk).of("p").rkey}
    agree(host, first, second)
    before = first.state
    assert part(first, talk, mine, others) is None
    assert part(first, talk, others, mine) is None
    assert mended(first, talk) is False
    assert first.state == before


def test_one_side_alone_is_no_branch(machines, host, first, talk):
    talk.users("ab")
    (second,) = machines(host, first)
    of(second, talk).users("pq")
    of(second, talk).compact(2)
    of(first, talk).handle.rewrite(talk.of("b").rkey, user("c"))
    assert agree(host, first, second) == []
    assert ends(first, talk) == [["S", "p", "q"]]
    assert of(first, talk).transcript == ["a", "c", "S", "p", "q"]


def test_each_side_has_its_own_compaction(machines, host, first, talk):
    talk.users("abcd")
    (second,) = machines(host, first)
    of(second, talk).compact(2, "S")
    of(second, talk).users("p")
    of(first, talk).users("x")
    of(first, talk).compact(3, "T")
    of(first, talk).users("y")
    of(first, talk).compact(2, "U")
    agree(host, first, second)
    assert ends(second, talk) == [["S", "c", "d", "p"], ["U", "x", "y"]]
    assert of(second, talk).transcript == ["a", "b", "S", "c", "d", "p"]
    (fork,) = forks(second, talk)
    assert fork.transcript == ["a", "b", "c", "T", "d", "U", "x", "y"]


def test_what_only_the_fork_summarised_is_active_again(machines, host, first, talk):
    talk.users("abcd")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).compact(3, "T")
    of(first, talk).users("x")
    agree(host, first, second)
    assert ends(second, talk) == [list("abcdp"), ["T", "d", "x"]]
    assert of(second, talk).transcript == list("abcdp")


def test_an_older_summary_becomes_a_first_message_in_the_fork(machines, host, first, talk):
    talk.users("abcd")
    talk.compact(2, "S")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).users("x")
    of(first, talk).compact(2, "T")
    agree(host, first, second)
    assert ends(second, talk) == [["S", "c", "d", "p"], ["T", "d", "x"]]
    (fork,) = forks(second, talk)
    assert fork.transcript == ["S", "c", "T", "d", "x"]


def test_results_stay_with_their_calls(machines, host, first, talk):
    talk.add(says("a", "k1", "k2"), user("b"), says("c", "k3"), user("d"))
    (second,) = machines(host, first)
    of(second, talk).compact(0)
    of(second, talk).handle.settle(["k1"])
    of(second, talk).add(result("r2", "k2"), result("r1", "k1"), user("p"))
    of(first, talk).add(result("s3", "k3"))
    of(first, talk).handle.settle()
    of(first, talk).users("x")
    agree(host, first, second)
    assert ends(second, talk) == [
        ["a", "r1", "b", "c", "d", "r2", "p"],
        ["a", "!k1", "!k2", "b", "c", "d", "s3", "x"],
    ]


def test_a_placeholder_stands_behind_a_result_that_was_appended(machines, host, first, talk):
    talk.add(says("a", "k1", "k2"))
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).add(result("r1", "k1"))
    of(first, talk).handle.settle()
    agree(host, first, second)
    assert ends(first, talk) == [["a", "p"], ["a", "r1", "!k2"]]


def test_new_messages_stay_behind_what_others_put_in_order(machines, host, first, talk):
    talk.users("abc")
    (second,) = machines(host, first)
    of(first, talk).users("p")
    first.sync(host)
    of(second, talk).compact(2, "T")
    of(second, talk).users("x")
    of(first, talk).users("q")
    second.sync(host)
    agree(host, first, second)
    assert ends(first, talk) == [list("abcpq"), ["T", "c", "x"]]


def test_a_summary_of_what_the_other_side_wrote_has_seen_it(machines, host, first, talk):
    talk.users("a")
    (second,) = machines(host, first)
    of(first, talk).users("x")
    first.push(host)
    second.sync(host)
    of(second, talk).compact(2, "S")
    second.sync(host)
    of(first, talk).users("y")
    agree(host, first, second)
    check_all(first)
    windows = ends(first, talk)
    assert sorted(windows) == [["S"], ["a", "x", "y"]]


def test_a_conversation_that_had_no_messages(machines, host, first, talk):
    (second,) = machines(host, first)
    of(second, talk).users("pq")
    of(first, talk).users("xy")
    agree(host, first, second)
    assert ends(second, talk) == [["p", "q"], ["x", "y"]]
    (fork,) = forks(second, talk)
    assert fork.handle.info.forked_from is None


def many(talk: Talk, texts: Sequence[str]) -> None:
    """Appends messages in few batches."""
    handle, space = talk.handle, talk.space
    seq = max((each.value["seq"] for each in talk.records()), default=0)
    writes = []
    for number, text in enumerate(texts, seq + 1):
        message = envelope("letta.localMessage", 1, user(text))
        value = new_message(handle.uri, handle.agent, "user", number, message, space.now())
        writes.append(Create(MESSAGE, space.repo.clock.mint(), value))
    space.repo.run(lambda tx: tx.apply(writes))


def test_many_messages_with_blobs(machines, host, first, talk):
    image = {"type": "image", "mimeType": "image/png", "data": PIXEL}
    shown = [user(text) for text in ("one", "two")]
    for each in shown:
        each["content"].append(image)
    talk.add(shown[0], user("long" * 40_000))
    many(talk, [f"m{number}" for number in range(210)])
    (second,) = machines(host, first)
    of(second, talk).users("p")
    mine = of(first, talk)
    many(mine, [f"x{number}" for number in range(205)])
    mine.add(shown[1])
    before = mine.window
    mine.compact(1, "T")
    agree(host, first, second)
    assert ends(second, talk) == [[*before[:212], "p"], ["T", *before[1:]]]
    (fork,) = forks(second, talk)
    for text in ("one", "two"):
        assert fork.of(text).payload()["content"][1]["data"] == PIXEL


def test_several_conversations_at_once(machines, host, first, talk):
    talk.users("ab")
    other = Talk(first.space.create_conversation("otter", title="Lids"))
    other.users("cd")
    (second,) = machines(host, first)
    of(second, other).users("q")
    of(first, talk).users("x")
    of(second, talk).users("p")
    of(first, other).users("y")
    assert len(agree(host, first, second)) == 2
    assert ends(second, talk) == [list("abx"), list("abp")]
    assert ends(second, other) == [list("cdq"), list("cdy")]


def test_a_fork_made_by_hand_keeps_its_source(machines, host, first, talk):
    talk.users("ab")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    mine = of(first, talk)
    mine.users("xy")
    made = Talk(mine.handle.fork(mine.of("x").rkey, title="by hand"))
    made.users("z")
    agree(host, first, second)
    assert ends(second, talk) == [list("abp"), list("abxy")]
    (fork,) = forks(second, talk)
    assert of(second, made).window == list("abxz")
    copies = {
        (hit.conversation, hit.message.rkey): hit.copy_of
        for text in "abxyzp"
        for hit in second.space.search(text).hits
        if words([hit.message]) == [text]
    }
    uris = {text: of(second, talk).of(text).uri for text in "ab"} | {"x": fork.of("x").uri}
    for text in "abx":
        assert copies[made.handle.uri, of(second, made).of(text).rkey] == uris[text]
    for text in "ab":
        assert copies[fork.handle.uri, fork.of(text).rkey] == uris[text]
    assert copies[fork.handle.uri, fork.of("x").rkey] is None
    assert copies[talk.handle.uri, of(second, talk).of("a").rkey] is None


def test_what_both_said_alike_is_said_twice(machines, host, first, talk):
    talk.users("a")
    (second,) = machines(host, first)
    at = "2026-03-05T10:00:00.000Z"
    of(second, talk).handle.append(user("plum"), created_at=at)
    of(first, talk).handle.append(user("plum"), created_at=at)
    agree(host, first, second)
    found = first.space.search("plum")
    assert (found.total, found.distinct) == (2, 2)


def test_a_message_that_either_rewrote_says_the_new_text_in_both(machines, host, first, talk):
    talk.users("abc")
    (second,) = machines(host, first)
    of(second, talk).handle.rewrite(talk.of("a").rkey, user("A"))
    of(second, talk).users("p")
    of(first, talk).handle.rewrite(talk.of("b").rkey, user("B"))
    of(first, talk).compact(1, "T")
    agree(host, first, second)
    assert ends(second, talk) == [["A", "B", "c", "p"], ["T", "B", "c"]]


# What follows a message that moved


def test_what_was_said_after_a_message_that_moved_follows_it(machines, host, first, talk):
    talk.users("ab")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).users("x")
    first.sync(host)
    of(first, talk).users("y")
    second.sync(host)
    (moved,) = first.sync(host)
    assert moved.moved == "ours"
    agree(host, first, second)
    assert ends(second, talk) == [list("abp"), list("abxy")]


def test_a_summary_follows_as_well(machines, host, first, talk):
    talk.users("abc")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).users("x")
    first.sync(host)
    of(first, talk).compact(2, "T")
    of(first, talk).users("y")
    second.sync(host)
    agree(host, first, second)
    assert ends(second, talk) == [list("abcp"), ["T", "c", "x", "y"]]
    assert forks(second, talk)[0].transcript == ["a", "b", "T", "c", "x", "y"]


def test_what_came_after_a_message_that_moved_twice(machines, host, first, talk):
    talk.users("ab")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).users("x")
    first.sync(host)
    of(first, talk).users("y")
    second.sync(host)
    (fork,) = forks(second, talk)
    third = second.twin(second.space.home.with_name("third"))
    fork.users("u")
    of(third, fork).users("v")
    try:
        agree(host, second, third)
        agree(host, first, second, third)
    finally:
        third.space.close()
    windows = [
        Talk(first.space.conversation(info.uri)).window for info in first.space.conversations()
    ]
    assert sorted(windows) == sorted([list("abp"), list("abxy"), list("abxu"), list("abxv")])
    check_all(first)


def test_in_the_fork_others_may_have_gone_on_too(machines, host, first, talk):
    talk.users("ab")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).users("x")
    first.sync(host)
    of(first, talk).users("y")
    second.sync(host)
    (fork,) = forks(second, talk)
    fork.users("z")
    second.sync(host)
    agree(host, first, second)
    assert ends(second, talk) == [list("abp"), list("abxy")]
    deeper = [each for each in forks(second, fork) if each.handle.rkey != talk.handle.rkey]
    assert [each.window for each in deeper] == [list("abxz")]


# States that nobody should make


def test_what_cannot_be_told_stays_in_place(first, talk):
    a, b = (message.rkey for message in talk.users("ab"))
    before = first.state
    assert part(first, talk, [a], []) is None
    assert part(first, talk, [], [b]) is None
    assert part(first, talk, [a, b], [a, b]) is None
    assert part(first, talk, [a], ["3menokz37mit4"]) is None
    first.space.repo.apply_writes([Delete(CONVERSATION, talk.handle.rkey)])
    assert part(first, talk, [a], [b]) is None
    assert {**before, **first.state} == before


def test_a_key_that_another_conversation_has_is_not_taken(first, talk):
    talk.users("ab")
    x, y = (message.rkey for message in talk.users("xy"))
    taken = fork_tid(talk.handle.rkey, y)
    other = talk.handle.fork(title="other")
    stored = first.space.repo.get(CONVERSATION, other.rkey)
    left = {**stored.value["forkedFrom"]}
    left["conversation"] = {**left["conversation"], "uri": other.uri}
    first.space.repo.apply_writes(
        [Create(CONVERSATION, taken, {**stored.value, "forkedFrom": left})]
    )
    before = first.state
    assert part(first, talk, [x], [y]) is None
    assert first.state == before


def test_no_fork_where_no_later_key_is_left():
    last = tid.encode(tid.MAX_MICROS, 7)
    assert fork_tid(last, "3menokz37mit4") is None
    assert fork_tid("3menokz37mit4", last) is None
    fork = fork_tid("3menp2h3dr7gj", "3menokz37mit4")
    assert fork is not None
    assert fork > "3menp2h3dr7gj"


def test_messages_that_came_before_what_both_have(first, talk):
    talk.users("cd")
    talk.remark(talk.of("c").rkey, seq=11)
    talk.remark(talk.of("d").rkey, seq=12)
    x = talk.foreign(13, user("x"))
    y = talk.foreign(3, user("y"))
    assert part(first, talk, [x], [y]) is not None
    assert ends(first, talk) == [list("cdx"), list("cdy")]


def test_branches_of_three_machines_at_once(first, talk):
    talk.users("a")
    x, y, z = (talk.foreign(2, user(text)) for text in "xyz")
    assert part(first, talk, [z], [x, y]) is not None
    assert ends(first, talk) == [list("axy"), list("az")]


def test_what_shares_a_seq_with_the_other_side_is_ours(first, talk):
    """A third machine wrote it, and we went on after it."""
    talk.users("a")
    talk.foreign(2, user("c"))
    x = talk.foreign(3, user("x"))
    y = talk.foreign(2, user("y"))
    assert part(first, talk, [x], [y]) is not None
    assert ends(first, talk) == [list("acx"), list("ay")]


def test_a_summary_of_messages_of_both_sides_lists_what_stays(first, talk):
    talk.users("a")
    x, y = (talk.foreign(2, user(text)) for text in "xy")
    talk.foreign(3, user("S"), rkey=None, compactedMessageIds=[x, y])
    assert part(first, talk, [x], [y]) is not None
    assert ends(first, talk) == [["a", "S"], ["a", "S", "y"]]
    assert of(first, talk).transcript == ["a", "x", "S"]


def test_a_copy_gets_another_key_where_the_first_is_taken(first, talk, monkeypatch):
    messages = talk.users("abc")
    others = Talk(first.space.create_conversation("otter", title="Lids"))
    (taken,) = (message.rkey for message in others.users("o"))

    def crowded(fork: str, original: str, probe: int = 0) -> str:
        return taken if probe < 1 else copy_tid(fork, original, probe)

    monkeypatch.setattr(parting, "copy_tid", crowded)
    x, y = (talk.foreign(9, user(text)) for text in "xy")
    assert part(first, talk, [x], [y]) is not None
    assert ends(first, talk) == [list("abcx"), list("abcy")]
    assert others.window == ["o"]
    (fork,) = forks(first, talk)
    copies = originals(first, fork.handle.uri, talk.handle.uri)
    assert sorted(copies) == [message.rkey for message in messages]


# Mending


def test_marks_that_merging_lost_are_made_again(first, talk):
    talk.users("abc")
    talk.compact(2, "S")
    talk.remark(talk.of("a").rkey, status=None)
    talk.remark(talk.of("c").rkey, seq=3)
    assert talk.plain() != first.window(talk.handle.uri)
    assert mended(first, talk)
    check_all(first)
    assert talk.window == ["S", "c"]
    assert not mended(first, talk)


def test_messages_that_share_a_seq_are_parted(first, talk):
    talk.users("abc")
    for text in "bc":
        talk.remark(talk.of(text).rkey, seq=3, updatedAt=TIME)
    assert mended(first, talk)
    check_all(first)
    assert talk.window == list("abc")


def test_branches_that_others_will_part_are_left_to_them(first, talk):
    talk.users("a")
    for text in "xy":
        talk.foreign(2, user(text))
    assert not mended(first, talk)


def test_a_mark_of_a_summary_that_moved_is_taken_off(machines, host, first, talk):
    talk.users("abcd")
    (second,) = machines(host, first)
    of(second, talk).users("p")
    of(first, talk).compact(3, "T")
    agree(host, first, second)
    of(first, talk).remark(talk.of("b").rkey, status="compacted")
    assert of(first, talk).window == list("acdp")
    assert mended(first, talk)
    assert ends(first, talk) == [list("abcdp"), ["T", "d"]]


def test_what_was_compacted_without_a_summary_stays_so(first, talk):
    talk.users("abc")
    talk.remark(talk.of("b").rkey, status="compacted")
    talk.handle.fork()
    assert not mended(first, talk)
    assert talk.window == ["a", "c"]


def test_a_repeated_append_is_the_message_where_it_moved(machines, host, first, talk):
    (second,) = machines(host, first)
    of(second, talk).users("p")
    mine = of(first, talk).handle
    message = mine.append(user("x"), key="k")
    agree(host, first, second)
    (fork,) = forks(first, talk)
    assert mine.append(user("x"), key="k").rkey == message.rkey
    assert fork.handle.message(message.rkey).rkey == message.rkey
