"""An authorization server that is stricter than any in the field.

Every nonce is good once, and every answer gives a new one; pushed requests, codes and refresh
tokens are good once, and a second use of a code ends the session.
"""

from __future__ import annotations

import secrets
import time
from base64 import urlsafe_b64encode
from dataclasses import MISSING, dataclass, field, fields
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from lettaspace.atproto import dpop, jwt
from lettaspace.atproto.jwk import thumbprint
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import Refused
from lettaspace.remote.oauth import Binding, wanted_scope
from lettaspace.remote.sessions import Tokens
from lettaspace.server.host import Host
from tests.server.hosts import Clock

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
    """The server for the accounts of a host. Tests set what it is to do wrong."""

    host: Host
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
    leaves_out: tuple[str, ...] = ()
    """Members of answers that are left out."""
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
        for each in fields(self)[4:]:
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

    async def answer(self, request: Request) -> Response:
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
        answer.headers["dpop-nonce"] = self.nonce()
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
        require(parts.scheme == "http" and parts.netloc == "localhost", "invalid_client")
        require(parts.path in ("", "/") and set(known) == {"redirect_uri", "scope"})
        back = urlsplit(form.get("redirect_uri", ""))
        require(form["redirect_uri"] in known["redirect_uri"])
        require(back.scheme == "http" and back.hostname == "127.0.0.1" and back.port)
        asked = set(form.get("scope", "").split(" "))
        require("atproto" in asked <= set(known["scope"][0].split(" ")), "invalid_scope")
        require(form.get("response_type") == "code" and len(form.get("state", "")) >= 22)
        require(form.get("code_challenge_method") == "S256")
        require(len(form.get("code_challenge", "")) == 43)
        require(form.get("dpop_jkt", jkt) == jkt, "invalid_dpop_proof")
        uri = f"urn:ietf:params:oauth:request_uri:{secrets.token_urlsafe(16)}"
        self._requests[uri] = Pushed(form, jkt, self.clock() + REQUEST_SECONDS)
        pushed = {"request_uri": uri, "expires_in": REQUEST_SECONDS}
        return JSONResponse(self._whole(pushed), 201)

    def _authorize(self, query: dict[str, str]) -> Response:
        require(set(query) == {"client_id", "request_uri"})
        pushed = self._requests.pop(query["request_uri"], None)
        require(pushed is not None and pushed.expires > self.clock())
        assert pushed is not None
        require(pushed.params["client_id"] == query["client_id"])
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
        require(form.get("grant_type") == "refresh_token", "unsupported_grant_type")
        for session in self._sessions:
            if session.refresh == form.get("refresh_token") and not session.ended:
                require(session.jkt == jkt, "invalid_dpop_proof")
                require(session.client_id == form.get("client_id"), "invalid_client")
                return self._tokens(session)
        raise Problem("invalid_grant")

    def _redeem(self, form: dict[str, str], jkt: str) -> Granted:
        pushed = self._codes.get(form.get("code", ""))
        require(pushed is not None, "invalid_grant")
        assert pushed is not None
        if pushed.session is not None:
            pushed.session.ended = True
            raise Problem("invalid_grant")
        verifier = form.get("code_verifier", "").encode()
        challenge = urlsafe_b64encode(sha256(verifier).digest()).decode().rstrip("=")
        require(pushed.expires > self.clock(), "invalid_grant")
        require(pushed.params["client_id"] == form.get("client_id"), "invalid_grant")
        require(pushed.params["redirect_uri"] == form.get("redirect_uri"), "invalid_grant")
        require(pushed.params["code_challenge"] == challenge, "invalid_grant")
        require(pushed.jkt == jkt, "invalid_dpop_proof")
        scope = self.scope or pushed.params["scope"]
        pushed.session = Granted(form["client_id"], scope, jkt, self.did)
        self._sessions.append(pushed.session)
        return pushed.session

    def _tokens(self, session: Granted) -> Response:
        self._issue(session)
        given = {
            "access_token": session.access,
            "refresh_token": session.refresh,
            "token_type": "DPoP",
            "expires_in": ACCESS_SECONDS,
            "scope": session.scope,
            "sub": self.sub or session.did,
        }
        return JSONResponse(self._whole(given))

    def _whole(self, form: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in form.items() if name not in self.leaves_out}

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

    def nonce(self) -> str:
        nonce = secrets.token_urlsafe(12)
        self._nonces.add(nonce)
        return nonce

    def session(self, request: Request, token: str) -> Granted:
        """The session of a token that whoever holds its key presents."""
        jkt = self._proof(request, token)
        found = [each for each in self._sessions if each.access == token]
        if not found or found[0].ended or found[0].expires <= self.clock():
            raise Problem("invalid_token", 401)
        if found[0].jkt != jkt:
            raise Problem("invalid_dpop_proof", 401)
        return found[0]


def require(holds: object, error: str = "invalid_request") -> None:
    if not holds:
        raise Problem(error)
