"""Copies in forks are told from what was said there."""

import pytest

from lettaspace.conversation.payload import AssistantMessage, UserMessage
from lettaspace.conversation.space import Space


@pytest.fixture
def talk(space):
    talk = space.create_conversation(space.create_agent("Otter"))
    talk.append(UserMessage.text("a plum"))
    talk.append(AssistantMessage.text("one plum"))
    return talk


def found(space, query="plum", **options):
    search = space.search(query, **options)
    return {(hit.conversation, hit.message.seq): hit.copy_of for hit in search.hits}


def uri(talk, seq):
    return next(message.uri for message in talk.transcript() if message.seq == seq)


def test_o37_a_fork_stays_its_own(space, talk):
    talk.append(UserMessage.text("another plum"))
    talk.append(AssistantMessage.text("two plums"))
    second = talk.window().messages[1]
    fork = talk.fork(second.rkey)
    talk.append(UserMessage.text("a plum written later"))
    home = space.home
    space.close()
    with Space.open(home) as again:
        talk, fork = again.conversation(talk.rkey), again.conversation(fork.rkey)
        assert len(fork.window().messages) == 2
        assert [message.seq for message in fork.transcript()] == [1, 2]
        left = fork.info.forked_from
        assert left["conversation"]["uri"] == talk.uri
        assert left["message"]["uri"] == second.uri
        search = again.search("plum")
        assert (search.total, search.distinct) == (7, 5)
        assert found(again) == {
            **{(talk.uri, seq): None for seq in range(1, 6)},
            (fork.uri, 1): uri(talk, 1),
            (fork.uri, 2): uri(talk, 2),
        }


def test_what_the_fork_says_itself_is_no_copy(space, talk):
    fork = talk.fork()
    talk.append(UserMessage.text("plum again"), created_at="2026-03-05T10:00:00.000Z")
    fork.append(UserMessage.text("plum again"), created_at="2026-03-05T10:00:01.000Z")
    assert found(space)[fork.uri, 3] is None
    # What was rewritten since says something else.
    fork.rewrite(fork.window().messages[0].rkey, UserMessage.text("no plum"))
    talk.rewrite(talk.window().messages[1].rkey, AssistantMessage.text("never a plum"))
    assert found(space)[fork.uri, 1] is None
    assert found(space)[fork.uri, 2] is None
    assert space.search("plum").distinct == 6


def test_a_fork_of_a_fork_leads_to_the_first(space, talk):
    middle = talk.fork()
    middle.append(UserMessage.text("plum in between"))
    last = middle.fork()
    assert found(space)[last.uri, 1] == uri(talk, 1)
    assert found(space)[last.uri, 3] == uri(middle, 3)
    search = space.search("plum")
    assert (search.total, search.distinct) == (8, 3)


def test_all_hits_count_shown_or_not(space, talk):
    talk.fork()
    search = space.search("plum", limit=1)
    assert (len(search.hits), search.total, search.distinct) == (1, 4, 2)
    assert space.search("fig").distinct == 0


def test_a_copied_summary_is_a_copy(space, talk):
    talk.compact(lambda _covered: "about plums")
    summary = talk.window().messages[0]
    fork = talk.fork()
    assert found(space, "about plums") == {
        (talk.uri, summary.seq): None,
        (fork.uri, 1): summary.uri,
    }
