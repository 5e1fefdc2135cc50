"""A host that takes a proof of one generation and nothing beside it, and notes what it was sent.

Its space has the authority `did:web:lab.example`; it keeps the repos of members, too. What is
wrong with a request is answered with the error that the protocol has for it, and noted.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

import httpx

from lettaspace.atproto import jwt
from lettaspace.atproto.dpop import hash_of
from lettaspace.atproto.jwk import from_jwk, thumbprint
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.proof import Generation
from lettaspace.atproto.tokens import mint_credential, mint_delegation
from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from tests.server.hosts import Clock

AUTHORITY = "did:web:lab.example"
MEMBER = "did:web:ada.example"
READER = "did:web:mira.example"
SPACE = f"at://{AUTHORITY}/space/org.example.room/self"

_LISTED = ["authorization", "atproto-space-audience", "signature-input", "signature", "dpop"]
_exchange_input = re.compile(r'atproto-space=(\("authorization"\);keyid="(did:key:zDna[^"]+)")')
_use_input = re.compile(r'atproto-space=(\("authorization" "atproto-space-audience"\))')
_signature = re.compile(r"atproto-space=:([A-Za-z0-9+/]+=*):")


class Wrong(Exception):
    def __init__(self, status: int, name: str, message: str = "") -> None:
        super().__init__(name)
        self.status, self.name, self.message = status, name, message


class StrictHost:
    """All three hosts of a space in one: the reader's own, the authority's, and a member's.

    `proofs` are the fields of all requests that prove something, in order, by method;
    `bound` the keys that credentials were bound to. `refuse` are answers to give instead, each
    to one request of a method; `credential` is what to give instead of one.
    """

    def __init__(self, generation: Generation, clock: Clock) -> None:
        self.generation = generation
        self.clock = clock
        self.lifetime = 600
        self.credential: str | None = None
        self.proofs: list[tuple[str, dict[str, str]]] = []
        self.bound: list[str] = []
        self.refuse: dict[str, list[tuple[int, str]]] = {}
        self.session = "Bearer session"
        self.account, self.authority = SigningKey.generate(), SigningKey.generate()
        self._delegations: set[str] = set()
        self._proofs_seen: set[str] = set()
        self.transport = httpx.MockTransport(self._answer)

    def asked(self, name: str) -> list[dict[str, str]]:
        """The proofs of the requests of a method, by the end of its name."""
        return [fields for nsid, fields in self.proofs if nsid.endswith("." + name)]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        nsid = request.url.path.removeprefix("/xrpc/")
        fields = {k: v for k, v in request.headers.items() if k in _LISTED}
        self.proofs.append((nsid, fields))
        method = nsid.rpartition(".")[2]
        try:
            if refusals := self.refuse.get(method):
                status, name = refusals.pop(0)
                raise Wrong(status, name)
            if method == "getDelegationToken":
                return self._delegate(fields)
            if method == "getSpaceCredential":
                return self._exchange(request, fields)
            self._use(request, fields)
        except Wrong as wrong:
            body = {"error": wrong.name, "message": wrong.message}
            return httpx.Response(wrong.status, json=body)
        return httpx.Response(200, json={"records": []})

    def _delegate(self, fields: dict[str, str]) -> httpx.Response:
        if fields != {"authorization": self.session}:
            raise Wrong(401, "AuthMissing")
        token = mint_delegation(self.account, READER, parse_space_ref(SPACE), self.clock())
        self._delegations.add(token)
        return httpx.Response(200, json={"token": token})

    def _exchange(self, request: httpx.Request, fields: dict[str, str]) -> httpx.Response:
        scheme, _, token = fields.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self._delegations:
            raise Wrong(401, "JwtReplayed")
        self._delegations.remove(token)  # used up whatever comes of it: a client takes a new one
        holder: VerifyingKey | str
        if self.generation == "signature":
            match = _exchange_input.fullmatch(fields.get("signature-input", ""))
            if match is None:
                raise Wrong(401, "BadSpaceSignature")
            self._only(fields, "signature-input", "signature")
            holder = VerifyingKey.from_did(match[2])
            self._check_signature(fields, match[1], holder, ["authorization"])
            self.bound.append(holder.did)
        else:
            if "dpop" not in fields:
                raise Wrong(401, "MissingDpopProof")
            self._only(fields, "dpop")
            holder = self._check_proof(request, fields, None)
            self.bound.append(holder)
        ref = parse_space_ref(SPACE)
        credential = mint_credential(
            self.authority, ref, holder, self.clock(), lifetime=self.lifetime
        )
        given = credential if self.credential is None else self.credential
        return httpx.Response(200, json={"credential": given})

    def _use(self, request: httpx.Request, fields: dict[str, str]) -> None:
        scheme, _, token = fields.get("authorization", "").partition(" ")
        cnf: Any = jwt.parse(token).claims["cnf"]
        if jwt.parse(token).claims["exp"] <= self.clock():
            raise Wrong(401, "JwtExpired")
        if self.generation == "signature":
            if scheme != "Atproto-Space":
                raise Wrong(401, "BadSpaceSignature", "scheme")
            self._only(fields, "atproto-space-audience", "signature-input", "signature")
            if fields["atproto-space-audience"] != MEMBER:
                raise Wrong(401, "BadSpaceAudience")
            match = _use_input.fullmatch(fields["signature-input"])
            if match is None:
                raise Wrong(401, "BadSpaceSignature", "coverage")
            covered = ["authorization", "atproto-space-audience"]
            self._check_signature(fields, match[1], VerifyingKey.from_did(cnf["kid"]), covered)
        else:
            if scheme != "DPoP":
                raise Wrong(401, "MissingDpopProof", "scheme")
            self._only(fields, "dpop")
            if self._check_proof(request, fields, token) != cnf["jkt"]:
                raise Wrong(401, "DpopKeyMismatch")

    def _only(self, fields: dict[str, str], *names: str) -> None:
        if fields.keys() != {"authorization", *names}:
            raise Wrong(400, "TooMuch", " ".join(fields))

    def _check_signature(
        self, fields: dict[str, str], params: str, key: VerifyingKey, covered: list[str]
    ) -> None:
        lines = [f'"{name}": {fields[name]}' for name in covered]
        base = "\n".join([*lines, f'"@signature-params": {params}']).encode()
        match = _signature.fullmatch(fields["signature"])
        if match is None or not key.verify(b64decode(match[1]), base, high_s=True):
            raise Wrong(401, "BadSpaceSignature", "signature")

    def _check_proof(
        self, request: httpx.Request, fields: dict[str, str], token: str | None
    ) -> str:
        """The thumbprint of the key of a proof that says what it must and nothing more."""
        proof = jwt.parse(fields["dpop"])
        key = from_jwk(proof.header["jwk"])
        claims = dict(proof.claims)
        wanted = {
            "htm": request.method,
            "htu": str(request.url.copy_with(query=None)),
            "iat": int(self.clock()),
        }
        if token is not None:
            wanted["ath"] = hash_of(token)
        jti = claims.pop("jti")
        if claims != wanted or proof.header.keys() != {"alg", "typ", "jwk"}:
            raise Wrong(401, "BadDpopProof", " ".join(claims))
        if jti in self._proofs_seen:
            raise Wrong(401, "JwtReplayed")
        self._proofs_seen.add(jti)
        if not proof.is_signed_by(key, high_s=True):
            raise Wrong(401, "BadDpopProofSignature")
        return thumbprint(key)


def elsewhere(generation: Generation, clock: Clock, space: SpaceRef) -> str:
    """A credential for another space, bound to a key that nobody has."""
    key = SigningKey.generate("p256").verifying_key
    holder = key if generation == "signature" else thumbprint(key)
    return mint_credential(SigningKey.generate(), space, holder, clock())
