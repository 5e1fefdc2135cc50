"""The real host with OAuth before it: on loopback, in this process; and a browser for it.

What comes with a token of the authorization server is checked, for its proof and for its scope, and
given to the host in the name of the token's account.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lettaspace.atproto.scopes import Grant
from lettaspace.atproto.uri import SpaceRef
from lettaspace.errors import Refused
from lettaspace.server.app import application
from lettaspace.server.config import Config
from lettaspace.server.host import Host
from lettaspace.viewer.server import bind
from tests.remote.authserver import AuthServer, Granted, Problem, require
from tests.server.hosts import Clock, Server


@dataclass
class Front:
    """The ASGI application that stands before the host's."""

    auth: AuthServer
    host: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.host(scope, receive, send)
            return
        request = Request(scope, receive)
        path = request.url.path
        if path.startswith(("/oauth/", "/.well-known/oauth-")):
            answer = await self.auth.answer(request)
            if self.auth.lose and answer.status_code == 200 and path == "/oauth/token":
                self.auth.lose -= 1
                await _break_off(send)
                return
            await answer(scope, receive, send)
            return
        await self._protected(request, scope, receive, send)

    async def _protected(
        self, request: Request, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """A request to the host, with a token of this server or without one."""
        nsid = request.url.path.removeprefix("/xrpc/")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()), (b"dpop-nonce", self.auth.nonce().encode())
                ]  # fmt: skip
                self.auth.calls.append((nsid, message["status"]))
            await send(message)

        if self.auth.lose and nsid == "com.atproto.server.refreshSession":
            self.auth.lose -= 1
            await self.host(scope, receive, _swallow)
            await _break_off(send)
            return
        if scheme != "DPoP":
            await self.host(scope, receive, noted)
            return
        body = await request.body()
        try:
            session = self.auth.session(request, token)
            _allow(session, nsid, request, body)
        except Problem as problem:
            challenge = {"www-authenticate": f'DPoP error="{problem.error}"'}
            answer = JSONResponse({"error": problem.error}, problem.status, challenge)
            await answer(scope, receive, noted)
            return
        account = self.auth.host.accounts.get(session.did)
        bearer = f"Bearer {self.auth.host.sessions.open(account).access}".encode()
        headers = [each for each in scope["headers"] if each[0] not in (b"authorization", b"dpop")]
        inner = {**scope, "headers": [*headers, (b"authorization", bearer)]}

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await self.host(inner, again, noted)


def _allow(session: Granted, nsid: str, request: Request, body: bytes) -> None:
    """Refuses what the scope does not cover."""
    scopes = Grant.parse(session.scope).scopes
    grant = Grant(tuple(scope.resolve(session.did) for scope in scopes))
    query = request.query_params
    try:
        match nsid:
            case "com.atproto.space.listSpaces":
                grant.require(SpaceRef(session.did, query["spaceType"], "any"), "read_self")
            case "com.atproto.space.getDelegationToken":
                grant.require(_space(query["space"]), "read")
            case "com.atproto.space.applyWrites":
                for write in json.loads(body)["writes"]:
                    action = write["$type"].partition("#")[2]
                    space = _space(json.loads(body)["space"])
                    grant.require(space, action, write["collection"])
            case "com.atproto.simplespace.createSpace":
                named = json.loads(body)
                space = SpaceRef(session.did, named["spaceType"], named.get("skey", "any"))
                grant.require_management(space, "create")
            case "com.atproto.repo.uploadBlob":
                require("blob:*/*" in session.scope.split(" "), "ScopeMissingError")
            case _ if query.get("space"):
                grant.require(_space(query["space"]), "read_self")
            case _:
                raise Problem("ScopeMissingError", 403)
    except (Refused, LookupError):
        raise Problem("ScopeMissingError", 403) from None


def _space(text: str) -> SpaceRef:
    return SpaceRef(*(text.split("/")[at] for at in (2, 4, 5)))


async def _swallow(message: Message) -> None:
    del message


async def _break_off(send: Send) -> None:
    """Begins an answer, and hangs up."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"access', "more_body": False})


@contextmanager
def oauth_serving(target: Path, clock: Clock | None = None) -> Iterator[AuthServer]:
    """A development host with OAuth, with its database at `target`, and mira's account.

    Its clock stands still, at about the time of this machine.
    """
    clock = clock or Clock(time.time())
    bound = bind(port=0)
    origin = f"http://localhost:{bound.port}"
    with Host.open(Config(origin, target, development=True), clock=clock) as host:
        auth = AuthServer(host, clock, origin)
        config = uvicorn.Config(
            Front(auth, application(host)), log_config=None, log_level="critical", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound.socket]})
        thread.start()
        talking = Server(host, clock)
        auth.did = talking.add_account("mira").did
        talking.client.close()
        try:
            yield auth
        finally:
            server.should_exit = True
            thread.join()
            bound.socket.close()


@cache
def browser() -> httpx.Client:
    """A browser, as far as the flow needs one."""
    return httpx.Client(trust_env=False)


def redirected(url: str) -> str:
    """What the authorization server sends a browser on to."""
    answer = browser().get(url)
    assert answer.status_code == 302, answer.text
    return answer.headers["location"]


def browse(url: str) -> httpx.Response:
    """Somebody agrees in a browser, as far as the server lets them."""
    return browser().get(redirected(url))
