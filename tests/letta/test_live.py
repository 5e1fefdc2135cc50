"""Importing only what was added to a conversation gives what importing all of it gives."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.letta.build import MessageBuilder
from lettaspace.letta.directory import FILES, Listing, list_directory
from lettaspace.letta.following import Following
from lettaspace.letta.importer import import_directory, import_some
from lettaspace.letta.report import Report
from lettaspace.letta.scan import Scanner
from lettaspace.space.writes import Update
from tests.letta.build import Store, at, compaction, jsonl, message, prompt, row, rows, session
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import findings, records, texts, transcript, window, window_ids
from tests.letta.test_replay import Model, random_rows

Json = dict[str, Any]


def follow(space: Space, store: Store, following: Following, *, final: bool = True) -> Report:
    """One import of everything, by what is kept."""
    listing = list_directory(store.path)
    report, unsettled = import_some(
        space,
        store.path,
        listing.conversations,
        listing.agents,
        following,
        final=paths(listing) if final else (),
    )
    assert final is False or not unsettled
    return report


def paths(listing: Listing) -> set[str]:
    found = [each.path for each in listing.conversations]
    return {str(path) for path in [*found, *(agent.path for agent in listing.agents)]}


def nothing() -> None:
    pass


class Growing:
    """A conversation that is written as Letta writes it, and as nobody should."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self.store = store
        self.rng = rng
        self.made, _ = random_rows(rng, 60)
        self.end = rng.randint(0, 5)
        self.data = jsonl([session()]) + self.lines(0, self.end)
        self.listed = self.window()
        self.more: Json = {}
        self.steps = 0

    def lines(self, start: int, end: int) -> bytes:
        some = self.made[start:end]
        return b"".join(b"{\n" if item["type"] == "damage" else jsonl([item]) for item in some)

    def window(self) -> list[str]:
        model = Model()
        for item in self.made[: self.end]:
            model.feed(item)
        return [str(each["message"]["id"]) for each in model.window]

    def grow(self) -> None:
        start, self.end = self.end, min(self.end + self.rng.randint(1, 4), len(self.made))
        self.data += self.lines(start, self.end)
        self.listed = self.window()

    def grow_and_stream(self) -> None:
        self.grow()
        self.listed.append(f"ui-msg-{900 + self.steps}")

    def grow_torn(self) -> None:
        self.grow()
        self.data = self.data[: -self.rng.randint(1, 40)]

    def reorder(self) -> None:
        self.rng.shuffle(self.listed)

    def drop_ids(self) -> None:
        del self.listed[: self.rng.randint(0, len(self.listed))]

    def change_small_files(self) -> None:
        self.more = {
            "summary": f"Title {self.steps}",
            "updated_at": at(1000 + self.steps),
            "prompt": prompt(compiledAt=at(1000 + self.steps)),
        }

    def truncate(self) -> None:
        self.data = self.data[: self.rng.randint(len(self.data) // 2, len(self.data))]

    def edit_in_the_middle(self) -> None:
        """Another text of the same length, and a row behind it."""
        letter = bytes([self.rng.randrange(ord("a"), ord("z"))])
        self.data = self.data.replace(b'"text":"m', b'"text":"' + letter, self.rng.randint(1, 3))
        self.grow()

    def rewrite_whole(self) -> None:
        self.data = jsonl([session()]) + self.lines(0, self.end)
        self.listed = self.window()

    def write(self) -> None:
        self.steps += 1
        directory = self.store.conversation(self.data, self.listed, **self.more)
        for name in FILES:
            if (directory / name).exists():
                moment = 1_700_000_000_000_000_000 + self.steps * 1_000_000_000
                os.utime(directory / name, ns=(moment, moment))


STEPS: list[tuple[int, Callable[[Growing], None]]] = [
    (12, Growing.grow),
    (3, Growing.grow_and_stream),
    (2, Growing.grow_torn),
    (2, Growing.reorder),
    (1, Growing.drop_ids),
    (2, Growing.change_small_files),
    (1, Growing.truncate),
    (1, Growing.edit_in_the_middle),
    (2, Growing.rewrite_whole),
]


def meddle(rng: random.Random, *spaces: Space) -> None:
    """Somebody else writes one of the messages, the same in every space."""
    stored = list(spaces[0].repo.records(MESSAGE))
    if not stored:
        return
    chosen = rng.choice(stored)
    value = {**chosen.value, "updatedAt": at(5000), "status": rng.choice(["active", "compacted"])}
    for space in spaces:
        space.repo.apply_writes([Update(MESSAGE, chosen.rkey, value)])


@pytest.mark.parametrize("seed", range(25))
def test_always_what_a_whole_import_gives(open_space: OpenSpace, store: Store, seed: int) -> None:
    rng = random.Random(seed)
    growing = Growing(store, rng)
    followed, whole = open_space("a"), open_space("b")
    following = Following(nothing)
    for _ in range(rng.randint(5, 25)):
        (step,) = rng.choices([each for _, each in STEPS], [weight for weight, _ in STEPS])
        step(growing)
        growing.write()
        if rng.random() < 0.1:
            meddle(rng, followed, whole)
        one = follow(followed, store, following)
        other = import_directory(whole, store.path)
        assert records(followed) == records(whole), step.__name__
        assert one.to_json() == other.to_json(), step.__name__
    assert followed.repo.set_hash().state == whole.repo.set_hash().state


@pytest.mark.parametrize("seed", range(8))
def test_growth_ends_where_one_import_does(open_space: OpenSpace, store: Store, seed: int) -> None:
    growing = Growing(store, random.Random(seed))
    followed, fresh = open_space("a"), open_space("b")
    following = Following(nothing)
    while growing.end < len(growing.made):
        growing.grow()
        growing.write()
        follow(followed, store, following)
    import_directory(fresh, store.path)
    assert records(followed) == records(fresh)
    assert followed.repo.set_hash().state == fresh.repo.set_hash().state


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many rows were read, and how many records of messages were made."""
    counts = {"rows": 0, "records": 0}

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            counts[name] += 1
            return function(*arguments)

        return run

    monkeypatch.setattr(Scanner, "line", counting("rows", Scanner.line))
    monkeypatch.setattr(MessageBuilder, "record", counting("records", MessageBuilder.record))
    return counts


def test_a_new_row_costs_little(space: Space, store: Store, work: dict[str, int]) -> None:
    made = rows([message(number, "user", f"m{number}") for number in range(1, 101)])
    following = Following(nothing)
    directory = store.conversation(made)
    follow(space, store, following)
    follow(space, store, following)
    assert work == {"rows": 101, "records": 100}
    work |= {"rows": 0, "records": 0}
    for number in range(101, 106):
        made.append(row(message(number, "user", "more"), f"e{number}", f"e{number - 1}"))
        store.conversation(made)
        report = follow(space, store, following)
        assert report.messages.to_json() == {"new": 1, "changed": 0, "unchanged": number - 1}
    # Every row once; and every record once more, when the log says that somebody wrote it:
    # the first import's hundred, then one by one.
    assert work == {"rows": 5, "records": 100 + 5 + 4}
    work |= {"rows": 0, "records": 0}

    summary = compaction(message(106, "user", "S"), "e106", "e105", "e104", 105, 3)
    made.append(summary)
    store.conversation(made, ["ui-msg-106", "ui-msg-104", "ui-msg-105"])
    report = follow(space, store, following)
    assert report.messages.to_json() == {"new": 1, "changed": 105, "unchanged": 0}
    assert texts(window(space)) == ["S", "more", "more"]
    assert work == {"rows": 1, "records": 106}
    assert directory.exists()


def test_another_file_with_the_same_end_is_read_anew(
    space: Space, store: Store, work: dict[str, int]
) -> None:
    following = Following(nothing)
    made = rows([message(1, "user", "plum"), message(2, "user", "fig")])
    store.conversation(made)
    follow(space, store, following)
    made[1]["message"]["content"][0]["text"] = "pear"
    made.append(row(message(3, "user", "quince"), "e3", "e2"))
    store.conversation(made)
    follow(space, store, following)
    assert work["rows"] == 3 + 4
    assert texts(transcript(space)) == ["pear", "fig", "quince"]


def test_the_oldest_are_forgotten(store: Store, space: Space, work: dict[str, int]) -> None:
    following = Following(nothing)
    keys = [f"conversation:local-conv-{number}" for number in range(12)]
    for number, key in enumerate(keys):
        store.conversation(rows([message(1, "user", key)]), key=key, created=at(number * 100))
    follow(space, store, following)
    work["rows"] = 0
    for number, key in enumerate(keys):
        made = rows([message(1, "user", key), message(2, "user", "more")])
        store.conversation(made, key=key, created=at(number * 100))
    import_some(space, store.path, list_directory(store.path).conversations[4:], (), following)
    assert work["rows"] == 8


class Waiting:
    """An import that leaves alone what may be half written."""

    def __init__(self, space: Space, store: Store) -> None:
        self.space = space
        self.store = store
        self.following = Following(nothing)

    def __call__(self, *, final: bool = False) -> tuple[Report, list[str]]:
        listing = list_directory(self.store.path)
        report, unsettled = import_some(
            self.space,
            self.store.path,
            listing.conversations,
            listing.agents,
            self.following,
            final=paths(listing) if final else (),
        )
        reasons = [reason for each in unsettled.values() for reason in sorted(each)]
        return report, reasons


@pytest.fixture
def waiting(space: Space, store: Store) -> Waiting:
    return Waiting(space, store)


def test_a_torn_row_is_waited_for(space: Space, store: Store, waiting: Waiting) -> None:
    made = rows([message(1, "user", "plum"), message(2, "user", "fig")])
    whole = jsonl(made)
    ids = ["ui-msg-1", "ui-msg-2"]
    store.conversation(whole[:-20], ids)
    report, reasons = waiting()
    assert reasons == [f"tornRow {len(whole) - 20}"]
    assert (report.conversations, records(space)) == ([], {})
    store.conversation(whole, ids)
    report, reasons = waiting()
    assert reasons == []
    assert not report.incomplete
    assert texts(window(space)) == ["plum", "fig"]


def test_a_torn_row_that_stays_is_damage(space: Space, store: Store, waiting: Waiting) -> None:
    made = rows([message(1, "user", "plum"), message(2, "user", "fig")])
    store.conversation(jsonl(made)[:-20], ["ui-msg-1", "ui-msg-2"])
    report, reasons = waiting(final=True)
    assert reasons == []
    assert findings(report) == [("tornRow", 3)]
    assert space.conversations()[0].incomplete


def test_small_files_that_are_torn_are_waited_for(
    space: Space, store: Store, waiting: Waiting
) -> None:
    made = rows([message(1, "user", "plum")])
    directory = store.conversation(made, prompt=prompt())
    agent = store.agent()
    whole = {path: path.read_bytes() for path in (*directory.iterdir(), agent)}
    for path, data in whole.items():
        if path.name == "messages.jsonl":
            continue
        path.write_bytes(data[: len(data) // 2])
        report, reasons = waiting()
        assert reasons
        assert not report.incomplete
        assert path == agent or not report.conversations
        path.write_bytes(data)
    report, reasons = waiting()
    assert reasons == []
    assert not report.incomplete


def test_an_id_before_its_row_is_waited_for(space: Space, store: Store, waiting: Waiting) -> None:
    """A compaction: Letta lists the summary, and appends its row a moment later."""
    made = rows([message(number, "user", f"m{number}") for number in range(1, 5)])
    store.conversation(made)
    waiting()
    before = records(space)
    listed = ["ui-msg-5", "ui-msg-4"]
    store.conversation(made, listed)
    _, reasons = waiting()
    assert reasons == ["no row: ui-msg-5"]
    assert records(space) == before
    made.append(compaction(message(5, "user", "S"), "e5", "e4", "e4", 4, 2))
    store.conversation(made, listed)
    _, reasons = waiting()
    assert reasons == []
    assert window_ids(space) == listed
    assert len(transcript(space)) == 5


def test_an_answer_that_never_came_holds_nothing_up(
    space: Space, store: Store, waiting: Waiting
) -> None:
    made = rows([message(1, "user", "plum")])
    store.conversation(made, ["ui-msg-1", "ui-msg-2"])
    assert waiting()[1] == []
    made.append(row(message(3, "user", "fig"), "e2", "e1"))
    store.conversation(made, ["ui-msg-1", "ui-msg-2", "ui-msg-3"])
    assert waiting()[1] == []
    assert texts(window(space)) == ["plum", "fig"]


def test_a_row_before_its_id_is_waited_for(space: Space, store: Store, waiting: Waiting) -> None:
    made = rows([message(1, "user", "plum"), message(2, "user", "fig")])
    store.conversation(made, ["ui-msg-1"])
    (reason,) = waiting()[1]
    assert reason.startswith("not listed: ")
    assert records(space) == {}
    report, _ = waiting(final=True)
    assert findings(report) == [("windowDiffers", None)]
    assert window_ids(space) == ["ui-msg-1"]


def test_what_was_accepted_once_is_no_reason_to_wait(
    space: Space, store: Store, waiting: Waiting
) -> None:
    made = rows([message(1, "user", "plum")])
    directory = store.conversation(made)
    (directory / "manifest.json").write_text("{")
    assert len(waiting()[1]) == 1
    waiting(final=True)
    made.append(row(message(2, "user", "fig"), "e2", "e1"))
    store.conversation(made)
    (directory / "manifest.json").write_text("{")
    assert waiting()[1] == []
    assert texts(window(space)) == ["plum", "fig"]


def test_old_damage_is_not_waited_for(space: Space, store: Store, waiting: Waiting) -> None:
    made = rows([message(1, "user", "plum"), message(2, "user", "fig")])
    directory = store.conversation(jsonl(made)[:-20], ["ui-msg-1", "ui-msg-2"])
    for path in (directory, *directory.iterdir()):
        os.utime(path, (1, 1))
    report, reasons = waiting()
    assert reasons == []
    assert findings(report) == [("tornRow", 3)]


def test_a_new_directory_is_waited_for(space: Space, store: Store, waiting: Waiting) -> None:
    directory = store.directory()
    directory.mkdir()
    assert waiting()[1] == ["badConversation conversation.json: missing"]
    assert records(space) == {}
    os.utime(directory, (1, 1))
    report, reasons = waiting()
    assert reasons == []
    assert findings(report)[0] == ("badConversation", None)


def test_an_import_can_be_ended(space: Space, store: Store, tmp_path: Path) -> None:
    class EndedError(Exception):
        pass

    left = [250]

    def check() -> None:
        left[0] -= 1
        if not left[0]:
            raise EndedError

    store.conversation(rows([message(number, "user", "m") for number in range(1, 301)]))
    following = Following(check)
    with pytest.raises(EndedError):
        follow(space, store, following)
    left[0] = 301 + 210
    with pytest.raises(EndedError):
        follow(space, store, following)
    assert 0 < len(transcript(space)) < 300
    left[0] = 0
    assert follow(space, store, following).messages.new > 0
    assert len(transcript(space)) == 300
    assert list(space.verify()) == []
