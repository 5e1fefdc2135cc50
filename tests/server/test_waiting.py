"""Answers that are held until there is news, for whoever prefers to wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from lettaspace.server import waiting
from lettaspace.server.repos import Repos
from lettaspace.server.waiting import MAX_SECONDS, wanted
from lettaspace.space.database import Database
from lettaspace.space.writes import Create
from tests.ports import free_port
from tests.server.hosted import PASSWORD, hosted
from tests.server.test_records import SPACE, Repo
from tests.server.worlds import NOTE, World, world
from tests.waiting import SECONDS, until

OPS = "/xrpc/" + SPACE + "listRepoOps"


class Waiters:
    """Requests of mira's for news of her repo, each on a connection of its own."""

    def __init__(self, there: World) -> None:
        self.there = there
        self.repo = Repo(there)
        self.pool = ThreadPoolExecutor(32)
        self.clients: list[httpx.Client] = []

    def ask(self, wait: Any = MAX_SECONDS, /, **more: Any) -> Future[httpx.Response]:
        """Asks as somebody does who knows all that is there. `headers` are others than hers."""
        repo = self.repo
        headers = [*more.pop("headers", repo.headers), ("prefer", f"wait={wait}")]
        since = more.pop("since", None) or repo.rev
        params = {"space": repo.space, "repo": repo.did, "since": since, "limit": 1, **more}
        client = httpx.Client(
            base_url=self.there.host.config.origin, trust_env=False, timeout=SECONDS
        )
        self.clients.append(client)
        return self.pool.submit(client.get, OPS, params=params, headers=headers)

    def held(self, count: int) -> None:
        """Returns once so many are held."""
        until(lambda: len(self.there.host.waiting._waiters) == count, f"{count} held requests")

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.pool.shutdown()


@pytest.fixture
def on_each(target) -> Iterator[Waiters]:
    """On a database of each kind."""
    with world(target) as there:
        made = Waiters(there)
        yield made
        made.close()


@pytest.fixture(scope="module")
def there(tmp_path_factory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("host") / "host.db") as made:
        yield made


@pytest.fixture
def waiters(there) -> Iterator[Waiters]:
    made = Waiters(there)
    yield made
    made.close()
    made.held(0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], 0),
        ([b"wait=7"], 7),
        ([b"respond-async, Wait = 7 ;foo=1, wait=9"], 7),
        ([b"return=minimal", b'wait="12"'], 12),
        ([b"wait=99999999999999999999"], MAX_SECONDS),
        ([b"wait=-1"], 0),
        ([b"wait"], 0),
        ([b"wait=x, waiting=5"], 0),
        ([b"\xff=1,;,="], 0),
    ],
)
def test_what_a_request_prefers(headers, seconds):
    assert wanted([(b"accept", b"wait=3"), *((b"prefer", value) for value in headers)]) == seconds


def test_a_write_answers_who_waits_for_it(waiters):
    since = waiters.repo.rev
    waiting_ = waiters.ask()
    waiters.held(1)
    waiters.repo.create("news1")
    answer = waiting_.result(SECONDS)
    assert answer.headers["preference-applied"] == f"wait={MAX_SECONDS}"
    assert [op["rkey"] for op in answer.json()["ops"]] == ["news1"]
    # Who knows less than is there does not wait.
    again = waiters.ask(since=since).result(SECONDS)
    assert "preference-applied" in again.headers
    assert again.json()["ops"] == answer.json()["ops"]
    waiters.held(0)


def test_a_write_of_another_process_does_so_too(on_each, target):
    waiting_ = on_each.ask()
    on_each.held(1)
    with Database.open(target) as other:
        Repos(other, on_each.there.clock).write(
            on_each.repo.space, on_each.repo.did, lambda _view: [Create(NOTE, "other", {})]
        )
    assert waiting_.result(SECONDS).json()["ops"][0]["rkey"] == "other"


def test_somebody_elses_write_does_not(waiters):
    waiting_ = waiters.ask()
    waiters.held(1)
    other = Repo(waiters.there)
    other.did, other.headers = waiters.there.dids["yuki"], waiters.there.session("yuki")
    other.create("other")
    Repo(waiters.there, "other").create("elsewhere")
    waiters.repo.create("hers")
    assert [op["rkey"] for op in waiting_.result(SECONDS).json()["ops"]] == ["hers"]


def test_without_news_the_ordinary_answer_comes(waiters):
    plain = waiters.repo.call("listRepoOps", since=waiters.repo.rev)
    assert "preference-applied" not in plain.headers
    answer = waiters.ask(1).result(SECONDS)
    assert answer.headers["preference-applied"] == "wait=1"
    assert answer.json()["ops"] == []
    assert answer.json().keys() == plain.json().keys()
    assert answer.json()["commit"]["rev"] == plain.json()["commit"]["rev"]


def test_a_repo_that_nobody_has_written_is_waited_for(waiters):
    there = waiters.there
    repo = waiters.repo
    repo.did, repo.headers = there.dids["noa"], there.session("noa")
    client = httpx.Client(base_url=there.host.config.origin, trust_env=False, timeout=SECONDS)
    waiters.clients.append(client)
    waiting_ = waiters.pool.submit(
        client.get,
        OPS,
        params={"space": repo.space, "repo": repo.did},
        headers=[*repo.headers, ("prefer", "wait=40")],
    )
    waiters.held(1)
    repo.create("first")
    assert waiting_.result(SECONDS).json()["ops"][0]["rkey"] == "first"


def test_who_may_not_read_is_told_at_once_and_after_waiting(waiters):
    there = waiters.there
    refused = waiters.ask(headers=there.session("eve")).result(SECONDS)
    assert (refused.status_code, refused.json()["error"]) == (400, "RepoNotFound")
    assert "preference-applied" not in refused.headers
    waiting_ = waiters.ask()
    waiters.held(1)
    account = there.host.accounts.by_did(waiters.repo.did)
    there.host.accounts.set_state(account, "takendown")
    there.host.waiting._wake(there.host.waiting._waiters)
    answer = waiting_.result(SECONDS)
    there.host.accounts.set_state(account, "active")
    assert (answer.status_code, answer.json()["error"]) == (400, "RepoTakendown")


def test_only_the_accounts_own_session_waits_and_only_for_the_first_page(waiters):
    there = waiters.there
    headers = there.with_credential(SPACE + "listRepoOps", waiters.repo.did)
    for answer in (
        waiters.ask(headers=headers).result(SECONDS),
        waiters.ask(cursor=f"{waiters.repo.rev}/1").result(SECONDS),
    ):
        assert answer.status_code == 200
        assert "preference-applied" not in answer.headers


def test_too_many_are_answered_at_once(waiters, monkeypatch):
    monkeypatch.setattr(waiting, "MAX_OF_ACCOUNT", 2)
    held = [waiters.ask(), waiters.ask()]
    waiters.held(2)
    answer = waiters.ask().result(SECONDS)
    assert answer.status_code == 200
    assert "preference-applied" not in answer.headers
    waiters.repo.create("news2")
    for each in held:
        assert each.result(SECONDS).json()["ops"]
    waiters.held(0)
    monkeypatch.setattr(waiting, "MAX_WAITING", 0)
    assert "preference-applied" not in waiters.ask().result(SECONDS).headers


def test_waiting_holds_no_thread_and_no_connection(on_each, monkeypatch):
    monkeypatch.setattr(waiting, "MAX_OF_ACCOUNT", 32)
    held = [on_each.ask() for _ in range(24)]  # more than there are of either
    on_each.held(24)
    on_each.repo.create("news3")
    for each in held:
        assert each.result(SECONDS).json()["ops"][0]["rkey"] == "news3"


def test_who_goes_away_is_forgotten(waiters):
    waiting_ = waiters.ask()
    waiters.held(1)
    for sock in _sockets(waiters.clients[-1]):
        sock.shutdown(2)
    with pytest.raises(httpx.TransportError):
        waiting_.result(SECONDS)
    waiters.held(0)


def test_a_database_that_fails_wakes_everybody(waiters, monkeypatch):
    waiting_ = waiters.ask()
    waiters.held(1)

    def fail(_subjects: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(waiters.there.host.waiting, "_news", fail)
    assert waiting_.result(SECONDS).json()["ops"] == []


def _sockets(client: httpx.Client) -> list[Any]:
    pool = client._transport._pool  # type: ignore[attr-defined]
    return [each._connection._network_stream._sock for each in pool.connections]


def _active(port: int) -> float:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    (line,) = (line for line in text.splitlines() if line.startswith("lettaspace_requests_active"))
    return float(line.split()[1])


def test_a_host_that_ends_answers_who_waits(tmp_path):
    port = free_port()
    with hosted(tmp_path / "host", None, "--metrics-port", str(port)) as host:
        did = host.add_account("mira.localhost")
        host.start()
        with httpx.Client(base_url=host.origin, trust_env=False, timeout=SECONDS) as client:
            session = client.post(
                "/xrpc/com.atproto.server.createSession",
                json={"identifier": did, "password": PASSWORD},
            ).json()
            headers = {"authorization": f"Bearer {session['accessJwt']}", "prefer": "wait=50"}
            asked = {"space": f"at://{did}/space/com.example.kind/self", "repo": did}
            with ThreadPoolExecutor(1) as pool:
                waiting_ = pool.submit(client.get, OPS, params=asked, headers=headers)
                until(lambda: _active(port) == 1, "the request")
                assert host.process is not None
                host.process.terminate()
                answer = waiting_.result(SECONDS)
        assert answer.json() == {"ops": []}
