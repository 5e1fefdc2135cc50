"""A replica that is kept in sync while a process runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lettaspace.errors import LettaspaceError, SignedOut, Unreachable
from lettaspace.remote import following, listening
from lettaspace.remote.following import AT_MOST, HURRY, RARELY, SELDOM, SETTLE, SOON, Follower, Pace
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.listening import LONGEST, LONGEST_PAUSE, SHORTEST, Listener, Patience
from lettaspace.remote.syncing import SyncReport
from lettaspace.remote.xrpc import Client
from lettaspace.server import waiting, xrpc
from lettaspace.space.writes import Create
from tests.remote.world import MIRA, SPACE, Machine, Setup, World, setup
from tests.waiting import SECONDS, until

NOTE = "org.example.note"
NEVER = 1e9


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with setup(tmp_path_factory.mktemp("following"), machines=2) as made:
        yield made


@pytest.fixture
def world(shared: Setup) -> Iterator[World]:
    made = World(shared, [0.0, 0.0])
    yield made
    made.close()


@pytest.fixture
def a(world: World) -> Machine:
    return world.machines[0]


@pytest.fixture
def b(world: World) -> Machine:
    return world.machines[1]


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a reason, a host is asked once."""
    for name in ("SOON", "SELDOM", "RARELY"):
        monkeypatch.setattr(following, name, NEVER)


def write(machine: Machine, *names: str) -> None:
    machine.space.repo.apply_writes([Create(NOTE, name, {"text": name}) for name in names])


def has(machine: Machine, name: str) -> bool:
    return machine.space.repo.get(NOTE, name) is not None


class Following:
    """A machine that follows the host, and what it says of that."""

    def __init__(self, machine: Machine, *, listens: bool = True) -> None:
        self.machine = machine
        self.reports: list[SyncReport] = []
        self.problems: list[LettaspaceError] = []
        self.syncs = 0
        self.sync: Callable[[], SyncReport] = machine.syncer().sync
        origin = machine.world.setup.server.host.config.origin
        auth = machine.world.setup.auth
        self.client = Client(origin, auth=auth, tries=1, timeout=2 * SECONDS)
        self.follower = Follower(
            machine.space,
            self._sync,
            waiting=HostRepo(self.client, SPACE, MIRA) if listens else None,
            on_report=self.reports.append,
            on_problem=self.problems.append,
        )

    def _sync(self) -> SyncReport:
        self.syncs += 1
        return self.sync()

    @property
    def threads(self) -> list[threading.Thread]:
        listener = self.follower._listener
        return [self.follower._thread, *([] if listener is None else [listener._thread])]


@contextmanager
def followed(machine: Machine, **options: Any) -> Iterator[Following]:
    made = Following(machine, **options)
    made.follower.start()
    try:
        yield made
    finally:
        made.follower.stop()
        made.client.close()


def held(world: World, count: int) -> None:
    """Returns once the host has held so many requests for a look or two."""
    there = world.setup.server.host.waiting
    until(lambda: len(there._waiters) == count, f"{count} held requests")


@pytest.mark.usefixtures("unasked")
class TestNews:
    def test_what_another_machine_wrote_comes_because_the_host_says_so(self, world, a, b):
        with followed(b) as there:
            held(world, 1)
            for name in ("one", "two"):
                write(a, name)
                a.sync()
                until(lambda name=name: has(b, name), name)
            held(world, 1)
            assert there.syncs == 3
            assert [report.created for report in there.reports] == [1, 1]
            assert there.problems == []

    def test_what_is_written_here_goes_and_is_no_news(self, world, a, b):
        with followed(a) as here:
            held(world, 1)
            write(a, "one")
            until(lambda: here.reports, "a push")
            known = here.follower._known()
            there = world.setup.server.host.waiting
            until(lambda: {each.subject.known for each in there._waiters} == {known}, "asked anew")
            assert here.syncs == 2
        b.sync()
        assert has(b, "one")

    def test_two_that_follow_hear_of_each_other(self, world, a, b):
        with followed(a), followed(b):
            held(world, 2)
            write(a, "from-a")
            until(lambda: has(b, "from-a"), "a's")
            write(b, "from-b")
            until(lambda: has(a, "from-b"), "b's")

    def test_who_stops_does_not_wait_for_the_answer(self, world, b, monkeypatch):
        monkeypatch.setattr(waiting, "MAX_SECONDS", 10**6)
        monkeypatch.setattr(listening, "LONGEST", 10**6)
        monkeypatch.setattr(listening, "_STOP_SECONDS", SECONDS)
        with followed(b) as there:
            held(world, 1)
        assert [thread.is_alive() for thread in there.threads] == [False, False]
        held(world, 0)
        assert there.problems == []


def test_a_host_that_answers_at_once_is_asked_now_and_then(a, b, monkeypatch):
    monkeypatch.setattr(xrpc, "wanted", lambda _headers: 0)
    monkeypatch.setattr(following, "SOON", 0.05)
    monkeypatch.setattr(following, "SELDOM", 0.05)
    asked: list[float] = []
    unable = Patience.unable
    monkeypatch.setattr(Patience, "unable", lambda self: asked.append(unable(self)) or asked[-1])
    with followed(b) as there:
        until(lambda: asked, "the first try")
        write(a, "one")
        a.sync()
        until(lambda: has(b, "one"), "one")
        assert not there.follower._listener.tells
    assert asked == [listening.UNABLE]


class TestFailures:
    def test_whatever_goes_wrong_is_told_by_its_name_and_tried_again(self, a, monkeypatch):
        monkeypatch.setattr(following, "AFTER_FAILURE", 0.01)
        failures = [KeyError("something secret"), KeyError("more of it"), SignedOut("no tokens")]
        following_ = Following(a, listens=False)
        sync = following_.sync

        def fail() -> SyncReport:
            if failures:
                raise failures.pop(0)
            return sync()

        following_.sync = fail
        write(a, "one")
        following_.follower.start()
        until(lambda: following_.reports, "a sync")
        following_.follower.stop()
        unexpected, expected = following_.problems
        assert "KeyError" in str(unexpected)
        assert "secret" not in str(unexpected)
        assert isinstance(expected, SignedOut)

    def test_neither_reports_nor_the_store_end_it(self, a, b, monkeypatch):
        monkeypatch.setattr(following, "AFTER_FAILURE", 0.01)
        monkeypatch.setattr(following, "SOON", 0.05)
        pulse, broken = following.Pulse, [1, 2]

        def open_(database: Any) -> Any:
            if broken:
                broken.pop()
                raise OSError("no such disk")
            return pulse(database)

        monkeypatch.setattr(following, "Pulse", open_)
        with followed(b, listens=False) as there:

            def fail(_: Any) -> None:
                raise ValueError("something secret")

            there.follower._on_report = fail
            write(a, "one")
            a.sync()
            until(lambda: has(b, "one"), "one")
            write(a, "two")
            a.sync()
            until(lambda: has(b, "two"), "two")
            assert "OSError" in str(there.problems[0])
            until(lambda: len(there.problems) > 1, "the other problem")
            assert "ValueError" in str(there.problems[1])

    def test_nobody_to_tell_is_no_end(self, a, monkeypatch):
        monkeypatch.setattr(following, "AFTER_FAILURE", 0.01)

        def fail(*_: Any) -> Any:
            raise ValueError

        there = Following(a, listens=False)
        there.sync = fail
        there.follower._on_problem = fail
        there.follower.start()
        until(lambda: there.syncs > 2, "more tries")
        there.follower.stop()


class Answers:
    """Stands for a host: each question is answered by the next of what is given, then never."""

    def __init__(self, *given: Any) -> None:
        self.client = self
        self._given = list(given)
        self._over = threading.Event()
        self.asked: list[tuple[str, int]] = []
        self.now = 0.0

    def wait(self, known: str, seconds: int) -> tuple[bool, bool]:
        self.asked.append((known, seconds))
        if not self._given:
            self._over.wait(SECONDS)
            raise Unreachable("over", sent=True)
        answer, took = self._given.pop(0)
        self.now += took
        if isinstance(answer, Exception):
            raise answer
        return answer

    def interrupt(self) -> None:
        self._over.set()


class TestListening:
    @pytest.fixture
    def listen(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
        made: list[Listener] = []

        def start(answers: Answers, known: Callable[[], str | None] = lambda: "rev") -> Listener:
            monkeypatch.setattr(listening.time, "monotonic", lambda: answers.now)
            listener = Listener(answers, known, threading.Event(), self.failures.append)  # type: ignore[arg-type]
            listener.start()
            made.append(listener)
            with listener.syncing():
                pass
            return listener

        self.failures: list[Exception] = []
        yield start
        for each in made:
            each.stop()

    def test_a_connection_that_is_cut_is_no_failure(self, listen):
        cut = Unreachable("broke", sent=True)
        answers = Answers(((False, True), 55), (cut, 30), (cut, 11.5), ((False, True), 10))
        listener = listen(answers)
        until(lambda: len(answers.asked) == 5, "five questions")
        assert [seconds for _, seconds in answers.asked] == [
            LONGEST,
            LONGEST,
            24,
            SHORTEST,
            SHORTEST,
        ]
        assert listener.tells

    @pytest.mark.parametrize(
        "error",
        [
            Unreachable("not there", sent=False),
            Unreachable("broke at once", sent=True),
            SignedOut("no"),
            KeyError("unexpected"),
        ],
    )
    def test_a_host_that_cannot_be_asked_is_left_alone_until_a_sync_goes_well(
        self, listen, error, monkeypatch
    ):
        monkeypatch.setattr(listening, "FIRST_PAUSE", 0.01)
        answers = Answers(((False, True), 50), (error, 0))
        listener = listen(answers)
        until(lambda: len(answers.asked) == 2 and not listener._good, "the failure")
        assert not listener.tells
        with pytest.raises(SignedOut), listener.syncing():
            raise SignedOut("still")
        with listener.syncing():
            assert len(answers.asked) == 2
        until(lambda: len(answers.asked) == 3, "another question")
        assert [type(each) for each in self.failures] == (
            [] if isinstance(error, LettaspaceError) else [type(error)]
        )

    def test_news_that_no_sync_gets_past_are_not_asked_for_at_once(self, listen):
        answers = Answers(((True, True), 0))
        listener = listen(answers)
        until(lambda: listener.has_news, "news")
        with listener.syncing():
            pass
        until(lambda: not listener.tells and not listener._good, "a pause")
        assert len(answers.asked) == 1

    def test_before_anything_is_known_nothing_is_asked(self, listen):
        answers = Answers()
        listener = listen(answers, lambda: None)
        until(lambda: not listener._good, "a pause")
        assert answers.asked == []


def test_pauses_grow_and_end():
    patience = Patience()
    pauses = [patience.failed() for _ in range(40)]
    assert pauses[:3] == [5.0, 10.0, 20.0]
    assert pauses[-1] == LONGEST_PAUSE
    patience.worked()
    assert patience.failed() == 5.0
    assert [patience.unable() for _ in range(5)] == [600.0, 1200.0, 2400.0, 3600.0, 3600.0]
    assert patience.seconds == LONGEST
    patience.cut(3)
    assert patience.seconds == SHORTEST


class TestPace:
    def test_the_first_question_is_at_once_and_the_next_ones_ever_later(self):
        pace = Pace(0.0)
        assert pace.is_due(0.0)
        pace.succeeded(0.0, busy=True)
        now, gaps = 0.0, []
        for _ in range(12):
            before = now
            while not pace.is_due(now):
                now += 0.5
            gaps.append(now - before)
            pace.succeeded(now, busy=False)
        assert gaps[0] == SOON
        assert gaps == sorted(gaps)
        assert gaps[-1] == SELDOM

    def test_a_write_goes_once_it_has_settled_and_a_burst_in_between(self):
        pace = Pace(0.0)
        pace.succeeded(0.0, busy=False)
        pace.wrote(1.0)
        assert not pace.is_due(1.0 + SETTLE / 2)
        assert pace.is_due(1.0 + SETTLE)
        pace.succeeded(2.0, busy=False)
        now = first = 3.0
        while not pace.is_due(now):
            pace.wrote(now)
            now += SETTLE / 2
        assert HURRY <= now - first <= HURRY + SETTLE

    def test_a_host_that_tells_is_hardly_asked_but_if_others_are(self):
        pace = Pace(0.0)
        pace.told(0.0, True)
        pace.succeeded(0.0, busy=True)
        assert not pace.is_due(RARELY - 1)
        pace.heard()
        assert pace.is_due(1.0)
        pace.succeeded(1.0, busy=True, others=True)
        assert pace.is_due(1.0 + SOON)
        pace.succeeded(2.0, busy=True)
        pace.told(3.0, False)
        assert pace.is_due(3.0)

    def test_after_failures_neither_news_nor_writes_hurry(self):
        pace = Pace(0.0)
        pauses = [pace.failed(0.0) for _ in range(20)]
        assert pauses[:3] == [5.0, 10.0, 20.0]
        assert pauses[-1] == AT_MOST
        pace.wrote(1.0)
        pace.heard()
        pace.told(1.0, True)
        pace.told(2.0, False)
        assert not pace.is_due(AT_MOST - 1)
        assert pace.is_due(AT_MOST)
