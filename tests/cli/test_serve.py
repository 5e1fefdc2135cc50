"""`lettaspace serve`, as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Cli
from tests.waiting import SECONDS

HANDLE = "mira.example.com"
ORIGIN = "https://host.example.com"
SESSION = "/xrpc/com.atproto.server.createSession"


@pytest.fixture(autouse=True)
def _no_host_of_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LETTASPACE_")]:
        if name != "LETTASPACE_NO_SKIPS":
            monkeypatch.delenv(name)


@contextmanager
def serving(
    home: Path, *arguments: str, stop: signal.Signals = signal.SIGTERM
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A host that is being served, and what it said of itself; stopped, and its end looked at."""
    command = [sys.executable, "-m", "lettaspace", "--home", home, "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--log", "off", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
        process.send_signal(stop)
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serving_until_it_is_stopped(cli: Cli, home: Path, stop: signal.Signals) -> None:
    password = cli("account", "add", HANDLE, "--json").json["password"]
    with serving(home, "--development", stop=stop) as (_, said):
        origin = f"http://localhost:{said['port']}"
        assert said == {
            "origin": origin,
            "did": f"did:web:localhost%3A{said['port']}",
            "address": "127.0.0.1",
            "port": said["port"],
            "accounts": 1,
            "workers": 1,
            "development": True,
        }
        entry = {"identifier": HANDLE, "password": password}
        with httpx.Client(base_url=origin, trust_env=False, timeout=SECONDS) as client:
            answer = client.post(SESSION, json=entry)
            assert answer.status_code == 200
            assert answer.json()["didDoc"]["service"][0]["serviceEndpoint"] == origin
            # Who is added while it is served has an account at once.
            added = cli("account", "add", "otto.example.com", "--json").json
            entry = {"identifier": added["did"], "password": added["password"]}
            assert client.post(SESSION, json=entry).status_code == 200


def test_several_workers(home: Path, cli: Cli, postgres_url: str) -> None:
    database = ("--database", postgres_url)
    password = cli("account", "add", HANDLE, *database, "--json").json["password"]
    arguments = (*database, "--origin", ORIGIN, "--workers", "2")
    with serving(home, *arguments) as (_, said):
        assert (said["origin"], said["workers"]) == (ORIGIN, 2)
        tokens = set()
        for _ in range(6):  # each on a connection of its own, so that both may get some
            answer = httpx.post(
                f"http://127.0.0.1:{said['port']}{SESSION}",
                json={"identifier": HANDLE, "password": password},
                trust_env=False,
                timeout=SECONDS,
            )
            assert answer.status_code == 200
            tokens.add(answer.json()["accessJwt"])
        for token in tokens:
            told = httpx.get(
                f"http://127.0.0.1:{said['port']}/xrpc/com.atproto.server.getSession",
                headers={"authorization": f"Bearer {token}"},
                trust_env=False,
                timeout=SECONDS,
            )
            assert told.json()["handle"] == HANDLE


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--origin https://NAME"),
        (("--origin", "http://host.example.com"), "https://"),
        (("--origin", ORIGIN + "/path"), "origin"),
        (("--origin", ORIGIN, "--workers", "2"), "PostgreSQL"),
        (("--origin", ORIGIN, "--host", "0.0.0.0"), "account add"),
        (("--origin", ORIGIN, "--host", "nowhere.invalid"), "no address of this machine"),
    ],
)
def test_what_is_not_served(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    outcome = cli("serve", "--port", "0", *arguments, "--json")
    assert outcome.code == 1
    assert outcome.json["error"] == "InvalidInput"
    assert says in outcome.err


def test_a_port_that_is_taken(cli: Cli, home: Path) -> None:
    with serving(home, "--development") as (_, said):
        outcome = cli("serve", "--development", "--port", str(said["port"]), "--json")
        assert outcome.json["error"] == "StoreUnavailable"
        assert "Address already in use" in outcome.err


def test_how_to_add_an_account_for_development(home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lettaspace", "--home", home, "serve", "--port", "0",
         "--development"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        origin, *_, hint = [process.stdout.readline() for _ in range(4)]
        origin = origin.split()[1]
        added = f"lettaspace account add HANDLE --development --origin {origin}\n"
        assert hint == f"Add one: {added}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)


def test_what_people_are_told(cli: Cli, home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lettaspace", "--home", home, "serve", "--port", "0",
         "--origin", ORIGIN],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert lines[0] == f"Host: {ORIGIN}  did:web:host.example.com\n"
        assert lines[1] == f"Database: {home}/host.db, 0 accounts\n"
        assert lines[2] == "Add one: lettaspace account add HANDLE\n"
        assert lines[3].startswith("Serving on 127.0.0.1, port ")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
    assert process.returncode == 0
