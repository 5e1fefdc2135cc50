"""XRPC as an ASGI application: one function per method.

    xrpc = Xrpc()

    @xrpc.method("com.atproto.space.getRecord", gate=reader)
    def get_record(call: Call) -> Answer:
        record = …
        return Answer({"uri": uri, "cid": str(record.cid), "value": record.value})

A plain function runs in a worker thread and may wait for the database; an `async` one runs on
the event loop and may wait for the network. Either gets a `Call` that fits the method's lexicon
and returns an `Answer` or raises. A method's `gate` runs before the body is parsed, so that
whoever has no business here costs little. A query's answer may be held until there is news, for
whoever prefers to wait. Source: XRPC spec; protocol, sections 6, 10 and 11; RFC 7240.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, KeysView
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from lettaspace.atproto import methods
from lettaspace.atproto.methods import JSON, Method
from lettaspace.errors import InvalidInput
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import GENERAL, XrpcError, broken, outcome
from lettaspace.server.incoming import CLOSE, Gone, disconnected, read_body, read_query
from lettaspace.server.replies import Reply, pack, preflight, refuse, send_reply
from lettaspace.server.streams import Source
from lettaspace.server.threads import Threads
from lettaspace.server.waiting import Wait, wanted

PREFIX = "/xrpc/"

CALL = "lettaspace.call"
"""Where the scope has the `Call`, for whoever observes requests."""

HELD = "lettaspace.held"
"""Where the scope has the seconds for which an answer was held, because that was asked for."""

MAX_JSON = 150 * 1024
MAX_WRITES = 1_000_000
MAX_BLOB = 5 * 1024 * 1024

LIMITS = {
    "com.atproto.repo.uploadBlob": MAX_BLOB,
    "com.atproto.space.applyWrites": MAX_WRITES,
    "com.atproto.space.createRecord": MAX_WRITES,
    "com.atproto.space.putRecord": MAX_WRITES,
}
"""The largest bodies in bytes; of other methods, `MAX_JSON` (protocol, section 10)."""

Handler = Callable[[Call], Answer] | Callable[[Call], Coroutine[Any, Any, Answer]]
Gate = Callable[[Call], Any]
Hold = Callable[[Call], Wait | None]
"""How to wait for news of what a call asks for; None where its answer is not held. Raises as the
handler does."""

H = TypeVar("H", bound=Callable[[Call], Any])

_VERBS = {"query": ("GET", "HEAD"), "procedure": ("POST",)}


@dataclass(slots=True)
class _Endpoint:
    method: Method
    handler: Callable[[Call], Any]
    gate: Gate | None
    limit: int
    waits: bool
    """Whether the handler is a coroutine function."""
    slow: bool
    hold: Hold | None


class Xrpc:
    """The methods this server has. Close it when done.

    `elsewhere` answers what is not under /xrpc/, `patience` is the time in seconds for a
    request to arrive and be answered, `stall` how long a client may take no bytes of a stream.
    `checking` is for tests: an answer or an error name that the lexicon does not allow then
    raises through the application.
    """

    def __init__(
        self,
        *,
        elsewhere: ASGIApp | None = None,
        threads: int = 16,
        patience: float = 30.0,
        stall: float = 60.0,
        checking: bool = False,
    ) -> None:
        self._endpoints: dict[str, _Endpoint] = {}
        self._elsewhere = elsewhere
        self.threads = Threads(threads, "xrpc")
        self._slow_threads = Threads(2 * threads, "xrpc-slow")
        self._patience = patience
        self._stall = stall
        self._checking = checking

    def add(
        self,
        nsid: str,
        handler: Handler,
        *,
        gate: Gate | None = None,
        limit: int | None = None,
        slow: bool = False,
        hold: Hold | None = None,
    ) -> None:
        """Serves a method. Raises InvalidInput for one without a lexicon.

        `gate` gets the call before its body is parsed, `input` still empty, and may raise; what
        it returns is the call's `caller`. It may be a coroutine function if the handler is one.
        `limit` is the largest body in bytes where it is not the usual one. `slow` is for plain
        functions that may wait for the network: they run in threads of their own, so that slow
        hosts elsewhere keep nobody from the methods that only need the database. `hold` is for
        plain functions too: it is asked after the gate, and all is checked again after waiting.
        """
        self._endpoints[nsid] = _Endpoint(
            methods.method(nsid),
            handler,
            gate,
            LIMITS.get(nsid, MAX_JSON) if limit is None else limit,
            inspect.iscoroutinefunction(handler),
            slow,
            hold,
        )

    def method(
        self, nsid: str, *, gate: Gate | None = None, limit: int | None = None
    ) -> Callable[[H], H]:
        """`add` as a decorator."""

        def register(handler: H) -> H:
            self.add(nsid, handler, gate=gate, limit=limit)
            return handler

        return register

    @property
    def nsids(self) -> KeysView[str]:
        """Its methods, as they are at any time."""
        return self._endpoints.keys()

    @property
    def gated(self) -> frozenset[str]:
        """The paths of methods with a gate."""
        return frozenset(PREFIX + nsid for nsid, one in self._endpoints.items() if one.gate)

    def close(self) -> None:
        self.threads.close()
        self._slow_threads.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            if self._elsewhere is not None:
                await self._elsewhere(scope, receive, send)
            elif scope["type"] == "http":
                await send_reply(refuse(XrpcError("XRPCNotSupported", "nothing here")), scope, send)
            return
        try:
            reply = await self._reply(scope, receive)
        except XrpcError as error:
            reply = refuse(error)
        except Gone:
            return
        if isinstance(reply.body, Source):
            await self._stream(reply, reply.body, scope, receive, send)
        else:
            await send_reply(reply, scope, send)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        verb = scope["method"]
        if verb == "OPTIONS":
            return preflight(scope)
        endpoint = self._endpoints.get(scope["path"][len(PREFIX) :])
        if endpoint is None:
            raise XrpcError("MethodNotImplemented", "this server has no such method")
        allowed = _VERBS[endpoint.method.kind]
        if verb not in allowed:
            raise XrpcError(
                "InvalidRequest",
                f"this is a {endpoint.method.kind}: it is asked with {allowed[0]}",
                status=405,
                headers=[("allow", ", ".join(allowed))],
            )
        seconds = wanted(scope["headers"]) if endpoint.hold is not None and verb == "GET" else 0
        held = bool(seconds) and await self._hold(endpoint, scope, receive, seconds)
        deadline = time.monotonic() + self._patience
        body = b""
        if verb == "POST":
            try:
                async with asyncio.timeout(self._patience):
                    body = await read_body(scope["headers"], receive, endpoint.limit)
            except TimeoutError:
                raise XrpcError("RequestTimeout", "the body took too long", headers=CLOSE) from None
        if endpoint.waits:
            return await self._wait(endpoint, scope, body, deadline)
        threads = self._slow_threads if endpoint.slow else self.threads
        reply = await threads.run(lambda: self._work(endpoint, scope, body, deadline))
        if held:
            applied = (b"preference-applied", b"wait=%d" % seconds)
            reply = reply._replace(headers=[*reply.headers, applied])
        return reply

    async def _hold(
        self, endpoint: _Endpoint, scope: Scope, receive: Receive, seconds: int
    ) -> bool:
        """Waits for news. Whatever is wrong with the request, its answer will say."""
        begin = time.monotonic()
        wait = await self.threads.run(lambda: _wait_for(endpoint, scope, begin + self._patience))
        if wait is None:
            return False
        try:
            return await wait(seconds, receive)
        finally:
            scope[HELD] = time.monotonic() - begin

    def _work(self, endpoint: _Endpoint, scope: Scope, body: bytes, deadline: float) -> Reply:
        """Everything that a plain handler's request takes, in a worker thread."""
        try:
            if time.monotonic() > deadline:
                raise XrpcError("NotEnoughResources", "too much to do")
            call = _call(endpoint, scope, deadline)
            if endpoint.gate is not None:
                call.caller = endpoint.gate(call)
            _fill(call, body)
            answer = endpoint.handler(call)
        except Exception as error:
            return self._fail(endpoint.method, error)
        return self._pack(endpoint.method, answer)

    async def _wait(self, endpoint: _Endpoint, scope: Scope, body: bytes, deadline: float) -> Reply:
        """The same for a coroutine function, on the loop."""
        try:
            call = _call(endpoint, scope, deadline)
            async with asyncio.timeout(call.remaining()):
                if endpoint.gate is not None:
                    caller = endpoint.gate(call)
                    call.caller = await caller if inspect.isawaitable(caller) else caller
                if len(body) > MAX_JSON:
                    await self.threads.run(lambda: _fill(call, body))
                else:
                    _fill(call, body)
                answer = await endpoint.handler(call)
        except TimeoutError:
            return self._fail(endpoint.method, XrpcError("UpstreamTimeout", "this took too long"))
        except Exception as error:
            return self._fail(endpoint.method, error)
        return self._pack(endpoint.method, answer)

    def _pack(self, method: Method, answer: Answer) -> Reply:
        try:
            if self._checking:
                method.output(answer.value)
            return pack(answer)
        except Exception as error:
            if self._checking:
                raise
            return refuse(broken(error, method.nsid))

    def _fail(self, method: Method, error: Exception) -> Reply:
        refusal = outcome(error, method.nsid)
        if self._checking and refusal.name not in method.errors | GENERAL:
            raise RuntimeError(f"{method.nsid} does not declare {refusal.name}")
        return refuse(refusal)

    async def _stream(
        self, reply: Reply, source: Source, scope: Scope, receive: Receive, send: Send
    ) -> None:
        gone = asyncio.ensure_future(disconnected(receive))
        begun = False
        try:
            block = await self.threads.run(source.pull)
            begun = True
            await send({"type": "http.response.start", "status": 200, "headers": reply.headers})
            if scope["method"] == "HEAD":
                block = b""
            while block and not gone.done():
                # Whoever takes no bytes must not hold on to what the source does.
                async with asyncio.timeout(self._stall):
                    await send({"type": "http.response.body", "body": block, "more_body": True})
                block = await self.threads.run(source.pull)
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # the answer is left without an end, which is how a client knows
        except Exception as error:
            refusal = outcome(error, scope["path"][len(PREFIX) :])
            if not begun:
                await send_reply(refuse(refusal), scope, send)
        finally:
            gone.cancel()
            # Not waited for: this may itself be ending because the server is.
            self.threads.run(source.close).add_done_callback(lambda closed: closed.exception())


def _wait_for(endpoint: _Endpoint, scope: Scope, deadline: float) -> Wait | None:
    try:
        call = _call(endpoint, scope, deadline)
        if endpoint.gate is not None:
            call.caller = endpoint.gate(call)
        return None if endpoint.hold is None else endpoint.hold(call)
    except Exception:
        return None


def _call(endpoint: _Endpoint, scope: Scope, deadline: float) -> Call:
    try:
        params = endpoint.method.params(read_query(scope["query_string"]))
    except InvalidInput as error:
        raise XrpcError("InvalidRequest", str(error)) from None
    client = scope.get("client")
    address = client[0] if client else None
    call = scope[CALL] = Call(endpoint.method, params, scope["headers"], address, deadline)
    return call


def _fill(call: Call, body: bytes) -> None:
    """Gives a call its body."""
    method = call.method
    if method.takes is None and not body:
        return
    content_type = call.header("content-type")
    try:
        call.input = method.input(content_type, body)
        if method.takes is not None and method.takes != JSON:
            call.body, call.media_type = body, methods.media_type(content_type)
    except InvalidInput as error:
        raise XrpcError("InvalidRequest", str(error)) from None
