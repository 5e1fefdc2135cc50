"""The example harness, run for real: killed at its worst moments, it goes on as if nothing was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lettaspace import AssistantMessage, Space, ToolResult, UserMessage, parse_message

HARNESS = Path(__file__).parents[2] / "examples" / "harness.py"

QUESTIONS = [f"Squares of {n}, {n + 1} and {n + 2}?" for n in range(10, 40, 4)]
ANSWERS = [f"Together {sum(k * k for k in range(n, n + 3))}." for n in range(10, 40, 4)]

# Kills itself at a chosen one of the moments before and after each write and each tool.
_KILLED = """
import os, signal, sys

sys.path.insert(0, sys.argv[1])
import harness
from lettaspace.space.repo import EmbeddedRepo

moments = 0

def moment():
    global moments
    moments += 1
    if moments == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

def around(function):
    def wrapped(*arguments, **options):
        moment()
        result = function(*arguments, **options)
        moment()
        return result
    return wrapped

EmbeddedRepo.transact = around(EmbeddedRepo.transact)
harness.tool = around(harness.tool)
answers = harness.run(sys.argv[3], sys.argv[4:])
print(moments, *answers, sep="\\n")
"""


def run(home: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(HARNESS), str(home), *QUESTIONS],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def run_until(moment: int, home: Path) -> subprocess.CompletedProcess[str]:
    code = [sys.executable, "-c", _KILLED, str(HARNESS.parent), str(moment), str(home)]
    return subprocess.run(
        [*code, *QUESTIONS], capture_output=True, text=True, check=False, timeout=120
    )


def said(home: Path) -> list[tuple[object, ...]]:
    """The transcript, without ids and times that differ from run to run."""
    with Space.open(home) as space:
        (known,) = space.conversations()
        talk = space.conversation(known.rkey)
        messages = [parse_message(message.payload()) for message in talk.transcript()]
        return [
            (
                each.role,
                each.plain_text,
                [call.to_json() for call in getattr(each, "tool_calls", [])],
                getattr(each, "tool_call_id", None),
                getattr(each, "is_error", None),
            )
            for each in messages
        ]


def check(home: Path) -> None:
    """Whatever happened: everything asked and answered once, everything paired, all in order."""
    with Space.open(home) as space:
        (known,) = space.conversations()
        talk = space.conversation(known.rkey)
        transcript = list(talk.transcript())
        messages = [parse_message(message.payload()) for message in transcript]
        summaries = [message for message in transcript if message.compacted_message_ids]
        assert summaries
        asked = [
            each.plain_text
            for each in messages
            if isinstance(each, UserMessage) and each.metadata is None
        ]
        assert asked == QUESTIONS
        answered = [
            each.plain_text
            for each in messages
            if isinstance(each, AssistantMessage) and not each.tool_calls
        ]
        assert answered == ANSWERS
        calls = [
            call.id
            for each in messages
            if isinstance(each, AssistantMessage)
            for call in each.tool_calls
        ]
        results = [each.tool_call_id for each in messages if isinstance(each, ToolResult)]
        assert len(set(calls)) == len(calls)
        assert sorted(results) == sorted(calls)
        assert talk.pending() == []
        window = talk.window()
        assert window.left_out == []
        assert [m.seq for m in window.messages] == sorted(m.seq for m in window.messages)
        # Nothing that a summary covers, and everything that none covers.
        assert [m.rkey for m in window.messages] == [
            m.rkey
            for m in sorted(transcript, key=lambda message: message.seq)
            if m.covered_by is None
        ]
        assert list(space.verify()) == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[tuple[object, ...]]]:
    """How many moments there are to be killed at, and what is said if nobody is."""
    home = tmp_path_factory.mktemp("harness") / "home"
    moments, *answers = run_until(0, home).stdout.splitlines()
    assert answers == ANSWERS
    check(home)
    return int(moments), said(home)


def test_it_is_short() -> None:
    assert len(HARNESS.read_text(encoding="utf-8").splitlines()) < 120


def test_it_answers_and_compacts(home: Path) -> None:
    assert run(home) == ANSWERS
    check(home)
    before = said(home)
    # Started again, it finds everything done.
    assert run(home) == ANSWERS
    assert said(home) == before


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("part", [0.0, 0.1, 0.21, 0.37, 0.5, 0.66, 0.83, 0.99])
def test_killed_once_it_goes_on_exactly(
    part: float, home: Path, undisturbed: tuple[int, list[tuple[object, ...]]]
) -> None:
    moments, reference = undisturbed
    killed = run_until(1 + int(part * (moments - 1)), home)
    assert killed.returncode == -signal.SIGKILL
    assert run(home) == ANSWERS
    check(home)
    found = said(home)
    if not any(is_error for *_, is_error in found):
        # No call was in flight, so there is no trace of it.
        assert found == reference


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_again_and_again_it_ends(
    home: Path, undisturbed: tuple[int, list[tuple[object, ...]]]
) -> None:
    step, runs = undisturbed[0] // 5, 0
    while run_until(step * (runs + 1) // 2 + 7, home).returncode == -signal.SIGKILL:
        runs += 1
        assert runs < 30
    assert runs >= 3
    assert run(home) == ANSWERS
    check(home)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_from_outside_at_any_time(home: Path) -> None:
    for delay in (0.4, 0.6, 0.9):
        command = [sys.executable, str(HARNESS), str(home), *QUESTIONS]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            time.sleep(delay)
            os.kill(process.pid, signal.SIGKILL)
    assert run(home) == ANSWERS
    check(home)
