"""Scopes and permission sets: what is malformed allows nothing, and normal forms are stable."""

from __future__ import annotations

import json

from lettaspace.atproto.scopes import ACTIONS, MANAGEMENT, Grant, Include, SpaceScope
from lettaspace.atproto.uri import SpaceRef
from lettaspace.errors import InvalidInput, Refused
from tests.fuzz.texts import outcome, text

WORDS = (
    *(b"atproto ", b"space:", b"include:", b"com.example.forum", b"?authority=", b"did:web:ada"),
    *(b"&skey=", b"&collection=", b"&action=", b"&manage=", b"read_self", b"create", b"%2A", b"*"),
    *(b'{"defs":{"main":{"type":"permission-set","permissions":[', b'"resource":"space"', b"self"),
)
SPACE = SpaceRef("did:web:ada.example", "com.example.forum", "self")
NOTE = "com.example.note"


def fuzz_scopes(given: bytes) -> None:
    name, _, document = given.partition(b"\n")
    granted = text(name)
    grant, _ = outcome(lambda: Grant.parse(granted), InvalidInput)
    if grant is not None:
        for action in ACTIONS:
            outcome(lambda a=action: grant.require(SPACE, a, NOTE), Refused)
        for operation in MANAGEMENT:
            outcome(lambda o=operation: grant.require_management(SPACE, o), Refused)
    for one in granted.split(" ")[:20]:
        _check(one, document)


def _check(one: str, document: bytes) -> None:
    scope, _ = outcome(lambda: SpaceScope.parse(one), InvalidInput)
    if scope is not None:
        assert SpaceScope.parse(str(scope)) == scope
        assert " " not in str(scope)
        resolved = scope.resolve(SPACE.authority).with_default_collections([NOTE])
        assert SpaceScope.parse(str(resolved)) == resolved
        for action in ACTIONS:
            # What it allows unresolved, it allows resolved.
            assert not scope.allows(SPACE, action, NOTE) or resolved.allows(SPACE, action, NOTE)
    include, _ = outcome(lambda: Include.parse(one), InvalidInput)
    if include is not None:
        try:
            parsed = json.loads(document)
        except (ValueError, RecursionError):
            return
        authority = include.nsid.rpartition(".")[0]
        for found in include.spaces(parsed):
            assert found.type.rpartition(".")[0].startswith(authority)
            assert SpaceScope.parse(str(found)) == found
