"""Pages are told what was written while somebody looks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from lettaspace.conversation.payload import UserMessage as User
from lettaspace.conversation.space import Space
from lettaspace.viewer.live import Live
from tests.viewer.conftest import Running, Serve
from tests.waiting import SECONDS, until

SAY = """
import sys
from lettaspace.conversation.payload import UserMessage
from lettaspace.conversation.space import Space
with Space.open(sys.argv[1]) as space:
    space.conversation(sys.argv[2]).append(UserMessage.text("secret words"))
"""


@contextmanager
def looking(running: Running) -> Iterator[Iterator[dict[str, Any]]]:
    """The changes that the server tells of, from now on."""
    with running.browser.stream("GET", f"{running.base}/live", timeout=SECONDS) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield changes(answer)


def changes(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def until_told(told: Iterator[dict[str, Any]], write: Any, rkey: str) -> dict[str, Any]:
    """Writes again and again until a change of that conversation is told."""
    over = threading.Event()

    def keep_on() -> None:
        # What is written before the server has begun to look is no change to it.
        while not over.is_set():
            write()
            over.wait(0.5)

    writer = threading.Thread(target=keep_on)
    writer.start()
    try:
        return next(each for each in told if each["everything"] or rkey in each["conversations"])
    finally:
        over.set()
        writer.join()


def test_an_append_is_told(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    other = space.create_conversation(space.create_agent("Heron"))
    here = serve(space)
    with looking(here) as told:
        change = until_told(told, lambda: talk.append(User.text("hello")), talk.rkey)
        assert other.rkey not in change["conversations"]


def test_what_another_process_writes_is_told_without_its_words(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    here = serve(space)
    with looking(here) as told:

        def write() -> None:
            arguments = [sys.executable, "-c", SAY, str(space.home), talk.rkey]
            subprocess.run(arguments, check=True)

        change = until_told(told, write, talk.rkey)
    assert "secret" not in json.dumps(change)


def test_who_does_not_look_any_more_is_looked_for_no_more(space: Space, serve: Serve) -> None:
    here = serve(space)
    live: Live = here.app.state.live
    talk = space.create_conversation(space.create_agent("Otter"))
    assert not live.is_looking
    with looking(here) as told:
        until_told(told, lambda: talk.append(User.text("hello")), talk.rkey)
        assert live.is_looking

    def is_left() -> bool:
        talk.append(User.text("so that the server notices that the connection is closed"))
        return not live.is_looking

    until(is_left)


def test_many_may_look(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    here = serve(space)
    with looking(here) as first, looking(here) as second:
        until_told(first, lambda: talk.append(User.text("hello")), talk.rkey)
        change = next(second)
        assert change["everything"] or talk.rkey in change["conversations"]
