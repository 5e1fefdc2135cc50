"""What `lettaspace status` says of the host, in every state there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lettaspace.conversation.space import Space
from lettaspace.remote.mirror import Key, Mirror
from tests.cli.conftest import Cli, on, process
from tests.cli.machines import Machine, World, real_time_host
from tests.server.peers import Answer, peer, reply

KEYS = [
    "did", "handle", "host", "signedIn", "state", "ahead", "behind", "lastSynced", "problem",
    "since", "until", "held", "diverged", "members",
]  # fmt: skip


@contextmanager
def host_instead(machine: Machine, answer: Answer | None) -> Iterator[str]:
    """Another host stands where the account's was; without an answer there is none."""
    path = machine.home / "account.json"
    before = path.read_text()
    with peer(answer or reply()) as other:
        origin = f"http://localhost:{other.port}"
        path.write_text(json.dumps({**json.loads(before), "host": origin}))
        if answer is None:
            other.close()
        yield origin
    path.write_text(before)


def line(text: str, start: str) -> str:
    """The line that begins so, without that."""
    (found,) = [each for each in text.splitlines() if each.startswith(start)]
    return found.removeprefix(start).strip()


def test_nobody_is_signed_in(cli: Cli, home: Path, world: World) -> None:
    assert cli("status", "--json").json["remote"] is None
    assert line(cli("status").out, "host") == "none: nobody is signed in"
    Space.open(home).close()
    assert cli("status", "--json").json["remote"] is None


def test_without_an_account_nothing_that_goes_online_is_loaded(home: Path) -> None:
    Space.open(home).close()
    code = (
        "import sys\n"
        "from lettaspace.cli.run import run\n"
        "code = run(sys.argv[1:])\n"
        "print(*({'httpx', 'keyring', 'requests', 'lettaspace.remote.xrpc'} & set(sys.modules)))\n"
        "sys.exit(code)\n"
    )
    done = process("--home", home, "status", "--json", code=code)
    assert done.code == 0
    assert done.out.splitlines()[-1] == ""


def test_before_the_first_sync(world: World) -> None:
    one = world.machine("one")
    found = one.remote()
    assert list(found) == KEYS
    assert (found["state"], found["host"], found["signedIn"]) == ("empty", world.origin, True)
    assert "nothing is here yet" in one.told()
    assert not (one.home / "space.db").exists()


def test_a_space_that_is_not_adopted(world: World) -> None:
    one = world.machine("one")
    Space.open(one.home).close()
    one.talk("before I had an account")
    assert one.remote()["state"] == "not-adopted"
    assert "`lettaspace adopt` moves it there" in one.told()


def test_in_sync_ahead_and_behind(world: World) -> None:
    one, two = world.machine("one"), world.machine("two")
    one("sync")
    rkey = one.talk("a")
    ahead = one.remote()
    assert (ahead["state"], ahead["ahead"], ahead["behind"]) == ("ahead", 4, 0)
    assert "ahead by 4 records, which the host has not yet" in one.told()
    one("sync")
    found = one.remote()
    assert (found["state"], found["ahead"], found["behind"]) == ("in-sync", 0, 0)
    assert found["lastSynced"] is not None
    assert line(one.told(), "host") == f"{world.origin}: in sync"
    assert line(one.told(), "account") == f"{world.handle}, {world.did}"
    two("pull")
    two.say(rkey, "b", "c")
    two("push")
    behind = one.remote()
    assert (behind["state"], behind["ahead"], behind["behind"]) == ("behind", 0, 2)
    assert "behind by 2 records, which are not here yet" in one.told()
    one.talk("d")
    assert one.remote()["state"] == "apart"
    unasked = one.remote("--offline")
    assert (unasked["state"], unasked["behind"]) == ("ahead", None)
    assert "the host was not asked" in one.told("--offline")


def test_a_host_that_was_stopped(world: World, tmp_path: Path) -> None:
    with real_time_host(tmp_path / "host.db") as server:
        own = World(server, tmp_path / "own", world.patch, on)
        one = own.machine("one")
        one("sync")
        one.talk("a")
    now = one.remote()
    assert (now["state"], now["since"], now["ahead"]) == ("unreachable", None, 4)
    failed = one("sync")
    assert failed.code == 1
    assert failed.err == (
        f"lettaspace: error: offline: {own.origin} cannot be reached; "
        "what is new here goes with the next sync\n"
    )
    later = one.remote()
    assert (later["state"], later["problem"]) == ("unreachable", "unreachable")
    assert later["since"] is not None
    told = one.told()
    assert line(told, "host").startswith(f"{own.origin}: offline since 20")
    assert "ahead by 4 records" in told
    assert one("sync").code == 1
    assert one.remote()["since"] == later["since"]


def test_a_host_that_is_back(world: World) -> None:
    one = world.machine("one")
    one("sync")
    with host_instead(one, None):
        assert one("sync").code == 1
    with host_instead(one, reply(b"no JSON")):
        assert one.remote()["state"] == "unreachable"
    # By the last sync it is away; it is not.
    assert one.remote("--offline")["state"] == "unreachable"
    assert one.remote()["state"] == "in-sync"


@pytest.mark.parametrize("how", ["ended", "logout", "lost"])
def test_signed_out(world: World, how: str) -> None:
    one = world.machine("one")
    one("sync")
    rkey = one.talk("still here")
    if how == "ended":
        world.end_sessions()
    elif how == "logout":
        one("logout")
    else:
        (one.home / "session.json").unlink()
    found = one.remote()
    assert (found["state"], found["signedIn"]) == ("signed-out", how != "logout")
    assert (found["did"], found["host"], found["ahead"]) == (world.did, world.origin, 4)
    assert "signed out" in line(one.told(), "host")
    if how == "logout":
        assert one("sync", "--letta", one.home).code == 1
        assert one("push").err.startswith("lettaspace: error: nobody is signed in here")
    else:
        failed = one("sync")
        assert failed.code == 1
        assert failed.err.startswith("lettaspace: error: signed out: ")
        assert "signed out since 20" in one.told()
        assert one.remote("--offline")["state"] == "signed-out"
    assert one.said(rkey) == ["still here"]
    one.login()
    assert one("sync").code == 0
    assert one.remote()["state"] == "in-sync"


def test_rate_limited(world: World) -> None:
    one = world.machine("one")
    one("sync")
    refusal = b'{"error":"RateLimitExceeded","message":"too much"}'
    busy = reply(
        refusal, "429 Too Many Requests", "Retry-After: 3600\r\n", media_type="application/json"
    )
    with host_instead(one, busy) as origin:
        failed = one("pull", "--json")
        assert (failed.code, failed.json["error"]) == (1, "HostRefused")
        assert failed.json["message"].startswith("rate limited: ")
        assert "3600 s" in failed.json["message"]
        found = one.remote()
        assert (found["state"], found["host"]) == ("rate-limited", origin)
        assert found["until"] > found["since"]
        assert "rate limited since 20" in one.told()
        assert ", until 20" in one.told()
    assert one.remote()["state"] == "in-sync"


def test_diverged_on_both_machines(world: World) -> None:
    """Both went on; both have both, and both say so."""
    one, two = world.machine("one"), world.machine("two")
    one("sync")
    rkey = one.talk("Which cone?", title="Cones")
    one("sync")
    two("sync")
    one.say(rkey, "Nine.")
    two.say(rkey, "Ten.")
    assert one("sync").code == 0
    parted = two("sync")
    assert parted.code == 0
    assert f"Two machines went on with {rkey}: what this machine wrote is in " in parted.out
    one("sync")
    assert one.records() == two.records()
    for machine in (one, two):
        found = machine.remote()
        assert found["state"] == "in-sync"
        names = {each["conversation"]: each["title"] for each in found["diverged"]}
        assert names.pop(rkey) == "Cones"
        ((fork, title),) = names.items()
        assert title == "Cones (fork)"
        assert machine.said(rkey) == ["Which cone?", "Nine."]
        assert machine.said(fork) == ["Which cone?", "Ten."]
        assert f"diverged: {rkey}  Cones\n" in machine.told()
        assert "[diverged]" in machine("conversations").out
        assert machine("verify").code == 0


def test_what_waits(world: World) -> None:
    one = world.machine("one")
    one("sync")
    rkey = one.talk("a")
    one("sync")
    with one.open() as space, space.database.write() as connection:
        key = Key("xyz.quasigod.lab.letta.conversation", rkey)
        Mirror(connection, space.repo.id).hold(key, "deleted")
    found = one.remote()
    assert (found["state"], found["held"]) == ("waiting", {"deleted": 1})
    assert "waiting: 1 record deleted at the host, kept here" in one.told()


def test_another_account_is_signed_in(world: World, other_world: World) -> None:
    one = world.machine("one")
    one("sync")
    one("logout")
    Machine(one.home, other_world).login()
    found = one.remote()
    assert (found["state"], found["did"]) == ("another-account", world.did)
    refused = one("sync")
    assert refused.code == 1
    assert f"this home is {world.did}'s" in refused.err
