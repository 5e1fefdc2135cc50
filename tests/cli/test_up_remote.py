"""`lettaspace up` where somebody is signed in."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from lettaspace.conversation.space import Space
from tests.cli.machines import Machine, World
from tests.cli.test_serving import looking, up
from tests.letta.build import Store, b1, rows


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(600):
        if is_so():
            return
        threading.Event().wait(0.1)
    pytest.fail("it never was")


def shows(browser: httpx.Client, text: str) -> bool:
    return text in browser.get("/").text


def test_the_page_shows_what_other_machines_write(world: World, other_world: World) -> None:
    """A second machine without Letta: its own space is served, kept in sync, and others' talks
    are not among one's own."""
    one, two = world.machine("one"), world.machine("two")
    guest = other_world.machine("guest")
    one("sync")
    rkey = one.talk("Which cone?", title="Cones")
    one("push")
    world.share(other_world.did)
    guest("clone", world.space)
    guest.talk("a guest's", title="Guest talk")
    guest("push")
    two("clone", world.did)
    two("pull", "--members")
    with up(two.home, "--port", "0") as (process, said):
        assert (said["demo"], said["sync"], said["conversations"]) == (False, None, 1)
        with looking(said["url"]) as browser:
            one.talk("From one.", title="A second talk")
            one("push")
            with guest.open() as space:
                (theirs,) = [each.rkey for each in space.conversations()]
            guest.say(theirs, "more of the guest")
            guest("push")
            until(lambda: shows(browser, "A second talk"))
            until(lambda: "more of the guest" in _all_said(two, other_world))
            assert not shows(browser, "Guest talk")
            two.say(rkey, "Nine.")
            until(lambda: one("pull").code == 0 and one.said(rkey) == ["Which cone?", "Nine."])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def _all_said(machine: Machine, author: World) -> str:
    return machine("search", "guest", "--author", author.did, "--json").out


def test_both_sides_of_a_divergence_lead_to_each_other(world: World) -> None:
    one, two = world.machine("one"), world.machine("two")
    one("sync")
    rkey = one.talk("Which cone?", title="Cones")
    one("sync")
    two("sync")
    one.say(rkey, "Nine.")
    two.say(rkey, "Ten.")
    one("sync")
    two("sync")
    with two.open() as space:
        (fork,) = [each.rkey for each in space.conversations() if each.rkey != rkey]
    with up(two.home, "--port", "0", "--no-host") as (_, said), looking(said["url"]) as browser:
        listed = browser.get("/").text
        assert listed.count("badge-diverged") == 2
        for here, there in ((rkey, fork), (fork, rkey)):
            page = browser.get(f"/c/{here}").text
            assert re.search(rf'see also <a href="/c/{there}"><bdi>Cones', page)


def test_a_problem_is_one_line_and_the_viewer_goes_on(world: World, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    one = world.machine("one")
    world.end_sessions()
    with up(one.home, "--letta", store.path, "--port", "0") as (process, said):
        with looking(said["url"]) as browser:
            until(lambda: one.remote("--offline")["problem"] == "signed-out")
            assert shows(browser, "1 conversation")
        process.terminate()
        assert process.wait(60) == 0
        (line,) = process.stderr.read().splitlines()
        assert line.startswith("! signed out: ")


def test_a_space_that_is_not_adopted_is_served_all_the_same(world: World, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    one = world.machine("one", login=False)
    assert one("sync", "--letta", store.path).code == 0
    one.login()
    for more, lines in (([], 1), (["--no-host"], 0)):
        with up(one.home, "--letta", store.path, "--port", "0", *more) as (process, said):
            with looking(said["url"]) as browser:
                assert shows(browser, "1 conversation")
            process.terminate()
            assert process.wait(60) == 0
            told = process.stderr.read().splitlines()
            assert len(told) == lines
            assert all("`lettaspace adopt` moves it there" in each for each in told)


def test_once_asks_no_host_and_makes_no_demo(world: World) -> None:
    one = world.machine("one")
    done = one("up", "--once", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["demo"] is False
    assert one.remote("--offline")["lastSynced"] is None
    # Signed out it is the account's space as before.
    one("logout")
    assert one("up", "--once", "--json").json["demo"] is False
    with Space.open(one.home) as space:
        assert space.address.author == world.did
    assert "0 conversations" in one("up", "--once").out
