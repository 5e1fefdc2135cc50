"""Secrets in one string of a JSON value: what its key says of it, and JSON inside it."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from lettaspace.conversation import jsontext
from lettaspace.conversation.secretrules import AUTH_HEADERS, MARKER, is_placeholder
from lettaspace.conversation.secrets import Span, find_secrets, merged
from lettaspace.errors import InvalidInput

MAX_NESTING = 4
"""JSON in a string of JSON in a string is understood so deep; further down it is plain text."""

_SECRET_NAMES = (
    "accesstoken", "apikey", "apitoken", "apppassword", "authtoken", "bearertoken",
    "clientsecret", "passphrase", "passwd", "password", "privatekey", "refreshtoken",
    "secretaccesskey", "secretkey", "sessiontoken",
)  # fmt: skip
"""A string under a key that ends so is a secret, whatever it looks like."""

_HINTS = ("auth", "cookie", "cred", "key", "pass", "secret", "token", "pwd")
"""In a key: what stands under it is looked at together with the key."""


@dataclass(frozen=True, slots=True)
class Named:
    """What is known of a value from where it stands."""

    name: str = ""
    """The key it stands under, or the list it is in."""
    headers: bool = False
    """It stands directly in a map, or list, of headers."""
    header: str = ""
    """The name of a header that stood before it, in a list or as a value of its own."""

    def __bool__(self) -> bool:
        return bool(self.name or self.header)

    def of(self, key: str) -> "Named":
        """The value of a key, in the object."""
        return replace(self, name=key)

    def inside_object(self) -> "Named":
        """Inside of an object that stands here."""
        return Named(headers=self.headers or is_header_map(self.name))

    def inside_list(self) -> "Named":
        """Inside of a list that stands here."""
        return Named(self.name, self.headers or is_header_map(self.name))

    def after(self, item: Any) -> "Named":
        """The next place in the same object or list."""
        if not self.headers:
            return self
        header = item.lower() if isinstance(item, str) else ""
        return replace(self, header=header if header in AUTH_HEADERS else "")

    def kind(self) -> str | None:
        """Of which kind of secret it must be."""
        name = self.name.lower()
        if self.headers:
            if self.header:
                return self.header
            if name in AUTH_HEADERS:
                return name
        if name in ("authorization", "proxy-authorization"):
            return name
        plain = re.sub(r"[^a-z]", "", name)
        for ending in _SECRET_NAMES:
            if plain.endswith(ending):
                return "password" if "pass" in ending else "api-key"
        return None

    def hints(self) -> bool:
        name = self.name.lower()
        return any(hint in name for hint in _HINTS)


PLAIN = Named()


def is_header_map(name: str) -> bool:
    """Whether what stands under a key are the headers of a request or a response."""
    return name.lower().endswith("headers")


def find_in_string(text: str, named: Named = PLAIN, nesting: int = 0) -> list[Span]:
    """The secrets in a string, in order and apart from one another."""
    if not text:
        return []
    kind = named.kind() if named else None
    if kind is not None and not MARKER.fullmatch(text) and not is_placeholder(text):
        return merged(text, [Span(0, len(text), kind)])
    if nesting < MAX_NESTING and _may_be_json(text):
        return _find_in_json(text, nesting)
    if named and named.hints() and len(text) < 1000:
        before = f'{named.name} = "'
        found = [
            Span(max(start - len(before), 0), min(end - len(before), len(text)), kind)
            for start, end, kind in find_secrets(f'{before}{text}"')
            if start >= len(before) and end <= len(before) + len(text)
        ]
        if found:
            return merged(text, [*found, *find_secrets(text)])
    return find_secrets(text)


def _may_be_json(text: str) -> bool:
    edges = text.strip()
    return edges[:1] + edges[-1:] in ("{}", "[]")


_SYMBOL = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],]', re.DOTALL)
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]",
    re.DOTALL,
)


def _find_in_json(text: str, nesting: int) -> list[Span]:
    """In the strings of a JSON text, each with its key; offsets are into the text."""
    around = find_secrets(text)
    lower = text.lower()
    if not around and "\\" not in text and not any(hint in lower for hint in _HINTS):
        return []
    try:
        jsontext.loads(text)
    except InvalidInput:
        return around
    found: list[Span] = []
    at = 0
    for start, end, named in _strings(text):
        literal = text[start + 1 : end - 1]
        offsets = _offsets(literal) if "\\" in literal else None
        content = jsontext.loads(text[start:end]) if offsets else literal
        inner = find_in_string(content, named, nesting + 1)
        if offsets:
            inner = [Span(offsets[a], offsets[b], kind) for a, b, kind in inner]
        found += (Span(start + 1 + a, start + 1 + b, kind) for a, b, kind in inner)
        # What is only found together with its surroundings counts if it stays within a string.
        while at < len(around) and around[at].start <= start:
            at += 1
        while at < len(around) and around[at].end < end:
            span = around[at]
            a, b = span.start - start - 1, span.end - start - 1
            if offsets:
                a, b = offsets[bisect_right(offsets, a) - 1], offsets[bisect_left(offsets, b)]
            found.append(Span(start + 1 + a, start + 1 + b, span.kind))
            at += 1
    return merged(text, found)


def _offsets(literal: str) -> list[int]:
    """Where each character of a string begins in its literal, and where the last one ends."""
    return [match.start() for match in _CHARACTER.finditer(literal)] + [len(literal)]


def _strings(text: str) -> Iterator[tuple[int, int, Named]]:
    """Every string in a JSON text, with its quotes: start, end, what is known of it."""
    stack: list[tuple[bool, Named, bool]] = []
    is_object, inside, at_key, value = False, PLAIN, False, PLAIN
    for match in _SYMBOL.finditer(text):
        symbol = match[0]
        if symbol == "{":
            stack.append((is_object, inside, at_key))
            is_object, inside, at_key = True, value.inside_object(), True
        elif symbol == "[":
            stack.append((is_object, inside, at_key))
            is_object, inside, at_key = False, value.inside_list(), False
            value = inside
        elif symbol == ",":
            at_key = is_object
            value = inside
        elif symbol in "}]":
            is_object, inside, at_key = stack.pop()
        elif at_key:
            yield match.start(), match.end(), PLAIN
            value = inside.of(jsontext.loads(symbol))
            at_key = False
        else:
            yield match.start(), match.end(), value
            inside = inside.after(jsontext.loads(symbol) if inside.headers else "")
