"""What an operator sets when a host is served: proxies, limits, metrics, logs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Cli
from tests.ports import free_port, free_ports
from tests.server.hosted import Hosted, hosted
from tests.waiting import SECONDS, until

DESCRIBE = "/xrpc/com.atproto.server.describeServer"


@contextmanager
def served(tmp_path: Path, *arguments: str) -> Iterator[Hosted]:
    with hosted(tmp_path / "home", None, *arguments) as host:
        host.start()
        yield host


def ask(host: Hosted, *forwarded: str) -> int:
    headers = [("x-forwarded-for", each) for each in forwarded]
    return get(host.origin + DESCRIBE, headers).status_code


def get(url: str, headers: Sequence[tuple[str, str]] = ()) -> httpx.Response:
    return httpx.get(url, headers=headers, trust_env=False, timeout=SECONDS)


def test_nobody_s_word_is_taken_for_an_address(tmp_path: Path) -> None:
    with served(tmp_path, "--limit", "anonymous=2") as host:
        statuses = [ask(host, f"192.0.2.{number}") for number in range(3)]
        assert statuses == [200, 200, 429]


def test_a_proxy_s_word_is(tmp_path: Path) -> None:
    proxies = ("--proxy", "127.0.0.1", "--proxy", "198.51.100.0/24")
    with served(tmp_path, *proxies, "--limit", "anonymous=2") as host:
        # What a client claims itself is in front, and does not count.
        claims = [ask(host, f"203.0.113.{number}, 192.0.2.1") for number in range(3)]
        assert claims == [200, 200, 429]
        assert ask(host, "192.0.2.1", "198.51.100.7") == 429
        assert ask(host, "192.0.2.2") == 200
        # The proxy itself, asking without the header.
        assert [ask(host) for _ in range(3)] == [200, 200, 429]


def test_metrics_and_logs(tmp_path: Path) -> None:
    port = free_port()
    with served(tmp_path, "--metrics-port", str(port)) as host:
        assert ask(host) == 200
        metrics = get(f"http://127.0.0.1:{port}/metrics").text
        assert 'method="com.atproto.server.describeServer",status="200"} 1.0' in metrics
        assert "lettaspace_connections " in metrics
        assert get(host.origin + "/metrics").status_code == 404
        host.stop()
        lines = [json.loads(line) for line in host.log().splitlines()]
        assert [line["status"] for line in lines] == [200, 404]
        assert lines[0]["method"] == "com.atproto.server.describeServer"


def test_each_worker_has_metrics(cli: Cli, postgres_url: str, tmp_path: Path) -> None:
    ports = free_ports(2)
    arguments = ("--workers", "2", "--metrics-port", str(ports[0]))
    with hosted(tmp_path / "home", postgres_url, *arguments) as host:
        host.start()
        assert ask(host) == 200
        for port in ports:
            metrics = _when_there(f"http://127.0.0.1:{port}/metrics")
            assert "process_resident_memory_bytes" in metrics
            assert "lettaspace_outbox_writes 0.0" in metrics


def _when_there(url: str) -> str:
    """What is served there, once the process that does so has started."""

    def ask() -> str | None:
        try:
            return get(url).text
        except httpx.ConnectError:
            return None

    return until(ask, about=url)


def test_logs_of_faults_only(tmp_path: Path) -> None:
    with served(tmp_path, "--log", "error") as host:
        assert ask(host) == 200
        host.stop()
        assert host.log() == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--limit", "anonymous"), "NAME=N"),
        (("--limit", "nothing=1"), "writes-per-hour"),
        (("--limit", "anonymous=-1"), "NAME=N"),
        (("--proxy", "proxy.example.com"), "proxies"),
        (("--proxy", "10.0.0.0/33"), "proxies"),
    ],
)
def test_what_is_not_taken(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    outcome = cli("serve", "--port", "0", "--development", *arguments)
    assert (outcome.code, says in outcome.err) == (1, True)
