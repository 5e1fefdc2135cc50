"""Following the real Letta Code while it works."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from lettaspace.letta.report import Report
from lettaspace.letta.watch import Watcher
from tests.lab.driver import LettaHome
from tests.lab.lab import Lab
from tests.lab.provider import Call, Reply
from tests.lab.store import conversation_key, in_context_ids, read_messages
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import records, window_ids
from tests.waiting import until

FIRST = conversation_key(1)


def listed(home: LettaHome) -> list[str]:
    """The window; none while conversation.json is being written."""
    with contextlib.suppress(ValueError, OSError):
        return in_context_ids(home.storage, FIRST)
    return []


def written(home: LettaHome) -> list[str]:
    """The ids of the messages in the file; none while a row is being written."""
    with contextlib.suppress(ValueError, OSError):
        return [message["id"] for message in read_messages(home.storage, FIRST)]
    return []


def stored(space: Space) -> list[str]:
    """The ids of all messages of the first conversation."""
    for conversation in space.conversations():
        if conversation.letta["id"] == "local-conv-1":
            found = space.transcript(conversation.uri)
            return [message.payload()["id"] for message in found]
    return []


def settled(space: Space, fresh: Space, root: Path) -> bool:
    import_directory(fresh, root)
    return records(space) == records(fresh)


@pytest.mark.parametrize("before", ["nothing", "an import"])
def test_following_letta(letta_lab: Lab, open_space: OpenSpace, before: str) -> None:
    name = f"watched-{before.replace(' ', '-')}"
    home = letta_lab.home(name)
    space, fresh = open_space("a"), open_space("b")
    reports: list[Report] = []
    problems: list[str] = []
    cat = Call("Bash", {"command": "cat note.txt", "description": "look"})
    turn = letta_lab.script(
        name, Reply("Looking.", calls=(cat, cat)), Reply("Two jars, I think.", pause=name)
    )
    if before == "an import":
        home.ask("first of all")
        import_directory(space, home.storage)
        session = home.session(conversation="local-conv-1")
    else:
        session = home.session()
    watcher = Watcher(space, home.storage, on_report=reports.append, on_problem=problems.append)
    with watcher:
        with session:
            session.ask("hello")
            until(lambda: len(written(home)) >= 2 and stored(space) == written(home))
            session.send(f"list the jars {turn}")
            letta_lab.provider.gate(name).await_arrival()
            # The answer has begun: it is listed, and has no row.
            until(lambda: len(listed(home)) > len(written(home)) > 0)
            until(lambda: stored(space) == written(home))
            assert len(stored(space)) >= 6
            letta_lab.provider.gate(name).open()
            session.result()
            until(lambda: len(stored(space)) >= 7 and stored(space) == written(home))
            # Nothing that was seen half written was ever taken for something else.
            ops = [op for op in space.repo.ops() if op.collection == MESSAGE]
            assert all(op.prev is None for op in ops)
        with home.app_server() as server:
            server.compact("local-conv-1", "sliding_window", 0.5)
            until(lambda: len(stored(space)) == len(written(home)) >= 8)
        home.ask("and now?", conversation="local-conv-1")
        until(lambda: stored(space)[-2:] == written(home)[-2:])
        until(lambda: settled(space, fresh, home.storage))
    assert window_ids(space, first(space)) == in_context_ids(home.storage, FIRST)
    assert not any(report.incomplete for report in reports), [
        line for report in reports for line in report.losses()
    ]
    assert len(problems) <= 1, "only that there was no directory yet"
    assert space.repo.set_hash().state == fresh.repo.set_hash().state
    assert list(space.verify()) == []


def first(space: Space) -> str:
    (uri,) = [each.uri for each in space.conversations() if each.letta["id"] == "local-conv-1"]
    return uri


def test_an_answer_that_was_cut_off(letta_lab: Lab, open_space: OpenSpace) -> None:
    """Killed in the middle of an answer, and taken up again."""
    home = letta_lab.copy("kill_stream", "watched-kill")
    space, fresh = open_space("a"), open_space("b")
    reports: list[Report] = []
    with Watcher(space, home.storage, on_report=reports.append):
        until(lambda: stored(space) == written(home) != [])
        home.ask("Still there?", conversation="local-conv-1")
        until(lambda: stored(space) == written(home))
        until(lambda: settled(space, fresh, home.storage))
    assert len(stored(space)) > 2
    assert not any(report.incomplete for report in reports)
