"""Forks: what they hold, what they name, and that their source is left alone."""

import pytest

from lettaspace.conversation.records import CONVERSATION_STATE, MESSAGE
from lettaspace.errors import NotFound
from tests.conformance.kit import Talk, check, result, says, user, words


@pytest.fixture
def source(talk):
    """Compacted: u A r | B and what follows."""
    talk.add(user("u"), says("A", "c1"), result("r", "c1"), says("B"), user("v"), says("C"))
    talk.compact(3)
    return talk


def fork(talk, at=None, **more):
    """Forks at a message known by its word, and holds the source against what it was."""
    before = everything(talk)
    made = Talk(talk.handle.fork(at and talk.of(at).rkey, **more))
    assert everything(talk) == before
    check(made)
    return made


def everything(talk):
    """Every record that is not of a fork, byte for byte."""
    records = {(each.rkey, each.cid): each.value for each in talk.records()}
    others = [
        talk.space.repo.get(collection, talk.handle.rkey)
        for collection in ("xyz.quasigod.lab.letta.conversation", CONVERSATION_STATE)
    ]
    return records, others


def test_at_the_end_it_is_the_window(source):
    made = fork(source)
    assert made.window == made.transcript == source.window == ["S", "B", "v", "C"]
    assert made.seqs == [1, 2, 3, 4]
    ours, theirs = source.handle.window().messages, made.handle.window().messages
    assert [each.payload() for each in ours] == [each.payload() for each in theirs]
    assert [each.created_at for each in ours] == [each.created_at for each in theirs]
    assert not {each.rkey for each in ours} & {each.rkey for each in theirs}
    rkeys = [each.rkey for each in theirs]
    assert rkeys == sorted(rkeys)
    assert all(each.value.get("compactedMessageIds") is None for each in theirs)


@pytest.mark.parametrize(
    ("at", "window"),
    [
        ("S", ["S"]),
        ("B", ["S", "B"]),
        ("v", ["S", "B", "v"]),
        ("u", ["u"]),
        ("A", ["u", "A", "!c1"]),
        ("r", ["u", "A", "r"]),
    ],
)
def test_the_point_is_exact(source, at, window):
    made = fork(source, at)
    assert made.window == window
    assert made.handle.info.messages == len(window)


def test_at_a_message_that_is_compacted_later(talk):
    messages = talk.users("abcd")
    talk.compact(2, "S")
    talk.compact(2, "T")
    assert talk.window == ["T", "d"]
    assert fork(talk, "b").window == ["a", "b"]
    # The window of then is gone: S stands for a and b, which come back as they were.
    assert fork(talk, "c").window == ["a", "b", "c"]
    assert fork(talk, "S").window == ["S"]
    assert fork(talk, "d").window == ["T", "d"]
    made = talk.handle.fork(messages[0].rkey)
    assert words(made.window().messages) == ["a"]


def test_what_it_names_resolves(source):
    made = fork(source, "v")
    reference = made.handle.info.forked_from
    assert reference["conversation"]["uri"] == source.handle.uri
    assert reference["message"]["uri"] == source.of("v").uri
    for each in reference.values():
        assert str(source.space.record(each["uri"]).cid) == each["cid"]
    # Conversations are never rewritten, so this reference goes on to hold.
    source.users("x")
    source.compact(5, "T")
    conversation = reference["conversation"]
    assert str(source.space.record(conversation["uri"]).cid) == conversation["cid"]


def test_each_goes_its_own_way(make_space, source):
    made = fork(source, "B")
    source.users("x")
    made.users("y")
    source.compact(2, "T")
    assert source.window == ["T", "v", "C", "x"]
    assert made.window == ["S", "B", "y"]
    made.compact(2, "U")
    assert made.window == ["U", "y"]
    assert made.transcript == ["S", "B", "U", "y"]
    again = make_space()
    assert source.seen_by(again).window == ["T", "v", "C", "x"]
    assert made.seen_by(again).window == ["U", "y"]
    check(source)
    check(made)


class TestCalls:
    def test_a_call_without_its_result_is_settled_in_the_fork(self, talk):
        talk.add(user("u"), says("A", "c1"), user("v"), result("late", "c1"), user("w"))
        made = fork(talk, "v")
        assert made.window == ["u", "A", "!c1", "v"]
        assert talk.handle.pending() == made.handle.pending() == []
        # And not answered by what is said elsewhere.
        talk.add(result("again", "c1"))
        assert made.window == ["u", "A", "!c1", "v"]
        made.add(result("own", "c1"))
        assert made.window == ["u", "A", "own", "v"]
        assert talk.window == ["u", "A", "v", "late", "w", "again"]

    def test_between_parallel_results(self, talk):
        talk.add(says("A", "c1", "c2"), result("r1", "c1"), result("r2", "c2"))
        assert fork(talk, "r1").window == ["A", "r1", "!c2"]

    def test_placeholders_of_the_source_are_the_fork_s_own(self, talk):
        talk.add(says("A", "c1"), user("v"))
        talk.handle.settle()
        made = fork(talk)
        made.add(result("real", "c1"))
        assert made.window == ["A", "real", "v"]
        assert talk.window == ["A", "!c1", "v"]

    def test_a_call_in_flight_goes_on_in_the_source(self, talk):
        talk.add(user("u"), says("A", "c1"))
        made = fork(talk)
        assert made.window == ["u", "A", "!c1"]
        assert talk.handle.pending() == ["c1"]


def test_formats_that_are_unknown_come_along(talk):
    talk.users("a")
    at = talk.unknown("x")
    talk.users("b")
    talk.compact(1)
    made = Talk(talk.handle.fork(at.rkey))
    assert words(talk.space.active(made.handle.uri)) == ["S", "?x"]
    whole = fork(talk)
    assert whole.transcript == ["S", "?x", "b"]
    assert words(whole.handle.window().left_out) == ["?x"]


def test_titles(source):
    assert fork(source).handle.info.title == "Jars"
    assert fork(source, title="Other jars").handle.info.title == "Other jars"


def test_nothing_to_fork(space, talk):
    with pytest.raises(NotFound):
        talk.handle.fork()
    talk.users("a")
    other = Talk.new(space)
    other.users("b")
    conversations = len(space.conversations())
    for rkey in (other.of("b").rkey, "3zzzzzzzzzzzz"):
        with pytest.raises(NotFound):
            talk.handle.fork(rkey)
    assert len(space.conversations()) == conversations


def test_the_label_is_there_until_it_is_whole(source, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            "lettaspace.conversation.space.Space.complete",
            lambda *_arguments: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        with pytest.raises(KeyboardInterrupt):
            source.handle.fork()
    cut_off = [each for each in source.space.conversations() if each.incomplete]
    assert len(cut_off) == 1
    made = fork(source)
    assert made.handle.info.incomplete is False
    record = source.space.repo.get(CONVERSATION_STATE, made.handle.rkey)
    assert "incomplete" not in record.value


def test_of_more_than_a_batch(talk):
    for number in range(450):
        talk.foreign(number + 1, user(f"m{number}"))
    made = fork(talk)
    assert made.window == [f"m{number}" for number in range(450)]
    assert made.seqs == list(range(1, 451))


def test_of_a_fork(source):
    made = fork(fork(source, "v"), "B")
    assert made.window == ["S", "B"]


def test_blobs_are_shared(talk):
    image = {"type": "image", "data": "aGk=" * 30_000, "mimeType": "image/png"}
    talk.add({"role": "user", "content": [{"type": "text", "text": "look"}, image]})
    made = fork(talk)
    ours, theirs = talk.of("look"), made.of("look")
    assert ours.value["message"] == theirs.value["message"]
    assert theirs.payload()["content"][1] == image
    assert talk.space.repo.get(MESSAGE, theirs.rkey) is not None


def test_at_a_point_with_a_shared_seq(talk):
    talk.foreign(1, user("a"), rkey="3mmmmmmmmmaa2")
    talk.foreign(1, user("b"), rkey="3mmmmmmmmmbb2")
    talk.foreign(2, user("c"))
    assert words(talk.handle.fork("3mmmmmmmmmbb2").window().messages) == ["a", "b"]
