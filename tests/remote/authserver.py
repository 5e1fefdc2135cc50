"""A host with OAuth in front of it, stricter than any in the field.

The host is the real one; what stands before it is an authorization server and the check of DPoP
tokens. Every nonce is good once, and every answer gives a new one; pushed requests, codes and
refresh tokens are good once, and a second use ends the session.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lettaspace.atproto import dpop, jwt
from lettaspace.atproto.jwk import thumbprint
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.scopes import Grant
from lettaspace.atproto.uri import SpaceRef
from lettaspace.errors import Refused
from lettaspace.remote.oauth import Binding, wanted_scope
from lettaspace.remote.sessions import Tokens
from lettaspace.server.app import application
from lettaspace.server.config import Config
from lettaspace.server.host import Host
from lettaspace.viewer.server import bind
from tests.server.hosts import Clock, Server

REQUEST_SECONDS = 300
CODE_SECONDS = 60
ACCESS_SECONDS = 900


class Problem(Exception):
    """A refusal, by OAuth's name for it."""

    def __init__(self, error: str, status: int = 400) -> None:
        super().__init__(error)
        self.error = error
        self.status = status


@dataclass
class Granted:
    """A session."""

    client_id: str
    scope: str
    jkt: str
    did: str
    refresh: str = ""
    access: str = ""
    expires: float = 0.0
    ended: bool = False


@dataclass
class Pushed:
    """A pushed request, and then its code."""

    params: dict[str, str]
    jkt: str
    expires: float
    session: Granted | None = None


@dataclass
class AuthServer:
    """The ASGI application before `app`. Tests set what it is to do wrong."""

    host: Host
    app: ASGIApp
    clock: Clock
    origin: str
    did: str = ""
    """Who is at the browser."""
    deny: bool = False
    iss: str | None = None
    """What answers to the browser say instead of the issuer; empty for nothing."""
    sub: str | None = None
    scope: str | None = None
    """What is granted instead of what was asked for."""
    lose: int = 0
    """How many answers about tokens to break off."""
    endless: bool = False
    """Whether every nonce is refused."""
    offered: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, int]] = field(default_factory=list)
    """What was asked: the path or `grant_type`, and the status of the answer."""

    def __post_init__(self) -> None:
        self._nonces: set[str] = set()
        self._seen: set[str] = set()
        self._requests: dict[str, Pushed] = {}
        self._codes: dict[str, Pushed] = {}
        self._sessions: list[Granted] = []

    def reset(self) -> None:
        """Everything as it should be, and nothing asked yet."""
        for each in fields(self)[5:]:
            default = each.default
            setattr(self, each.name, each.default_factory() if default is MISSING else default)

    def count(self, name: str, status: int = 200) -> int:
        return self.calls.count((name, status))

    def grant(self, key: SigningKey, scope: str | None = None) -> Tokens:
        """A session as a sign-in gives it, without one."""
        scope = scope or wanted_scope()
        granted = Granted("http://localhost", scope, thumbprint(key.verifying_key), self.did)
        self._sessions.append(granted)
        self._issue(granted)
        binding = Binding(self.origin, granted.client_id, key, scope)
        return Tokens(granted.access, granted.refresh, binding)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        path = request.url.path
        if path.startswith(("/oauth/", "/.well-known/oauth-")):
            answer = await self._oauth(request)
            if self.lose and answer.status_code == 200 and path == "/oauth/token":
                self.lose -= 1
                await _break_off(send)
                return
            await answer(scope, receive, send)
            return
        await self._protected(request, scope, receive, send)

    async def _oauth(self, request: Request) -> Response:
        path = request.url.path
        name = path
        form: dict[str, str] = {}
        try:
            if request.method == "POST":
                if request.headers.get("content-type") != "application/x-www-form-urlencoded":
                    raise Problem("invalid_request")
                pairs = parse_qsl((await request.body()).decode(), strict_parsing=True)
                form = dict(pairs)
                if len(form) != len(pairs):
                    raise Problem("invalid_request")
                name = form.get("grant_type", path)
            answer = self._answer(request, path, form)
        except Problem as problem:
            answer = JSONResponse({"error": problem.error}, problem.status)
        answer.headers["dpop-nonce"] = self._nonce()
        self.calls.append((name, answer.status_code))
        return answer

    def _answer(self, request: Request, path: str, form: dict[str, str]) -> Response:
        match request.method, path:
            case "GET", "/.well-known/oauth-protected-resource" if self.offered:
                servers = {"resource": self.origin, "authorization_servers": [self.origin]}
                return JSONResponse(servers | self.resource)
            case "GET", "/.well-known/oauth-authorization-server":
                return JSONResponse(self._metadata() | self.metadata)
            case "POST", "/oauth/par":
                return self._push(form, self._proof(request))
            case "GET", "/oauth/authorize":
                return self._authorize(dict(request.query_params))
            case "POST", "/oauth/token":
                return self._token(form, self._proof(request))
            case "POST", "/oauth/revoke":
                for session in self._sessions:
                    if form.get("token") in (session.refresh, session.access):
                        session.ended = True
                return JSONResponse({})
        return Response(status_code=404)

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/oauth/authorize",
            "token_endpoint": f"{self.origin}/oauth/token",
            "pushed_authorization_request_endpoint": f"{self.origin}/oauth/par",
            "revocation_endpoint": f"{self.origin}/oauth/revoke",
            "jwks_uri": f"{self.origin}/oauth/jwks",
            "require_pushed_authorization_requests": True,
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
            "code_challenge_methods_supported": ["S256"],
            "dpop_signing_alg_values_supported": ["ES256", "ES256K"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "response_types_supported": ["code"],
            "scopes_supported": ["atproto", "transition:generic"],
            "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
        }

    def _push(self, form: dict[str, str], jkt: str) -> Response:
        parts = urlsplit(form.get("client_id", ""))
        known = parse_qs(parts.query)
        _require(parts.scheme == "http" and parts.netloc == "localhost", "invalid_client")
        _require(parts.path in ("", "/") and set(known) == {"redirect_uri", "scope"})
        back = urlsplit(form.get("redirect_uri", ""))
        _require(form["redirect_uri"] in known["redirect_uri"])
        _require(back.scheme == "http" and back.hostname == "127.0.0.1" and back.port)
        asked = set(form.get("scope", "").split(" "))
        _require("atproto" in asked <= set(known["scope"][0].split(" ")), "invalid_scope")
        _require(form.get("response_type") == "code" and len(form.get("state", "")) >= 22)
        _require(form.get("code_challenge_method") == "S256")
        _require(len(form.get("code_challenge", "")) == 43)
        _require(form.get("dpop_jkt", jkt) == jkt, "invalid_dpop_proof")
        uri = f"urn:ietf:params:oauth:request_uri:{secrets.token_urlsafe(16)}"
        self._requests[uri] = Pushed(form, jkt, self.clock() + REQUEST_SECONDS)
        return JSONResponse({"request_uri": uri, "expires_in": REQUEST_SECONDS}, 201)

    def _authorize(self, query: dict[str, str]) -> Response:
        _require(set(query) == {"client_id", "request_uri"})
        pushed = self._requests.pop(query["request_uri"], None)
        _require(pushed is not None and pushed.expires > self.clock())
        assert pushed is not None
        _require(pushed.params["client_id"] == query["client_id"])
        back = {"state": pushed.params["state"]}
        if (iss := self.origin if self.iss is None else self.iss) != "":
            back["iss"] = iss
        if self.deny:
            back["error"] = "access_denied"
        else:
            back["code"] = secrets.token_urlsafe(16)
            pushed.expires = self.clock() + CODE_SECONDS
            self._codes[back["code"]] = pushed
        return RedirectResponse(f"{pushed.params['redirect_uri']}?{urlencode(back)}", 302)

    def _token(self, form: dict[str, str], jkt: str) -> Response:
        if form.get("grant_type") == "authorization_code":
            return self._tokens(self._redeem(form, jkt))
        _require(form.get("grant_type") == "refresh_token", "unsupported_grant_type")
        for session in self._sessions:
            if session.refresh == form.get("refresh_token") and not session.ended:
                _require(session.jkt == jkt, "invalid_dpop_proof")
                _require(session.client_id == form.get("client_id"), "invalid_client")
                return self._tokens(session)
        raise Problem("invalid_grant")

    def _redeem(self, form: dict[str, str], jkt: str) -> Granted:
        pushed = self._codes.get(form.get("code", ""))
        _require(pushed is not None, "invalid_grant")
        assert pushed is not None
        if pushed.session is not None:
            pushed.session.ended = True
            raise Problem("invalid_grant")
        verifier = form.get("code_verifier", "").encode()
        challenge = urlsafe_b64encode(sha256(verifier).digest()).decode().rstrip("=")
        _require(pushed.expires > self.clock(), "invalid_grant")
        _require(pushed.params["client_id"] == form.get("client_id"), "invalid_grant")
        _require(pushed.params["redirect_uri"] == form.get("redirect_uri"), "invalid_grant")
        _require(pushed.params["code_challenge"] == challenge, "invalid_grant")
        _require(pushed.jkt == jkt, "invalid_dpop_proof")
        scope = self.scope or pushed.params["scope"]
        pushed.session = Granted(form["client_id"], scope, jkt, self.did)
        self._sessions.append(pushed.session)
        return pushed.session

    def _tokens(self, session: Granted) -> Response:
        self._issue(session)
        return JSONResponse(
            {
                "access_token": session.access,
                "refresh_token": session.refresh,
                "token_type": "DPoP",
                "expires_in": ACCESS_SECONDS,
                "scope": session.scope,
                "sub": self.sub or session.did,
            }
        )

    def _issue(self, session: Granted) -> None:
        session.access, session.refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        session.expires = self.clock() + ACCESS_SECONDS

    def _proof(self, request: Request, credential: str | None = None) -> str:
        """The thumbprint of the key of a request's proof."""
        proofs = request.headers.getlist("dpop")
        if len(proofs) != 1:
            raise Problem("invalid_dpop_proof")
        url = f"{self.origin}{request.url.path}"
        try:
            # Proofs tell the time of this machine; the clock of the tests is for tokens.
            now = time.time()
            proof = dpop.verify_proof(proofs[0], request.method, url, now, credential=credential)
        except Refused:
            raise Problem("invalid_dpop_proof") from None
        nonce = jwt.parse(proofs[0]).claims.get("nonce")
        if self.endless or nonce not in self._nonces:
            raise Problem("use_dpop_nonce", 400 if credential is None else 401)
        self._nonces.remove(nonce)
        if proof.jti in self._seen:
            raise Problem("invalid_dpop_proof")
        self._seen.add(proof.jti)
        return proof.jkt

    def _nonce(self) -> str:
        nonce = secrets.token_urlsafe(12)
        self._nonces.add(nonce)
        return nonce

    async def _protected(
        self, request: Request, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """A request to the host, with a token of this server or without one."""
        nsid = request.url.path.removeprefix("/xrpc/")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()), (b"dpop-nonce", self._nonce().encode())
                ]  # fmt: skip
                self.calls.append((nsid, message["status"]))
            await send(message)

        if self.lose and nsid == "com.atproto.server.refreshSession":
            self.lose -= 1
            await self.app(scope, receive, _swallow)
            await _break_off(send)
            return
        if scheme != "DPoP":
            await self.app(scope, receive, noted)
            return
        body = await request.body()
        try:
            session = self._session(request, token)
            self._allow(session, nsid, request, body)
        except Problem as problem:
            challenge = {"www-authenticate": f'DPoP error="{problem.error}"'}
            answer = JSONResponse({"error": problem.error}, problem.status, challenge)
            await answer(scope, receive, noted)
            return
        account = self.host.accounts.get(session.did)
        bearer = f"Bearer {self.host.sessions.open(account).access}".encode()
        headers = [each for each in scope["headers"] if each[0] not in (b"authorization", b"dpop")]
        inner = {**scope, "headers": [*headers, (b"authorization", bearer)]}

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(inner, again, noted)

    def _session(self, request: Request, token: str) -> Granted:
        """The session of a token that whoever holds its key presents."""
        jkt = self._proof(request, token)
        found = [each for each in self._sessions if each.access == token]
        if not found or found[0].ended or found[0].expires <= self.clock():
            raise Problem("invalid_token", 401)
        if found[0].jkt != jkt:
            raise Problem("invalid_dpop_proof", 401)
        return found[0]

    def _allow(self, session: Granted, nsid: str, request: Request, body: bytes) -> None:
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
                    _require("blob:*/*" in session.scope.split(" "), "ScopeMissingError")
                case _ if query.get("space"):
                    grant.require(_space(query["space"]), "read_self")
                case _:
                    raise Problem("ScopeMissingError", 403)
        except (Refused, LookupError):
            raise Problem("ScopeMissingError", 403) from None


def _space(text: str) -> SpaceRef:
    return SpaceRef(*(text.split("/")[at] for at in (2, 4, 5)))


def _require(holds: object, error: str = "invalid_request") -> None:
    if not holds:
        raise Problem(error)


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
        auth = AuthServer(host, application(host), clock, origin)
        config = uvicorn.Config(auth, log_config=None, log_level="critical", ws="none")
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
