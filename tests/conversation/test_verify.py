"""What `verify` finds in conversations and projections that were tampered with."""

import pytest

from tests.conversation.talk import call


@pytest.fixture
def sound(talk, monkeypatch):
    monkeypatch.setattr("lettaspace.conversation.search._BATCH", 5)
    talk.add("a", 1)
    talk.add("calls", 2, role="assistant", content=[call("c1")])
    talk.add("result", 3, role="toolResult", toolCallId="c1")
    talk.add("S", 4, covers=["a", "calls", "result"])
    talk.add("next", 5)
    return talk


def kinds(space):
    return sorted({problem.kind for problem in space.verify()})


def test_a_sound_space_has_no_problem(sound, space):
    told = set()
    assert list(space.verify(lambda what, done, total: told.add((what, done == total)))) == []
    assert {what for what, finished in told if finished} == {
        "records",
        "search texts",
        "conversations",
    }


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE message_index SET seq = 9 WHERE seq = 5", ["projection"]),
        ("UPDATE message_index SET place = 9 WHERE seq = 4", ["projection"]),
        ("UPDATE message_index SET in_window = 1 WHERE seq = 1", ["projection"]),
        ("UPDATE message_index SET covered_by = NULL WHERE seq = 1", ["projection"]),
        ("DELETE FROM message_index WHERE seq = 5", ["projection"]),
        ("DELETE FROM message_covers WHERE ordinal = 0", ["projection"]),
        ("UPDATE search_text SET text = 'x' WHERE text = 'next'", ["search-text"]),
        ("UPDATE search_progress SET indexed = 7", ["search-index"]),
        (
            "UPDATE search_text SET text = 'something else' WHERE text = 'a'",
            ["search-index", "search-text"],
        ),
        (
            "DELETE FROM search_text WHERE text = 'next'",
            ["search-text"],
        ),
        (
            "UPDATE search_text SET record = 99 WHERE text = 'next'",
            ["search-text"],
        ),
    ],
)
def test_what_is_tampered_with_is_named(sound, space, statement, expected):
    with space.database.write() as connection:
        assert connection.exec_driver_sql(statement).rowcount == 1
    assert kinds(space) == expected


def test_it_changes_nothing_and_leaves_nothing_behind(sound, space):
    def dump():
        with space.database.read() as connection:
            return [
                connection.exec_driver_sql(f"SELECT * FROM {table}").all()
                for table in ("message_index", "message_covers", "search_text", "records", "ops")
            ]

    before = dump()
    for _ in range(2):
        assert list(space.verify()) == []
    assert dump() == before


def test_a_seq_used_twice_a_tid_listed_twice(sound, space):
    sound.add("twin", 5)
    sound.add("B", 6, covers=["S", "a"])
    assert kinds(space) == ["listed-twice", "seq"]
    assert all("\n" not in str(problem) for problem in space.verify())
