"""A process killed before any statement loses nothing it acknowledged.

Every scenario runs once undisturbed, which tells how many statements it takes; then again in
a copy of the same space for each of them, killed there. What is left must be readable at
once, in a state between two steps; `repair` finishes it; and doing the same again ends where
the undisturbed run did.
"""

import json
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from lettaspace.conversation.records import COMPILED_PROMPT
from lettaspace.conversation.space import Space
from tests.conformance.kit import Talk, check, check_readable, result, says, words
from tests.conversation import crash_child
from tests.letta import build, helpers

LIMIT = 24
"""Kills a scenario at most: all around a commit first, then evenly of the rest."""

AGAIN = 6
"""About so many of them are followed by the same scenario once more."""

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def child():
    """Runs jobs; see crash_child."""
    process = subprocess.Popen(
        [sys.executable, "-m", crash_child.__name__],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(**job):
        process.stdin.write(json.dumps(job, default=str) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield run
    process.stdin.close()
    process.wait(timeout=30)
    process.stdout.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A space with one conversation: a summary, calls with and without results."""
    home = tmp_path_factory.mktemp("crash") / "template"
    with Space.open(home) as space:
        talk = Talk.new(space, title="Jars of crash")
        talk.users("abc")
        talk.compact(2, "old")
        talk.add(says("P", "done"), result("r", "done"), says("L", "late"))
        talk.handle.settle()
        talk.users("defg")
        talk.add(says("Q", "q1", "q2"))
        talk.users("hi")
        talk.add(says("R", "r1"))
        talk.users("j")
    return home


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A storage directory of Letta Code with two conversations, one of them compacted."""
    store = build.Store(tmp_path_factory.mktemp("crash") / "letta")
    store.agent()
    store.conversation(build.rows(build.b1()), prompt=build.prompt())
    messages = [build.message(number, "user", f"m{number}") for number in range(1, 8)]
    made = build.rows(messages[:6])
    summary = build.message(7, "user", "sum of it")
    made.append(build.compaction(summary, "e7", "e6", "e5", 6, 3))
    store.conversation(made, ["ui-msg-7", "ui-msg-5", "ui-msg-6"], key="conversation:local-conv-2")
    return store.path


def points(statements):
    """Where to kill: the numbers of the statements before which the process dies."""
    last = len(statements) + 1
    important = {1, last}
    for number, statement in enumerate(statements, 1):
        if statement == "COMMIT" and "INSERT" in statements[:number]:
            important |= {number, number + 1}
    others = [
        number
        for number, statement in enumerate(statements, 1)
        if number not in important and statement in ("BEGIN", "INSERT", "UPDATE", "DELETE")
    ]
    chosen = thinned(sorted(important), LIMIT)
    return sorted({*chosen, *thinned(others, LIMIT - len(chosen))})


def thinned(numbers, limit):
    if len(numbers) <= limit:
        return numbers
    if limit <= 1:
        return numbers[-1:][:limit]
    step = (len(numbers) - 1) / (limit - 1)
    return [numbers[round(at * step)] for at in range(limit)]


class Crashes:
    """One scenario, killed everywhere."""

    def __init__(self, scenario, child, template, tmp_path, source=None):
        self.scenario, self.child, self.template = scenario, child, template
        self.tmp_path, self.source = tmp_path, source
        with self.copy("before") as space:
            self.before = self.look(space)
        home = tmp_path / "after"
        shutil.copytree(template, home)
        undisturbed = self.run(home, None)
        assert not undisturbed["killed"]
        assert not undisturbed["failed"]
        self.acks = undisturbed["acks"]
        self.statements = undisturbed["statements"]
        with Space.open(home) as space:
            self.after = self.look(space)

    def copy(self, name):
        shutil.copytree(self.template, self.tmp_path / name)
        return Space.open(self.tmp_path / name)

    def run(self, home, kill):
        return self.child(scenario=self.scenario, home=home, kill=kill, source=self.source)

    def look(self, space):
        return words(crash_child.conversation(space).window().messages)

    def __iter__(self):
        """The space after every kill, what had been acknowledged, and a way to run it again."""
        found = points(self.statements)
        assert len(found) > 3
        again = found[:: len(found) // AGAIN]
        for kill in found:
            home = self.tmp_path / f"killed{kill}"
            shutil.copytree(self.template, home)
            ended = self.run(home, kill)
            assert ended["killed"], (kill, ended)
            assert ended["acks"] == self.acks[: len(ended["acks"])] or self.scenario == "fork"
            with Space.open(home) as space:
                talk = Talk(crash_child.conversation(space))
                check_readable(talk)
                yield talk, ended["acks"]
                if kill in again:
                    assert not self.run(home, None)["failed"]
                    talk.handle.repair()
                    check(talk)
                    assert self.look(space) == self.after
            shutil.rmtree(home)


@pytest.fixture
def crashes(child, template, tmp_path):
    return lambda scenario, **more: Crashes(scenario, child, template, tmp_path, **more)


def test_append(crashes):
    run = crashes("append")
    texts = crash_child.APPENDED
    assert run.acks == texts
    states = set()
    for talk, acks in run:
        rest = [each for each in talk.window if each not in run.before]
        late = "real" in rest
        assert late or "!late" in talk.window
        stored = [each for each in texts if each in rest]
        assert stored in (texts[: len(acks)], texts[: len(acks) + 1])
        assert [each for each in rest if each != "real"] == [e for e in stored if e != "real"]
        states.add(len(stored))
    assert states == set(range(len(texts) + 1)), "not every state was met"


def test_rewrite(crashes):
    run = crashes("rewrite")
    assert len(run.acks) > 5
    for talk, acks in run:
        done = [each.removesuffix("!") for each in talk.window if each.endswith("!")]
        users = [each for each in run.before if each in run.acks]
        assert done in (users[: len(acks)], users[: len(acks) + 1])


def same_originals(talk, before):
    """Nothing that was there is lost or doubled, whatever became of the window."""
    whole = [each for each in talk.transcript if each in before]
    assert sorted(whole) == sorted(before)


@pytest.mark.parametrize("scenario", ["compact", "compact_in_many", "compact_in_a_chain"])
def test_compact(crashes, scenario):
    run = crashes(scenario)
    assert run.after[0] == "SUM"
    seen = set()
    for talk, acks in run:
        window = talk.window
        assert window in (run.before, run.after)
        assert window == run.after or not acks
        same_originals(talk, run.before)
        unfinished = talk.plain() != [e.rkey for e in talk.space.active(talk.handle.uri)]
        seen.add((window == run.after, unfinished))
        talk.handle.repair()
        assert talk.window == window
        check(talk)
    expected = {(False, False), (True, False)}
    assert seen >= (expected if scenario == "compact" else {*expected, (True, True)})


@pytest.mark.parametrize("scenario", ["settle", "settle_in_many"])
def test_settle(crashes, scenario):
    run = crashes(scenario)
    new = [each for each in run.after if each not in run.before]
    assert new == ["!q1", "!q2", "!r1"]
    states = set()
    for talk, acks in run:
        window = talk.window
        settled = [each for each in window if each in new]
        states.add(len(settled))
        assert window == [each for each in run.after if each not in new or each in settled]
        assert settled == new or not acks
        # Marks and seqs are right at every moment.
        check(talk)
    assert {0, 3} <= states
    assert scenario == "settle" or states & {1, 2}


def test_fork(crashes):
    run = crashes("fork")
    assert run.after == run.before
    labels = set()
    for talk, acks in run:
        assert talk.window == run.before
        check(talk)
        forks = [each for each in talk.space.conversations() if each.title == "Fork"]
        for info in forks:
            made = Talk(talk.space.conversation(info.uri))
            check(made)
            labels.add(info.incomplete)
            if not info.incomplete:
                expected = [*run.before[: crash_child.FORKED_AT + 1]]
                assert [each for each in made.window if each not in ("!q1", "!q2", "!r1")] == (
                    expected
                )
                assert made.handle.pending() == []
        assert [each.rkey for each in forks if not each.incomplete][: len(acks)] == acks
    assert labels == {True, False}


def test_recompile(crashes):
    run = crashes("recompile")
    for talk, acks in run:
        stored = list(talk.space.repo.records(COMPILED_PROMPT))
        templates = [None, *run.acks]
        assert len(stored) <= 1
        content = stored[0].value["content"] if stored else ""
        now = next((n for n, each in enumerate(templates) if each and each in content), 0)
        assert now in (len(acks), len(acks) + 1)


def test_import(crashes, source):
    digest = helpers.digest(source)
    run = crashes("bring_in", source=source)
    assert len(run.acks) == 2
    # What was imported has derived TIDs, so the end is the same record for record.
    run.look = helpers.records
    with Space.open(run.tmp_path / "after") as space:
        run.after = helpers.records(space)
    for talk, acks in run:
        stored = helpers.records(talk.space)
        assert stored.keys() <= run.after.keys()
        for info in talk.space.conversations():
            check_readable(Talk(talk.space.conversation(info.uri)))
        assert {f"conversation:local-conv-{n}" for n in (1, 2)} >= set(acks)
        for key in acks:
            imported = Talk(talk.space.conversation(key.removeprefix("conversation:")))
            assert len(imported.window) == {"1": 4, "2": 3}[key[-1]]
    assert helpers.digest(source) == digest


def test_the_end_at_any_moment(child, template, tmp_path):
    said = 0
    for number in count():
        if number >= 12 and said > 50:
            break  # later on a slow machine
        home = tmp_path / f"{number}"
        shutil.copytree(template, home)
        ended = child(scenario="work", home=home, kill=None, seconds=0.05 + 0.037 * number)
        assert ended["killed"]
        with Space.open(home) as space:
            talk = Talk(crash_child.conversation(space))
            check_readable(talk)
            whole = talk.transcript
            assert all(whole.count(each) == 1 for each in ended["acks"])
            new = [each for each in whole if each[0] in "uAr" and each[1:].isdigit()]
            assert len(new) - len(ended["acks"]) in (0, 1)
            talk.handle.repair()
            check(talk)
        said += len(ended["acks"])
        shutil.rmtree(home)
