"""Rules of our own for secrets: headers, connection strings, private keys, plain assignments.

The library that `secrets` builds on asks of a token that it look random, so that examples in
source code are not reported. What leaves a private store is another matter: here whatever has
the form of a token is one.

Each rule has needles, fixed strings with which a match begins, and looks only where one of
them stands, going on behind what it looked at. So a text takes time in proportion to its
length, and most texts take no more than the search for those strings.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias


class Span(NamedTuple):
    """Code points `start` up to `end` of a text are a secret of that kind."""

    start: int
    end: int
    kind: str


MARKER = re.compile(r"\[redacted: [a-z0-9][a-z0-9-]{0,63}\]")
"""What stands in a secret's place."""

NOT_STORED = "[not stored]"
"""What is stored in the place of an authentication header's value."""

AUTH_HEADERS = frozenset(
    {
        "api-key",
        "authorization",
        "cookie",
        "private-token",
        "proxy-authorization",
        "set-cookie",
        "x-access-token",
        "x-amz-security-token",
        "x-api-key",
        "x-auth-token",
        "x-goog-api-key",
    }
)
"""Names of headers whose value says who one is, in lower case."""


def is_placeholder(value: str) -> bool:
    """Whether a value stands for one that is filled in elsewhere, or was left out."""
    return value == NOT_STORED or _PLACEHOLDER.fullmatch(value) is not None


_PLACEHOLDER = re.compile(
    r"\s{0,8}(?:\$[{(].*|\$[A-Z_][A-Z0-9_]*|<[^<>]*>|\{[^{}]*\}|\{\{.*\}\}|%\(\w*\)s|%s"
    r"|[*.xX_-]{3,}|(?i:none|null|true|false|undefined))\s{0,8}"
)


_PLAIN = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+-]{5,24}Z?"
    r"|(?:[a-z]{1,16}-){0,4}[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


def is_plain(text: str) -> bool:
    """Whether a text is a datetime, or an id made of a UUID: what most short strings are."""
    return len(text) < 128 and _PLAIN.fullmatch(text) is not None


_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]*+={0,2}\s*")


def is_base64(text: str) -> bool:
    """Whether a text is base64 of the standard alphabet, and nothing else."""
    return _BASE64.fullmatch(text) is not None


def find(text: str) -> Iterator[Span]:
    """What the rules find, in no order; spans may overlap."""
    yield from _tokens(text)
    for needles, look in _RULES:
        yield from _where(text, text, needles, look)
    lower = text.lower()
    if not any(gate in lower for gate in _GATES):
        return
    if len(lower) != len(text):  # a few letters become two
        lower = re.sub("[A-Z]+", lambda letters: letters[0].lower(), text)
    for needles, look in _FOLDED_RULES:
        yield from _where(text, lower, needles, look)


_Look: TypeAlias = Callable[[str, int, int], tuple[Span | None, int]]
"""Looks where a needle stands, `at` up to `end`: what is there, and where to go on."""


def _where(text: str, source: str, needles: Iterable[str], look: _Look) -> Iterator[Span]:
    for needle in needles:
        at = source.find(needle)
        while at >= 0:
            span, end = look(text, at, at + len(needle))
            if span is not None:
                yield span
            at = source.find(needle, end)


# Provider tokens, by what they begin with.

_FORMS = {
    "github-pat": r"gh[opsur]_[A-Za-z0-9]{20,}+",
    "github-fine-grained-pat": r"github_pat_\w{22,}+",
    "gitlab-pat": r"gl(?:pat|ptt|dt|rt|cbt|ft)-[\w-]{20,}+",
    "aws-access-token": r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}(?!\w)",
    "api-key": r"sk-(?:ant|proj|or|svcacct|admin|let|lf)-[\w-]{8,}+|sk-[A-Za-z0-9]{20,}+"
    r"|(?:gsk_|xai-|pplx-|r8_|ntn_|lin_api_)[A-Za-z0-9]{20,}+|(?:figd_|tskey-)[\w-]{20,}+"
    r"|(?:AIza|GOCSPX-)[\w-]{20,}+",
    "hugging-face-token": r"hf_[A-Za-z0-9]{30,}+",
    "npm-token": r"npm_[A-Za-z0-9]{36,}+",
    "telegram-token": r"(?<=[0-9]:)AA[\w-]{33}(?![\w-])",
    "pypi-token": r"pypi-AgE[\w-]{40,}+",
    "slack-token": r"xox[abeoprs][-.][\w.-]{10,}+|xapp-[\w-]{10,}+",
    "stripe-key": r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9]{20,}+",
    "jwt": r"eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]{8,}+",
}
_TOKEN = re.compile(
    "|".join(f"(?P<{kind.replace('-', '_')}>{form})" for kind, form in _FORMS.items()), re.ASCII
)
_RUN = re.compile(r"(?<![\w-])[\w-]{15,}+", re.ASCII)


def _tokens(text: str) -> Iterator[Span]:
    at = 0
    while run := _RUN.search(text, at):
        start = run.end() - len(run[0].lstrip("-_"))
        # A line break that is written as an escape is no part of the word.
        if text[start - 1 : start + 1] in _ESCAPES:
            start += 1
        token = _TOKEN.match(text, start)
        if token:
            yield Span(*token.span(), (token.lastgroup or "").replace("_", "-"))
        at = max(run.end(), token.end() if token else 0)


_ESCAPES = frozenset({"\\n", "\\r", "\\t"})

# Headers: `Name: value` in a log, `-H 'Name: value'`, `"name": "value"` in JSON or in code.

_QUOTE = r"\\{0,7}[\"'`]"
_VALUE = r"[^\s\"'`\\,;<>\[\](){}]*+"
_HEADER = re.compile(
    rf"""
    (?:{_QUOTE})?[ \t]{{0,8}}(?::|=>?|,(?=[ \t]{{0,8}}{_QUOTE}))[ \t]{{0,8}}
    \[?(?P<quote>{_QUOTE})?
    (?:(?P<scheme>[a-z][a-z0-9-]{{1,30}})[ \t]{{1,8}}(?=[a-z0-9+/_~.%=-]))?
    (?P<value>[a-z0-9+/_~.%=-]{_VALUE})
    """,
    re.IGNORECASE | re.VERBOSE | re.ASCII,
)
_SCHEMES = frozenset(
    {"api-key", "apikey", "basic", "bearer", "bot", "dpop", "key", "negotiate", "ntlm", "token"}
)
_LIST_SCHEMES = frozenset({"aws4-hmac-sha256", "digest", "hawk", "oauth", "signature"})
_NO_VALUES = _SCHEMES | _LIST_SCHEMES | AUTH_HEADERS
_WORDS = frozenset({"api-key", "authorization"})
"""Names that stand before a colon in prose, too."""
_COOKIES = frozenset({"cookie", "set-cookie"})
_COOKIE = re.compile(r"[^\s=;,\"'`\\]{1,256}=[^\s=]")
_IN_NAME = re.compile(r"(?<![\w-])(?<!//)|(?<=\\[nrt])", re.ASCII)
_LIKELY = re.compile(r"(?=\S{0,64}[0-9])\S{8}|\S{20}")
_VALUE_END = re.compile(r"[\r\n\"'`\\]")
_LINE_END = re.compile(r"[\r\n]|\\[rn]")


def _header(text: str, at: int, end: int) -> tuple[Span | None, int]:
    match = _HEADER.match(text, end) if _IN_NAME.match(text, at) else None
    if match is None:
        return None, end
    name, scheme = text[at:end].lower(), (match["scheme"] or "").lower()
    start, stop = match.span("value")
    if name in _COOKIES:
        start = match.start("scheme") if scheme else start
        if not _COOKIE.match(text, start) or "=" in text[end : match.start("value")]:
            return None, end
        stop = _end(_VALUE_END, text, start)
    elif scheme in _LIST_SCHEMES:
        stop = _end(_LINE_END, text, stop)
    else:
        is_sure = match["quote"] is not None or scheme in _SCHEMES or name not in _WORDS
        if match["value"].lower() in _NO_VALUES or not (is_sure or _LIKELY.match(match["value"])):
            return None, stop
        if scheme and scheme not in _SCHEMES:
            start = match.start("scheme")
        if match["quote"] is not None:
            stop = _end(_VALUE_END, text, stop)
    return (None if is_placeholder(text[start:stop]) else Span(start, stop, name)), stop


def _end(edge: re.Pattern[str], text: str, start: int) -> int:
    match = edge.search(text, start)
    return match.start() if match else len(text)


_BEARER = re.compile(r"(?=[\w.~+/-]{0,64}[0-9])[\w.~+/-]{16,}+={0,2}", re.ASCII)


def _bearer(text: str, at: int, end: int) -> tuple[Span | None, int]:
    match = _BEARER.match(text, end) if _IN_NAME.match(text, at) else None
    return (Span(*match.span(), "authorization"), match.end()) if match else (None, end)


# Connection strings: only the password of `scheme://user:password@host`.

_CONNECTION = re.compile(
    r"[^\s:/@\"'`\\<>?#\[\]]{0,256}:"
    r"(?P<password>(?!\$[{(]|\$[A-Z_]+@|\{|\*+@|%[({s])[^\s/\"'`\\<>]{1,256})@(?=[\w\[$%{.-])",
)


def _connection(text: str, at: int, end: int) -> tuple[Span | None, int]:
    match = _CONNECTION.match(text, end) if text[at - 1 : at].isalnum() else None
    if match is None:
        return None, end
    return Span(*match.span("password"), "connection-password"), match.end()


# Private keys: from the header to the end line; without one, as far as it looks like a key.

_KEY_BEGIN = re.compile(r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_KEY_EDGE = re.compile(r"-{4,5} ?(?P<edge>BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_KEY_LINE = re.compile(
    r"(?:[ \t]|\\[nrt]|[\r\n]){1,64}"
    r"(?:[0-9]{0,6}[^A-Za-z0-9+/=\r\n\\]{1,4})?"
    r"(?:(?:Proc-Type|DEK-Info|Comment|Version): [^\r\n\\]{0,200}"
    r"|[A-Za-z0-9+/=]{16,}+"
    r"|[A-Za-z0-9+/=]{1,15}(?=[ \t]{0,8}(?:[\r\n\"'`]|\\[nr]|\Z)))"
)


_LONGEST_KEY = 1 << 16


def _private_key(text: str, at: int, end: int) -> tuple[Span | None, int]:
    begin = _KEY_BEGIN.match(text, end)
    if begin is None:
        return None, end
    while at > 0 and text[at - 1] == "-" and end - at < 11:
        at -= 1
    edge = _KEY_EDGE.search(text, begin.end(), begin.end() + _LONGEST_KEY)
    if edge is not None and edge["edge"] == "END":
        stop = edge.end()
    else:
        stop = begin.end()
        while line := _KEY_LINE.match(text, stop):
            stop = line.end()
    return Span(at, stop, "private-key"), stop


# Assignments: `api_key = "…"`, `PASSWORD=…`, if the value looks like one.

_ASSIGNMENT = re.compile(
    rf"""
    (?:{_QUOTE})?[ \t]{{0,8}}(?:=>|:=|[:=])[ \t]{{0,8}}
    (?P<quote>{_QUOTE})?(?P<value>{_VALUE})(?P<after>[\s\"'`\\,;)\]}}]|\Z)
    """,
    re.VERBOSE,
)
_NAME_CHAIN = re.compile(r"[A-Za-z_]\w*(?:[.:/-]+[A-Za-z_]\w*)*\.?", re.ASCII)
_APP_PASSWORD = re.compile(r"[a-z2-7]{4}(?:-[a-z2-7]{4}){3}")
_EXAMPLE = re.compile(r"(?i)example|change_?me|placeholder|your[_-]|xxxx")


def _assignment(kind: str, shortest: int) -> _Look:
    def look(text: str, _at: int, end: int) -> tuple[Span | None, int]:
        match = _ASSIGNMENT.match(text, end)
        if match is None:
            return None, end
        value, stop = match["value"], match.end("value")
        is_quoted = match["quote"] is not None
        is_closed = match["after"] != "" and match["after"] in "\"'`\\"
        if len(value) < shortest or is_quoted != is_closed or not _is_made_up(value, is_quoted):
            return None, stop
        return Span(*match.span("value"), kind), stop

    return look


def _is_made_up(value: str, is_quoted: bool) -> bool:
    """Whether a value is neither a word, nor a name in a program, nor an example."""
    head = value[:256]
    digits = sum(character.isdigit() for character in head)
    if _APP_PASSWORD.fullmatch(head):
        return True
    if len(set(head)) < 6 or digits == len(head) or "://" in head:
        return False
    if is_placeholder(head) or _EXAMPLE.search(head):
        return False
    if _NAME_CHAIN.fullmatch(head):
        return digits >= (8 if "." in head else 1 if is_quoted else 4)
    return digits > 0


_RULES: tuple[tuple[tuple[str, ...], _Look], ...] = (
    (("://",), _connection),
    (("----BEGIN ", "---- BEGIN "), _private_key),
)
"""Needles, and what looks where one of them stands."""

_FOLDED_RULES: tuple[tuple[tuple[str, ...], _Look], ...] = (
    (tuple(sorted(AUTH_HEADERS)), _header),
    (("bearer ",), _bearer),
    (("password", "passwd", "passphrase", "_pwd"), _assignment("password", 8)),
    (
        (
            "api_key", "api-key", "apikey", "secret_key", "secret-key", "secretkey", "access_key",
            "accesskey", "account_key", "accountkey", "_token", "-token", "accesstoken",
            "authtoken", "refreshtoken", "apitoken", "_secret", "-secret", "clientsecret",
        ),
        _assignment("api-key", 16),
    ),
)  # fmt: skip
"""The same without regard to letter case."""

_GATES = ("auth", "bearer ", "cookie", "key", "pass", "_pwd", "secret", "token")
"""A text without any of them has no match for the second kind."""
