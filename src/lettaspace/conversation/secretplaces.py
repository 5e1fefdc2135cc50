"""Secrets in one string of a JSON value: what its key says of it, and JSON inside it."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from lettaspace.conversation import jsontext
from lettaspace.conversation.secretrules import AUTH_HEADERS, MARKER, is_placeholder, is_plain
from lettaspace.conversation.secrets import SHORTEST, Span, find_secrets, merged
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


class Named(NamedTuple):
    """What is known of a value from where it stands."""

    name: str = ""
    """The key it stands under, or the list it is in."""
    headers: bool = False
    """It stands directly in a map, or list, of headers."""
    header: str = ""
    """The name of a header that stood before it, in a list or as a value of its own."""

    def of(self, key: str) -> "Named":
        """The value of a key, in the object."""
        # What stands in a secret's place names nothing.
        return Named("" if MARKER.search(key) else key, self.headers, self.header)

    def inside_object(self) -> "Named":
        """Inside of an object that stands here."""
        return Named("", self.headers or _is_header_map(self.name))

    def inside_list(self) -> "Named":
        """Inside of a list that stands here."""
        return Named(self.name, self.headers or _is_header_map(self.name))

    def after(self, item: Any) -> "Named":
        """The next place in the same object or list."""
        if not self.headers:
            return self
        header = item.lower() if isinstance(item, str) else ""
        return Named(self.name, True, header if header in AUTH_HEADERS else "")


PLAIN = Named()


def _is_header_map(name: str) -> bool:
    return name[-7:].lower() == "headers"


@lru_cache(4096)
def _kind(named: Named) -> str | None:
    """Of which kind of secret a string must be that stands there."""
    name = named.name.lower()
    if named.headers:
        if named.header:
            return named.header
        if name in AUTH_HEADERS:
            return name
    if name in ("authorization", "proxy-authorization"):
        return name
    for ending in _SECRET_NAMES:
        if _letters(name).endswith(ending):
            return "password" if "pass" in ending else "api-key"
    return None


@lru_cache(4096)
def _hints(name: str) -> bool:
    return any(hint in name.lower() for hint in _HINTS)


def _letters(text: str) -> str:
    return re.sub("[^a-z]+", "", text)


def find_in_string(text: str, named: Named = PLAIN, nesting: int = 0) -> list[Span]:
    """The secrets in a string, in order and apart from one another."""
    kind = _kind(named) if named is not PLAIN else None
    if kind is not None and text and not MARKER.fullmatch(text) and not is_placeholder(text):
        return merged(text, [Span(0, len(text), kind)])
    if len(text) < SHORTEST or is_plain(text):
        return []
    if nesting < MAX_NESTING and _may_be_json(text):
        return _find_in_json(text, nesting)
    if len(text) < 1000 and _hints(named.name):
        before = f'{named.name} = "'
        start, end = len(before), len(before) + len(text)
        found = [
            Span(a - start, b - start, kind)
            for a, b, kind in find_secrets(f'{before}{text}"')
            if start <= a and b <= end
        ]
        if found:
            return merged(text, [*found, *find_secrets(text)])
    return find_secrets(text)


def _may_be_json(text: str) -> bool:
    edges = text.strip()
    return edges[:1] + edges[-1:] in ("{}", "[]")


def _has_secret_names(text: str) -> bool:
    letters = _letters(text.lower())
    return any(name in letters for name in (*_SECRET_NAMES, "authorization", "headers"))


_SYMBOL = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],]', re.DOTALL)
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]",
    re.DOTALL,
)


def _find_in_json(text: str, nesting: int) -> list[Span]:
    """In the strings of a JSON text, each with its key; offsets are into the text."""
    around = find_secrets(text)
    if not around and "\\" not in text and not _has_secret_names(text):
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
        # What is only found together with its surroundings counts if it stays within a string.
        within: list[Span] = []
        crossed = False
        while at < len(around) and around[at].end <= start:
            at += 1
        for near in range(at, len(around)):
            span = around[near]
            if span.start >= end:
                break
            if start < span.start and span.end < end:
                within.append(span)
            else:
                crossed = True
        # A string without escapes was looked at with the whole, unless that found more than it.
        if offsets or crossed or _kind(named):
            content = jsontext.loads(text[start:end]) if offsets else literal
            inner = find_in_string(content, named, nesting + 1)
            if offsets:
                inner = [Span(offsets[a], offsets[b], kind) for a, b, kind in inner]
            found += (Span(start + 1 + a, start + 1 + b, kind) for a, b, kind in inner)
        for span in within:
            a, b = span.start - start - 1, span.end - start - 1
            if offsets:
                a, b = offsets[bisect_right(offsets, a) - 1], offsets[bisect_left(offsets, b)]
            found.append(Span(start + 1 + a, start + 1 + b, span.kind))
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
