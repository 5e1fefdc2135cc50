"""Other authors' records in the same space: read like one's own, never written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lettaspace import Space
from lettaspace.conversation.listing import Listing
from lettaspace.conversation.prompt import compile_prompt
from lettaspace.conversation.records import MESSAGE, Address, envelope
from lettaspace.conversation.usage import UsageCounter
from lettaspace.errors import InvalidInput, NotFound
from lettaspace.space.writes import Create
from tests.conformance.kit import result, says, user, words

BOB = "did:web:bob.example"
EVE = "did:web:eve.example"


def as_author(space: Space, did: str) -> Space:
    """The same store, to be written by somebody else: as a pull does."""
    return Space(space.home, space.identity, space.database, Address(space.ref, did))


def answer(text: str, tokens: int) -> dict[str, Any]:
    more = {
        "provider": "lmstudio",
        "model": "m",
        "responseId": text,
        "timestamp": 1_700_000_000_000,
    }
    usage = {"input": tokens, "output": 0, "totalTokens": tokens}
    return says(text, **more, usage=usage)


def _summing(who: str) -> Callable[[object], str]:
    return lambda _covered: f"{who} SUM"


@pytest.fixture
def both(home: Path) -> Any:
    """A store with a conversation of ours and one of Bob's, whose keys are the same."""
    with Space.open(home) as space:
        for each, who in ((space, "mine"), (as_author(space, BOB), "bobs")):
            talk = each.create_conversation(
                each.create_agent(f"Otter {who}", key="otter"), title=f"Jars {who}"
            )
            for number in range(3):
                talk.append(user(f"{who} jar {number}"))
            talk.append(answer(f"{who} answer", 10 if each is space else 100))
            talk.compact(_summing(who), lambda _: 2)
        yield space


def test_who_is_here(both: Space) -> None:
    assert both.members() == [BOB]
    assert both.member(BOB).members() == [both.address.author]
    assert both.member(both.address.author) is both
    for did in (EVE, "bob.example", ""):
        with pytest.raises(NotFound):
            both.member(did)


def test_lists_are_of_one_author(both: Space) -> None:
    for space, who in ((both, "mine"), (both.member(BOB), "bobs")):
        (talk,) = space.conversations()
        assert (talk.title, talk.messages, talk.active) == (f"Jars {who}", 5, 3)
        assert space.conversation_info(talk.rkey) == talk
        assert space.conversation_info(talk.uri) == talk
        (agent,) = space.agents()
        assert (agent.name, agent.conversations, agent.messages) == (f"Otter {who}", 1, 5)
        with Listing(space) as listing:
            assert listing.conversations() == ([talk], 1)
            assert listing.agents() == [agent]
    other = both.member(BOB).conversations()[0]
    with pytest.raises(NotFound):
        both.conversation(other.uri)


def test_a_members_conversation_reads_like_ones_own(both: Space) -> None:
    space = both.member(BOB)
    talk = space.conversation(space.conversations()[0].rkey)
    assert words(talk.window().messages) == ["bobs SUM", "bobs jar 2", "bobs answer"]
    assert words(talk.transcript())[:3] == ["bobs jar 0", "bobs jar 1", "bobs SUM"]
    assert all(each.uri.startswith(space.address.prefix) for each in talk.transcript())


def test_search_finds_everybodys_unless_told_otherwise(both: Space) -> None:
    theirs = both.member(BOB)
    authors = {hit.message.uri.split("/")[6] for hit in both.search("jar").hits}
    assert authors == {both.address.author, BOB}
    assert both.search("jar").total == 6
    for space in (both, theirs):
        found = space.search("jar", own=True)
        assert found.total == 3
        assert all(hit.conversation.startswith(space.address.prefix) for hit in found.hits)


def test_usage_is_of_one_author(both: Space) -> None:
    for space, tokens in ((both, 10), (both.member(BOB), 100)):
        assert space.usage().total.total == tokens
        assert UsageCounter(space).report().total.total == tokens


def _writes(space: Space) -> list[Callable[[], object]]:
    talk = space.conversation(space.conversations()[0].rkey)
    message = talk.window().messages[-1]
    return [
        lambda: space.create_agent("Late"),
        lambda: space.create_conversation("otter"),
        lambda: space.complete(talk.rkey),
        lambda: talk.append(user("late")),
        lambda: talk.append(result("late", "c1"), key="late"),
        lambda: talk.rewrite(message.rkey, user("late")),
        lambda: talk.compact(lambda _: "late"),
        talk.settle,
        talk.repair,
        talk.fork,
        lambda: compile_prompt(space, talk.uri, memory=None, template="late"),
        lambda: space.repo.apply_writes([]),
        lambda: space.repo.run(lambda _tx: None),
    ]


@pytest.mark.parametrize("number", range(13))
def test_nothing_is_written_there(both: Space, number: int) -> None:
    space = both.member(BOB)
    before = space.repo.rev()
    with pytest.raises(InvalidInput, match=f"{BOB} are only read here"):
        _writes(space)[number]()
    assert (space.repo.rev(), len(_writes(space))) == (before, 13)
    assert not list(both.verify())


def test_what_no_record_tells_of_is_in_one_list(both: Space) -> None:
    """Messages that name a conversation of which there is no record: in the list of whose repo
    it would be in, else of who wrote them."""
    bob = as_author(both, BOB)
    number = 0

    def write(space: Space, conversation: str) -> None:
        nonlocal number
        number += 1
        message = {
            "conversation": conversation,
            "agent": space.address.agent("otter"),
            "role": "user",
            "seq": number,
            "message": envelope("letta.localMessage", 1, user("lost")),
            "createdAt": "2024-03-05T10:00:00.000Z",
        }
        space.repo.apply_writes([Create(MESSAGE, f"3lalalalala2{number + 1}", message)])

    names = {
        "mine": both.address.conversation("3lbbbbbbbbb22"),
        "bobs": bob.address.conversation("3lccccccccc22"),
        "eves": Address(both.ref, EVE).conversation("3lddddddddd22"),
    }
    with Listing(both) as listing:
        write(both, names["mine"])
        write(both, names["bobs"])
        listing.refresh()
        write(bob, names["eves"])
        for space, wanted in ((both, {"mine"}), (both.member(BOB), {"bobs", "eves"})):
            found = {each.uri for each in space.conversations() if not each.recorded}
            assert found == {names[who] for who in wanted}
        listing.refresh()
        assert listing.conversations()[0] == both.conversations()
