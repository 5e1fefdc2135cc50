"""What an app may do in a user's spaces: OAuth scopes, and sets of them.

    space:TYPE[?authority=DID|self|*][&skey=KEY|*][&collection=NSID|*]…[&action=…]…[&manage=…]…
    include:NSID[?aud=…]      the permission set that a lexicon defines

`self` is the user, and stands for nobody until it is resolved. A scope without collections
means the ones that the type declares, which whoever issues the grant looks up; until then it
allows no writing. A scope with anything unknown in it allows nothing. Source: protocol, section
9 (OAuth scopes and sessions).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from lettaspace.atproto.syntax import is_did, is_nsid, is_record_key
from lettaspace.atproto.uri import SpaceRef
from lettaspace.errors import InvalidInput, Refused

Action: TypeAlias = Literal["read_self", "read", "create", "update", "delete"]
Management: TypeAlias = Literal["create", "update", "delete"]

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
MANAGEMENT: Final[tuple[Management, ...]] = get_args(Management)
WRITES: Final = frozenset[Action](("create", "update", "delete"))
DEFAULT_ACTIONS: Final = frozenset[Action](("read", "create", "update", "delete"))

ANY: Final = "*"
SELF: Final = "self"
BASE: Final = "atproto"
MAX_SCOPE: Final = 65_536
"""Characters of a whole grant."""

_percent = re.compile(r"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class SpaceScope:
    """One `space:` scope. Prints as its normal form. Raises InvalidInput for unknown values."""

    type: str
    authority: str = SELF
    skey: str = ANY
    collections: frozenset[str] = frozenset()
    actions: frozenset[Action] = DEFAULT_ACTIONS
    manage: frozenset[Management] = frozenset()

    def __post_init__(self) -> None:
        _check(self.type == ANY or is_nsid(self.type), "type")
        _check(self.authority in (SELF, ANY) or is_did(self.authority), "authority")
        _check(self.skey == ANY or is_record_key(self.skey), "skey")
        _check(all(name == ANY or is_nsid(name) for name in self.collections), "collection")
        _check(bool(self.actions) and self.actions <= set(ACTIONS), "action")
        _check(self.manage <= set(MANAGEMENT), "manage")
        if ANY in self.collections and len(self.collections) > 1:
            object.__setattr__(self, "collections", frozenset((ANY,)))

    def __str__(self) -> str:
        parts: list[tuple[str, str]] = []
        if self.authority != SELF:
            parts.append(("authority", self.authority))
        if self.skey != ANY:
            parts.append(("skey", self.skey))
        parts += (("collection", name) for name in sorted(self.collections))
        if self.actions != DEFAULT_ACTIONS:
            parts += (("action", name) for name in ACTIONS if name in self.actions)
        parts += (("manage", name) for name in MANAGEMENT if name in self.manage)
        # Of all characters that can be in a value only this one means something else in a query.
        query = "&".join(f"{name}={value.replace('%', '%25')}" for name, value in parts)
        return f"space:{self.type}?{query}" if query else f"space:{self.type}"

    @classmethod
    def parse(cls, text: str) -> "SpaceScope":
        """The scope that a text means. Raises InvalidInput."""
        name, position, params = _syntax(text)
        _check(name == "space", "name")
        types = params.pop("type", [])
        if position is not None:
            types.append(position)
        authority = params.pop("authority", [SELF])
        skey = params.pop("skey", [ANY])
        _check(len(types) == len(authority) == len(skey) == 1, "number of values")
        return cls(types[0], authority[0], skey[0], **_sets(params))

    @property
    def needs_declaration(self) -> bool:
        """Whether what it allows to write depends on the collections its type declares."""
        return self.type != ANY and not self.collections and bool(self.actions & WRITES)

    def resolve(self, user: str) -> "SpaceScope":
        """The same with the user's DID for `self`."""
        return replace(self, authority=user) if self.authority == SELF else self

    def with_default_collections(self, collections: Iterable[str]) -> "SpaceScope":
        """The same with the collections its type declares, if it has none of its own.

        Raises InvalidInput for what is no collection: a declaration has no wildcard.
        """
        declared = frozenset(collections)
        _check(ANY not in declared, "declared collection")
        return self if self.collections else replace(self, collections=declared)

    def covers(
        self, space_type: str | None, authority: str | None, skey: str | None = None
    ) -> bool:
        """Whether it speaks of all spaces with these parts. None is any, which takes a `*`."""
        return (
            self.type in (ANY, space_type)
            and self.authority != SELF
            and self.authority in (ANY, authority)
            and self.skey in (ANY, skey)
        )

    def allows(self, space: SpaceRef, action: Action, collection: str | None = None) -> bool:
        """Whether the action is allowed: a write needs its collection, reading has none."""
        if not self.covers(space.type, space.authority, space.skey):
            return False
        if action == "read_self":
            return not self.actions.isdisjoint(("read", "read_self"))
        if action == "read":
            return "read" in self.actions
        # A scope does not hold None, so a write without collection takes a `*`.
        return action in self.actions and not self.collections.isdisjoint((ANY, collection))

    def manages(self, space: SpaceRef, operation: Management) -> bool:
        """Whether the space may be created, updated (its members too) or deleted."""
        return operation in self.manage and self.covers(space.type, space.authority, space.skey)


@dataclass(frozen=True, slots=True)
class Include:
    """A request for the permissions of a set: the lexicon it is defined in, and an audience."""

    nsid: str
    aud: str | None = None

    def __post_init__(self) -> None:
        _check(is_nsid(self.nsid), "permission set")
        did, mark, fragment = (self.aud or "").partition("#")
        _check(self.aud is None or (is_did(did) and bool(mark and fragment)), "audience")

    @classmethod
    def parse(cls, text: str) -> "Include":
        """The set that a text asks for. Raises InvalidInput."""
        name, position, params = _syntax(text)
        _check(name == "include", "name")
        sets = params.pop("nsid", [])
        if position is not None:
            sets.append(position)
        aud: list[str | None] = [*params.pop("aud", ())] or [None]
        _check(len(sets) == len(aud) == 1 and not params, "number of values")
        return cls(sets[0], aud[0])

    def spaces(self, document: Any) -> list[SpaceScope]:
        """What the set, a parsed lexicon document, permits in spaces.

        A set speaks for the types under its own authority only. Its other permissions, and
        those that are malformed, are passed over.
        """
        main = _member(_member(document, "defs"), "main")
        permissions = _member(main, "permissions")
        if _member(main, "type") != "permission-set" or type(permissions) is not list:
            return []
        found = []
        for entry in permissions:
            if _member(entry, "type") != "permission" or _member(entry, "resource") != "space":
                continue
            try:
                scope = _permission({k: v for k, v in entry.items() if k not in _ENTRY})
            except InvalidInput:
                continue
            if scope.type.startswith(self.nsid[: self.nsid.rindex(".") + 1]):
                found.append(scope)
        return found


@dataclass(frozen=True, slots=True)
class Grant:
    """All that a session may do in spaces."""

    scopes: tuple[SpaceScope, ...]

    @classmethod
    def parse(cls, text: str) -> "Grant":
        """The grant of a token's `scope`. What it has for other resources, or what is
        malformed, gives nothing here; nor does anything without the base scope `atproto`.

        Raises InvalidInput for a text that is too long.
        """
        if len(text) > MAX_SCOPE:
            raise InvalidInput(f"scope: longer than {MAX_SCOPE} characters")
        names = text.split(" ")
        return cls(tuple(_readable(names)) if BASE in names else ())

    def require(self, space: SpaceRef, action: Action, collection: str | None = None) -> None:
        """Raises Refused (InsufficientScope) unless a scope allows the action."""
        if not any(scope.allows(space, action, collection) for scope in self.scopes):
            raise Refused("InsufficientScope", f"scope: does not allow {action} in this space")

    def require_management(self, space: SpaceRef, operation: Management) -> None:
        """Raises Refused (InsufficientScope) unless a scope allows to manage the space."""
        if not any(scope.manages(space, operation) for scope in self.scopes):
            raise Refused("InsufficientScope", f"scope: does not allow {operation} of this space")


_ENTRY = ("type", "resource")
_KEYS = {"collection": "collections", "action": "actions", "manage": "manage"}


def _check(valid: bool, part: str) -> None:
    if not valid:
        raise InvalidInput(f"scope: {part} is not valid")


def _syntax(text: str) -> tuple[str, str | None, dict[str, list[str]]]:
    """Name, positional value and parameters: `name[:value][?key=value&…]`."""
    _check(len(text) <= MAX_SCOPE and text.isascii(), "text")
    head, _, query = text.partition("?")
    name, colon, position = head.partition(":")
    params: dict[str, list[str]] = {}
    for pair in query.split("&"):
        if pair:
            key, _, value = pair.partition("=")
            params.setdefault(_decode(key), []).append(_decode(value))
    return name, _decode(position) if colon else None, params


def _decode(text: str) -> str:
    """A part of a query. Not ASCII, which no value has, becomes a character that none has."""
    return _percent.sub(lambda match: chr(int(match[1], 16)), text.replace("+", " "))


def _sets(params: dict[str, list[Any]]) -> dict[str, Any]:
    """The parameters with several values, as a scope holds them."""
    _check(params.keys() <= _KEYS.keys(), "parameter")
    return {_KEYS[key]: frozenset(values) for key, values in params.items()}


def _permission(entry: dict[str, Any]) -> SpaceScope:
    """The scope of an entry of a permission set."""
    single = [entry.pop(key, default) for key, default in _SINGLE.items()]
    _check(all(type(value) is str for value in single), "type")
    for values in entry.values():
        _check(type(values) is list and bool(values), "list")
        _check(all(type(value) is str for value in values), "list")
    return SpaceScope(*single, **_sets(entry))


_SINGLE: dict[str, str | None] = {"spaceType": None, "authority": SELF, "skey": ANY}


def _readable(names: list[str]) -> Iterable[SpaceScope]:
    for name in names:
        try:
            yield SpaceScope.parse(name)
        except InvalidInput:
            continue


def _member(value: Any, key: str) -> Any:
    return value.get(key) if type(value) is dict else None
