"""Limits: what is counted, of whom, for how long, and what whoever has none left is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.errors import InvalidInput
from lettaspace.server import limits
from lettaspace.server.errors import XrpcError
from lettaspace.server.limits import Limits, address
from lettaspace.server.rates import Rates
from tests.server.hosts import PASSWORD, Clock, Server, serving
from tests.server.parties import NOTE, SPACE, Reader, User, error

HOUR, DAY, MINUTES = 3600, 86400, 300


def only(**rates: int) -> Rates:
    """These limits and no others."""
    return Rates(**dict.fromkeys((each.name for each in fields(Rates)), 0) | rates)


def spends(limits: Limits, what: Any, who: str, points: int = 1) -> bool:
    try:
        limits.spend(what, who, points)
    except XrpcError:
        return False
    return True


class TestWindows:
    def test_the_reference_s_points(self) -> None:
        clock = Clock()
        counted = Limits(Rates(), clock)
        assert sum(spends(counted, "write", "did:web:a.test", 3) for _ in range(2000)) == 1666
        assert spends(counted, "write", "did:web:a.test", 2)
        assert not spends(counted, "write", "did:web:a.test")
        # Seven hours of five thousand points are a day's.
        for _ in range(6):
            clock.pass_(HOUR)
            assert spends(counted, "write", "did:web:a.test", 5000)
        clock.pass_(HOUR)
        assert not spends(counted, "write", "did:web:a.test")
        clock.pass_(DAY - 7 * HOUR)
        assert spends(counted, "write", "did:web:a.test")

    def test_what_one_is_told(self) -> None:
        clock = Clock(1000.5)
        counted = Limits(only(writes_per_hour=10), clock)
        counted.spend("write", "a", 8)
        clock.pass_(60)
        with pytest.raises(XrpcError, match="RateLimitExceeded") as caught:
            counted.spend("write", "a", 3)
        assert caught.value.status == 429
        assert dict(caught.value.headers) == {
            "ratelimit-limit": "10",
            "ratelimit-remaining": "2",
            "ratelimit-reset": "4601",
            "ratelimit-policy": "10;w=3600",
            "retry-after": "3540",
        }

    def test_what_is_refused_is_not_counted(self) -> None:
        counted = Limits(only(writes_per_hour=10, writes_per_day=12), Clock())
        assert spends(counted, "write", "a", 9)
        assert not spends(counted, "write", "a", 2)
        assert spends(counted, "write", "a", 1)
        clock = Clock()
        counted = Limits(only(writes_per_hour=10, writes_per_day=12), clock)
        assert spends(counted, "write", "a", 10)
        clock.pass_(HOUR)
        # The day has two left; the hour must not have counted the three.
        assert not spends(counted, "write", "a", 3)
        assert spends(counted, "write", "a", 2)

    def test_each_has_its_own(self) -> None:
        counted = Limits(only(uploads_per_hour=1, delegations_per_hour=1), Clock())
        assert spends(counted, "upload", "a")
        assert spends(counted, "upload", "b")
        assert spends(counted, "delegate", "a")
        assert not spends(counted, "upload", "a")

    def test_nothing_is_limited_by_zero(self) -> None:
        counted = Limits(Rates.none(), Clock())
        for what in counted._windows:
            assert all(spends(counted, what, "a", 10**9) for _ in range(3))
            counted.require(what, "a")
            counted.note(what, "a")

    @given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from("ab"), st.integers(0, 5))))
    def test_against_a_plain_model(self, steps: list[tuple[int, str, int]]) -> None:
        clock = Clock()
        counted = Limits(only(sign_ins=8), clock)
        model: dict[str, list[tuple[float, int]]] = {"a": [], "b": []}
        for seconds, who, points in steps:
            clock.pass_(seconds)
            mine = model[who]
            if mine and clock.now >= mine[0][0] + MINUTES:
                mine.clear()
            fits = sum(spent for _, spent in mine) + points <= 8
            assert spends(counted, "signIn", who, points) == fits
            if fits and points:
                mine.append((clock.now, points))

    def test_a_clock_that_was_set_back(self) -> None:
        clock = Clock()
        counted = Limits(only(sign_ins=1), clock)
        counted.spend("signIn", "a")
        clock.pass_(-10 * DAY)
        assert spends(counted, "signIn", "a")
        assert not spends(counted, "signIn", "a")

    def test_memory_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "MOST_KEYS", 100)
        clock = Clock()
        counted = Limits(only(sign_ins_of_account=1), clock)
        (window,) = counted._windows["signInAs"]
        for number in range(1000):
            assert spends(counted, "signInAs", f"{number}.example.com")
        assert len(window._used) == 100
        # Those seen last are still known.
        assert not spends(counted, "signInAs", "999.example.com")
        clock.pass_(MINUTES)
        assert spends(counted, "signInAs", "new.example.com")
        assert len(window._used) == 1
        counted.spend("signInAs", "x" * 100_000)
        assert max(map(len, window._used)) <= 256
        assert not spends(counted, "signInAs", "x" * 100_000)
        assert spends(counted, "signInAs", "\ud800" * 1000)

    def test_threads_share_it(self) -> None:
        counted = Limits(only(uploads_per_hour=1000), Clock())
        passed: list[int] = []

        def work() -> None:
            passed.append(sum(spends(counted, "upload", "a") for _ in range(400)))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sum(passed) == 1000

    def test_less_than_nothing(self) -> None:
        with pytest.raises(InvalidInput, match="anonymous"):
            Rates(anonymous=-1)


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("not an address", "not an address"),
    ],
)
def test_addresses(client: str, counted: str) -> None:
    assert address({"type": "http", "client": (client, 1)}) == counted
    assert address({"type": "http", "client": None}) == ""


@contextmanager
def limited(path: Path, **rates: int) -> Iterator[Server]:
    with serving(path / "host.db", rates=only(**rates)) as server:
        yield server


def describe(server: Server, **headers: str) -> httpx.Response:
    url = "/xrpc/com.atproto.server.describeServer"
    return server.client.get(url, headers=headers)


def sign_in(server: Server, name: str, password: str | None = None) -> int:
    body = {"identifier": name, "password": password or "a guess"}
    return server.post("createSession", body).status_code


class TestServed:
    def test_writes(self, tmp_path: Path) -> None:
        with limited(tmp_path, writes_per_hour=12) as server:
            mira, otto = User(server, "mira"), User(server, "otto")
            space = mira.create()
            where = {"space": space, "repo": mira.did, "collection": NOTE}
            note = {"record": {"text": "x"}}
            mira.write(space, rkey="a")  # 3
            assert mira.post(SPACE + "putRecord", **where, rkey="a", **note).status_code == 200  # 5
            assert mira.post(SPACE + "deleteRecord", **where, rkey="a").status_code == 200  # 6
            writes = [
                {"$type": f"{SPACE}applyWrites#{kind}", "collection": NOTE, "rkey": "b"} | value
                for kind, value in (
                    ("create", {"value": {"text": "b"}}),
                    ("update", {"value": {"text": "c"}}),
                    ("delete", {}),
                )
            ]
            batch = {"space": space, "repo": mira.did}
            # Six are left; of a batch that needs seven nothing is done.
            refused = mira.post(
                SPACE + "applyWrites",
                **batch,
                writes=[*writes, writes[0] | {"rkey": "d"}],
            )
            assert error(refused) == (429, "RateLimitExceeded")
            assert refused.headers["retry-after"] == "3600"
            assert refused.headers["ratelimit-remaining"] == "6"
            assert mira.post(SPACE + "applyWrites", **batch, writes=writes).status_code == 200
            assert mira.post(SPACE + "applyWrites", **batch, writes=[]).status_code == 200
            assert error(mira.post(SPACE + "deleteRecord", **where, rkey="a"))[0] == 429
            otto.write(space)
            assert mira.get(SPACE + "listRecords", space=space, repo=mira.did).status_code == 200
            server.clock.pass_(HOUR)
            mira.write(space)

    def test_uploads_and_delegations(self, tmp_path: Path) -> None:
        with limited(tmp_path, uploads_per_hour=1, delegations_per_hour=1) as server:
            mira = User(server, "mira")
            space = mira.create()
            upload = {"url": "/xrpc/com.atproto.repo.uploadBlob", "content": b"abc"}
            headers = mira.bearer | {"content-type": "text/plain"}
            answers = [server.client.post(**upload, headers=headers) for _ in range(2)]
            assert [each.status_code for each in answers] == [200, 429]
            mira.delegate(space)
            assert error(mira.get(SPACE + "getDelegationToken", space=space))[0] == 429

    def test_exchanges(self, tmp_path: Path) -> None:
        with limited(tmp_path, exchanges=2) as server:
            mira = User(server, "mira")
            space = mira.create()
            tokens = [mira.delegate(space) for _ in range(3)]
            answers = [Reader(server).exchange(token, space) for token in tokens]
            assert [each.status_code for each in answers] == [200, 200, 429]
            # It was refused before anything was looked at, so the token is still good.
            server.clock.pass_(MINUTES)
            assert error(Reader(server).exchange(tokens[0], space))[0] == 401

    def test_guessing_a_password(self, tmp_path: Path) -> None:
        with limited(tmp_path, sign_ins_of_account=3) as server:
            server.add_account("mira")
            server.add_account("otto")
            tries = ["mira.localhost", "@MIRA.localhost", "mira.localhost", "mira.localhost"]
            assert [sign_in(server, each) for each in tries] == [401, 401, 401, 429]
            # Whoever has the right one must wait as well: it cannot be told from a guess.
            assert sign_in(server, "mira.localhost", PASSWORD) == 429
            assert sign_in(server, "otto.localhost", PASSWORD) == 200
            server.clock.pass_(MINUTES)
            assert sign_in(server, "mira.localhost", PASSWORD) == 200

    def test_guessing_many_passwords(self, tmp_path: Path) -> None:
        with limited(tmp_path, sign_ins=3) as server:
            server.add_account("mira")
            assert [sign_in(server, f"{n}.example.com") for n in range(4)] == [401, 401, 401, 429]
            assert sign_in(server, "mira.localhost", PASSWORD) == 429
            assert describe(server).status_code == 200

    def test_requests_of_nobody(self, tmp_path: Path) -> None:
        with limited(tmp_path, anonymous=4) as server:
            mira = User(server, "mira")  # 1
            space = mira.create()
            # A header that nobody looks at makes a request no less anonymous.
            statuses = [describe(server, authorization="Bearer x").status_code for _ in range(2)]
            assert [*statuses, server.client.get("/").status_code] == [200, 200, 200]
            for path in ("/", "/.well-known/did.json", "/xrpc/nowhere", "/nowhere"):
                assert error(server.client.get(path)) == (429, "RateLimitExceeded")
            answer = server.client.post("/xrpc/com.atproto.server.createSession", content=b"x" * 9)
            assert (answer.status_code, answer.headers["connection"]) == (429, "close")
            # Who is signed in goes on, and browsers may go on asking whether they may ask.
            mira.write(space)
            assert server.client.options("/xrpc/nowhere").status_code == 204

    def test_authorization_that_is_refused(self, tmp_path: Path) -> None:
        with limited(tmp_path, refused=3) as server:
            mira = User(server, "mira")
            space = mira.create()
            where = {"space": space, "repo": mira.did}
            url = f"/xrpc/{SPACE}listRecords"
            bad = {"authorization": "Bearer x"}
            # What a method refuses to whoever is known is not counted.
            for _ in range(5):
                assert mira.get(SPACE + "listRecords", **where | {"cursor": "x"}).status_code == 400
            service = {"authorization": "Atproto-Space x.y.z"}
            answers = [
                server.client.get(url, params=where, headers=headers)
                for headers in (bad, service, bad, bad)
            ]
            assert [each.status_code for each in answers] == [400, 401, 400, 429]
            assert mira.get(SPACE + "listRecords", **where).status_code == 429
            server.clock.pass_(MINUTES)
            assert mira.get(SPACE + "listRecords", **where).status_code == 200
