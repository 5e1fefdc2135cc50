"""`lettaspace up` as a process: it serves, follows Letta's directory, and stops when told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.letta.build import Store, b1, message, row, rows
from tests.waiting import SECONDS, until


@contextmanager
def up(home: Path, *arguments: str | Path, env: dict[str, str] | None = None) -> Iterator[Any]:
    """The process and what it says of itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lettaspace", "--home", home, "up", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield process, json.loads(line) if line else {}
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def looking(url: str) -> Iterator[httpx.Client]:
    """A browser that opened the first address."""
    base = url.partition("?")[0]
    with httpx.Client(timeout=SECONDS, follow_redirects=True, base_url=base) as browser:
        assert browser.get(url).status_code == 200
        yield browser


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "letta")
    made.agent()
    made.conversation(rows(b1()))
    return made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(store: Store, home: Path, number: int) -> None:
    with up(home, "--letta", store.path, "--port", "0") as (process, said):
        assert said["messages"] == 4
        with looking(said["url"]) as browser:
            assert "1 conversation" in browser.get("/").text
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
        assert process.stderr.read() == ""


def test_it_stops_while_somebody_looks_on(store: Store, home: Path) -> None:
    with (
        up(home, "--letta", store.path, "--port", "0") as (process, said),
        looking(said["url"]) as browser,
        browser.stream("GET", "/live") as stream,
    ):
        assert stream.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_what_letta_writes_is_on_the_page(store: Store, home: Path) -> None:
    with (
        up(home, "--letta", store.path, "--port", "0") as (_, said),
        looking(said["url"]) as browser,
    ):
        (file,) = store.path.glob("conversations/*/messages.jsonl")
        with file.open("ab") as rows_file:
            added = row(message(5, "user", "And the third shelf?"), "e5", "e4")
            rows_file.write(json.dumps(added).encode() + b"\n")
        until(lambda: "1 message has it." in browser.get("/search?q=third+shelf").text)


def test_without_watching_it_only_serves(store: Store, home: Path) -> None:
    with up(home, "--letta", store.path, "--port", "0", "--no-watch") as (process, said):
        store.conversation(rows(b1()), key="conversation:local-conv-2")
        with looking(said["url"]) as browser:
            assert "1 conversation" in browser.get("/").text
        process.terminate()
        assert process.wait(SECONDS) == 0


def test_the_demo_is_served_where_there_is_no_letta(home: Path, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    with up(home, "--port", "0", env=env) as (_, said), looking(said["url"]) as browser:
        assert said["demo"] is True
        assert "Glaze tests for the spring kiln" in browser.get("/").text


def test_a_port_that_is_taken_is_one_line(store: Store, home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with up(home, "--letta", store.path, "--port", port) as (process, said):
            assert process.wait(SECONDS) == 1
            assert said["error"] == "StoreUnavailable"
            assert process.stderr.read().count("\n") == 1
    assert not home.exists()


def test_elsewhere_secrets_are_redacted_unless_asked_for(
    store: Store, home: Path, tmp_path: Path
) -> None:
    secret = "ghp_" + "E" * 36
    store.conversation(
        rows([message(1, "user", f"my key is {secret}")]), key="conversation:local-conv-2"
    )
    options = ["--letta", store.path, "--port", "0"]
    for more, is_shown in (
        ([], True),
        (["--host", "0.0.0.0"], False),
        (["--host", "0.0.0.0", "--no-redact"], True),
    ):
        with up(home, *options, *more) as (_, said), looking(said["url"]) as browser:
            page = browser.get("/search?q=my+key").text
            assert (secret in page) is is_shown, more
