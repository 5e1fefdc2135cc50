"""Whole requests that present credentials, delegations and proofs, as lists of header fields.

Lines are fields, `name: value`. `{use}`, `{exchange}` and `{dpop}` in a first line stand for the
fields that a client with good tokens sends; the lines after it are sent beside them.
"""

from __future__ import annotations

import re
from functools import cache

from lettaspace.atproto import httpsig, proof, tokens
from lettaspace.atproto.admission import Exchange, Use
from lettaspace.atproto.httpsig import Field
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.proof import Request
from lettaspace.atproto.uri import parse_space_ref
from lettaspace.errors import InvalidInput, Refused
from tests.fuzz.texts import outcome

WORDS = (
    *(b"{use}\n", b"{exchange}\n", b"{dpop}\n", b"{dpop-exchange}\n", b"Authorization: Bearer "),
    *(b"Authorization: Atproto-Space ", b"Authorization: DPoP ", b"DPoP: ", b"; a=1", b";keyid="),
    *(b'Signature-Input: atproto-space=("authorization")', b"Signature: atproto-space=:AA==:"),
    *(b"Atproto-Space-Audience: did:web:ada.example", b'"atproto-space-audience"', b", a=?1"),
    *(b"@1659578233", b'%"f%c3%bc"', b'alg="ecdsa-p256-sha256"', b"atproto-space", b"1.5"),
)
NOW = 1_795_000_000
SPACE = "at://did:web:ada.example/space/com.example.forum/self"
AUDIENCE = "did:web:bob.example"
URL = "https://host.example/xrpc/com.atproto.space.getRecord"
AUTHORITY = SigningKey.from_bytes("p256", b"\x01" * 32)
HOLDER = SigningKey.from_bytes("p256", b"\x02" * 32)
HELD = {"signature": HOLDER.verifying_key, "dpop": proof.DpopProver(HOLDER).holder}

_field = re.compile(r"([!-9;-~]+):[ \t]*([^\r\n]*)").fullmatch


class Memory:
    """No token was used or revoked; what is asked can be stored."""

    def seen(self, iss: str, jti: str, exp: float) -> bool:
        (iss + jti).encode()
        int(exp)
        return False

    def revoked(self, space: str, jti: str) -> bool:
        (space + jti).encode()
        return False


@cache
def prepared() -> dict[str, list[Field]]:
    space = parse_space_ref(SPACE)
    made = {}
    for prover in (proof.SignatureProver(HOLDER), proof.DpopProver(HOLDER)):
        use = "use" if prover.generation == "signature" else "dpop"
        exchange = "exchange" if prover.generation == "signature" else "dpop-exchange"
        credential = tokens.mint_credential(AUTHORITY, space, prover.holder, NOW, jti="a")
        delegation = tokens.mint_delegation(AUTHORITY, AUDIENCE, space, NOW, jti="b")
        made[use] = prover.use("GET", URL, credential, AUDIENCE, NOW)
        made[exchange] = prover.exchange("GET", URL, delegation, NOW)
    return made


def fuzz_proof(given: bytes) -> None:
    lines = given.decode("latin-1").split("\n")
    good = prepared().get(lines[0].strip("{}"), [])
    more = [(match[1], match[2]) for line in lines if (match := _field(line))]
    check([*more, *good], untouched=bool(good) and not more)


def check(fields: list[Field], *, untouched: bool) -> None:
    request = Request("GET", URL, fields)
    memory = Memory()
    used = 0
    use, _ = outcome(lambda: Use(request, NOW, alpha=True), Refused)
    if use is not None:
        access, _ = outcome(lambda: use.finish(AUTHORITY.verifying_key, memory, memory), Refused)
        if access is not None:
            used += 1
            assert access.audience in (None, AUDIENCE)
            access.check(SPACE, AUDIENCE)
    exchange, _ = outcome(lambda: Exchange(request, NOW, alpha=True), Refused)
    if exchange is not None:
        key = AUTHORITY.verifying_key
        done, _ = outcome(lambda: exchange.finish(key, SPACE, memory), Refused)
        if done is not None:
            used += 1
            assert done[1] in HELD.values()
    if untouched:
        assert used == 1
    for generation, verifier in proof.VERIFIERS.items():
        outcome(lambda v=verifier: v.exchange(request, NOW, memory), Refused)
        outcome(
            lambda v=verifier, g=generation: v.use(request, "a.b.c", HELD[g], NOW, memory), Refused
        )
    _check_signing(fields)


def _check_signing(fields: list[Field]) -> None:
    """What a client signs, a host takes."""
    if len(fields) != 2:
        return
    (_, authorization), (_, audience) = fields
    signed, _ = outcome(lambda: httpsig.sign_use(HOLDER, authorization, audience), InvalidInput)
    if signed is not None:
        sent = [*signed, ("Authorization", authorization)]
        assert httpsig.verify_use(sent, HOLDER.verifying_key) == audience
