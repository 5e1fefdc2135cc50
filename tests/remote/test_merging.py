"""Merging two versions of a record: the same result on every machine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION_STATE,
    MEMORY,
    MESSAGE,
    envelope,
    new_message,
)
from lettaspace.conversation.space import Space as Space  # the formats it knows
from lettaspace.remote.merging import divergence, is_blind, is_older, later, merge, said

HERE = "at://did:web:mira.example/space/xyz.quasigod.lab.letta.space/self/did:web:mira.example"
TALK = f"{HERE}/xyz.quasigod.lab.letta.conversation/3menokz37mit4"
FORK = f"{HERE}/xyz.quasigod.lab.letta.conversation/3menp2h3dr7gj"

NOON, LATER, LAST = (f"2026-03-05T12:00:{second}.000Z" for second in ("00", "10", "20"))


def message(text: str = "plum", **fields: Any) -> dict[str, Any]:
    payload = {"role": "user", "content": [{"type": "text", "text": text}]}
    value = new_message(
        TALK, f"{HERE}/a/otter", "user", 3, envelope("letta.localMessage", 1, payload), NOON
    )
    return {**value, **fields}


def settled(**fields: Any) -> dict[str, Any]:
    data = {"role": "toolResult", "toolCallId": "c", "metadata": {"lettaspace.settled": True}}
    return message(role="toolResult", message=envelope("letta.localMessage", 1, data), **fields)


def answered(**fields: Any) -> dict[str, Any]:
    data = {"role": "toolResult", "toolCallId": "c", "content": []}
    return message(role="toolResult", message=envelope("letta.localMessage", 1, data), **fields)


def both_ways(collection: str, one: Any, other: Any, base: Any = None) -> Any:
    before = said(collection, base)
    merged = merge(collection, one, other, said_before=before)
    assert merge(collection, other, one, said_before=before) == merged
    return merged


@pytest.mark.parametrize("collection", [AGENT, CONVERSATION_STATE, "com.example.note"])
def test_the_later_one_wins(collection):
    old, new = {"updatedAt": NOON, "name": "b"}, {"updatedAt": LATER, "name": "a"}
    assert both_ways(collection, old, new) == new


def test_of_prompts_the_one_compiled_later_wins():
    old = {"compiledAt": NOON, "updatedAt": LAST, "content": "b"}
    assert both_ways(COMPILED_PROMPT, old, {"compiledAt": LATER, "content": "a"})["content"] == "a"


def test_times_are_compared_as_times():
    zulu = {"updatedAt": "2026-03-05T12:00:00Z"}
    east = {"updatedAt": "2026-03-05T13:59:59.999+02:00"}
    assert both_ways(AGENT, zulu, east) == zulu
    assert is_older(AGENT, east, zulu)
    assert not is_older(AGENT, zulu, east)


def test_without_times_the_larger_cid_wins():
    one, other = {"name": "a"}, {"name": "b"}
    cids = {bytes(CID.for_cbor(cbor.encode(each))): each for each in (one, other)}
    assert both_ways(AGENT, one, other) == cids[max(cids)]
    assert not is_older(AGENT, one, other)
    assert not is_older(AGENT, other, one)
    assert not is_older(AGENT, one, {"updatedAt": NOON})


def test_an_incomplete_state_never_replaces_a_complete_one():
    whole = {"updatedAt": NOON, "title": "Jars"}
    part = {"updatedAt": LATER, "title": "Jar", "incomplete": True}
    assert both_ways(CONVERSATION_STATE, whole, part) == whole


def test_no_divergence_is_forgotten():
    first, second = divergence("3menp2h3dr7gj"), divergence("3menp2h3dr7gk")
    torn = {"kind": "tornRow", "row": 3}
    files = {"kind": "diverged", "note": "2 messages only in the space, 1 only in these files"}
    old = {"updatedAt": NOON, "damage": [second, torn, files]}
    new = {"updatedAt": LATER, "title": "Jars", "damage": [first]}
    merged = both_ways(CONVERSATION_STATE, old, new)
    assert merged["title"] == "Jars"
    assert merged["damage"] == [first, second]
    assert merged["updatedAt"] > LATER


def test_who_only_marks_a_message_does_not_undo_what_another_said():
    marked = message(status="compacted", updatedAt=LAST)
    moved = message(seq=9, updatedAt=LAST)
    rewritten = message("fig", updatedAt=LATER)
    merged = both_ways(MESSAGE, marked, rewritten)
    assert merged["message"] == rewritten["message"]
    assert merged["status"] == "compacted"
    assert merged["updatedAt"] == "2026-03-05T12:00:20.001Z"
    merged = both_ways(MESSAGE, moved, rewritten)
    assert merged["message"] == rewritten["message"]
    assert merged["seq"] == 9


def test_of_two_that_both_said_something_the_later_counts():
    fig, quince = message("fig", updatedAt=NOON), message("quince", updatedAt=LATER)
    assert both_ways(MESSAGE, fig, quince) == quince


def test_the_version_both_come_from_tells_who_said_something():
    base = message()
    fig = message("fig", status="compacted", updatedAt=NOON)
    for marked in (
        message(status="compacted", updatedAt=LAST),
        message(seq=40, updatedAt=LAST),
        message(seq=40, conversation=FORK, updatedAt=LAST),
    ):
        merged = both_ways(MESSAGE, fig, marked, base)
        assert merged["message"] == fig["message"]
        assert merged["seq"] == marked["seq"]
        assert merged["conversation"] == marked["conversation"]
    moved = message("fig", seq=12, updatedAt=NOON)
    merged = both_ways(MESSAGE, moved, message(seq=9, updatedAt=LAST), base)
    assert merged == {**moved, "updatedAt": "2026-03-05T12:00:20.001Z"}


def test_a_result_that_came_late_never_gives_way_to_its_placeholder():
    late, placeholder = answered(updatedAt=NOON), settled(seq=8, updatedAt=LAST)
    merged = both_ways(MESSAGE, late, placeholder)
    assert merged["message"] == late["message"]
    assert merged["seq"] == 8


def test_what_moved_to_a_fork_stays_there():
    here = message(seq=90, status="compacted", updatedAt=LAST)
    there = message(conversation=FORK, seq=7, updatedAt=NOON)
    merged = both_ways(MESSAGE, here, there)
    assert (merged["conversation"], merged["seq"]) == (FORK, 7)
    listed = message(compactedMessageIds=["3menokz37mit4"], updatedAt=LAST)
    mapped = message(conversation=FORK, compactedMessageIds=["3menp2h3dr7gj"], updatedAt=NOON)
    merged = both_ways(MESSAGE, listed, mapped)
    assert merged == {**mapped, "updatedAt": "2026-03-05T12:00:20.001Z"}


def test_what_was_made_active_again_stays_active():
    """When only marks differ, the later one has seen the other."""
    compacted = message(status="compacted", updatedAt=NOON)
    active = message(updatedAt=LATER)
    assert both_ways(MESSAGE, compacted, active) == active


def test_which_version_had_not_seen_the_other():
    ours = message(seq=9, updatedAt=LATER)
    for older in (message(updatedAt=NOON), message(seq=9, updatedAt=NOON)):
        assert is_older(MESSAGE, older, ours)
        assert not is_blind(MESSAGE, older, ours)
    for blind in (
        message(updatedAt=LAST),
        message(seq=10, updatedAt=NOON),
        message(seq=1, conversation=FORK, updatedAt=NOON),
    ):
        assert is_blind(MESSAGE, blind, ours)
        assert not is_older(MESSAGE, blind, ours)
        # What it becomes has seen both.
        merged = both_ways(MESSAGE, blind, ours)
        for each in (blind, ours):
            assert not is_blind(MESSAGE, merged, each)
            assert not is_older(MESSAGE, merged, each)
    for newer in (message(seq=9, updatedAt=LAST), message(seq=9, updatedAt=LATER)):
        assert not is_blind(MESSAGE, newer, ours)
        assert not is_older(MESSAGE, newer, ours)
    assert not is_blind(AGENT, {"updatedAt": NOON}, {"updatedAt": LATER})


VERSIONS = st.builds(
    lambda text, fields: message(text, **fields),
    st.sampled_from(["plum", "fig", "quince"]),
    st.fixed_dictionaries(
        {},
        optional={
            "seq": st.integers(1, 5),
            "status": st.sampled_from(["active", "compacted"]),
            "updatedAt": st.sampled_from([NOON, LATER, LAST]),
            "conversation": st.sampled_from([TALK, FORK, "at://did:web:mira.example/elsewhere"]),
            "compactedMessageIds": st.lists(st.just("3menokz37mit4"), max_size=1),
        },
    ),
)


@given(VERSIONS, VERSIONS, st.none() | VERSIONS)
def test_it_does_not_matter_whose_version_it_is(one, other, base):
    merged = both_ways(MESSAGE, one, other, base)
    assert both_ways(MESSAGE, one, one) == one
    assert merged["message"] in (one["message"], other["message"])
    assert merged["seq"] in (one["seq"], other["seq"])
    if merged not in (one, other):
        assert is_older(MESSAGE, one, merged)
        assert is_older(MESSAGE, other, merged)


class Git:
    """Histories of commits, without git: what leads to each."""

    def __init__(self) -> None:
        self.history: dict[str, frozenset[str]] = {}

    def commit(self, *parents: str) -> str:
        name = f"{len(self.history):040x}"
        self.history[name] = frozenset((name,)).union(*(self.history[each] for each in parents))
        return name

    def independent(self, heads: set[str]) -> set[str]:
        return {
            head for head in heads
            if not any(head != each and head in self.history[each] for each in heads)
        }  # fmt: skip

    def store(
        self, old: dict[str, Any] | None, head: str, time: str, *, pack: bool = False
    ) -> dict[str, Any]:
        """The next version of a record, as docs/memory.md has it."""
        known = [] if old is None else [old["head"], *old.get("otherHeads", ())]
        kept = [] if old is None or pack else list(old["bundles"])
        if known and known[0] not in self.history[head]:
            head, aside = known[0], head
            known.append(aside)
        others = sorted(self.independent({head, *known}) - {head})
        has = frozenset[str]().union(*(self.history[each["head"]] for each in kept))
        for each in (head, *others):
            if new := self.history[each] - has:
                kept.append({"head": each, "content": sorted(new)})
                has |= new
        value = {"head": head, "branch": "main", "updatedAt": time, "bundles": kept}
        if others:
            value["otherHeads"] = others
        if pack and old is not None:
            named = [*known, *(b["head"] for b in old["bundles"]), *old.get("included", ())]
            value["included"] = sorted(set(named) - {head, *others})[:100]
        return value

    def check(self, value: dict[str, Any]) -> frozenset[str]:
        """All that a record holds. Its bundles, one after the other, give every history whole."""
        has: set[str] = set()
        for bundle in value["bundles"]:
            has |= set(bundle["content"])
            assert self.history[bundle["head"]] <= has
        for head in (value["head"], *value.get("otherHeads", ())):
            assert self.history[head] <= has
        return frozenset(has)


def test_a_memory_that_went_on_replaces_what_it_came_from():
    git = Git()
    first = git.store(None, one := git.commit(), NOON)
    second = git.store(first, two := git.commit(one), LATER)
    packed = git.store(second, git.commit(two), LAST, pack=True)
    assert len(packed["bundles"]) == 1
    for old, new in ((first, second), (first, packed), (second, packed)):
        assert both_ways(MEMORY, old, new) == new
        # Whatever the clocks say: but then it has to be later than either.
        early = {**new, "updatedAt": "2020-01-01T00:00:00.000Z"}
        time = old["updatedAt"].replace(".000Z", ".001Z")
        assert both_ways(MEMORY, old, early) == {**new, "updatedAt": time}


def test_of_two_memories_that_went_apart_both_stay():
    git = Git()
    base = git.store(None, one := git.commit(), NOON)
    left = git.store(base, two := git.commit(one), LATER)
    right = git.store(base, three := git.commit(one), LAST)
    both = both_ways(MEMORY, left, right)
    assert (both["head"], both["otherHeads"]) == (three, [two])
    assert both["updatedAt"] == LAST.replace(".000Z", ".001Z")
    assert [each["head"] for each in both["bundles"]] == [one, three, two]
    assert git.check(both) == {one, two, three}
    # What was made of them both replaces either, and so does what was made of that.
    merged = git.store(both, git.commit(two, three), "2026-03-06T00:00:00.000Z")
    assert "otherHeads" not in merged
    for each in (left, right, both):
        assert both_ways(MEMORY, each, merged) == merged


def test_who_went_on_with_a_part_is_ahead_of_it():
    git = Git()
    base = git.store(None, one := git.commit(), NOON)
    later = git.store(base, two := git.commit(one), NOON)
    other = git.store(None, lone := git.commit(), LATER)
    blind = both_ways(MEMORY, base, other)
    assert (blind["head"], blind["otherHeads"]) == (lone, [one])
    both = both_ways(MEMORY, later, blind)
    assert (both["head"], both["otherHeads"]) == (lone, [two])
    assert git.check(both) == {one, two, lone}


def test_there_is_an_end_to_what_a_memory_holds():
    git = Git()
    left = right = git.store(None, root := git.commit(), NOON)
    for _ in range(60):
        left = git.store(left, git.commit(root), LATER)
        right = git.store(right, git.commit(root), LAST)
    assert both_ways(MEMORY, left, right) == right


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["store", "pack", "take", "merge"]),
            st.integers(0, 2),
            st.integers(0, 2),
            st.integers(-2, 2),
        ),
        max_size=30,
    )
)
def test_no_commit_is_lost_however_memories_meet(steps):
    git = Git()
    records: list[dict[str, Any] | None] = [None] * 3
    stored: set[str] = set()
    clock = 100
    for what, at, other, skew in steps:
        mine, theirs = records[at], records[other]
        clock += 1
        time = f"2026-03-05T12:{(clock + skew) // 60:02}:{(clock + skew) % 60:02}.000Z"
        if mine is None or what in ("store", "pack"):
            parents = () if mine is None else (mine["head"],)
            head = git.commit(*parents)
            time = time if mine is None or time > mine["updatedAt"] else later(mine)
            records[at] = git.store(mine, head, time, pack=what == "pack")
            stored.add(head)
        elif what == "merge":
            head = git.commit(mine["head"], *mine.get("otherHeads", ()))
            records[at] = git.store(mine, head, max(time, later(mine)))
        elif theirs is not None:
            records[at] = both_ways(MEMORY, mine, theirs)
            assert git.check(records[at]) >= git.check(mine) | git.check(theirs)
    # In the end all hear of all, until nothing changes any more.
    there = [record for record in records if record is not None]
    for _ in range(4):
        for at, _ in enumerate(there):
            for other in there:
                there[at] = both_ways(MEMORY, there[at], other)
    for record in there:
        assert record == there[0]
        assert git.check(record) >= stored
