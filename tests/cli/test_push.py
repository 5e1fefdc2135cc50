"""`lettaspace push`, and `push --again` for a host that has lost everything."""

from __future__ import annotations

from tests.cli.conftest import Cli
from tests.cli.machines import World


def test_what_is_here_goes_to_the_host(world: World) -> None:
    one = world.machine("one")
    assert one("sync").code == 0
    rkey = one.talk("Which glaze?", "And which cone?")
    done = one("push")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"To {world.origin}: 5 records\n"
    assert one("push").out == f"In sync with {world.origin}\n"
    one.say(rkey, "Cone 9, then.")
    pushed = one("push", "--json")
    assert pushed.err == ""
    assert pushed.json == {
        "host": world.origin,
        "again": False,
        "created": 0,
        "updated": 0,
        "pushed": 1,
        "blobs": 0,
        "held": 0,
        "refused": 0,
        "forks": [],
        "members": None,
    }


def test_nobody_is_signed_in(cli: Cli, world: World) -> None:
    done = cli("push")
    assert (done.code, done.out) == (1, "")
    assert done.err == "lettaspace: error: nobody is signed in here; `lettaspace login` does it\n"
    assert cli("pull", "--json").json["error"] == "SignedOut"


def test_there_is_nothing_to_push(world: World) -> None:
    one = world.machine("one")
    done = one("push")
    assert done.code == 1
    assert "`lettaspace clone` brings one there" in done.err
    assert not (one.home / "space.db").exists()


def test_a_host_that_lost_everything_is_given_it_again(world: World) -> None:
    one = world.machine("one")
    one("sync")
    rkey = one.talk("Shino crawls.")
    one("push")
    world.lose_everything()
    lost = one("sync")
    assert lost.code == 1
    assert lost.err.count("\n") == 1
    assert "`lettaspace push --again` gives it all back" in lost.err
    assert one.remote()["state"] == "emptied"
    assert one.remote("--offline")["state"] == "emptied"
    assert "the host has nothing of it any more since 20" in one.told()
    given = one("push", "--again", "--json")
    assert (given.code, given.json["again"], given.json["pushed"]) == (0, True, 4)
    assert one.remote()["state"] == "in-sync"
    two = world.machine("two")
    assert two("pull").code == 0
    assert two.said(rkey) == ["Shino crawls."]


def test_again_where_nothing_was_lost_gives_nothing(world: World) -> None:
    one = world.machine("one")
    one("sync")
    one.talk("a")
    one("push")
    again = one("push", "--again", "--json")
    assert (again.code, again.json["pushed"], again.json["created"]) == (0, 0, 0)
    assert one.remote()["state"] == "in-sync"
