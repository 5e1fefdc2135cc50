"""A whole host, asked anything by anybody: no request makes it fail.

The first byte chooses the method, the second the caller; then a line with the query, and the
body. The last callers have tokens with the claims of one more line, before the query. `{ada}`,
`{bob}`, `{space}` and the like stand for what there is on the host, which goes on from request
to request: what one wrote, later ones find. Nothing is fetched.

The environment's FUZZ_DATABASE may name an empty PostgreSQL database to take instead of a file.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import secrets
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

from lettaspace.atproto import jwt, tokens
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.methods import shipped
from lettaspace.atproto.proof import DpopProver, Prover, SignatureProver
from lettaspace.atproto.uri import SpaceRef
from lettaspace.network.fetching import Fetcher
from lettaspace.network.identity import Resolver
from lettaspace.server.app import application
from lettaspace.server.clients import Clients
from lettaspace.server.config import Config
from lettaspace.server.errors import STATUS
from lettaspace.server.host import Host
from lettaspace.server.rates import Rates
from tests.server.asgi import JSON, Request, Response

WORDS = (
    *(b"space={space}&repo={ada}", b"&collection=com.example.note", b"&rkey=first", b"&cursor="),
    *(b'{"space":"{space}","repo":"{bob}","collection":"com.example.note"', b'"rkey":"first"'),
    *(b'"record":{"$type":"com.example.note"', b'"$type":"com.atproto.space.applyWrites'),
    *(b"#create", b"#delete", b'"swapCommit":', b'"identifier":"ada.host.example"', b"\\u0000"),
    *(b'"$type":"com.atproto.simplespace.defs#memberListPolicy"', b"#managingAppPolicy", b"#main"),
    *(b'"$type":"com.atproto.simplespace.defs#allowList"', b'"allowed":[', b"\\ud800", b"%00"),
    *(b'"hash":{"$bytes":"', b'"rev":"3mbo6jo6e222b"', b"{other}", b"{cid}", b"{picture}"),
    *(b'"writes":[{', b"-1"),
)
NOW = 1_790_000_000
ORIGIN = "https://host.example"
NOTE = "com.example.note"
NAMES = ("ada", "bob", "eve")

Headers = list[tuple[str, str]]
Claims = dict[str, Any]
Caller = Callable[[str, Claims], Headers]


def fuzz_host(given: bytes) -> None:
    if len(given) < 2:
        return
    world = _world()
    nsid = world.nsids[given[0] % len(world.nsids)]
    caller = world.callers[given[1] % len(world.callers)]
    for name, value in world.words.items():
        given = given.replace(name, value)
    rest = given[2:]
    claims: Any = {}
    if caller in world.claiming:
        line, _, rest = rest.partition(b"\n")
        try:
            claims = json.loads(line)
        except (ValueError, RecursionError):
            return
    query, _, body = rest.partition(b"\n")
    world.ask(nsid, query, body, caller(nsid, claims if type(claims) is dict else {}))


class World:
    """Two members and a stranger, a space of ada's, and what was written there."""

    def __init__(self, database: str) -> None:
        config = Config(ORIGIN, database, rates=Rates.none())
        self.host = host = Host.open(config, clock=lambda: NOW, checking=True)
        host.fetcher = Fetcher(lookup=_nothing)
        host.identity = Resolver(host.fetcher, local=host._local_document, texts=_nothing)
        host.clients = Clients(host.fetcher)
        self.app = application(host)
        self.nsids = sorted(host.xrpc.nsids)
        self.keys = {
            name: SigningKey.from_bytes("p256", bytes([i]) * 32) for i, name in enumerate(NAMES, 1)
        }
        self.sessions: dict[str, Any] = {}
        self.words: dict[bytes, bytes] = {}
        for name, key in self.keys.items():
            did = f"did:web:{name}.host.example"
            account = host.accounts.add(
                f"{name}.host.example", did, password="correct horse", key=key
            )
            self.sessions[name] = host.sessions.open(account)
            self.words[f"{{{name}}}".encode()] = did.encode()
        self.space = SpaceRef("did:web:ada.host.example", "com.example.forum", "self")
        self.words[b"{space}"] = str(self.space).encode()
        self.words[b"{other}"] = str(SpaceRef(self.space.authority, NOTE, "other")).encode()
        holder = SigningKey.from_bytes("p256", b"\x09" * 32)
        signature, dpop = SignatureProver(holder), DpopProver(holder)
        self.claiming: list[Caller] = [
            lambda nsid, claims: self._credential(nsid, signature, claims),
            lambda nsid, claims: self._credential(nsid, dpop, claims),
            lambda nsid, claims: self._exchange(nsid, signature, claims),
            lambda nsid, claims: self._service(nsid, claims),
        ]
        self.callers: list[Caller] = [
            lambda *_: [],
            lambda *_: _bearer(self.sessions["ada"].access),
            lambda *_: _bearer(self.sessions["bob"].access),
            lambda *_: _bearer(self.sessions["eve"].access),
            lambda *_: _bearer(self.sessions["bob"].refresh),
            lambda nsid, _: self._credential(nsid, signature, {}),
            lambda nsid, _: self._credential(nsid, dpop, {}),
            lambda nsid, _: self._exchange(nsid, signature, {}),
            lambda nsid, _: self._exchange(nsid, dpop, {}),
            lambda nsid, _: self._service(nsid, {}),
            *self.claiming,
        ]
        self._populate()

    def ask(self, nsid: str, query: bytes, body: bytes, headers: Headers) -> Response:
        """Asks, and raises AssertionError for an answer that no request should get."""
        method = shipped()[nsid]
        verb = "GET" if method.kind == "query" else "POST"
        if verb == "POST" and method.takes is not None:
            headers = [*headers, *(JSON if method.takes != "*/*" else [("content-type", "a/b")])]
        request = Request(verb, f"/xrpc/{nsid}", query, headers, [body if verb == "POST" else b""])
        response: Response = asyncio.run(request.run(self.app))
        assert response.ended
        if response.status != 200:
            assert response.status == STATUS.get(response.error, 400)
            assert response.status < 500 or response.error in (
                "UpstreamTimeout",
                "NotEnoughResources",
            )
        elif response.header("content-type") == "application/json":
            json.loads(response.body)
        return response

    def _credential(self, nsid: str, prover: Prover, claims: Claims) -> Headers:
        cnf = (
            {"jkt": prover.holder} if isinstance(prover.holder, str) else {"kid": prover.holder.did}
        )
        audience = self.space.authority
        own = {"iss": audience, "sub": str(self.space), "cnf": cnf, "iat": NOW, "exp": NOW + 600}
        token = self._signed("ada", tokens.CREDENTIAL, own | {"jti": "a"} | claims)
        verb = "GET" if shipped()[nsid].kind == "query" else "POST"
        return prover.use(verb, f"{ORIGIN}/xrpc/{nsid}", token, audience, NOW)

    def _exchange(self, nsid: str, prover: Prover, claims: Claims) -> Headers:
        audience = tokens.host_id(self.space.authority)
        own = {"iss": "did:web:bob.host.example", "sub": str(self.space), "aud": audience}
        own |= {"iat": NOW, "exp": NOW + 60, "jti": secrets.token_hex(8)}
        token = self._signed("bob", tokens.DELEGATION, own | claims)
        return prover.exchange("POST", f"{ORIGIN}/xrpc/{nsid}", token, NOW)

    def _service(self, nsid: str, claims: Claims) -> Headers:
        audience = tokens.host_id(self.space.authority)
        own = {"iss": "did:web:bob.host.example", "aud": audience, "lxm": nsid}
        own |= {"iat": NOW, "exp": NOW + 60, "jti": secrets.token_hex(8)}
        return _bearer(self._signed("bob", tokens.SERVICE, own | claims))

    def _signed(self, name: str, typ: str, claims: Claims) -> str:
        header = {"alg": "ES256", "typ": typ, "kid": tokens.ACCOUNT_KEY}
        parts = [jwt.base64url(json.dumps(part).encode()) for part in (header, claims)]
        signed = ".".join(parts)
        return f"{signed}.{jwt.base64url(self.keys[name].sign(signed.encode()))}"

    def _populate(self) -> None:
        policy = {"$type": "com.atproto.simplespace.defs#memberListPolicy"}
        access = {"$type": "com.atproto.simplespace.defs#open"}
        form = {"spaceType": self.space.type, "skey": self.space.skey, "appAccess": access}
        self._do("simplespace.createSpace", "ada", readPolicy=policy, writePolicy=policy, **form)
        member = {"did": "did:web:bob.host.example", "read": True, "write": True}
        self._do("simplespace.putMember", "ada", space=str(self.space), **member)
        picture = self.ask(
            "com.atproto.repo.uploadBlob", b"", b"a picture", _bearer(self.sessions["bob"].access)
        ).json()["blob"]
        self.words[b"{picture}"] = json.dumps(picture).encode()
        for name in ("ada", "bob"):
            record = {"$type": NOTE, "text": name} | ({"a": picture} if name == "bob" else {})
            place = {"space": str(self.space), "repo": f"did:web:{name}.host.example"}
            key = {"collection": NOTE, "rkey": "first"}
            made = self._do("space.createRecord", name, record=record, **place, **key)
            self.words[b"{cid}"] = made["cid"].encode()

    def _do(self, name: str, caller: str, **form: Any) -> Any:
        body = json.dumps(form).encode()
        response = self.ask(f"com.atproto.{name}", b"", body, _bearer(self.sessions[caller].access))
        assert response.status == 200, response.body
        return response.json() if response.body else None


@cache
def _world() -> World:
    folder = tempfile.TemporaryDirectory(prefix="fuzz-host-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return World(os.environ.get("FUZZ_DATABASE") or f"{folder.name}/host.db")


def _nothing(name: str, timeout: float) -> list[Any]:
    return []


def _bearer(token: str) -> Headers:
    return [("authorization", f"Bearer {token}")]
