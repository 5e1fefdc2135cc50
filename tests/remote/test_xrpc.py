"""The client of one host: what it sends, what it believes, when it asks again, what it says."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from lettaspace.atproto import dpop, jwt
from lettaspace.atproto.cid import CID
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import (
    Damaged,
    HostRefused,
    InvalidInput,
    LettaspaceError,
    SignedOut,
    Unreachable,
)
from lettaspace.remote import xrpc
from lettaspace.remote.xrpc import AGENT, TRIES, Auth, Client, Field
from tests.remote.auths import Bearer, Proving
from tests.server.hosts import NOW, Clock
from tests.server.peers import peer, reply

ORIGIN = "https://host.example"
SPACE = "at://did:web:mira.example/space/org.example.room/self"
REPO = {"space": SPACE, "repo": "did:web:mira.example"}
LIST = "com.atproto.space.listRecords"
GET = "com.atproto.space.getRecord"
APPLY = "com.atproto.space.applyWrites"
EMPTY: dict[str, Any] = {"records": []}
CID_TEXT = str(CID.for_cbor(b"\xa0"))

Answer = Callable[[httpx.Request], httpx.Response]


class Host:
    """Answers as it is told, one after the other, the last one for ever."""

    def __init__(self, *answers: Any, auth: Auth | None = None, clock: Clock | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self.answers = list(answers)
        self.slept: list[float] = []
        self.client = Client(
            ORIGIN,
            auth=auth,
            transport=httpx.MockTransport(self._answer),
            clock=clock or Clock(),
            sleep=self.slept.append,
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(request)
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def list(self, **params: Any) -> Any:
        return self.client.query(LIST, {**REPO, **params})

    def write(self) -> Any:
        return self.client.procedure(APPLY, {**REPO, "writes": []})

    def fails(self, call: Callable[[], Any], kind: type[LettaspaceError] = HostRefused) -> Any:
        with pytest.raises(kind) as error:
            call()
        return error.value


def refusal(
    status: int, name: str | None = None, message: str | None = None, **headers: str
) -> Answer:
    body = {"error": name, "message": message}
    found = {key: value for key, value in body.items() if value is not None}
    fields = {key.replace("_", "-"): value for key, value in headers.items()}
    return lambda _: httpx.Response(status, json=found, headers=fields)


# What is sent, and what is believed of the answer


def test_a_query() -> None:
    value = {"$type": "org.example.note", "at": {"$bytes": "AQI"}, "to": {"$link": CID_TEXT}}
    record = {"collection": "org.example.note", "rkey": "a", "cid": CID_TEXT, "value": value}
    host = Host({"records": [record], "odd": 1})
    found = host.list(limit=7, reverse=True, excludeValues=False, cursor=None)
    assert found["records"][0]["value"]["at"] == b"\x01\x02"
    assert found["records"][0]["value"]["to"] == CID.parse(CID_TEXT)
    assert found["odd"] == 1, "what a later lexicon adds is no fault"
    (request,) = host.requests
    assert request.method == "GET"
    assert str(request.url).partition("?")[0] == f"{ORIGIN}/xrpc/{LIST}"
    assert request.url.params.multi_items() == [
        *REPO.items(),
        ("limit", "7"),
        ("reverse", "true"),
        ("excludeValues", "false"),
    ]
    assert request.headers["user-agent"] == AGENT
    assert "authorization" not in request.headers
    assert "content-type" not in request.headers


def test_a_procedure() -> None:
    host = Host({"results": []})
    value = {"at": b"\x01\x02", "to": CID.parse(CID_TEXT)}
    host.client.procedure(APPLY, {**REPO, "writes": [], "odd": value})
    (request,) = host.requests
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    odd = {"at": {"$bytes": "AQI"}, "to": {"$link": CID_TEXT}}
    assert json.loads(request.content) == {**REPO, "writes": [], "odd": odd}


def test_a_procedure_without_bodies() -> None:
    host = Host(httpx.Response(200, text="whatever"))
    assert host.client.procedure("com.atproto.server.deleteSession") is None
    assert host.requests[0].headers["content-length"] == "0"
    assert "content-type" not in host.requests[0].headers


def test_an_upload() -> None:
    blob = {"$type": "blob", "ref": {"$link": str(CID.for_raw(b"x"))}, "mimeType": "a/b", "size": 1}
    host = Host({"blob": blob})
    found = host.client.upload("com.atproto.repo.uploadBlob", b"x", "a/b")
    assert found["blob"]["ref"] == CID.for_raw(b"x")
    assert (host.requests[0].content, host.requests[0].headers["content-type"]) == (b"x", "a/b")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"records": [{"collection": "org.example.note"}]},
        {"records": "none"},
        httpx.Response(200, text="<html>welcome to the hotel</html>"),
        httpx.Response(200, html="<p>"),
        httpx.Response(204),
        httpx.Response(200, json=EMPTY, headers={"content-encoding": "br"}),
    ],
)
def test_an_answer_that_is_not_the_methods(answer: Any) -> None:
    host = Host(answer)
    error = host.fails(host.list, Unreachable)
    assert error.sent
    assert len(host.requests) == 1


@pytest.mark.parametrize("body", ["", '{"records": [', '{"records": []} {}', "[1.5]", "\udc80"])
def test_an_answer_that_is_no_json(body: str) -> None:
    content = body.encode(errors="surrogateescape")
    host = Host(httpx.Response(200, content=content, headers={"content-type": "application/json"}))
    assert host.fails(host.list, Unreachable).sent
    assert len(host.requests) == TRIES, "it may have been cut short"
    assert host.fails(host.write, Unreachable).sent
    assert len(host.requests) == TRIES + 1


def test_methods_are_those_that_ship() -> None:
    host = Host(EMPTY)
    with pytest.raises(InvalidInput, match=r"no method org\.example\.nothing"):
        host.client.query("org.example.nothing")
    with pytest.raises(InvalidInput, match="is a procedure"):
        host.client.query(APPLY)
    with pytest.raises(InvalidInput, match="is a query"):
        host.client.procedure(LIST)
    assert host.requests == []


@pytest.mark.parametrize(
    "origin",
    [
        "host.example",
        "ftp://host.example",
        "https://",
        "https://a@host.example",
        "https://a/b",
        "https://a?b",
        "https://a#b",
        "https://a b",
        "https://a\\b",
        "https://a:b",
        "https://a:99999",
        "https://[:::1]",
    ],
)
def test_an_origin_that_is_none(origin: str) -> None:
    with pytest.raises(InvalidInput):
        Client(origin)


def test_an_origin_has_one_form() -> None:
    with Client("HTTPS://Host.Example/") as client:
        assert client.origin == ORIGIN
        assert client.url(GET) == f"{ORIGIN}/xrpc/{GET}"


def test_no_cookie_is_kept() -> None:
    cookie = httpx.Response(200, json=EMPTY, headers={"set-cookie": "who=mira; Path=/"})
    host = Host(cookie, EMPTY)
    host.list()
    host.list()
    assert "cookie" not in host.requests[1].headers


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps(EMPTY).encode()
    with peer(reply(body, media_type="application/json")) as proxy:
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        with Client("http://host.example") as client:
            assert client.query(LIST, REPO) == EMPTY
    assert proxy.requests[0].startswith(b"GET http://host.example/xrpc/")


def test_it_costs_nothing_until_it_is_used() -> None:
    code = (
        "import sys, lettaspace.remote.hostrepo, lettaspace.remote.credentials\n"
        "print(sorted({'httpx', 'httpcore', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# How much, and how long


def test_an_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xrpc, "MAX_JSON", 100_000)
    body = json.dumps({"records": [], "more": "x" * 1_000_000}).encode()
    packed = gzip.compress(body)
    assert len(packed) < 10_000
    kind = {"content-type": "application/json"}
    for response in (
        httpx.Response(200, content=body, headers=kind),
        httpx.Response(200, content=packed, headers=kind | {"content-encoding": "gzip"}),
    ):
        host = Host(response)
        assert "more than 100000 bytes" in str(host.fails(host.list, Unreachable))
        assert len(host.requests) == 1


def test_a_packed_answer_is_read() -> None:
    body = gzip.compress(json.dumps(EMPTY).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    host = Host(httpx.Response(200, content=body, headers=headers))
    assert host.list() == EMPTY
    assert host.requests[0].headers["accept-encoding"] == "gzip"


def test_an_answer_that_takes_for_ever() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=EMPTY))
    with (
        Client(ORIGIN, transport=transport, patience=-1.0) as client,
        pytest.raises(Unreachable, match="took too long"),
    ):
        client.query(LIST, REPO)


# Asking again


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504])
def test_queries_are_asked_again(status: int) -> None:
    host = Host(refusal(status), refusal(status), EMPTY)
    assert host.list() == EMPTY
    assert len(host.requests) == TRIES
    assert 0.25 <= host.slept[0] <= 0.5 <= host.slept[1] <= 1.0

    host = Host(refusal(status))
    error = host.fails(host.list, Unreachable)
    assert len(host.requests) == TRIES
    assert str(error) == f"{ORIGIN} answered {LIST} with status {status}"

    host = Host(refusal(status))
    assert host.fails(host.write, Unreachable).sent
    assert len(host.requests) == 1, "it may have been done"
    assert host.slept == []


@pytest.mark.parametrize("status", [501, 505, 400, 404, 413])
def test_what_would_be_the_same_again_is_not_asked_again(status: int) -> None:
    kind: type[LettaspaceError] = Unreachable if status == 505 else HostRefused
    host = Host(refusal(status, "SomeName"))
    host.fails(host.list, kind)
    assert len(host.requests) == 1


def test_too_many_requests() -> None:
    limited = refusal(429, "RateLimitExceeded", retry_after="7")
    host = Host(limited, EMPTY)
    assert host.list() == EMPTY
    assert host.slept == [7.0]

    error = (host := Host(limited)).fails(host.write)
    assert (error.status, error.error, error.retry_after) == (429, "RateLimitExceeded", 7.0)
    assert len(host.requests) == 1

    host = Host(refusal(429, retry_after="3600"))
    assert host.fails(host.list).retry_after == 3600.0
    assert (len(host.requests), host.slept) == (1, []), "so long is not waited here"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (formatdate(NOW + 20, usegmt=True), 20.0),
        (formatdate(NOW - 20, usegmt=True), 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("9" * 400, 999_999_999.0),
    ],
)
def test_how_long_to_wait(value: str, seconds: float | None) -> None:
    host = Host(refusal(429, retry_after=value, date=formatdate(NOW, usegmt=True)))
    assert host.fails(host.write).retry_after == seconds


@pytest.mark.parametrize(
    ("fault", "sent", "tries"),
    [
        (httpx.ConnectError("refused"), False, TRIES),
        (httpx.ProxyError("no"), False, TRIES),
        (httpx.ConnectTimeout("slow"), False, 1),
        (httpx.PoolTimeout("busy"), False, 1),
        (httpx.ReadTimeout("slow"), True, 1),
        (httpx.WriteTimeout("slow"), True, 1),
        (httpx.ReadError("reset"), True, 1),
        (httpx.WriteError("reset"), True, 1),
        (httpx.RemoteProtocolError("no HTTP"), True, 1),
    ],
)
def test_a_procedure_is_sent_again_only_if_it_was_not_sent(
    fault: Exception, sent: bool, tries: int
) -> None:
    host = Host(fault)
    assert host.fails(host.write, Unreachable).sent is sent
    assert len(host.requests) == tries


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    slept: list[float] = []
    with (
        Client(f"http://127.0.0.1:{port}", sleep=slept.append) as client,
        pytest.raises(Unreachable, match="cannot be reached") as error,
    ):
        client.procedure(APPLY, {**REPO, "writes": []})
    assert not error.value.sent
    assert len(slept) == TRIES - 1


def _cut(connection: socket.socket, _: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
    connection.sendall(head + b'{"records": [')


def _reset(connection: socket.socket, _: bytes) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def _nonsense(connection: socket.socket, _: bytes) -> None:
    connection.sendall(b"hello?\r\n\r\n")


@pytest.mark.parametrize("answer", [_cut, _reset, _nonsense])
def test_an_answer_that_breaks_off(answer: Callable[[socket.socket, bytes], None]) -> None:
    slept: list[float] = []
    with peer(answer) as host, Client(f"http://127.0.0.1:{host.port}", sleep=slept.append) as it:
        with pytest.raises(Unreachable) as error:
            it.query(LIST, REPO)
        assert (error.value.sent, len(host.requests)) == (True, TRIES)
        with pytest.raises(Unreachable) as error:
            it.procedure(APPLY, {**REPO, "writes": []})
        assert (error.value.sent, len(host.requests)) == (True, TRIES + 1)


def test_no_credential_follows_a_redirect() -> None:
    elsewhere = {"location": "https://elsewhere.example/xrpc/" + LIST}
    for status in (301, 302, 303, 307, 308):
        host = Host(httpx.Response(status, headers=elsewhere), EMPTY, auth=Bearer("secret"))
        error = host.fails(host.list)
        assert (error.status, error.error) == (status, "")
        assert [request.url.host for request in host.requests] == ["host.example"]


# What is said of it


def test_the_hosts_own_words() -> None:
    host = Host(refusal(400, "RecordNotFound", "there is no record a/b"))
    error = host.fails(host.list)
    assert (error.status, error.error, error.retry_after) == (400, "RecordNotFound", None)
    assert str(error) == f"{ORIGIN} refused {LIST}: RecordNotFound: there is no record a/b"


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, html="<h1>not here</h1>"),
        httpx.Response(404, content=b"\xff{", headers={"content-type": "application/json"}),
        httpx.Response(404, json=[1]),
        httpx.Response(404, text="9" * 5000, headers={"content-type": "application/json"}),
        httpx.Response(404, json={"error": 5, "message": ["x"]}),
        httpx.Response(404, json={"error": "two words\n", "message": ""}),
        httpx.Response(404, json={"message": "x" * 100_000}),
        httpx.Response(404),
    ],
)
def test_a_host_without_words(answer: httpx.Response) -> None:
    host = Host(answer)
    error = host.fails(host.list)
    assert (error.error, str(error)) == ("", f"{ORIGIN} refused {LIST}: status 404")


def test_words_that_would_do_something() -> None:
    host = Host(refusal(400, "Bad", "one\ntwo \x1b[2J \u202etac \ue000" + "x" * 500))
    text = str(host.fails(host.list))
    assert text.isprintable()
    assert len(text) < 300
    assert "one" in text


def test_what_we_sent_is_not_repeated() -> None:
    private = "the launch is on the nineteenth of May"
    quoting = refusal(400, "InvalidRequest", f'Expected integer, got "{private[4:30]}" at text')
    body = {**REPO, "writes": [{"value": {"text": private}}]}
    host = Host(quoting)
    error = host.fails(lambda: host.client.procedure(APPLY, body))
    assert str(error) == f"{ORIGIN} refused {APPLY}: InvalidRequest"
    error = host.fails(lambda: host.client.procedure(APPLY, json.dumps(body).encode()))
    assert "launch" not in str(error)

    host = Host(refusal(400, "InvalidRequest", "no password hunter2 here"))
    login = {"identifier": "mira.example", "password": "hunter2"}
    error = host.fails(lambda: host.client.procedure("com.atproto.server.createSession", login))
    assert "hunter2" not in str(error)

    token = "eyJhbGciOi.J9eyJpc3.MiOiJkaWQ"
    host = Host(refusal(400, "Odd", f"bad {token[5:25]}"), auth=Bearer(token))
    assert str(host.fails(host.list)) == f"{ORIGIN} refused {LIST}: Odd"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (600, "this machine's clock is 10 minutes ahead of the host's"),
        (-600, "this machine's clock is 10 minutes behind the host's"),
        (-75, "this machine's clock is 1 minute behind the host's"),
        (40, None),
        (-0.04, None),
    ],
)
def test_o53_a_clock_that_is_off_is_named(seconds: float, words: str | None) -> None:
    """The refusal is about time, and the host's `Date` tells whose clock it is."""
    date = formatdate(NOW, usegmt=True)
    for answer in (
        refusal(401, "JwtExpired", "JWT: expired by this clock", date=date),
        refusal(401, "BadDpopProofSignature", "issued ahead of this clock", date=date),
        refusal(401, "DpopProofExpired", date=date),
        refusal(400, "BadJwt", "iat is in the future", date=date),
        refusal(401, www_authenticate='DPoP error="invalid_dpop_proof"', date=date),
    ):
        host = Host(answer, clock=Clock(NOW + seconds))
        text = str(host.fails(host.list))
        assert (words or "clock is") in text if words else "likely" not in text
        assert host.client.skew == pytest.approx(-seconds)


def test_a_clock_that_is_off_is_not_to_blame_for_all() -> None:
    date = formatdate(NOW + 900, usegmt=True)
    host = Host(refusal(400, "RecordNotFound", "no such record", date=date))
    assert "clock" not in str(host.fails(host.list))


# Renewing


def test_a_token_is_renewed_once() -> None:
    auth = Bearer("old", ["new"])

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers["authorization"] == "Bearer new":
            return httpx.Response(200, json={"results": []})
        return httpx.Response(400, json={"error": "ExpiredToken"})

    host = Host(answer, auth=auth)
    host.write()
    assert len(host.requests) == 2, "a procedure as well: what was refused was not done"
    host.write()
    assert (len(host.requests), auth.renewals) == (3, ["ExpiredToken"])


def test_a_token_that_cannot_be_renewed() -> None:
    host = Host(refusal(401, "InvalidToken"), auth=Bearer("old"))
    host.fails(host.list, SignedOut)
    assert len(host.requests) == 1


def test_a_new_token_that_is_refused_as_well() -> None:
    auth = Bearer("old", ["new", "newer"])
    host = Host(refusal(401, "ExpiredToken"), auth=auth)
    assert host.fails(host.list).error == "ExpiredToken"
    assert (len(host.requests), auth.token) == (2, "new")


def test_what_a_new_token_would_not_change() -> None:
    host = Host(refusal(401, "AccountTakedown"), auth=Bearer("old", ["new"]))
    assert host.fails(host.list).error == "AccountTakedown"
    host = Host(refusal(400, "InvalidToken", "Bad token scope"), auth=Bearer("old", ["new"]))
    assert host.fails(host.list).error == "InvalidToken"
    assert len(host.requests) == 1
    host = Host(refusal(401, "AuthMissing"))
    assert host.fails(host.list).status == 401


class Failing(Bearer):
    """Cannot reach whom it would have to ask for a token."""

    def fields(self, method: str, url: str, nonce: str | None) -> list[Field]:
        if self.token == "none":
            raise Unreachable("the other host", sent=True)
        return super().fields(method, url, nonce)

    def renew(self, used: Sequence[Field], error: str) -> bool:  # noqa: ARG002
        raise Unreachable("the other host", sent=True)


def test_a_token_that_is_not_to_be_had_now() -> None:
    """What failed is not the request itself, of which the host did nothing."""
    for token, count in (("none", 0), ("old", 1)):
        host = Host(refusal(401, "ExpiredToken"), auth=Failing(token))
        assert not host.fails(host.write, Unreachable).sent
        assert not host.fails(host.list, Unreachable).sent
        assert (len(host.requests), host.slept) == (2 * count, [])


def test_who_asks_may_be_another_for_once() -> None:
    host = Host(EMPTY, auth=Bearer("usual"))
    host.client.query(LIST, REPO, auth=Bearer("other"))
    host.list()
    assert [each.headers["authorization"] for each in host.requests] == [
        "Bearer other",
        "Bearer usual",
    ]


class Nonces:
    """Demands a nonce in each proof, and gives a new one with each answer."""

    def __init__(self, *, endless: bool = False, status: int = 401) -> None:
        self.key = SigningKey.generate("p256")
        self.clock = Clock()
        self.nonce = ""
        self.endless = endless
        self.status = status
        self.auth = Proving(self.key, "token", self.clock)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        proof = request.headers["dpop"]
        url = str(request.url)
        dpop.verify_proof(proof, request.method, url, self.clock(), credential="token")
        good = jwt.parse(proof).claims.get("nonce") == self.nonce and not self.endless
        self.nonce += "x"
        fields = {"dpop-nonce": self.nonce}
        if good:
            return httpx.Response(200, json=EMPTY, headers=fields)
        body = {"error": "use_dpop_nonce", "error_description": "nonce, please"}
        return httpx.Response(self.status, json=body, headers=fields)


@pytest.mark.parametrize("status", [400, 401])
def test_o51_nonces_that_rotate(status: int) -> None:
    """Each answer's nonce is kept, so that only the first of ten reads is asked twice."""
    nonces = Nonces(status=status)
    host = Host(nonces, auth=nonces.auth)
    for _ in range(10):
        assert host.list() == EMPTY
    assert len(host.requests) == 11


def test_o51_a_host_that_never_has_enough() -> None:
    nonces = Nonces(endless=True)
    host = Host(nonces, auth=nonces.auth)
    error = host.fails(host.list)
    assert len(host.requests) == 2
    assert str(error).endswith("use_dpop_nonce: asks for a new nonce each time it is given one")


def test_o51_nonces_are_an_origins_own() -> None:
    nonces, others = Nonces(), Nonces()
    host, other = Host(nonces, auth=nonces.auth), Host(others, auth=others.auth)
    host.list()
    other.list()
    assert "nonce" not in jwt.parse(other.requests[0].headers["dpop"]).claims


def test_o51_a_challenge_without_a_body() -> None:
    challenge = {"www-authenticate": 'DPoP error="use_dpop_nonce"', "dpop-nonce": "n"}
    auth = Proving(SigningKey.generate("p256"), "token", Clock())
    host = Host(httpx.Response(401, headers=challenge), EMPTY, auth=auth)
    assert host.list() == EMPTY
    assert jwt.parse(host.requests[1].headers["dpop"]).claims["nonce"] == "n"


# Pages


def page(*keys: str, cursor: str | None = None) -> dict[str, Any]:
    records = [{"collection": "org.example.note", "rkey": k, "cid": CID_TEXT} for k in keys]
    return {"records": records} | ({} if cursor is None else {"cursor": cursor})


def rkeys(host: Host, **params: Any) -> Iterator[str]:
    for answer in host.client.pages(LIST, {**REPO, **params}, "records"):
        yield from (record["rkey"] for record in answer["records"])


def test_pages() -> None:
    host = Host(page("a", "b", cursor="1"), page(cursor="2"), page("c", cursor="3"), page("d"))
    assert list(rkeys(host, limit=2)) == ["a", "b", "c", "d"]
    asked = [request.url.params for request in host.requests]
    assert [each.get("cursor") for each in asked] == [None, "1", "2", "3"]
    assert {each["limit"] for each in asked} == {"2"}


def test_o58_a_cursor_that_comes_again() -> None:
    host = Host(page("a", cursor="1"), page("b", cursor="2"), page("c", cursor="1"))
    found = rkeys(host)
    assert [next(found) for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(Damaged, match="the same page again"):
        next(found)
    assert len(host.requests) == 3


def test_o58_pages_without_end() -> None:
    numbers = iter(range(1000))
    host = Host(lambda _: httpx.Response(200, json=page(cursor=str(next(numbers)))))
    with pytest.raises(Damaged, match="empty pages without end"):
        list(rkeys(host))
    assert len(host.requests) == 2


def test_pages_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xrpc, "MAX_JSON", 1000)
    everything = [f"{n:03}" for n in range(40)]

    def answer(request: httpx.Request) -> httpx.Response:
        start, limit = (int(request.url.params.get(k, "0")) for k in ("cursor", "limit"))
        some = everything[start : start + limit]
        cursor = str(start + limit) if start + limit < len(everything) else None
        return httpx.Response(200, json=page(*some, cursor=cursor))

    host = Host(answer)
    assert list(rkeys(host, limit=40)) == everything
    monkeypatch.setattr(xrpc, "MAX_JSON", 10)
    with pytest.raises(Unreachable, match="more than 10 bytes"):
        list(rkeys(host, limit=40))


# Downloads

CAR = "application/vnd.ipld.car"
REPO_CAR = "com.atproto.space.getRepo"


@contextmanager
def downloading(answer: Any, **options: Any) -> Iterator[Iterator[bytes]]:
    with Host(answer).client.download(REPO_CAR, REPO, **options) as pieces:
        yield pieces


def test_a_download() -> None:
    content = b"abc" * 100_000
    with downloading(httpx.Response(200, content=content, headers={"content-type": CAR})) as pieces:
        assert b"".join(pieces) == content


def test_a_download_of_something_else() -> None:
    with pytest.raises(Unreachable), downloading(httpx.Response(200, json={})):
        pass


def test_a_download_that_is_too_large() -> None:
    answer = httpx.Response(200, content=b"abc" * 100, headers={"content-type": CAR})
    with downloading(answer, limit=299) as pieces, pytest.raises(Unreachable, match="299 bytes"):
        list(pieces)


def test_a_download_that_is_refused_or_not_to_be_had() -> None:
    with pytest.raises(HostRefused), downloading(refusal(400, "RepoNotFound")):
        pass
    host = Host(refusal(503), httpx.Response(200, content=b"x", headers={"content-type": CAR}))
    with host.client.download(REPO_CAR, REPO) as pieces:
        assert list(pieces) == [b"x"]
    assert len(host.slept) == 1


def test_a_download_that_breaks_off() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.ipld.car\r\ncontent-length: 9\r\n\r\n"
    with (
        peer(lambda connection, _: connection.sendall(head + b"abc")) as host,
        Client(f"http://127.0.0.1:{host.port}") as client,
        client.download(REPO_CAR, REPO) as pieces,
    ):
        assert next(pieces) == b"abc"
        with pytest.raises(Unreachable, match="the connection broke"):
            list(pieces)
    assert len(host.requests) == 1
