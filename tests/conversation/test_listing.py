"""The listing kept current against one that is made anew."""

import itertools
import shutil
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lettaspace.atproto import cbor
from lettaspace.conversation import listing as module
from lettaspace.conversation.listing import Listing, Pulse
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
)
from lettaspace.conversation.space import Space
from lettaspace.errors import Ambiguous, NotFound
from lettaspace.space import schema
from lettaspace.space.writes import Create, Delete, Update
from tests.conversation.talk import TIME, Talk

TALKS = 3


def put(space, collection, rkey, value):
    kind = Create if space.repo.get(collection, rkey) is None else Update
    space.repo.apply_writes([kind(collection, rkey, value)])


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """An empty space to copy: making one takes most of the time of these tests."""
    home = tmp_path_factory.mktemp("listing") / "home"
    Space.open(home).close()
    return home


class World:
    """A space that two openers write to, and a listing that a third one keeps."""

    def __init__(self, template, home):
        shutil.copytree(template, home)
        self.writers = [Space.open(home), Space.open(home)]
        self.reader = Space.open(home)
        self.talks = [
            Talk(self.writers[0], rkey=f"3lalalalala2{letter}", recorded=letter != "c")
            for letter in "abc"
        ]
        self.listing = Listing(self.reader)
        self.seqs = itertools.count(1)
        self.seen = self.listing.conversations()[0]
        self.check()

    def close(self):
        self.listing.close()
        for space in (*self.writers, self.reader):
            space.close()

    def check(self):
        """The same as one made anew; what it says has changed is what has."""
        before = {each.rkey: each for each in self.seen}
        version = self.listing.version
        changes = self.listing.refresh()
        assert self.listing.changed_since(version) == changes
        assert not self.listing.refresh()
        found, total = self.listing.conversations()
        assert found == self.reader.conversations()
        assert total == len(found)
        assert self.listing.agents() == self.reader.agents()
        for agent in self.listing.agents():
            own = self.reader.conversations(agent=agent.uri)
            assert self.listing.conversations(agent.rkey) == (own, len(own))
            assert self.listing.agent(agent.rkey) == agent
        for each in found:
            assert self.listing.get(each.rkey) == each
        after = {each.rkey: each for each in found}
        differs = {rkey for rkey in before | after if before.get(rkey) != after.get(rkey)}
        assert changes.everything or differs <= changes.conversations
        self.seen = found
        return changes

    def step(self, name, writer, at, pick):
        talk = self.talks[at]
        talk.space = space = self.writers[writer]
        names = list(talk.tids)
        one = names[pick % len(names)] if names else None
        match name:
            case "add":
                seq = next(self.seqs)
                talk.add(f"m{seq}", seq, created=f"2024-03-05T10:{pick:02}:00.000Z")
            case "add compacted":
                seq = next(self.seqs)
                talk.add(f"m{seq}", seq, status="compacted")
            case "summary":
                seq = next(self.seqs)
                talk.add(f"m{seq}", seq, covers=names[:pick])
            case "remark" if one:
                talk.remark(one, status="compacted" if pick % 2 else "active", updatedAt=TIME)
            case "delete" if one:
                talk.delete(one)
                del talk.tids[one]
            case "move" if one:
                other = self.talks[(at + 1) % TALKS]
                talk.remark(one, conversation=other.uri)
                other.tids[f"{one} moved"] = talk.tids.pop(one)
            case "title":
                state = {"conversation": talk.uri, "title": f"t{pick}", "updatedAt": TIME}
                put(space, CONVERSATION_STATE, talk.rkey, state)
            case "used":
                last = f"2025-03-05T10:{pick:02}:00.000Z"
                state = {"conversation": talk.uri, "lastMessageAt": last, "updatedAt": TIME}
                put(space, CONVERSATION_STATE, talk.rkey, state)
            case "agent":
                put(space, AGENT, f"agent-{pick % 2}", {"name": f"A{pick}"})
            case "to agent":
                agent = space.address.agent(f"agent-{pick % 3}")
                put(space, CONVERSATION, talk.rkey, {"agent": agent, "createdAt": TIME})
            case "no record" if space.repo.get(CONVERSATION, talk.rkey):
                space.repo.apply_writes([Delete(CONVERSATION, talk.rkey)])
            case "no agent" if space.repo.get(AGENT, "agent-otter"):
                space.repo.apply_writes([Delete(AGENT, "agent-otter")])


STEPS = (
    ["add"] * 4
    + ["add compacted", "summary", "remark", "delete", "move", "title", "used", "agent"]
    + ["to agent", "no record", "no agent"]
)
steps = st.lists(
    st.tuples(
        st.sampled_from(STEPS), st.integers(0, 1), st.integers(0, TALKS - 1), st.integers(0, 9)
    ),
    max_size=4,
)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rounds=st.lists(steps, min_size=1, max_size=5))
def test_it_is_what_a_new_one_would_be(template, tmp_path_factory, rounds):
    world = World(template, tmp_path_factory.mktemp("listing") / "home")
    try:
        for some in rounds:
            for step in some:
                world.step(*step)
            world.check()
    finally:
        world.close()


@pytest.fixture
def world(template, tmp_path):
    made = World(template, tmp_path / "home")
    yield made
    made.close()


def no_building(monkeypatch):
    def fail(*_):
        raise AssertionError("everything was read anew")

    monkeypatch.setattr(Listing, "_build", fail)


def test_what_others_append_costs_no_building(world, monkeypatch):
    for at in range(TALKS):
        world.step("add", 0, at, 1)
    world.check()
    no_building(monkeypatch)
    for step in ("add", "title", "summary", "agent", "to agent", "remark", "used"):
        world.step(step, 1, 1, 2)
        changes = world.check()
        assert not changes.everything
        assert changes.conversations == (set() if step == "agent" else {world.talks[1].rkey})
        assert changes.agents == ({"agent-0"} if step == "agent" else set())


def test_an_append_does_not_count_the_conversation(world, monkeypatch):
    world.step("add", 0, 0, 1)
    world.check()
    monkeypatch.setattr("lettaspace.conversation.roster.overview.counts", None)
    world.step("add", 1, 0, 2)
    assert world.listing.refresh().conversations == {world.talks[0].rkey}
    assert world.listing.get(world.talks[0].rkey).messages == 2


def test_a_new_prompt_is_a_change_of_its_conversation(world):
    talk = world.talks[0]
    prompt = {
        "conversation": talk.uri,
        "agent": talk.agent,
        "content": "You keep jars.",
        "coreMemory": "jars",
        "rawSystemHash": "h",
        "compiledAt": TIME,
    }
    put(world.writers[1], COMPILED_PROMPT, talk.rkey, prompt)
    assert world.check().conversations == {talk.rkey}


def test_writes_that_concern_no_conversation_are_no_change(world):
    put(world.writers[1], "com.example.note", "a", {"text": "jars"})
    assert not world.check()


@pytest.mark.parametrize("how", ["cut off", "too long", "gone back", "another author"])
def test_a_log_that_does_not_tell_has_everything_read_anew(world, monkeypatch, how):
    world.step("add", 0, 0, 1)
    world.check()
    if how == "too long":
        monkeypatch.setattr(module, "MAX_OPS", 2)
    for _ in range(3):
        world.step("add", 0, 1, 1)
    with world.writers[0].database.write() as connection:
        if how == "cut off":
            last = schema.ops.select().order_by(schema.ops.c.rev.desc())
            rev = connection.execute(last).first().rev
            connection.execute(schema.ops.delete().where(schema.ops.c.rev != rev))
        elif how == "gone back":
            connection.execute(schema.repos.update().values(rev="2222222222222"))
        elif how == "another author":
            connection.execute(
                schema.repos.insert().values(
                    space="at://x", author="did:web:x", set_hash=schema.EMPTY_SET_HASH
                )
            )
    assert world.check().everything


def test_a_damaged_message_stops_nothing(world):
    world.step("add", 0, 0, 1)
    world.check()
    world.step("add", 0, 0, 1)
    with world.writers[0].database.write() as connection:
        stored = schema.records
        connection.execute(
            stored.update()
            .where(stored.c.collection == MESSAGE)
            .values(value=cbor.encode({"a": 1})[:-1])
        )
    world.check()
    assert world.listing.get(world.talks[0].rkey).messages == 2


def test_a_refresh_that_failed_is_made_up_for(world, monkeypatch):
    world.step("add", 0, 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Listing, "_read", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.listing.refresh()
    assert world.check().everything


def test_several_observers_each_see_all_changes(world):
    slow = fast = world.listing.version
    for at in (0, 1):
        world.step("title", 1, at, 1)
        changes = world.listing.refresh()
        assert changes == world.listing.changed_since(fast)
        fast = changes.version
    both = {world.talks[0].rkey, world.talks[1].rkey}
    assert world.listing.changed_since(slow).conversations == both
    assert not world.listing.changed_since(fast)


def test_pages_of_the_list(world):
    for at, minute in ((0, 5), (1, 9), (2, 7)):
        world.step("add", 0, at, minute)
    world.check()
    order = [world.talks[at].rkey for at in (1, 2, 0)]

    def rkeys(**page):
        found, total = world.listing.conversations(**page)
        assert total == 3
        return [each.rkey for each in found]

    assert rkeys() == order
    assert rkeys(limit=2) == order[:2]
    assert rkeys(start=1, limit=1) == order[1:2]
    assert rkeys(start=2, limit=9) == order[2:]
    assert rkeys(start=3, limit=2) == rkeys(start=9) == rkeys(limit=0) == []
    assert world.listing.conversations("agent-nobody") == ([], 0)
    assert world.listing.get("3zzzzzzzzzzzz") is None
    assert world.listing.agent("nobody") is None


def test_names(world):
    talk = world.talks[0]
    assert world.listing.find(talk.rkey).uri == talk.uri
    assert world.listing.find(talk.uri).uri == talk.uri
    with pytest.raises(Ambiguous):
        world.listing.find("3la")
    with pytest.raises(NotFound):
        world.listing.find("jars")


def test_threads_may_share_it(world):
    failures = []

    def look():
        try:
            for _ in range(30):
                world.listing.refresh()
                found, total = world.listing.conversations()
                assert len(found) == total
                world.listing.agents()
        except Exception as error:  # told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(20):
        world.step("add", number % 2, number % TALKS, number % 10)
    for thread in threads:
        thread.join()
    assert failures == []
    world.check()


def test_the_pulse_feels_every_writer_and_nothing_else(space, tmp_path):
    pulse = Pulse(space.database)
    assert pulse.changed()
    assert not pulse.changed()
    with Space.open(tmp_path / "home") as other:
        assert not pulse.changed()
        other.create_agent("Otter")
        assert pulse.changed()
        assert not pulse.changed()
    space.create_agent("Kiln")
    assert pulse.changed()
    space.agents()
    assert not pulse.changed()
    pulse.forget()
    assert pulse.changed()
    pulse.close()
