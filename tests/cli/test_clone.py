"""`lettaspace clone`, and what a second machine does then."""

from __future__ import annotations

import json

import pytest

from lettaspace.conversation.space import Space
from tests.cli.machines import Machine, World
from tests.server.peers import peer, reply


def test_a_second_machine(world: World) -> None:
    """Signed in, cloned, gone on with, and back."""
    one = world.machine("one")
    one("sync")
    rkey = one.talk("How many mugs fit?", title="Shelves")
    assert one("sync").code == 0
    two = world.machine("two", login=False)
    done = two.with_password("clone", world.did)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"Signed in to {world.origin} as {world.handle}.",
        f"From {world.origin}: 4 new records",
        f"The space at {two.home} is {world.space}: 1 conversation, 1 agent",
    ]
    assert two.records() == one.records()
    assert two("verify").code == 0
    two.say(rkey, "Eighteen.")
    assert two("push").out == f"To {world.origin}: 1 record\n"
    assert one.remote()["behind"] == 1
    assert one("pull").out == f"From {world.origin}: 1 new record\n"
    assert one.said(rkey) == two.said(rkey) == ["How many mugs fit?", "Eighteen."]
    assert one.records() == two.records()


def test_who_is_signed_in_clones_by_any_name(world: World) -> None:
    one = world.machine("one")
    one("sync")
    one.talk("a")
    one("sync")
    for number, name in enumerate((world.handle, world.did, world.space)):
        other = world.machine(f"other{number}")
        done = other("clone", name, "--json")
        assert (done.code, done.err) == (0, "")
        assert {key: value for key, value in done.json.items() if key != "remote"} == {
            "home": str(other.home),
            "did": world.did,
            "space": world.space,
            "host": world.origin,
            "agents": 1,
            "conversations": 1,
            "members": [],
        }
        assert done.json["remote"]["created"] == 4
        assert other("clone", name, "--json").json["remote"]["created"] == 0


def test_a_space_that_has_nothing_yet(world: World) -> None:
    one = world.machine("one")
    done = one("clone", world.did)
    assert done.code == 0
    assert "0 conversations, 0 agents" in done.out
    one.talk("the first")
    assert one("push").code == 0


def test_a_home_with_conversations_of_its_own(world: World) -> None:
    one = world.machine("one", login=False)
    Space.open(one.home).close()
    one.talk("my own")
    done = one.with_password("clone", world.did, "--json")
    assert (done.code, done.json["error"]) == (1, "Conflict")
    assert "clone into another one" in done.json["message"]
    assert not (one.home / "account.json").exists()


def test_a_home_of_another_account(world: World, other_world: World) -> None:
    one = world.machine("one")
    one("clone", world.did)
    assert one("logout").code == 0
    done = Machine(one.home, other_world).with_password("clone", other_world.did)
    assert done.code == 1
    assert f"this home is {world.did}'s" in done.err


def test_interrupted_it_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = world.machine("one")
    one("sync")
    for number in range(6):
        one.talk(f"talk {number}")
    one("push")
    monkeypatch.setattr("lettaspace.remote.pulling._CHUNK", 1)
    monkeypatch.setattr("lettaspace.remote.pulling.MAX_OPS", 1)
    two = world.machine("two")
    with monkeypatch.context() as patch:
        from lettaspace.remote.pulling import Puller

        take, taken = Puller._take, []

        def interrupted(self, *args):  # type: ignore[no-untyped-def]
            taken.append(args)
            if len(taken) == 4:
                raise KeyboardInterrupt
            return take(self, *args)

        patch.setattr(Puller, "_take", interrupted)
        assert two("clone", world.did).code == 130
    assert 0 < len(two.records()) < len(one.records())
    assert two("verify").code == 0
    assert two("clone", world.did).code == 0
    assert two.records() == one.records()


def test_a_host_that_cannot_be_reached_leaves_it_to_be_tried_again(world: World) -> None:
    one = world.machine("one")
    one("sync")
    one.talk("a")
    one("push")
    two = world.machine("two")
    form = json.loads((two.home / "account.json").read_text())
    with peer(reply()) as gone:
        away = f"http://localhost:{gone.port}"
    (two.home / "account.json").write_text(json.dumps({**form, "host": away}))
    done = two("clone", world.did)
    assert done.code == 1
    assert done.err.startswith(f"lettaspace: error: offline: {away} cannot be reached")
    (two.home / "account.json").write_text(json.dumps(form))
    assert two("clone", world.did).code == 0
    assert two.records() == one.records()


def test_nobody_is_signed_in_to_clone_anothers_space(world: World) -> None:
    one = world.machine("one", login=False)
    done = one("clone", world.space)
    assert (done.code, done.out) == (1, "")
    assert "`lettaspace login HANDLE` says who you are" in done.err
    assert not one.home.exists()


@pytest.mark.parametrize("what", ["at://nobody", "not a name", "at://did:web:x.example"])
def test_what_is_no_space(world: World, what: str) -> None:
    one = world.machine("one")
    done = one("clone", what)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1


# Spaces of others.


def test_anothers_space(world: World, other_world: World) -> None:
    """Its records come to be read; what is written goes to one's own host."""
    one = world.machine("one")
    one("sync")
    rkey = one.talk("Whose kiln?", title="Kiln")
    one("push")
    world.share(other_world.did)
    guest = other_world.machine("guest")
    done = guest("clone", world.space)
    assert (done.code, done.err) == (0, "")
    assert f"From {world.did}: 4 new records" in done.out
    assert "0 conversations, 0 agents, and what 1 other wrote" in done.out
    (talk,) = guest("conversations", "--author", world.did, "--json").json
    assert (talk["rkey"], talk["title"]) == (rkey, "Kiln")
    assert guest("conversations", "--json").json == []
    guest.talk("Mine.")
    assert guest("sync").code == 0
    one.say(rkey, "Mira's.")
    one("push")
    pulled = guest("pull", "--json").json
    assert pulled["members"]["synced"][world.did]["created"] == 1
    owner = one("pull", "--members", "--json").json
    assert owner["members"]["synced"][other_world.did]["created"] == 4
    assert one.records() != guest.records()
    assert guest.remote()["members"][0]["problem"] is None


def test_a_space_that_one_may_not_read(world: World, other_world: World) -> None:
    one = world.machine("one")
    one("sync")
    one.talk("private")
    one("push")
    world.share()
    guest = other_world.machine("guest")
    done = guest("clone", world.space)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("lettaspace: error: no longer a member: ")
    # Nothing is left of it: the home is free for one's own.
    assert guest("clone", other_world.did).code == 0
    nowhere = world.machine("two")
    missing = nowhere("clone", f"at://{other_world.did}/space/xyz.quasigod.lab.letta.space/other")
    assert missing.code == 1
    assert missing.err.startswith("lettaspace: error: no shared space: ")


def test_a_space_that_is_deleted(world: World, other_world: World) -> None:
    one = world.machine("one")
    one("sync")
    one.talk("to be gone")
    one("push")
    world.share(other_world.did)
    guest = other_world.machine("guest")
    guest("clone", world.space)
    mine = guest.talk("mine stays")
    guest("push")
    world.server.host.spaces.delete(world.space)
    done = guest("sync")
    assert done.code == 1
    assert done.err.startswith("lettaspace: error: space deleted: ")
    assert guest("conversations", "--author", world.did).code == 1
    assert guest.said(mine) == ["mine stays"]
    assert guest.remote()["state"] == "space-deleted"
    assert "the space was deleted at its host since 20" in guest.told()


def test_no_longer_a_member(world: World, other_world: World) -> None:
    one = world.machine("one")
    one("sync")
    rkey = one.talk("still to be read")
    one("push")
    world.share(other_world.did)
    guest = other_world.machine("guest")
    guest("clone", world.space)
    world.server.host.spaces.remove_member(world.space, other_world.did)
    first = guest("sync")
    assert first.code == 1
    assert first.err.startswith("lettaspace: error: no longer a member: ")
    state = guest.remote()
    assert state["state"] == "not-a-member"
    assert state["members"][0]["problem"] == "not-a-member"
    assert guest("sync").code == 1
    assert guest.remote()["since"] == state["since"]
    assert "no longer a member since 20" in guest.told()
    assert guest("show", rkey, "--author", world.did).code == 0
    world.let_in(other_world.did)
    assert guest("sync").code == 0
    assert guest.remote()["state"] == "in-sync"
