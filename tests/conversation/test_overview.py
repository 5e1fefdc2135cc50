"""Lists of conversations and agents, and the names a conversation answers to."""

import pytest

from lettaspace.conversation.codec import encode
from lettaspace.conversation.listing import Listing
from lettaspace.conversation.paging import Last
from lettaspace.conversation.records import CONVERSATION_STATE, NO_AGENT, envelope
from lettaspace.conversation.space import Space
from lettaspace.errors import Ambiguous, InvalidInput, NotFound, StoreUnavailable
from lettaspace.space.writes import Create
from tests.conversation.talk import TIME, Talk


def state(talk, letta_id, **fields):
    data = encode({"id": letta_id, "agent_id": "agent-otter"}).value
    value = {
        "conversation": talk.uri,
        "updatedAt": TIME,
        "state": envelope("letta.localConversation", 1, data),
        **fields,
    }
    talk.space.repo.apply_writes([Create(CONVERSATION_STATE, talk.rkey, value)])


@pytest.fixture
def three(space):
    first = Talk(space, rkey="3lalalalala22")
    second = Talk(space, rkey="3lalalalbob22")
    third = Talk(space, rkey="3lbbbbbbbbb22", agent="agent-heron")
    state(first, "local-conv-1", title="Jars", tags=["x"], archived=True)
    state(second, "default")
    state(third, "local-conv-1")
    first.add("a", 1, created="2024-03-05T10:00:01.000Z")
    first.add("b", 2, created="2024-03-05T10:00:02.000Z")
    first.add("A", 3, covers="a", created="2024-03-05T10:00:03.000Z")
    second.add("c", 1, created="2024-03-05T10:00:09.000Z")
    return first, second, third


def test_conversations_with_counts_and_times(space, three):
    first, second, third = three
    listed = space.conversations()
    assert [each.rkey for each in listed] == [second.rkey, first.rkey, third.rkey]
    jars = listed[1]
    assert (jars.title, jars.messages, jars.active) == ("Jars", 3, 2)
    assert (jars.created_at, jars.updated_at) == (TIME, "2024-03-05T10:00:03.000Z")
    assert (jars.archived, jars.tags) == (True, ("x",))
    assert jars.letta == {"id": "local-conv-1", "key": "conversation:local-conv-1"}
    assert listed[0].letta == {"id": "default", "key": "default:agent-otter"}
    assert (listed[2].messages, listed[2].active, listed[2].title) == (0, 0, None)
    assert jars.uri == first.uri


def test_conversations_of_one_agent(space, three):
    assert [each.rkey for each in space.conversations(agent="agent-heron")] == [three[2].rkey]
    assert space.conversations(agent=three[2].agent) == space.conversations(agent="agent-heron")
    assert space.conversations(agent="agent-none") == []


def test_agents_with_counts(space, three):
    heron, otter = space.agents()
    assert (otter.rkey, otter.name, otter.conversations, otter.messages) == (
        "agent-otter",
        "Otter",
        2,
        4,
    )
    assert (heron.rkey, heron.conversations, heron.messages) == ("agent-heron", 1, 0)


def test_what_only_messages_name_is_listed_too(space):
    loose = Talk(space, recorded=False, agent=NO_AGENT)
    loose.add("a", 1)
    (listed,) = space.conversations()
    assert (listed.uri, listed.messages, listed.recorded) == (loose.uri, 1, False)
    assert space.agents() == []
    assert [message.seq for message in space.window(listed.uri).messages] == [1]


def test_an_agent_that_only_a_conversation_names(space, talk):
    space.repo.apply_writes(
        [
            Create(
                "xyz.quasigod.lab.letta.conversation",
                "3lccccccccc22",
                {"agent": space.address.agent("agent-ghost"), "createdAt": TIME},
            )
        ]
    )
    ghost = next(agent for agent in space.agents() if agent.rkey == "agent-ghost")
    assert (ghost.name, ghost.conversations, ghost.recorded) == (None, 1, False)


def test_the_names_of_a_conversation(space, three):
    first, second, third = three
    for name in (first.rkey, first.uri, "3lalalalala"):
        assert space.conversation(name).rkey == first.rkey
    for name in ("default", "default:agent-otter", "def"):
        assert space.conversation(name).rkey == second.rkey
    with pytest.raises(Ambiguous) as caught:
        space.conversation("local-conv-1")
    assert first.rkey in str(caught.value)
    assert third.rkey in str(caught.value)
    with pytest.raises(Ambiguous):
        space.conversation("3lalalal")
    with pytest.raises(NotFound):
        space.conversation("local-conv-2")
    with pytest.raises(InvalidInput):
        space.conversation("")


def test_an_exact_name_wins_over_a_prefix(space):
    one, ten = Talk(space, rkey="3lalalalala22"), Talk(space, rkey="3lbbbbbbbbb22")
    state(one, "local-conv-1")
    state(ten, "local-conv-10")
    assert space.conversation("local-conv-1").rkey == one.rkey
    assert space.conversation("local-conv-10").rkey == ten.rkey


def test_state_of_an_unknown_format_names_nothing(space, talk):
    value = {
        "conversation": talk.uri,
        "updatedAt": TIME,
        "state": {"format": "acme.state", "version": 1, "data": {"id": "x"}},
    }
    space.repo.apply_writes([Create(CONVERSATION_STATE, talk.rkey, value)])
    assert space.conversation_info(talk.rkey).letta == {}


def test_a_store_whose_key_is_missing_is_not_taken_for_an_empty_one(space, talk):
    key_file = space.home / "identity.json"
    kept = key_file.read_bytes()
    key_file.unlink()
    with pytest.raises(StoreUnavailable, match=r"identity\.json is missing"):
        Space.open(space.home)
    assert not key_file.exists()
    key_file.write_bytes(kept)
    key_file.chmod(0o600)
    with Space.open(space.home) as again:
        assert [each.rkey for each in again.conversations()] == [talk.rkey]


def test_o61_every_entry_of_the_list_opens(space):
    old = "2023-01-02T03:04:05.000Z"
    for number, letter in enumerate("abcd"):
        talk = Talk(space, rkey=f"3lalalalala2{letter}", recorded=letter != "d")
        if letter != "c":
            talk.add("one", 1, created=old, status="compacted" if number else "active")
            talk.add("S", 2, covers=["one"])
    with Listing(space) as listing:
        entries, total = listing.conversations()
    assert total == len(entries) == 4
    for info in entries:
        assert space.conversation_info(info.uri) == info
        for view, count in (("window", info.active), ("transcript", info.messages)):
            page = space.page(info.uri, view=view, anchor=Last(), limit=10)
            assert len(page.messages) == count


def test_a_conversation_by_its_tid_or_uri_is_found_without_the_others(space, monkeypatch):
    talk = Talk(space)
    unrecorded = Talk(space, rkey="3lalalalala2b", recorded=False)
    for each in (talk, unrecorded):
        each.add("one", 1)
    infos = {each.uri: each for each in space.conversations()}
    monkeypatch.setattr(Space, "conversations", None)
    for each in (talk, unrecorded):
        for name in (each.rkey, each.uri):
            assert space.conversation_info(name) == infos[each.uri]
            assert space.conversation(name).uri == each.uri
    assert space.conversation(talk.rkey).agent == talk.agent
