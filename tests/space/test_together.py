from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from lettaspace.atproto.cid import CID
from lettaspace.errors import Conflict, StoreUnavailable
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.together import MOST, Job, Together
from lettaspace.space.writes import Create
from tests.waiting import SECONDS, until

KIND = "com.example.kind"
SPACE = f"at://did:web:ada.example/space/{KIND}/self"


class Held:
    """Groups, the first of which waits until others have gathered behind it."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.groups: list[int] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self._fail = fail

    def commit(self, jobs: Sequence[Job]) -> None:
        self.groups.append(len(jobs))
        if len(self.groups) == 1:
            self.begun.set()
            assert self.go_on.wait(SECONDS)
        elif self._fail:
            jobs[-1].error = ValueError("its own")
            raise self._fail
        for job in jobs:
            try:
                job.result = job.work(None)
            except Exception as error:
                job.error = error


def gathered(together: Together, held: Held, works: Sequence[Callable[[Any], Any]]) -> list[Any]:
    """What each comes to, when all but the first wait for the first."""

    def outcome(work: Callable[[Any], Any]) -> Any:
        try:
            return together.run(work)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(works)) as threads:
        first = threads.submit(outcome, works[0])
        assert held.begun.wait(SECONDS)
        others = [threads.submit(outcome, work) for work in works[1:]]
        until(lambda: len(together._waiting) == len(others))
        held.go_on.set()
        return [first.result(), *(other.result() for other in others)]


def test_those_who_wait_are_done_together() -> None:
    held = Held()
    works = [lambda _, number=number: number for number in range(6)]
    assert gathered(Together(held.commit), held, works) == list(range(6))
    assert held.groups == [1, 5]


def test_a_group_has_a_bound() -> None:
    held = Held()
    works = [lambda _, number=number: number for number in range(MOST + 3)]
    assert gathered(Together(held.commit), held, works) == list(range(MOST + 3))
    assert held.groups == [1, MOST, 2]


def test_when_the_whole_fails_nobody_is_told_otherwise() -> None:
    gone = StoreUnavailable("the disk is full")
    held = Held(fail=gone)
    together = Together(held.commit)
    first, *others = gathered(together, held, [lambda _: 1] * 4)
    assert first == 1
    assert [type(other) for other in others] == [StoreUnavailable, StoreUnavailable, ValueError]
    held._fail = None
    assert together.run(lambda _: 2) == 2


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with Database.open(tmp_path / "store.db") as opened:
        yield opened


def test_one_that_fails_takes_nothing_with_it(database: Database) -> None:
    repo = EmbeddedRepo(database, SPACE, "did:web:ada.example", validate=lambda *_: None)
    commits: list[int] = []
    real = database._together._commit  # type: ignore[attr-defined]
    held = threading.Event(), threading.Event()

    def commit(jobs: Sequence[Job]) -> None:
        commits.append(len(jobs))
        if len(commits) == 1:
            held[0].set()
            assert held[1].wait(SECONDS)
        real(jobs)

    database._together._commit = commit  # type: ignore[attr-defined]

    def create(number: int) -> CID | str | None:
        try:
            write = Create(KIND, f"key{number % 7}", {"number": number})
            return repo.transact(lambda _: [write], together=True)[0].cid
        except Conflict:
            return "conflict"

    with ThreadPoolExecutor(16) as threads:
        first = threads.submit(create, 0)
        assert held[0].wait(SECONDS)
        others = [threads.submit(create, number) for number in range(1, 14)]
        until(lambda: len(database._together._waiting) == 13)  # type: ignore[attr-defined]
        held[1].set()
        outcomes = [each.result() for each in (first, *others)]
    assert commits == [1, 13]
    assert outcomes.count("conflict") == 7
    stored = {record.rkey: record.cid for record in repo.records(KIND)}
    assert sorted(stored) == [f"key{number}" for number in range(7)]
    assert {each for each in outcomes if isinstance(each, CID)} == set(stored.values())
    assert len(list(repo.ops())) == 7
    assert len({op.rev for op in repo.ops()}) == 7


def test_no_write_inside_another(database: Database) -> None:
    def work(_: Connection) -> None:
        database.run_together(lambda _: None)

    for run in (database.run, database.run_together):
        with pytest.raises(RuntimeError, match="inside another"):
            run(work)
    with database.write(), pytest.raises(RuntimeError, match="inside another"):
        database.run_together(lambda _: None)
    assert database.run_together(lambda _: 3) == 3
