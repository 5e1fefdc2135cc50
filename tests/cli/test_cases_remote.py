"""Cases from the field, between two machines and one host, by the commands people use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.records import MESSAGE
from lettaspace.errors import Conflict
from tests.cli.machines import Machine, World
from tests.conformance.kit import user
from tests.letta.build import Store, at, b1, message, rows
from tests.letta.helpers import export
from tests.remote.faults import LOST_ANSWER, LOST_REQUEST, PASS, Call, Fault
from tests.remote.proxy import FaultProxy


def letta(path: Path, made: list[dict[str, object]], **more: str) -> Store:
    store = Store(path)
    store.agent()
    store.conversation(made, **more)
    return store


def sync(machine: Machine, store: Store) -> dict[str, Any]:
    """What came of a sync, which has to go well."""
    done = machine("sync", "--letta", store.path, "--json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = done.json
    return found


def counts(done: dict[str, Any]) -> tuple[object, object, object]:
    """Records that came, that changed here, and that went."""
    remote = done["remote"]
    assert isinstance(remote, dict)
    return remote["created"], remote["updated"], remote["pushed"]


def messages(machine: Machine) -> dict[str, str]:
    return {key: cid for (of, key), cid in machine.records().items() if of == MESSAGE}


def test_o30_old_history_brought_in_on_two_machines(world: World, tmp_path: Path) -> None:
    one, two = world.machine("one"), world.machine("two")
    made = rows(b1())
    here, there = letta(tmp_path / "here", made), letta(tmp_path / "there", made)
    assert counts(sync(one, here)) == (0, 0, 7)
    done = sync(two, there)
    # What the host has comes first; the directory then has nothing that is not there.
    assert counts(done) == (7, 0, 0)
    assert done["messages"] == {"new": 0, "changed": 0, "unchanged": 4}
    assert done["restored"]["conversations"] == []
    assert one.records() == two.records()
    third = sync(one, here)
    assert third["messages"] == {"new": 0, "changed": 0, "unchanged": 0}
    assert counts(third) == (0, 0, 0)
    (talk,) = one("conversations", "--json").json
    shown = one("show", talk["rkey"], "--json").json["messages"]
    assert [each["createdAt"] for each in shown] == [at(number) for number in (1, 2, 3, 4)]


def test_o31_counter_ids_meet(world: World, tmp_path: Path) -> None:
    """Both machines have a `local-conv-1`, and both fork it at once."""
    one, two = world.machine("one"), world.machine("two")
    jars = letta(tmp_path / "jars", rows(b1()))
    boats = [message(n, "user", f"boat {n}", created=at(5000 + n)) for n in (1, 2, 3)]
    harbour = letta(tmp_path / "harbour", rows(boats), created=at(4999))
    sync(one, jars)
    sync(two, harbour)
    forks = {}
    for machine in (one, two):
        with machine.open() as space:
            (own,) = [each for each in space.conversations() if _is_from(machine, one, each)]
            last = space.conversation(own.rkey).window().messages[-1]
            forks[machine.home] = space.conversation(own.rkey).fork(last.rkey).rkey
    for machine in (one, two, one):
        assert machine("sync").code == 0
    assert one.records() == two.records()
    listed = one("conversations", "--json").json
    assert len(listed) == 4
    assert len({each["rkey"] for each in listed}) == 4
    originals = [each for each in listed if "forkedFrom" not in each]
    assert [each["letta"]["id"] for each in originals] == ["local-conv-1", "local-conv-1"]
    assert {each["rkey"] for each in listed if "forkedFrom" in each} == set(forks.values())
    assert all(each["letta"] == {} for each in listed if "forkedFrom" in each)
    assert sorted(each["messages"] for each in listed) == [3, 3, 4, 4]
    assert one("show", "local-conv-1", "--json").json["error"] == "Ambiguous"
    # Back to the first machine under its own name, as it was.
    (own,) = [each for each in originals if each["createdAt"] == at(0)]
    with one.open() as space:
        directory = export(space, own["uri"], tmp_path / "back")
    assert directory.name == jars.directory().name
    said = [json.loads(line) for line in (directory / "messages.jsonl").read_text().splitlines()]
    assert [each["message"]["id"] for each in said if "message" in each] == [
        "ui-msg-1", "ui-msg-2", "ui-msg-3", "ui-msg-4",
    ]  # fmt: skip
    assert sync(one, jars)["outcomes"] == {"unchanged": 1}
    assert one("verify").code == two("verify").code == 0


def _is_from(machine: Machine, one: Machine, info: object) -> bool:
    created = getattr(info, "created_at", None)
    return created == (at(0) if machine is one else at(4999))


def test_o32_brought_in_again(world: World, tmp_path: Path) -> None:
    one, two = world.machine("one"), world.machine("two")
    store = letta(tmp_path / "one-letta", rows(b1()))
    sync(one, store)
    before = messages(one)
    assert len(before) == 4
    # Letta goes on with it on the second machine.
    assert two("clone", world.did).code == 0
    other = letta(tmp_path / "two-letta", rows([*b1(), message(5, "user", "and?")]))
    assert sync(two, other)["messages"] == {"new": 1, "changed": 0, "unchanged": 4}
    with two.open() as space:
        (talk,) = space.conversations()
    two.say(talk.rkey, "none")
    assert two("push").code == 0
    assert one("pull").code == 0
    after = messages(one)
    assert len(after) == 6
    assert before.items() <= after.items()
    assert one.records() == two.records()
    # The first machine's directory still has four, and takes nothing away.
    again = sync(one, store)
    assert counts(again) == (0, 0, 0)
    assert messages(one) == after
    archive = tmp_path / "own.car"
    assert one("export", "--space", archive).code == 0
    restored = one("import", archive, "--json").json
    assert {(each["created"], each["updated"]) for each in restored["collections"].values()} == {
        (0, 0)
    }
    assert counts(sync(one, store)) == (0, 0, 0)


@pytest.fixture(scope="module")
def long_talk() -> list[dict[str, object]]:
    return rows(message(n, "user", f"m{n}") for n in range(1, 255))


def test_o62_one_side_is_a_prefix_of_the_other(
    world: World, tmp_path: Path, long_talk: list[dict[str, object]]
) -> None:
    one, two = world.machine("one"), world.machine("two")
    sync(one, letta(tmp_path / "one-letta", long_talk[:252]))
    there = one.records()
    assert len(messages(one)) == 251
    # (a) The second machine has the first 41: it is completed, and the host left as it is.
    store = letta(tmp_path / "two-letta", long_talk[:42])
    first = sync(two, store)
    assert counts(first) == (254, 0, 0)
    assert two.records() == there
    # (b) All of them, in files that are newer.
    store.conversation(long_talk[:252])
    assert counts(sync(two, store)) == (0, 0, 0)
    # (c) Three more.
    store.conversation(long_talk)
    assert counts(sync(two, store)) == (0, 0, 3)
    assert one("pull", "--json").json["created"] == 3
    assert one.records() == two.records()
    for machine in (one, two):
        (talk,) = machine("conversations", "--json").json
        assert (talk["messages"], "damage" in talk) == (254, False)
        assert machine.remote()["held"] == {}


_APPENDS = """
import sys
from lettaspace import Space
home, rkey, side = sys.argv[1:]
with Space.open(home) as space:
    talk = space.conversation(rkey)
    for number in range(1, 51):
        talk.append(
            {"role": "user", "content": [{"type": "text", "text": f"{side}-{number}"}]}
        )
"""


def test_o24_two_writers_while_it_goes_to_the_host(world: World) -> None:
    one = world.machine("one")
    one("sync")
    rkey = one.talk()
    sides = [
        subprocess.Popen([sys.executable, "-c", _APPENDS, one.home, rkey, side], stderr=-1)
        for side in "LR"
    ]
    pushes = 0
    while any(side.poll() is None for side in sides):
        assert one("push").code == 0
        pushes += 1
    for side in sides:
        _, err = side.communicate()
        assert (side.returncode, err) == (0, b"")
    assert pushes > 0
    assert one("push").code == 0
    two = world.machine("two")
    assert two("clone", world.did).code == 0
    for machine in (one, two):
        with machine.open() as space:
            window = space.conversation(rkey).window().messages
        assert [each.seq for each in window] == list(range(1, 101))
        said = machine.said(rkey)
        for side in "LR":
            own = [each for each in said if each.startswith(side)]
            assert own == [f"{side}-{number}" for number in range(1, 51)]
    assert one.records() == two.records()
    assert two("verify").code == 0


def test_o25_compare_and_swap_on_the_record(world: World) -> None:
    """What came from another machine counts as what was written here."""
    one, two = world.machine("one"), world.machine("two")
    one("sync")
    rkey = one.talk("first", "second", "third", "fourth")
    one("sync")
    two("sync")
    with one.open() as space:
        loaded = space.conversation(rkey).window().messages
    # (a) Another record changes.
    _rewrite(two, rkey, 0, "FIRST")
    assert one("pull").code == 0
    with one.open() as space:
        talk = space.conversation(rkey)
        saved = talk.rewrite(loaded[3].rkey, user("saved"), expected=loaded[3].cid)
    assert one("push").code == two("pull").code == 0
    # (b) This one does.
    _rewrite(two, rkey, 3, "FOURTH")
    assert one("pull").code == 0
    with one.open() as space:
        talk = space.conversation(rkey)
        with pytest.raises(Conflict) as caught:
            talk.rewrite(saved.rkey, user("again"), expected=saved.cid)
        now = talk.message(saved.rkey)
        assert str(saved.cid) in str(caught.value)
        assert str(now.cid) in str(caught.value)
        talk.rewrite(now.rkey, user("reloaded"), expected=now.cid)
    assert one("push").code == two("pull").code == 0
    assert one.said(rkey) == two.said(rkey) == ["FIRST", "second", "third", "reloaded"]


def _rewrite(machine: Machine, rkey: str, at: int, text: str) -> None:
    with machine.open() as space:
        talk = space.conversation(rkey)
        talk.rewrite(talk.window().messages[at].rkey, user(text))
    assert machine("push").code == 0


@pytest.fixture
def proxy(world: World) -> Iterator[FaultProxy]:
    with FaultProxy(world.origin) as proxy:
        yield proxy


def test_o64_a_write_landed_but_the_answer_did_not(
    world: World, proxy: FaultProxy, tmp_path: Path
) -> None:
    """An append, a compaction, an import: each is there once, whoever asks."""
    one, two = world.machine("one"), world.machine("two")
    _by_way_of(one, proxy.origin)
    one("sync")
    rkey = one.talk("a", "b", "c")
    lost: list[str] = []

    def schedule(call: Call) -> Fault:
        if call.nsid != "com.atproto.space.applyWrites" or lost:
            return PASS
        lost.append(call.nsid)
        return LOST_ANSWER

    def push() -> None:
        lost.clear()
        proxy.schedule(schedule)
        done = one("push")
        assert (done.code, len(lost)) == (0, 1)
        assert two("pull").code == 0
        assert two.records() == one.records()

    push()
    one.say(rkey, "go")
    push()
    assert two.said(rkey) == ["a", "b", "c", "go"]
    with one.open() as space:
        space.conversation(rkey).compact(lambda _: "abc", lambda _: 3)
    push()
    assert two.said(rkey)[1:] == ["go"]
    assert len(two.said(rkey)) == 2
    store = letta(tmp_path / "letta", rows(message(n, "user", f"m{n}") for n in range(1, 251)))
    lost.clear()
    proxy.schedule(schedule)
    assert one("sync", "--letta", store.path).code == 0
    assert len(lost) == 1
    assert two("pull").code == 0
    assert two.records() == one.records()
    assert len(messages(two)) == 250 + 5
    assert two("verify").code == 0


def _by_way_of(machine: Machine, origin: str) -> None:
    path = machine.home / "account.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": origin}))


def test_o64_somebody_went_on_after_it_meanwhile(
    world: World, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What landed is no branch of its own when the other machine wrote after it."""
    monkeypatch.setattr("lettaspace.remote.syncing._PAUSES", (0.0, 0.0))
    one, two = world.machine("one"), world.machine("two")
    _by_way_of(one, proxy.origin)
    one("sync")
    rkey = one.talk("a")
    one("sync")
    one.say(rkey, "go")
    cut: list[str] = []

    def schedule(call: Call) -> Fault:
        if cut:
            return LOST_REQUEST
        if call.nsid == "com.atproto.space.applyWrites":
            cut.append(call.nsid)
            return LOST_ANSWER
        return PASS

    proxy.schedule(schedule)
    assert one("push").err.startswith("lettaspace: error: offline: ")
    proxy.schedule({})
    assert two("sync").code == 0
    two.say(rkey, "on")
    assert two("push").code == 0
    assert one("sync", "--json").json["remote"]["forks"] == []
    assert one.said(rkey) == two.said(rkey) == ["a", "go", "on"]
    assert one.records() == two.records()
