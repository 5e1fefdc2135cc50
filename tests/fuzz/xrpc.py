"""Any request at all: whatever comes, the answer is one that the protocol has.

`fuzz_xrpc` takes what a fuzzer makes up; `check` is what holds for one request.
"""

from __future__ import annotations

import asyncio
import json
from functools import cache

from lettaspace.atproto import data
from lettaspace.atproto.methods import shipped
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import STATUS
from lettaspace.server.xrpc import Xrpc
from tests.fuzz.methods import WORDS as WORDS
from tests.server.asgi import Request, Response

NSIDS = sorted(shipped())
VERBS = ("GET", "POST", "HEAD", "OPTIONS", "PUT")
TYPES = ("application/json", "image/png", "text/plain; charset=x", "", "application/json;", "*/*")


@cache
def application() -> Xrpc:
    """All methods, each answering with what it was given. Every other one is `async`."""
    xrpc = Xrpc(threads=2)
    for i, nsid in enumerate(NSIDS):
        xrpc.add(nsid, _echo if i % 2 else _echo_later)
    return xrpc


def _echo(call: Call) -> Answer:
    return Answer({"params": call.params, "input": call.input, "size": len(call.body)})


async def _echo_later(call: Call) -> Answer:
    return _echo(call)


def fuzz_xrpc(given: bytes) -> None:
    """Reads a request from bytes: four that choose, the query up to a newline, the body."""
    if len(given) < 4:
        return
    verb, nsid, content_type, cut = given[:4]
    query, _, body = given[4:].partition(b"\n")
    path = "/xrpc/" + (NSIDS[nsid] if nsid < len(NSIDS) else query.decode("latin-1"))
    headers = [("content-type", TYPES[content_type % len(TYPES)])]
    if content_type > 0xF0:
        headers *= 2
    check(VERBS[verb % len(VERBS)], path, query, headers, [body[:cut], body[cut:]])


def check(
    verb: str, path: str, query: bytes, headers: list[tuple[str, str]], chunks: list[bytes]
) -> Response:
    """Asks, and raises AssertionError if the answer is not as it has to be."""
    request = Request(verb, path, query, headers, chunks)
    response = asyncio.run(request.run(application()))
    assert response.ended
    assert response.header("access-control-allow-origin") == "*"
    if verb == "HEAD":
        assert response.body == b""
    elif response.status == 200:
        answer = response.json()
        body = b"".join(chunks)
        assert answer["size"] in (0, len(body))
        if answer["input"]:
            assert data.loads(json.dumps(answer["input"])) == data.loads(body)
    elif response.status != 204:
        assert response.status in (405, STATUS.get(response.error, 400))
        assert response.status < 500 or response.error == "MethodNotImplemented"
    return response
