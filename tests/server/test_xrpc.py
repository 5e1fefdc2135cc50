"""Methods over HTTP: routing, limits, errors, and what handlers see."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from lettaspace.atproto.cid import CID
from lettaspace.errors import (
    Conflict,
    Damaged,
    InvalidInput,
    InvalidRecord,
    NotFound,
    Refused,
    StoreUnavailable,
)
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.xrpc import MAX_BLOB, MAX_JSON, MAX_WRITES, Xrpc
from tests.server.asgi import JSON, Request, ask, get, post
from tests.waiting import SECONDS

CREATE = "com.atproto.space.createRecord"
PUT = "com.atproto.space.putRecord"
GET_RECORD = "com.atproto.space.getRecord"
LIST = "com.atproto.space.listRepos"
DELETED = "com.atproto.space.notifySpaceDeleted"
UPLOAD = "com.atproto.repo.uploadBlob"
GET_BLOB = "com.atproto.space.getBlob"
GET_REPO = "com.atproto.space.getRepo"
SESSION = "com.atproto.server.getSession"

ADA = "did:web:ada.example"
REF = f"at://{ADA}/space/com.example.forum/self"
URI = f"{REF}/{ADA}/com.example.note/a"
CID_TEXT = "bafyreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
REPO = {"space": REF, "repo": ADA}
WRITE = REPO | {"collection": "com.example.note", "record": {}}
WRITTEN = {"uri": URI, "cid": CID_TEXT}
NONE = Answer({"records": []})


@pytest.fixture
def xrpc() -> Iterator[Xrpc]:
    app = Xrpc(threads=2, checking=True)
    yield app
    app.close()


@pytest.fixture(params=["sync", "async"])
def add(request, xrpc):
    """Adds a handler as a plain function or as a coroutine function."""

    def add(nsid, handler, **more):
        async def waiting(call: Call) -> Answer:
            return handler(call)

        xrpc.add(nsid, handler if request.param == "sync" else waiting, **more)

    return add


def test_a_procedure(xrpc, add):
    calls = []
    add(CREATE, lambda call: calls.append(call) or Answer(WRITTEN))
    headers = [*JSON, ("Authorization", "Bearer é"), ("X-Two", "1"), ("X-Two", "2")]
    response = post(xrpc, CREATE, WRITE | {"record": {"text": "\ufeffa"}}, headers)
    assert response.status == 200
    assert response.json() == WRITTEN
    assert response.header("content-length") == str(len(response.body))
    assert response.header("cache-control") == "no-store"
    assert response.header("access-control-allow-origin") == "*"
    assert response.header("x-content-type-options") == "nosniff"
    (call,) = calls
    assert call.input == WRITE | {"record": {"text": "\ufeffa"}}
    assert (call.method.nsid, call.client, call.caller) == (CREATE, "192.0.2.7", None)
    assert call.header("authorization") == "Bearer é"
    assert call.header("nothing") is None
    assert call.values("X-Two") == ["1", "2"]
    assert [name for name, _ in call.headers] == [
        b"content-type",
        b"authorization",
        *[b"x-two"] * 2,
    ]
    assert 0 < call.remaining() <= 30
    with pytest.raises(XrpcError, match="X-Two is given twice"):
        call.header("X-Two")


def test_a_query(xrpc, add):
    add(LIST, lambda call: Answer({"repos": [], "cursor": call.params["cursor"]}))
    response = get(xrpc, LIST, {"space": REF, "cursor": "3mbo6jo6e222b"})
    assert response.json() == {"repos": [], "cursor": "3mbo6jo6e222b"}
    response = get(xrpc, LIST, b"cursor=3mbo6jo6e222b&space=" + REF.encode() + b"&x=%zz&=&x=+")
    assert response.status == 200


def test_queries_are_decoded(xrpc, add):
    seen = []
    add("com.atproto.space.listRecords", lambda call: seen.append(call.params["cursor"]) or NONE)
    for text in ("a b", "a+b", "é=&?#%", "\ufeff", "%41"):
        get(xrpc, "com.atproto.space.listRecords", REPO | {"cursor": text})
        assert seen.pop() == text
    response = get(xrpc, "com.atproto.space.listRecords", b"space=%ff")
    assert (response.status, response.error) == (400, "InvalidRequest")
    response = get(xrpc, "com.atproto.space.listRecords", b"x=%ed%a0%80")
    assert (response.status, response.error) == (400, "InvalidRequest")


def test_the_data_model_travels(xrpc, add):
    link = CID.parse(CID_TEXT)
    seen = []
    add(CREATE, lambda call: seen.append(call.input["record"]) or Answer(WRITTEN))
    add(
        GET_RECORD,
        lambda _: Answer({"uri": URI, "cid": CID_TEXT, "value": {"a": link, "b": b"\1"}}),
    )
    travelling = {"a": {"$link": CID_TEXT}, "b": {"$bytes": "AQ"}}
    post(xrpc, CREATE, WRITE | {"record": travelling})
    assert seen == [{"a": link, "b": b"\1"}]
    query = REPO | {"collection": "com.example.note", "rkey": "a"}
    assert get(xrpc, GET_RECORD, query).json()["value"] == travelling


def test_methods_that_are_not_here(xrpc, add):
    add(SESSION, lambda _: Answer({"did": ADA, "handle": "ada.example"}))
    for path in (
        "/xrpc/com.atproto.space.createRecord",
        "/xrpc/",
        "/xrpc/x",
        f"/xrpc/{SESSION}/",
        f"/xrpc/{SESSION}\n",
        "/xrpc/com.atproto.server.getsession",
        "/xrpc/../etc",
    ):
        for verb in ("GET", "POST", "DELETE"):
            response = ask(xrpc, verb, path)
            assert (response.status, response.error) == (501, "MethodNotImplemented")
    for path in ("/", "/xrpc", "/xrpcs/x", ""):
        response = ask(xrpc, "GET", path)
        assert (response.status, response.error) == (404, "XRPCNotSupported")


def test_wrong_verbs(xrpc, add):
    add(SESSION, lambda _: Answer({"did": ADA, "handle": "ada.example"}))
    add(CREATE, lambda _: Answer(WRITTEN))
    for verb, nsid, allow in (
        ("POST", SESSION, "GET, HEAD"),
        ("PUT", SESSION, "GET, HEAD"),
        ("GET", CREATE, "POST"),
        ("HEAD", CREATE, "POST"),
    ):
        response = ask(xrpc, verb, f"/xrpc/{nsid}")
        assert response.status == 405
        assert response.header("allow") == allow
        if verb != "HEAD":
            assert response.error == "InvalidRequest"


def test_head(xrpc, add):
    add(SESSION, lambda _: Answer({"did": ADA, "handle": "ada.example"}))
    whole = get(xrpc, SESSION)
    head = ask(xrpc, "HEAD", f"/xrpc/{SESSION}")
    assert head.status == 200
    assert head.body == b""
    assert head.headers == whole.headers
    assert ask(xrpc, "HEAD", "/xrpc/x").body == b""


def test_preflight(xrpc):
    headers = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,signature-input"),
    ]
    response = ask(xrpc, "OPTIONS", f"/xrpc/{CREATE}", headers=headers)
    assert response.status == 204
    assert response.body == b""
    assert response.header("access-control-allow-origin") == "*"
    assert response.header("access-control-allow-headers") == "authorization,signature-input"
    assert "POST" in response.header("access-control-allow-methods").split(", ")
    assert response.header("access-control-allow-credentials") is None
    assert ask(xrpc, "OPTIONS", "/xrpc/x").header("access-control-allow-headers") == "*"


def test_no_body_in_either_direction(xrpc, add):
    add("com.atproto.server.deleteSession", lambda _: Answer())
    response = post(xrpc, "com.atproto.server.deleteSession", b"", [])
    assert (response.status, response.body) == (200, b"")
    assert response.header("content-length") == "0"
    assert response.header("content-type") is None
    assert post(xrpc, "com.atproto.server.deleteSession", {}).error == "InvalidRequest"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"{", JSON),
        (b"", JSON),
        (b"[" * 100_000, JSON),
        (b'{"space":1e5}', JSON),
        ({"space": REF, "x": 2**60}, JSON),
        ({"space": REF, "x": "\ud800"}, JSON),
        ({"space": "at://x"}, JSON),
        ({"space": None}, JSON),
        ({"space": REF}, []),
        ({"space": REF}, [("content-type", "text/plain")]),
        ({"space": REF}, JSON * 2),
    ],
)
def test_bad_requests(xrpc, add, body, headers):
    add(DELETED, lambda _: Answer())
    response = post(xrpc, DELETED, body, headers)
    assert (response.status, response.error) == (400, "InvalidRequest")
    assert response.json()["message"]


@pytest.mark.parametrize(
    ("nsid", "limit"),
    [(CREATE, MAX_WRITES), (PUT, MAX_WRITES), (DELETED, MAX_JSON), (UPLOAD, MAX_BLOB)],
)
def test_limits_of_bodies(xrpc, add, nsid, limit):
    add(nsid, lambda _: Answer())
    assert limit in (150 * 1024, 1_000_000, 5 * 1024 * 1024)
    declared = Request("POST", f"/xrpc/{nsid}", headers=[*JSON, ("content-length", str(limit + 1))])
    response = asyncio.run(declared.run(xrpc))
    assert (response.status, response.error) == (413, "PayloadTooLarge")
    assert response.header("connection") == "close"
    assert declared.taken == 0

    chunk = 60_000
    pieces = [b" " * chunk] * (limit // chunk + 50)
    streamed = Request("POST", f"/xrpc/{nsid}", headers=JSON, chunks=pieces)
    response = asyncio.run(streamed.run(xrpc))
    assert (response.status, response.error) == (413, "PayloadTooLarge")
    assert limit < streamed.taken <= limit + chunk

    exact = Request(
        "POST",
        f"/xrpc/{nsid}",
        headers=[*JSON, ("content-length", str(limit))],
        chunks=[b" " * limit],
    )
    if nsid != UPLOAD:  # where there is no JSON to be missing
        assert asyncio.run(exact.run(xrpc)).error == "InvalidRequest"


def test_a_limit_of_its_own(xrpc, add):
    add(DELETED, lambda _: Answer(), limit=10)
    assert post(xrpc, DELETED, b" " * 11).error == "PayloadTooLarge"
    assert post(xrpc, DELETED, b" " * 10).error == "InvalidRequest"


def test_compressed_bodies_are_refused(xrpc, add):
    add(DELETED, lambda _: Answer())
    response = post(xrpc, DELETED, {"space": REF}, [*JSON, ("content-encoding", "gzip")])
    assert (response.status, response.error) == (415, "UnsupportedMediaType")
    ok = post(xrpc, DELETED, {"space": REF}, [*JSON, ("content-encoding", "identity")])
    assert ok.status == 200


def test_blobs(xrpc, add):
    calls = []
    blob = {
        "$type": "blob",
        "ref": CID.parse("bafkreibme22gw2h7y2h7tg2fhqotaqjucnbc24deqo72b6mkl2egezxhvy"),
        "mimeType": "image/png",
        "size": 3,
    }
    add(UPLOAD, lambda call: calls.append(call) or Answer({"blob": blob}))
    headers = [("content-type", "Image/PNG; q=1")]
    response = post(xrpc, UPLOAD, b"\x89\x00\xff", headers)
    assert response.json()["blob"]["size"] == 3
    assert (calls[0].body, calls[0].media_type, calls[0].input) == (
        b"\x89\x00\xff",
        "image/png",
        {},
    )
    assert post(xrpc, UPLOAD, b"\x89", []).error == "InvalidRequest"


def test_large_bodies_are_read_whole(xrpc, add):
    seen = []
    add(CREATE, lambda call: seen.append(len(call.input["record"]["text"])) or Answer(WRITTEN))
    assert post(xrpc, CREATE, WRITE | {"record": {"text": "x" * 900_000}}).status == 200
    assert seen == [900_000]


def test_a_body_in_pieces(xrpc, add):
    add(DELETED, lambda _: Answer())
    pieces = [b'{"spa', b"", b'ce":"', REF.encode(), b'"}']
    assert ask(xrpc, "POST", f"/xrpc/{DELETED}", headers=JSON, chunks=pieces).status == 200


def test_whoever_leaves_gets_nothing(xrpc, add):
    add(DELETED, lambda _: pytest.fail("called"))
    response = ask(xrpc, "POST", f"/xrpc/{DELETED}", headers=JSON, chunks=[b"{"], end="gone")
    assert not response.started


def test_a_body_that_does_not_end():
    xrpc = Xrpc(threads=1, patience=0.05)
    xrpc.add(DELETED, lambda _: pytest.fail("called"))
    response = ask(xrpc, "POST", f"/xrpc/{DELETED}", headers=JSON, chunks=[b"{"], end="silence")
    assert (response.status, response.error) == (408, "RequestTimeout")
    assert response.header("connection") == "close"
    xrpc.close()


def test_what_waits_too_long():
    xrpc = Xrpc(threads=1, patience=0.05)

    async def never(call: Call) -> Answer:
        await asyncio.Event().wait()
        return Answer()

    xrpc.add(SESSION, never)
    response = get(xrpc, SESSION)
    assert (response.status, response.error) == (504, "UpstreamTimeout")
    xrpc.close()


def test_what_comes_too_late_is_not_begun():
    xrpc = Xrpc(threads=1, patience=-1)
    xrpc.add(SESSION, lambda _: pytest.fail("called"))
    response = get(xrpc, SESSION)
    assert (response.status, response.error) == (503, "NotEnoughResources")
    xrpc.close()


def refuse(error):
    def handler(call: Call) -> Answer:
        raise error

    return handler


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (XrpcError("RecordAlreadyExists", "there is one"), 400, "RecordAlreadyExists"),
        (XrpcError("Forbidden"), 403, "Forbidden"),
        (XrpcError("InvalidRequest", "gone", status=410), 410, "InvalidRequest"),
        (Refused("BadJwt", "no"), 401, "BadJwt"),
        (Refused("InsufficientScope", "no"), 403, "InsufficientScope"),
        (Refused("InvalidCredential", "no"), 400, "InvalidCredential"),
        (InvalidInput("no"), 400, "InvalidRequest"),
        (InvalidRecord("no"), 400, "InvalidRecord"),
        (NotFound("no"), 400, "InvalidRequest"),
        (Conflict("no"), 409, "Conflict"),
        (Damaged("no"), 500, "InternalServerError"),
        (StoreUnavailable("no"), 503, "NotEnoughResources"),
        (ValueError("secret"), 500, "InternalServerError"),
        (StopIteration("secret"), 500, "InternalServerError"),
        (RecursionError("secret"), 500, "InternalServerError"),
    ],
)
def test_errors(xrpc, add, error, status, name):
    add(CREATE, refuse(error))
    response = post(xrpc, CREATE, WRITE)
    assert (response.status, response.error) == (status, name)
    assert response.header("cache-control") == "no-store"
    assert (response.header("www-authenticate") is None) is (
        status not in (401,) and name != "InsufficientScope"
    )
    assert "secret" not in response.body.decode()


def test_challenges(xrpc, add):
    for name, challenge in (
        ("MissingJwt", "Bearer"),
        ("BadSpaceSignature", "Atproto-Space"),
        ("InsufficientScope", 'Bearer error="insufficient_scope"'),
    ):
        add(SESSION, refuse(XrpcError(name)))
        assert get(xrpc, SESSION).header("www-authenticate") == challenge
    add(SESSION, refuse(XrpcError("BadDpopProof", headers=[("WWW-Authenticate", "DPoP")])))
    assert [v for k, v in get(xrpc, SESSION).headers if k.lower() == "www-authenticate"] == ["DPoP"]


def test_what_breaks_is_logged_without_its_text(xrpc, add, caplog):
    add(SESSION, refuse(ValueError("secret")))
    with caplog.at_level("INFO"):
        assert get(xrpc, SESSION).error == "InternalServerError"
    (record,) = [r for r in caplog.records if r.name == "lettaspace.server"]
    assert record.getMessage().startswith(f"{SESSION} failed: ValueError at xrpc.py:")
    assert record.exc_info is None
    assert "secret" not in caplog.text


def test_expected_errors_are_not_logged(xrpc, add, caplog):
    add(SESSION, refuse(XrpcError("MissingJwt")))
    with caplog.at_level("INFO", "lettaspace"):
        get(xrpc, SESSION)
    assert not caplog.records


def test_gates_come_before_bodies(xrpc, add):
    seen = []

    def gate(call: Call) -> str:
        seen.append((call.params, call.input, call.header("authorization")))
        if call.header("authorization") is None:
            raise XrpcError("MissingJwt", "who are you?")
        return "ada"

    add(DELETED, lambda call: seen.append(call.caller) or Answer(), gate=gate)
    assert post(xrpc, DELETED, b"{").error == "MissingJwt"
    assert post(xrpc, DELETED, {"space": REF}, [*JSON, ("authorization", "x")]).status == 200
    assert seen == [({}, {}, None), ({}, {}, "x"), "ada"]


def test_a_gate_may_wait_where_the_handler_does(xrpc):
    async def gate(call: Call) -> str:
        await asyncio.sleep(0)
        return "ada"

    async def handler(call: Call) -> Answer:
        return Answer({"did": ADA, "handle": f"{call.caller}.example"})

    xrpc.add(SESSION, handler, gate=gate)
    assert get(xrpc, SESSION).json()["handle"] == "ada.example"


def test_registering(xrpc):
    @xrpc.method(SESSION)
    def handler(call: Call) -> Answer:
        return Answer({"did": ADA, "handle": "ada.example"})

    assert get(xrpc, SESSION).status == 200
    assert handler(None).value["did"] == ADA
    with pytest.raises(InvalidInput, match="no method"):
        xrpc.add("com.example.nothing", handler)


def test_plain_handlers_run_beside_the_loop(xrpc):
    xrpc.add(SESSION, lambda _: Answer({"did": ADA, "handle": f"{threading.get_ident()}.a"}))
    assert get(xrpc, SESSION).json()["handle"] != f"{threading.get_ident()}.a"


def test_checking_finds_what_the_lexicon_does_not_allow(xrpc, add):
    add(SESSION, lambda _: Answer({"did": ADA}))
    with pytest.raises(InvalidRecord, match="handle: is missing"):
        get(xrpc, SESSION)
    add(SESSION, refuse(XrpcError("RecordNotFound")))
    with pytest.raises(RuntimeError, match="does not declare RecordNotFound"):
        get(xrpc, SESSION)
    add(SESSION, lambda _: Answer({"did": ADA, "handle": "a.example", "x": 0.5}))
    with pytest.raises(InvalidRecord):
        get(xrpc, SESSION)


def test_without_checking_they_are_answered():
    xrpc = Xrpc(threads=1)
    for answer in (Answer({"x": 0.5}), Answer(object()), None, Answer({}, [("x", "\u20ac")])):
        xrpc.add(SESSION, lambda _, answer=answer: answer)
        response = get(xrpc, SESSION)
        assert (response.status, response.error) == (500, "InternalServerError")
    xrpc.add(SESSION, refuse(XrpcError("RecordNotFound")))
    assert get(xrpc, SESSION).error == "RecordNotFound"
    xrpc.close()


def test_elsewhere():
    seen = []

    async def elsewhere(scope, receive, send):
        seen.append(scope["type"])

    xrpc = Xrpc(threads=1, elsewhere=elsewhere)
    ask(xrpc, "GET", "/.well-known/did.json")
    asyncio.run(xrpc({"type": "lifespan"}, None, None))
    assert seen == ["http", "lifespan"]
    assert ask(xrpc, "GET", "/xrpc/x").status == 501
    xrpc.close()


def test_headers_of_an_answer(xrpc, add):
    more = [("Cache-Control", "max-age=5"), ("Content-Disposition", "attachment")]
    add(GET_BLOB, lambda _: Answer.raw(b"\x89", "image/png", more))
    response = get(xrpc, GET_BLOB, REPO | {"cid": CID_TEXT})
    assert response.body == b"\x89"
    assert response.header("content-type") == "image/png"
    assert response.header("cache-control") == "max-age=5"
    assert response.header("content-disposition") == "attachment"
    assert response.header("x-content-type-options") == "nosniff"
    assert response.header("content-length") == "1"


class Download:
    """A body that counts what it does. `end` is raised after `blocks` of `size` bytes."""

    def __init__(self, blocks: int, size: int = 64 * 1024, end: Exception | None = None) -> None:
        self.made = 0
        self.closed = threading.Event()
        self.threads: set[int] = set()
        self.blocks, self.size, self.end = blocks, size, end

    def __iter__(self) -> Iterator[bytes]:
        try:
            for _ in range(self.blocks):
                self.threads.add(threading.get_ident())
                self.made += 1
                yield b"x" * self.size
            if self.end:
                raise self.end
        finally:
            self.closed.set()

    def answer(self, _: Call) -> Answer:
        return Answer.raw(iter(self), "application/vnd.ipld.car")


def test_streams(xrpc, add):
    download = Download(100, size=10_000)
    add(GET_REPO, download.answer)
    response = get(xrpc, GET_REPO, REPO)
    assert response.status == 200
    assert response.ended
    assert response.body == b"x" * 1_000_000
    assert response.header("content-type") == "application/vnd.ipld.car"
    assert response.header("content-length") is None
    assert max(len(m.get("body", b"")) for m in response.messages) == 70_000
    assert threading.get_ident() not in download.threads
    assert download.closed.wait(SECONDS)


def test_a_stream_of_known_size(xrpc, add):
    add(GET_REPO, lambda _: Answer.raw(iter([b"ab", b"c"]), "application/vnd.ipld.car", size=3))
    response = get(xrpc, GET_REPO, REPO)
    assert response.header("content-length") == "3"
    assert response.body == b"abc"


def test_an_empty_stream(xrpc, add):
    add(GET_REPO, lambda _: Answer.raw(iter([]), "application/vnd.ipld.car"))
    response = get(xrpc, GET_REPO, REPO)
    assert response.ended
    assert response.body == b""


def test_a_stream_that_fails_at_once_is_an_error(xrpc, add):
    download = Download(0, end=XrpcError("RepoNotFound"))
    add(GET_REPO, download.answer)
    assert get(xrpc, GET_REPO, REPO).error == "RepoNotFound"
    assert download.closed.wait(SECONDS)


def test_a_stream_that_fails_later_has_no_end(xrpc, add, caplog):
    download = Download(3, end=ValueError("secret"))
    add(GET_REPO, download.answer)
    response = get(xrpc, GET_REPO, REPO)
    assert response.status == 200
    assert not response.ended
    assert "GET_REPO failed: ValueError" in caplog.text.replace(GET_REPO, "GET_REPO")
    assert "secret" not in caplog.text


def test_head_of_a_stream(xrpc, add):
    download = Download(1000)
    add(GET_REPO, download.answer)
    response = ask(xrpc, "HEAD", f"/xrpc/{GET_REPO}", REPO)
    assert response.ended
    assert response.body == b""
    assert download.closed.wait(SECONDS)
    assert download.made == 1


def test_a_stream_ends_with_its_client(xrpc, add):
    download = Download(1_000_000)
    add(GET_REPO, download.answer)
    response = ask(xrpc, "GET", f"/xrpc/{GET_REPO}", REPO, end="gone")
    assert not response.ended
    assert download.closed.wait(SECONDS)
    assert download.made < 100


def test_a_stream_ends_when_nobody_reads_it():
    xrpc = Xrpc(threads=1, stall=0.05)
    download = Download(1_000_000)
    xrpc.add(GET_REPO, download.answer)

    class Stalled(Request):
        async def send(self, message):
            await super().send(message)
            if len(self.sent) == 3:
                await asyncio.Event().wait()

    response = asyncio.run(Stalled("GET", f"/xrpc/{GET_REPO}", REPO).run(xrpc))
    assert not response.ended
    assert download.closed.wait(SECONDS)
    xrpc.close()


def test_a_stream_ends_with_the_server(xrpc, add):
    download = Download(1_000_000)
    add(GET_REPO, download.answer)

    async def run():
        request = Request("GET", f"/xrpc/{GET_REPO}", REPO)
        task = asyncio.ensure_future(request.run(xrpc))
        while len(request.sent) < 3:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert download.closed.wait(SECONDS)


def test_slow_streams_keep_no_thread():
    xrpc = Xrpc(threads=1)
    xrpc.add(GET_REPO, Download(5).answer)
    xrpc.add(SESSION, lambda _: Answer({"did": ADA, "handle": "ada.example"}))
    asked = []

    class Slow(Request):
        async def send(self, message):
            await super().send(message)
            if len(self.sent) == 3:  # while this one waits, another is answered
                asked.append((await Request("GET", f"/xrpc/{SESSION}").run(xrpc)).status)

    assert asyncio.run(Slow("GET", f"/xrpc/{GET_REPO}", REPO).run(xrpc)).ended
    assert asked == [200]
    xrpc.close()


def test_deadlines_are_on_the_monotonic_clock(xrpc, add):
    seen = []
    add(SESSION, lambda call: seen.append(call) or Answer({"did": ADA, "handle": "a.example"}))
    before = time.monotonic()
    get(xrpc, SESSION)
    assert before < seen[0].deadline <= time.monotonic() + 30
    seen[0].deadline = before
    assert seen[0].remaining() == 0
