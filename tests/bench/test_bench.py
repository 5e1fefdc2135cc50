"""The benchmarks run and say what they found. Whether goals are met is never tested: that
depends on what else the machine does."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from bench.append import talk_messages
from bench.compactions import fill
from bench.context import ACTIVE
from bench.directory import Written, write_mixture, write_one
from bench.figure import Figure, Goal, ratio, speedup
from bench.letta import installed
from bench.measure import Cost, interleaved

from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory

ROOT = Path(__file__).parents[2]
CHEAP = ("set-hash-add", "append", "help")
LIBRARY = {
    "library-append": ["library-append-letta"],
    "compact-1000": ["compact-1000-letta"],
    "window-after-100": ["window-after-100-letta", "letta-window-after-100"],
    "window-at-1m": ["window-at-1m-letta", "letta-window-at-1m"],
    "append-at-1m": ["append-at-1m-letta", "letta-append-at-1m"],
}
"""By name, what is measured beside it where Letta Code is installed."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def test_json_says_all_of_it() -> None:
    done = run("--quick", "--json", *CHEAP)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["quick"] is True
    assert document["machine"]["cores"] >= 1
    assert [figure["name"] for figure in document["figures"]] == list(CHEAP)
    for figure in document["figures"]:
        check(figure)


def test_beside_letta_code() -> None:
    done = run("--quick", "--json", *LIBRARY)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    beside = installed()
    expected = [[name, *(others if beside else [])] for name, others in LIBRARY.items()]
    assert [figure["name"] for figure in figures] == list(chain.from_iterable(expected))
    assert ("Letta Code is not installed" in done.stderr) is not beside
    for figure in figures:
        check(figure)


def test_a_host() -> None:
    done = run("--quick", "--json", "host-writes", "host-reads")
    assert done.returncode == 0, done.stderr
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}
    assert {"host-create", "host-create-16", "host-apply-200", "host-get-repo"} <= figures.keys()
    assert {"host-verify", "host-list-ops", "host-read", "host-read-dpop"} <= figures.keys()
    for figure in figures.values():
        check(figure)


def test_syncing() -> None:
    done = run("--quick", "--json", "sync")
    assert done.returncode == 0, done.stderr
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}
    assert {"sync-up", "sync-up-wire", "sync-down", "sync-down-wire"} <= figures.keys()
    assert {"sync-ten-requests", "sync-ten-wire", "watch-idle-hour"} <= figures.keys()
    for figure in figures.values():
        check(figure)
    assert figures["sync-ten-requests"]["figure"] <= 1


def test_both_ways() -> None:
    done = run("--quick", "--json", "sync-noop-1000", "reach")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    beside = ["reach-letta"] if installed() else []
    assert [figure["name"] for figure in figures] == ["sync-noop-1000", "reach", *beside]
    for figure in figures:
        check(figure)


def check(figure: dict[str, Any]) -> None:
    assert math.isfinite(figure["figure"])
    assert figure["figure"] > 0
    assert figure["met"] in ((True, False) if figure["goal"] else (None,))
    assert figure["better"] in ("lower", "higher")
    assert figure["rounds"] >= 1
    for side in (figure["measured"], figure["baseline"]):
        assert side["what"]
        assert any(side.get(name, 0) > 0 for name in ("wallSeconds", "bytes", "count"))
        # Of the reference only the time by the clock is known.
        assert side.get("cpuSeconds", 0) >= 0


def test_a_line_a_figure() -> None:
    done = run("--quick", "set-hash-add")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("set-hash-add ")
    assert line.endswith((" met", " short"))


def test_an_unknown_name_is_refused() -> None:
    done = run("no-such")
    assert done.returncode == 2
    assert "no figure called no-such" in done.stderr


def test_a_figure_and_its_goal() -> None:
    slow, fast = ("slow", Cost(6.0, 3.0)), ("fast", Cost(2.0, 0.5))
    cost = ratio("cost", slow, fast, Goal(2.5))
    assert (cost.ratio, cost.cpu, cost.verdict) == (3.0, 6.0, "short")
    gain = speedup("gain", fast, slow, Goal(2.5, at_most=False))
    assert (gain.ratio, gain.cpu, gain.verdict) == (3.0, 6.0, "met")
    none = ratio("none", slow, ("nothing", Cost(2.0, 0.0)))
    assert (none.cpu, none.verdict) == (None, "")
    assert isinstance(none, Figure)


def test_rounds_are_interleaved() -> None:
    order: list[str] = []

    def measure(name: str, wall: float) -> Cost:
        order.append(name)
        return Cost(wall, wall)

    walls = iter((1.0, 9.0, 2.0))
    first, second = interleaved(3, lambda: measure("a", next(walls)), lambda: measure("b", 1.0))
    assert order == ["a", "b"] * 3
    assert first == Cost(2.0, 2.0)
    assert second == Cost(1.0, 1.0)


def test_a_round_adds_up_its_turns() -> None:
    walls = iter((1.0, 2.0, 30.0, 40.0, 5.0, 6.0))
    (found,) = interleaved(3, lambda: Cost(next(walls), 1.0), parts=2)
    assert found == Cost(11.0, 2.0)


def test_messages_filled_in_are_appended_ones(tmp_path: Path) -> None:
    with Space.open(tmp_path / "home") as space:
        talk = space.create_conversation(space.create_agent("Bench"))
        messages = list(islice(talk_messages(), 450))
        fill(talk, messages)
        assert [message.payload() for message in talk.transcript()] == messages
        assert list(space.verify()) == []


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_mixture(tmp_path_factory.mktemp("mixture") / "letta", 1200)


def test_the_mixture_is_what_letta_writes(mixture: Written, tmp_path: Path) -> None:
    with Space.open(tmp_path / "home") as space:
        report = import_directory(space, mixture.path)
        assert report.messages.new == mixture.messages == 1200
        assert list(report.lines()) == []
        assert sum(each.messages for each in space.conversations()) == 1200
        assert list(space.verify()) == []


def test_the_mixture_is_always_the_same(mixture: Written, tmp_path: Path) -> None:
    again = write_mixture(tmp_path / "letta", 1200)
    names = [path.relative_to(mixture.path) for path in sorted(mixture.path.rglob("*"))]
    assert names == [path.relative_to(again.path) for path in sorted(again.path.rglob("*"))]
    for name in names:
        if (mixture.path / name).is_file():
            assert (mixture.path / name).read_bytes() == (again.path / name).read_bytes()


def test_windows_of_any_length_are_equal(tmp_path: Path) -> None:
    windows = []
    for messages in (250, 1000):
        written = write_one(tmp_path / f"letta-{messages}", messages, active=ACTIVE)
        with Space.open(tmp_path / f"home-{messages}") as space:
            report = import_directory(space, written.path)
            assert list(report.lines()) == []
            (conversation,) = space.conversations()
            assert conversation.messages == messages
            window = space.window(conversation.uri)
            assert len(window.messages) == ACTIVE
            assert not window.left_out
            windows.append([texts(message.payload()) for message in window.messages])
    assert windows[0][1:] == windows[1][1:]


def texts(payload: dict[str, Any]) -> list[str]:
    return [part["text"] for part in payload["content"] if part["type"] == "text"]
