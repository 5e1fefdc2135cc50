"""Following a directory by file events. Nothing here depends on how long anything takes."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.space import Space
from lettaspace.errors import StoreUnavailable
from lettaspace.letta import agenda, events, importer, watch, watched
from lettaspace.letta.directory import ConversationDir
from lettaspace.letta.importer import import_directory
from lettaspace.letta.report import Report
from lettaspace.letta.watch import Watcher
from tests.letta.build import AGENT, Store, at, jsonl, message, row, rows
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import digest, only, records, texts, window
from tests.waiting import until

Json = dict[str, Any]


@dataclass
class Heard:
    """What a watcher said."""

    reports: list[Report] = field(default_factory=list[Report])
    problems: list[str] = field(default_factory=list[str])

    @property
    def lines(self) -> list[str]:
        return [line for report in self.reports for line in report.lines()]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is half written for so long that a watcher tells of it, unless a test says so:
    whoever writes may be held up for any time between two files."""
    monkeypatch.setattr(agenda, "PATIENCE", 1e9)


@pytest.fixture
def heard() -> Heard:
    return Heard()


Start = Callable[..., Watcher]


@pytest.fixture
def start(store: Store, heard: Heard) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(space: Space, directory: Path | None = None, **more: Any) -> Watcher:
            watcher = Watcher(
                space,
                directory or store.path,
                on_report=heard.reports.append,
                on_problem=heard.problems.append,
                **more,
            )
            return stack.enter_context(watcher)

        yield begin


class Talk:
    """A conversation that goes on, as Letta writes it."""

    def __init__(self, store: Store, number: int = 1) -> None:
        self.key = f"conversation:local-conv-{number}"
        self.store = store
        self.created = at(number * 1000)
        self.made = rows([message(1, "user", "m1")])
        self.directory = store.conversation(self.made, key=self.key, created=self.created)

    @property
    def ids(self) -> list[str]:
        return [each["message"]["id"] for each in self.made[1:]]

    def say(self, value: str) -> None:
        """One more message: its id, then its row."""
        number = len(self.made)
        self.made.append(row(message(number, "user", value), f"e{number}", f"e{number - 1}"))
        self.write_small()
        with (self.directory / "messages.jsonl").open("ab") as file:
            file.write(jsonl(self.made[-1:]))

    def write_small(self, **more: Any) -> None:
        path = self.directory / "conversation.json"
        value = json.loads(path.read_text()) | {"in_context_message_ids": self.ids} | more
        path.write_text(json.dumps(value))


def said(space: Space) -> list[str]:
    found = space.conversations()
    return texts(window(space, found[0].uri)) if len(found) == 1 else []


def test_messages_come_as_they_are_written(
    space: Space, store: Store, start: Start, heard: Heard
) -> None:
    store.agent()
    talk = Talk(store)
    start(space)
    until(lambda: said(space) == ["m1"])
    wanted = ["m1"]
    for number in range(2, 6):
        talk.say(f"m{number}")
        wanted.append(f"m{number}")
        until(lambda: said(space) == wanted)
    assert heard.problems == []
    assert all(report.written for report in heard.reports)
    assert not any(report.incomplete for report in heard.reports)
    before = digest(store.path)
    talk.write_small(summary="Pears")
    until(lambda: space.conversations()[0].title == "Pears")
    store.agent(name="Heron")
    until(lambda: [agent.name for agent in space.agents()] == ["Heron"])
    assert digest(store.path) != before


def test_the_directory_is_only_read(space: Space, store: Store, start: Start) -> None:
    store.agent()
    Talk(store)
    before = digest(store.path)
    start(space)
    until(lambda: said(space) == ["m1"])
    assert digest(store.path) == before


def test_new_conversations_and_agents_are_found(
    space: Space, store: Store, start: Start, heard: Heard
) -> None:
    Talk(store)
    start(space)
    until(lambda: len(space.conversations()) == 1)
    talks = [Talk(store, number) for number in range(2, 6)]
    store.agent("agent-heron", name="Heron")
    until(lambda: len(space.conversations()) == 5)
    for talk in talks:
        talk.say("more")
    until(lambda: sum(each.messages for each in space.conversations()) == 9)
    until(lambda: "Heron" in [agent.name for agent in space.agents()])
    assert heard.problems == []


def test_what_was_imported_before_is_not_read_again(
    space: Space, store: Store, start: Start, heard: Heard
) -> None:
    store.agent()
    old, new = Talk(store, 1), Talk(store, 2)
    import_directory(space, store.path)
    start(space)
    new.say("more")
    until(lambda: heard.reports)
    assert [each.key for report in heard.reports for each in report.conversations] == [new.key]
    assert old.key != new.key


def test_the_directory_may_come_later(
    space: Space,
    store: Store,
    start: Start,
    heard: Heard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "POLL", 0.05)
    later = tmp_path / "later" / "letta"
    start(space, later)
    until(lambda: heard.problems)
    Talk(store)
    later.parent.mkdir()
    shutil.copytree(store.path, later)
    until(lambda: said(space) == ["m1"])
    assert len(heard.problems) == 1
    assert str(later) in heard.problems[0]


def test_the_directory_may_go_and_come_back(
    space: Space,
    store: Store,
    start: Start,
    heard: Heard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "POLL", 0.05)
    talk = Talk(store)
    start(space)
    until(lambda: said(space) == ["m1"])
    for number in (2, 3):
        aside = tmp_path / f"aside-{number}"
        store.path.rename(aside)
        until(lambda wanted=number: len(heard.problems) == wanted - 1)
        shutil.copytree(aside, store.path)
        talk.say(f"m{number}")
        wanted = [f"m{each}" for each in range(1, number + 1)]
        until(lambda wanted=wanted: said(space) == wanted)
    talk.say("m4")
    until(lambda: len(said(space)) == 4)


def test_without_events_it_is_looked_at_again_and_again(
    space: Space, store: Store, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError("No space left on device (os error 28)")

    monkeypatch.setattr(events, "RustNotify", refuse)
    monkeypatch.setattr(watch, "POLL", 0.05)
    talk = Talk(store)
    start(space)
    until(lambda: said(space) == ["m1"])
    talk.say("m2")
    until(lambda: said(space) == ["m1", "m2"])
    assert len(heard.problems) == 1
    assert "no file events" in heard.problems[0]
    assert "No space left" in heard.problems[0]


def test_events_may_end_at_any_time(
    space: Space, store: Store, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(contextlib.nullcontext[None]):
        def __init__(self, *_: Any) -> None:
            super().__init__()

        def watch(self, *_: Any) -> Any:
            until(lambda: space.conversations())
            raise RuntimeError("error in underlying watcher")

    monkeypatch.setattr(events, "RustNotify", Failing)
    monkeypatch.setattr(watch, "POLL", 0.05)
    talk = Talk(store)
    start(space)
    until(lambda: heard.problems)
    talk.say("m2")
    until(lambda: said(space) == ["m1", "m2"])
    assert len(heard.problems) == 1
    assert "underlying watcher" in heard.problems[0]


def test_a_sweep_finds_what_events_did_not(
    space: Space, store: Store, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(contextlib.nullcontext[None]):
        def __init__(self, *_: Any) -> None:
            super().__init__()

        def watch(self, _debounce: int, _step: int, _timeout: int, stop: Any) -> str:
            stop.wait()
            return "stop"

    monkeypatch.setattr(events, "RustNotify", Deaf)
    talk = Talk(store)
    start(space, sweep=0.1)
    until(lambda: said(space) == ["m1"])
    talk.say("m2")
    until(lambda: said(space) == ["m1", "m2"])
    assert heard.problems == []


def test_a_torn_row_is_never_damage_while_it_is_written(
    space: Space, store: Store, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[frozenset[str]] = []
    doubtful = agenda.Agenda.doubtful

    def spy(self: agenda.Agenda, path: str, reasons: frozenset[str], now: float) -> None:
        seen.append(reasons)
        doubtful(self, path, reasons, now)

    monkeypatch.setattr(agenda.Agenda, "doubtful", spy)
    talk = Talk(store)
    start(space)
    until(lambda: said(space) == ["m1"])
    whole = jsonl([row(message(2, "user", "m2"), "e2", "e1")])
    talk.made.append(json.loads(whole))
    talk.write_small()
    with (talk.directory / "messages.jsonl").open("ab", buffering=0) as file:
        file.write(whole[:30])
        until(lambda: any("tornRow" in reason for each in seen for reason in each))
        assert said(space) == ["m1"]
        file.write(whole[30:])
    until(lambda: said(space) == ["m1", "m2"])
    assert heard.lines == []
    assert not any(report.incomplete for report in heard.reports)


def test_a_torn_row_that_stays_is_told_once(
    space: Space,
    store: Store,
    start: Start,
    heard: Heard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agenda, "PATIENCE", 0.1)
    talk, other = Talk(store, 1), Talk(Store(tmp_path / "aside"), 2)
    whole = jsonl(talk.made)
    (talk.directory / "messages.jsonl").write_bytes(whole + whole[:30])
    start(space, sweep=0.05)
    until(lambda: any(each.incomplete for each in space.conversations()))
    # Another one, which is whole at any moment.
    other.directory.rename(talk.directory.with_name(other.directory.name))
    until(lambda: sum(each.messages for each in space.conversations()) == 2)
    assert heard.lines == ["conversation:local-conv-1, row 3: tornRow (not JSON, 30 bytes)"]


def test_trouble_with_the_store_is_told_once_and_got_over(
    space: Space, store: Store, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [StoreUnavailable("cannot use it: the disk is full")] * 3
    real = watch.import_some

    def failing(*arguments: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return real(*arguments, **more)

    monkeypatch.setattr(watch, "import_some", failing)
    monkeypatch.setattr(watch, "MAX_PAUSE", 0.05)
    Talk(store)
    start(space)
    until(lambda: said(space) == ["m1"])
    assert len(heard.problems) == 1
    assert "disk is full" in heard.problems[0]


def test_what_cannot_be_imported_holds_nothing_up(
    space: Space, store: Store, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = [Talk(store, number) for number in range(1, 6)]
    real = importer.read_source

    def failing(directory: ConversationDir, **more: Any) -> Any:
        if directory.key == talks[0].key:
            raise ZeroDivisionError("m1")
        return real(directory, **more)

    monkeypatch.setattr(importer, "read_source", failing)
    start(space)
    until(lambda: len(space.conversations()) == 4)
    for talk in talks:
        talk.say("m2")
    until(lambda: sum(each.messages for each in space.conversations()) == 8)
    assert len(heard.problems) == 1
    assert heard.problems[0].endswith(f"{talks[0].directory.name}: ZeroDivisionError")


def test_a_broken_callback_ends_nothing(space: Space, store: Store) -> None:
    def broken(_: object) -> None:
        raise ValueError("m2")

    talk = Talk(store)
    with Watcher(space, store.path, on_report=broken, on_problem=broken):
        until(lambda: said(space) == ["m1"])
        talk.say("m2")
        until(lambda: said(space) == ["m1", "m2"])


def test_odd_names_are_told_once(space: Space, store: Store, start: Start, heard: Heard) -> None:
    (store.path / "conversations" / "not base64").mkdir()
    (store.path / "agents" / "bad name.json").write_text("{}")
    talk = Talk(store)
    start(space, sweep=0.05)
    until(lambda: said(space) == ["m1"])
    talk.say("m2")
    until(lambda: said(space) == ["m1", "m2"])
    assert len(heard.lines) == 2


def test_a_bad_agent_is_told_once_and_again_when_it_is_bad_again(
    space: Space,
    store: Store,
    start: Start,
    heard: Heard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agenda, "PATIENCE", 0.1)
    path = store.agent()
    good = path.read_text()
    start(space, sweep=0.05)
    until(lambda: space.agents())

    def write(text: str) -> None:
        # At once: a file that is empty for a moment is a bad one, too.
        aside = tmp_path / "agent"
        aside.write_text(text)
        aside.replace(path)

    for times in (1, 2):
        write("{")
        until(lambda times=times: len(heard.lines) == times)
        written = len(heard.reports)
        write(good.replace("Otter", f"Otter {times}"))
        until(lambda written=written: len(heard.reports) > written)
    assert [agent.name for agent in space.agents()] == ["Otter 2"]
    assert AGENT in good


def test_stopping_in_the_middle_loses_nothing(
    space: Space, store: Store, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rows([message(number, "user", f"m{number}") for number in range(1, 1001)])
    store.conversation(made)
    watcher = start(space)
    until(lambda: space.conversations() and space.conversations()[0].messages)
    watcher.stop()
    assert list(space.verify()) == []
    before = records(space)
    import_directory(space, store.path)
    assert len(window(space)) == 1000
    assert before.items() <= records(space).items()


def test_it_is_started_once(space: Space, store: Store, start: Start) -> None:
    watcher = start(space)
    with pytest.raises(RuntimeError):
        watcher.start()


def test_two_watchers_of_one_store(
    open_space: OpenSpace, store: Store, start: Start, heard: Heard, tmp_path: Path
) -> None:
    talks = [Talk(store, number) for number in (1, 2)]
    first = open_space("a")
    second = open_space("a")
    start(first)
    start(second)
    for number in range(2, 22):
        for talk in talks:
            talk.say(f"m{number}")
    until(lambda: sum(each.messages for each in first.conversations()) == 42)
    until(lambda: all(w.letta for w in first.conversations()))
    fresh = open_space("b")
    import_directory(fresh, store.path)
    until(lambda: records(first) == records(fresh))
    assert first.repo.set_hash().state == fresh.repo.set_hash().state
    assert heard.problems == []
    assert list(first.verify()) == []


def test_a_long_conversation_is_made_ready_at_the_start(
    space: Space, store: Store, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[str] = []
    real = watch.import_some

    def spy(*arguments: Any, **more: Any) -> Any:
        found = real(*arguments, **more)
        if more.get("again"):
            ready.extend(each.key for each in found[0].conversations)
        return found

    monkeypatch.setattr(watch, "import_some", spy)
    monkeypatch.setattr(watched, "LONG", 0)
    talk = Talk(store)
    import_directory(space, store.path)
    start(space)
    until(lambda: ready)
    assert ready == [talk.key]
    assert heard.reports == []
    talk.say("m2")
    until(lambda: said(space) == ["m1", "m2"])
    assert only(space)


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/export /home nfs4 rw 0 0
tmpfs /home/mira/tmp tmpfs rw 0 0
C:\\040 /mnt/c\\040d 9p rw 0 0
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/", "ext4"),
        ("/homes/x", "ext4"),
        ("/home/mira/.letta", "nfs4"),
        ("/home/mira/tmp", "tmpfs"),
        ("/mnt/c d/letta", "9p"),
    ],
)
def test_the_file_system_of_a_place(place: str, kind: str) -> None:
    assert events.file_system(place, MOUNTS) == kind


def test_where_events_are_not_certain_it_is_looked_at_often(
    space: Space, store: Store, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "are_certain", lambda _: False)
    Talk(store)
    start(space)
    until(lambda: said(space) == ["m1"])
    assert len(heard.problems) == 1
    assert "without file events" in heard.problems[0]
