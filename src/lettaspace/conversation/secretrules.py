"""Rules of our own for secrets: headers, connection strings, private keys, plain assignments.

The library that `secrets` builds on asks of a token that it look random, so that examples in
source code are not reported. What leaves a private store is another matter: here whatever has
the form of a token is one.

Each rule has needles, one of which every match holds, so that most texts cost a few searches
for fixed strings. Every repetition in an expression is bounded.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """Code points `start` up to `end` of a text are a secret of that kind."""

    start: int
    end: int
    kind: str


MARKER = re.compile(r"\[redacted: [a-z0-9][a-z0-9-]{0,63}\]")
"""What stands in a secret's place."""

AUTH_HEADERS = frozenset(
    {
        "api-key",
        "authentication",
        "authorization",
        "cookie",
        "cookie2",
        "ocp-apim-subscription-key",
        "private-token",
        "proxy-authorization",
        "set-cookie",
        "set-cookie2",
        "x-access-token",
        "x-amz-security-token",
        "x-api-key",
        "x-auth-token",
        "x-csrf-token",
        "x-goog-api-key",
        "x-session-token",
    }
)
"""Names of headers whose value says who one is, in lower case."""


def find(text: str) -> Iterator[Span]:
    """What the rules find, in no order; spans may overlap."""
    lower = text.lower()
    for rule in _RULES:
        if any(needle in (lower if rule.folded else text) for needle in rule.needles):
            yield from rule.find(text)


def is_placeholder(value: str) -> bool:
    """Whether a value stands for one that is filled in elsewhere."""
    return not value.strip("*.xX_-") or _PLACEHOLDER.match(value) is not None


_PLACEHOLDER = re.compile(
    r"\s{0,8}(?:[<{$*]|%[({s]|\.\.\.|(?i:none|null|true|false|undefined|bearer)\s{0,8}$)"
)


_IDENTIFIER = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64}|[0-9a-fA-F]{128}|baf[a-z2-7]{56}"
)


def is_identifier(text: str) -> bool:
    """Whether a text is a UUID, a CID or a digest in hexadecimal, and nothing else."""
    return len(text) <= 128 and _IDENTIFIER.fullmatch(text) is not None


_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]*+={0,2}\s*")


def is_base64(value: object) -> bool:
    return isinstance(value, str) and _BASE64.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class _Rule:
    needles: tuple[str, ...]
    find: Callable[[str], Iterator[Span]]
    folded: bool = False
    """Whether the needles are looked for without regard to letter case."""


# Provider tokens, by what they begin with.

_TOKENS = {
    "github-token": r"gh[opsur]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{22,255}",
    "gitlab-token": r"gl(?:pat|ptt|dt|rt|cbt|ft)-[\w-]{20,255}",
    "aws-access-key": r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])",
    "api-key": r"sk-(?:(?:ant|proj|or|svcacct|admin|let|lf|live|test)-[\w-]{8,512})"
    r"|sk-[A-Za-z0-9]{20,255}"
    r"|gsk_[A-Za-z0-9]{20,255}|xai-[A-Za-z0-9]{20,255}|pplx-[A-Za-z0-9]{20,255}"
    r"|r8_[A-Za-z0-9]{20,255}|AIza[\w-]{30,255}|GOCSPX-[\w-]{20,255}|ntn_[A-Za-z0-9]{30,255}"
    r"|lin_api_[A-Za-z0-9]{20,255}|figd_[\w-]{20,255}|tskey-[a-z]{2,12}-[\w-]{16,255}",
    "stripe-key": r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,255}|whsec_[A-Za-z0-9+/=]{20,255}",
    "slack-token": r"xox[abeoprs]-[\w.-]{10,255}|xapp-[\w-]{10,255}",
    "hugging-face-token": r"hf_[A-Za-z0-9]{30,255}",
    "npm-token": r"npm_[A-Za-z0-9]{36,255}",
    "pypi-token": r"pypi-AgE[\w-]{40,512}",
    "telegram-token": r"[0-9]{8,10}:AA[\w-]{33}(?![\w-])",
    "jwt": r"eyJ[\w-]{8,4096}\.eyJ[\w-]{8,65536}\.[\w-]{8,4096}",
}
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    + "|".join(f"(?P<{kind.replace('-', '_')}>{form})" for kind, form in _TOKENS.items())
    + ")",
    re.ASCII,
)
_TOKEN_NEEDLES = (
    "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "glptt-", "gldt-", "glrt-",
    "glcbt-", "glft-", "AKIA", "ASIA", "ABIA", "ACCA", "sk-", "gsk_", "xai-", "pplx-", "r8_",
    "AIza", "GOCSPX-", "ntn_", "lin_api_", "figd_", "tskey-", "k_live_", "k_test_", "whsec_",
    "xox", "xapp-", "hf_", "npm_", "pypi-AgE", ":AA", "eyJ",
)  # fmt: skip


def _tokens(text: str) -> Iterator[Span]:
    for match in _TOKEN.finditer(text):
        yield Span(*match.span(), (match.lastgroup or "token").replace("_", "-"))


# Headers: `Name: value` in a log, `-H 'Name: value'`, `"name": "value"` in JSON or in code.

_QUOTE = r"\\{0,7}[\"'`]"
_BREAK = r"\s\"'`\\,;<>\[\](){}"
_HEADER = re.compile(
    rf"""
    (?<![\w-])
    (?P<name>{"|".join(sorted(map(re.escape, AUTH_HEADERS), key=len, reverse=True))})
    (?:{_QUOTE})?[ \t]{{0,8}}(?::|=>?|,(?=[ \t]{{0,8}}{_QUOTE}))[ \t]{{0,8}}
    \[?(?P<quote>{_QUOTE})?
    (?:(?P<scheme>[a-z][a-z0-9-]{{1,30}})[ \t]{{1,8}}(?!{MARKER.pattern}))?
    (?P<value>[a-z0-9+/_~.%=-][^{_BREAK}]{{0,8192}})
    (?P<rest>[^\r\n\"'`\\]{{0,8192}})
    """,
    re.IGNORECASE | re.VERBOSE | re.ASCII,
)
_SCHEMES = frozenset(
    {"api-key", "apikey", "basic", "bearer", "bot", "dpop", "key", "negotiate", "ntlm", "token"}
)
_LIST_SCHEMES = frozenset({"aws4-hmac-sha256", "digest", "hawk", "oauth", "signature"})
_COOKIES = frozenset({"cookie", "cookie2", "set-cookie", "set-cookie2"})
_VERY_LIKELY = re.compile(r"(?=[^\s]{0,64}[0-9])[^\s]{8,}|[^\s]{20,}")


def _headers(text: str) -> Iterator[Span]:
    for match in _HEADER.finditer(text):
        name, scheme = match["name"].lower(), (match["scheme"] or "").lower()
        start, end = match.span("value")
        if name in _COOKIES:
            if "=" not in text[start : match.end("rest")]:
                continue
            start, end = match.start("scheme") if scheme else start, match.end("rest")
        elif scheme in _LIST_SCHEMES:
            end = _line_end(text, match.end("value"))
        elif scheme and scheme not in _SCHEMES:
            # Prose, unless it is the whole of a quoted value.
            if match["quote"] is None:
                continue
            start, end = match.start("scheme"), match.end("rest")
        elif not scheme and match["quote"] is None and not _VERY_LIKELY.match(match["value"]):
            continue
        if not is_placeholder(text[start:end]):
            yield Span(start, end, name)


_LINE_END = re.compile(r"[\r\n]|\\[rn]")


def _line_end(text: str, start: int) -> int:
    match = _LINE_END.search(text, start, start + 8192)
    return match.start() if match else min(len(text), start + 8192)


# Connection strings: only the password of `scheme://user:password@host`.

_CONNECTION = re.compile(
    r"://[^\s:/@\"'`\\<>?#\[\]]{0,256}:"
    r"(?P<password>(?![$<{*]|%[({s])[^\s/\"'`\\<>]{1,256})@(?=[\w\[$%{.-])",
)


def _connections(text: str) -> Iterator[Span]:
    for match in _CONNECTION.finditer(text):
        yield Span(*match.span("password"), "connection-password")


# Private keys: from the header to the end line; without one, as far as it looks like a key.

_KEY_EDGE = re.compile(r"-{4,5} ?(?P<edge>BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_KEY_LINE = re.compile(
    r"(?:[ \t]|\\[nrt]|[\r\n]){1,64}"
    r"(?:[^A-Za-z0-9+/=\r\n\\]{1,4}|[0-9]{1,6}[^A-Za-z0-9+/=\r\n\\]{1,4})?"
    r"(?:(?:Proc-Type|DEK-Info|Comment|Version): [^\r\n\\]{0,200}"
    r"|[A-Za-z0-9+/=]{16,4096}"
    r"|[A-Za-z0-9+/=]{1,15}(?=[ \t]{0,8}(?:[\r\n\"'`]|\\[nr]|\Z)))"
)


def _private_keys(text: str) -> Iterator[Span]:
    begin: re.Match[str] | None = None
    for match in _KEY_EDGE.finditer(text):
        if match["edge"] == "BEGIN":
            if begin is not None:
                yield Span(begin.start(), _key_end(text, begin.end()), "private-key")
            begin = match
        elif begin is not None:
            yield Span(begin.start(), match.end(), "private-key")
            begin = None
    if begin is not None:
        yield Span(begin.start(), _key_end(text, begin.end()), "private-key")


def _key_end(text: str, at: int) -> int:
    while line := _KEY_LINE.match(text, at):
        at = line.end()
    return at


# Assignments: `api_key = "…"`, `PASSWORD=…`, if the value looks like one.

_ASSIGNMENT = re.compile(
    rf"""
    (?P<name>api[_-]?key|secret[_-]?key|client[_-]?secret|access[_-]?token|auth[_-]?token
       |refresh[_-]?token|api[_-]?token|app[_-]?password|secret[_-]?access[_-]?key
       |account[_-]?key|passphrase|password|passwd|_token|_secret|_pwd)
    (?:{_QUOTE})?[ \t]{{0,8}}(?:=>|:=|[:=])[ \t]{{0,8}}
    (?P<quote>{_QUOTE})?
    (?P<value>[^\s"'`\\,;()<>{{}}\[\]]{{8,512}})
    (?P<after>["'`\\]|[,;\s)}}\]]|\Z)
    """,
    re.IGNORECASE | re.VERBOSE | re.ASCII,
)
_CHAIN = re.compile(r"[A-Za-z_]\w*(?:[.:/-]+[A-Za-z_]\w*)*\.?", re.ASCII)
_EXAMPLE = re.compile(r"(?i)example|changeme|change_me|placeholder|your[_-]|xxxx|redacted")


def _assignments(text: str) -> Iterator[Span]:
    for match in _ASSIGNMENT.finditer(text):
        value = match["value"]
        is_password = "pass" in match["name"].lower() or match["name"].lower() == "_pwd"
        if (match["quote"] is None) == (match["after"] in "\"'`\\" and match["after"] != ""):
            continue
        if is_placeholder(value) or _EXAMPLE.search(value) or "://" in value:
            continue
        shortest = 8 if is_password else 16
        if _looks_made_up(value, quoted=match["quote"] is not None, shortest=shortest):
            kind = "password" if is_password else "api-key"
            yield Span(*match.span("value"), kind)


def _looks_made_up(value: str, *, quoted: bool, shortest: int) -> bool:
    """Whether a value is neither a word nor a name in a program."""
    digits = sum(character.isdigit() for character in value)
    letters = sum(character.isalpha() for character in value)
    if len(value) < shortest or not letters or len(set(value)) < 6:
        return False
    if _CHAIN.fullmatch(value):
        return digits >= (2 if quoted else 4) and "." not in value
    return digits > 0 or (quoted and shortest == 8)


_RULES = (
    _Rule(_TOKEN_NEEDLES, _tokens),
    _Rule(
        ("authori", "authentication", "cookie", "api-key", "-token", "subscription-key"),
        _headers,
        folded=True,
    ),
    _Rule(("://",), _connections),
    _Rule(("PRIVATE KEY",), _private_keys),
    _Rule(
        ("key", "secret", "token", "pass", "_pwd"),
        _assignments,
        folded=True,
    ),
)
