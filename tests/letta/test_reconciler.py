"""Reconciling beside a watcher, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lettaspace.conversation.records import MEMORY
from lettaspace.errors import StoreUnavailable
from lettaspace.letta import reconciler
from lettaspace.letta.bringing import Bringing
from lettaspace.letta.importer import import_directory
from lettaspace.letta.reconciler import Reconciler
from lettaspace.letta.reconciling import ReconcileReport
from lettaspace.remote.branches import diverge
from tests.conversation.memories import commit, init
from tests.letta.build import AGENT, KEY, Store, at, message, row, rows
from tests.letta.sides import AT_ONCE, Side, append, read_rows
from tests.remote.apart import Host
from tests.waiting import until


class Told:
    """What a reconciler says."""

    def __init__(self) -> None:
        self.reports: list[ReconcileReport] = []
        self.problems: list[str] = []

    @contextmanager
    def by(self, side: Side, **more: Any) -> Iterator[Reconciler]:
        made = Reconciler(
            side.space,
            side.path,
            part=diverge,
            rest=AT_ONCE,
            on_report=self.reports.append,
            on_problem=self.problems.append,
            **more,
        )
        made.start()
        try:
            yield made
        finally:
            made.stop()


def test_what_comes_is_there_a_moment_later(sides: list[Side], host: Host) -> None:
    a, b = sides
    told = Told()
    with told.by(a) as made:
        for number in (5, 7):
            b.turn(number, f"On B {number}", name="b")
            b.sync(host)
            a.machine.sync(host)
            made.came()
            until(lambda number=number: a.said()[-1] == f"On B {number}!")
    assert told.problems == []
    assert sum(each.restored.rows for each in told.reports) == 4


def test_what_letta_is_at_work_in_is_tried_again(
    sides: list[Side], host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "AGAIN", 0.05)
    a, _ = sides
    asked = row(message(5, "user", "And now?", created=at(5)), "c5", read_rows(a.path)[-1]["id"])
    append(a.path, [asked])
    import_directory(a.space, a.path)
    rkey = next(each.rkey for each in a.space.conversations())
    talk = a.space.conversation(rkey)
    talk.append({"role": "user", "content": [{"type": "text", "text": "meanwhile"}]})
    told = Told()
    made = Reconciler(
        a.space, a.path, part=diverge, on_report=told.reports.append,
        on_problem=told.problems.append,
    )  # fmt: skip
    made.start()
    try:
        until(lambda: len(told.reports) > 1)
        assert {str(each.outcome) for each in told.reports[-1].restored.left} == {"busy"}
        assert a.said()[-1] == "And now?"
    finally:
        made.stop()
    assert told.problems == []


def test_a_commit_is_stored_when_letta_has_written(sides: list[Side]) -> None:
    a, _ = sides
    memory = a.path / "memfs" / AGENT / "memory"
    init(memory)
    commit(memory, {"human.md": b"Likes figs.\n"})
    told = Told()

    def stored() -> str | None:
        record = a.space.repo.get(MEMORY, AGENT)
        return None if record is None else str(record.value["head"])

    with told.by(a) as made:
        until(stored)
        new = commit(memory, {"human.md": b"Likes plums.\n"})
        made.wrote()
        until(lambda: stored() == new)
    assert told.problems == []


@pytest.mark.parametrize("error", [StoreUnavailable("no room"), RuntimeError("secret words")])
def test_nothing_ends_it_and_a_problem_is_told_once(
    sides: list[Side], host: Host, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(reconciler, "AGAIN", 0.01)
    a, b = sides
    b.turn(5, "On B", name="b")
    b.sync(host)
    a.machine.sync(host)
    runs: list[int] = []
    real = reconciler.reconcile

    def reconcile(*arguments: Any, **more: Any) -> ReconcileReport:
        runs.append(len(runs))
        if len(runs) < 4:
            raise error
        return real(*arguments, **more)

    monkeypatch.setattr(reconciler, "reconcile", reconcile)
    told = Told()
    with told.by(a):
        until(lambda: a.said()[-1] == "On B!")
    assert len(told.problems) == 1
    assert "secret" not in told.problems[0]
    assert told.problems[0].endswith(("no room", "RuntimeError"))


def test_who_cannot_be_told_does_not_end_it(sides: list[Side], host: Host) -> None:
    a, b = sides

    def refuse(_what: object) -> None:
        raise OSError("the terminal is gone")

    made = Reconciler(
        a.space, a.path, part=diverge, rest=AT_ONCE, on_report=refuse, on_problem=refuse
    )
    made.start()
    try:
        for number in (5, 7):
            b.turn(number, f"On B {number}", name="b")
            b.sync(host)
            a.machine.sync(host)
            made.came()
            until(lambda number=number: a.said()[-1] == f"On B {number}!")
    finally:
        made.stop()
    assert KEY in a.keys


def test_it_stops_between_two_conversations(
    sides: list[Side], host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = sides
    store = Store(b.path)
    for number in (2, 3):
        made = rows([message(1, "user", f"talk {number}", conversation=f"local-conv-{number}")])
        store.conversation(made, key=f"conversation:local-conv-{number}", created=at(-number))
    b.sync(host)
    a.machine.sync(host)
    told = Told()
    real = Bringing.new
    is_known = threading.Event()

    def new(*arguments: Any) -> Any:
        is_known.wait(60)
        running._stopping.set()
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Bringing, "new", new)
        with told.by(a) as running:
            is_known.set()
            until(lambda: len(a.keys) == 2)
    assert len(a.keys) == 2
    assert told.problems == []
    a.reconcile()
    assert len(a.keys) == 3
