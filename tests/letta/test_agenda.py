"""When what is imported, by invented times."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lettaspace.letta.agenda import GAP, LATEST, MAX_RETRY, PATIENCE, QUIET, RETRY, Agenda

TORN = frozenset({"tornRow 12"})


@pytest.fixture
def agenda() -> Agenda:
    return Agenda()


def test_a_row_is_due_at_once(agenda: Agenda) -> None:
    assert agenda.next() is None
    agenda.changed("a", 100)
    assert agenda.next() == 100
    assert agenda.take(100, 9) == ["a"]
    assert agenda.take(200, 9) == []


def test_several_changes_are_one(agenda: Agenda) -> None:
    for time in (100, 100.01, 100.02):
        agenda.changed("a", time)
    assert agenda.take(101, 9) == ["a"]
    assert agenda.next() is None


def test_the_longest_due_is_first(agenda: Agenda) -> None:
    for path, time in (("b", 101), ("a", 102), ("c", 100)):
        agenda.changed(path, time)
    assert agenda.take(101.5, 9) == ["c", "b"]
    agenda.changed("d", 103)
    assert agenda.take(104, 1) == ["a"]
    assert agenda.take(104, 1) == ["d"]


def test_a_stream_of_rows_is_neither_starved_nor_imported_all_the_time(agenda: Agenda) -> None:
    taken = [0.0]
    for step in range(1000):
        now = step / 100
        agenda.changed("a", now)
        if agenda.take(now, 9):
            agenda.done("a", now, now + 0.01)
            taken.append(now)
    gaps = [after - before for before, after in pairwise(taken[1:])]
    assert min(gaps) >= GAP
    assert max(gaps) <= GAP + 0.03


def test_what_takes_long_takes_half_of_the_time(agenda: Agenda) -> None:
    agenda.done("a", 100, 104)
    agenda.changed("a", 104.5)
    assert agenda.next() == 108


def test_small_files_wait_until_it_is_quiet(agenda: Agenda) -> None:
    agenda.changed("a", 100, small=True)
    assert agenda.next() == 100 + QUIET
    agenda.changed("a", 100.2, small=True)
    assert agenda.next() == pytest.approx(100.2 + QUIET)
    for step in range(30):
        agenda.changed("a", 100 + step / 10, small=True)
    assert agenda.next() == 100 + LATEST


def test_a_row_does_not_wait_for_small_files(agenda: Agenda) -> None:
    agenda.changed("a", 100, small=True)
    agenda.changed("a", 100.1)
    assert agenda.next() == 100.1
    agenda.changed("a", 100.2, small=True)
    assert agenda.next() == 100.1


def test_what_is_half_written_is_looked_at_less_and_less_often(agenda: Agenda) -> None:
    now = 100.0
    pauses = []
    while not agenda.is_final("a", now):
        agenda.doubtful("a", TORN, now)
        due = agenda.next()
        assert due is not None
        pauses.append(due - now)
        now = due
        assert agenda.take(now, 9) == ["a"]
    assert pauses[0] == pytest.approx(RETRY)
    assert max(pauses) == pytest.approx(MAX_RETRY)
    assert PATIENCE <= now - 100 < PATIENCE + MAX_RETRY
    agenda.done("a", now, now)
    assert not agenda.is_final("a", now + 100)


def test_patience_begins_anew_when_something_else_is_half_written(agenda: Agenda) -> None:
    agenda.doubtful("a", TORN, 100)
    agenda.doubtful("a", frozenset({"tornRow 13"}), 102)
    assert not agenda.is_final("a", 104)
    assert agenda.is_final("a", 105)
