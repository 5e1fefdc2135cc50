"""What is found in a text, and what is not."""

from __future__ import annotations

import argparse
import ast
import http.client
import subprocess
import sys
import tarfile
import typing
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lettaspace.conversation import secretrules
from lettaspace.conversation.secrets import Span, find_secrets, merged
from tests.waiting import SECONDS

# Put together here, so that whoever scans this repository finds nothing.
GITHUB = "ghp_" + "E" * 36
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----"
PEM_END = "-----END RSA " + "PRIVATE KEY-----"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def made(count: int, alphabet: str = LETTERS) -> str:
    """Characters that look random and are the same in every run."""
    random = Random(count)
    return "".join(random.choice(alphabet) for _ in range(count))


def found(text: str) -> list[str]:
    return [text[span.start : span.end] for span in find_secrets(text)]


TOKENS = {
    "github, not random": GITHUB,
    "github": "gho_" + made(36),
    "github fine-grained": "github_pat_" + made(22) + "_" + made(59),
    "gitlab": "glpat-" + made(20),
    "aws id": "AKIA" + made(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
    "openai": "sk-proj-" + made(48),
    "openai, older": "sk-" + made(48),
    "anthropic": "sk-ant-api03-" + made(93) + "AA",
    "openrouter": "sk-or-v1-" + made(64, "0123456789abcdef"),
    "slack": "xoxb-" + made(12, "0123456789") + "-" + made(24),
    "stripe": "sk_live_" + made(24),
    "google": "AIza" + made(35),
    "jwt": "eyJ" + made(20) + ".eyJ" + made(40) + "." + made(43),
    "jwt of one letter": "eyJ" + "A" * 20 + ".eyJ" + "A" * 40 + "." + "A" * 43,
    "npm": "npm_" + made(36),
    "pypi": "pypi-AgE" + made(80),
    "hugging face": "hf_" + made(34, LETTERS[:52]),
    "sendgrid": "SG." + made(22) + "." + made(43),
    "groq": "gsk_" + made(52),
    "digital ocean": "dop_v1_" + made(64, "0123456789abcdef"),
}


@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "it is {} here",
        "a\n{}\nb",
        "'{}'",
        '"{}"',
        "`{}`",
        "x={}&y=1",
        "({}),",
        "釉薬 {} 🏺",
        "a\\n{}",
    ],
)
def test_provider_tokens_are_found_whatever_stands_around_them(name: str, around: str) -> None:
    assert found(around.format(TOKENS[name])) == [TOKENS[name]]


IN_CONTEXT = [
    ("Authorization: Bearer {}", "TEST-000"),
    ("authorization: bearer {}", "abc"),
    ("Authorization: Basic {}", "dTpw"),
    ("Proxy-Authorization: Basic {}", "dTpw"),
    ("> Authorization: token {}\r\n> Accept: */*", "abc1"),
    ("curl -H 'Authorization: Bearer {}' https://example.org", "TEST-000"),
    ('{{"authorization": "Bearer {}", "accept": "x"}}', "TEST-000"),
    ('{{\\"Authorization\\": \\"Bearer {}\\"}}', "TEST-000"),
    ("headers = {{'Authorization': '{}'}}", "TEST 000"),
    ('req.setHeader("Authorization", "Bearer {}")', "TEST-000"),
    ("X-Api-Key: {}", "secretvalue"),
    ('{{"x-api-key":"{}"}}', "k1"),
    ("x-goog-api-key: {}", "AbC"),
    ("Cookie: {}", "sid=abc; theme=dark"),
    ("Set-Cookie: {}\nServer: x", "sid=abc; Path=/; HttpOnly"),
    ("Authorization: Digest {}\nHost: x", 'username="u", response="6629"'),
    ("{}", PEM),
    ("postgres://u:{}@h/db", "TEST"),
    ("mysql+aiomysql://user:{}@10.0.0.1:3306/db?x=y", "p@ss:w0rd"),
    ("git clone https://x-access-token:{}@example.org/a.git", "abc"),
    ("redis://:{}@localhost:6379/0", "hunter2"),
    ('api_key = "{}"', made(32)),
    ("MY_SERVICE_API_KEY={}\n", made(40)),
    ("export PASSWORD='{}'", "correct-h0rse"),
    ('"access_token": "{}"', made(24)),
    ("client_secret: {}", made(40)),
    ("app_password={}", "abcd-efgh-ijkl-mnop"),
    ("AWS_SECRET_ACCESS_KEY={}\n", made(39) + "/"),
]


@pytest.mark.parametrize(("text", "secret"), IN_CONTEXT)
def test_what_a_text_says_of_a_value_is_heard(text: str, secret: str) -> None:
    assert found(text.format(secret)) == [secret]


def test_o44_four_secrets_are_four_places() -> None:
    lines = [f"token {GITHUB}", "Authorization: Bearer TEST-000", PEM, "postgres://u:TEST@h/db"]
    text = "\n".join(lines)
    assert found(text) == [GITHUB, "TEST-000", PEM, "TEST"]
    assert len({span.kind for span in find_secrets(text)}) == 4
    assert found("\n".join(reversed(lines))) == ["TEST", PEM, "TEST-000", GITHUB]


def test_a_private_key_reaches_to_its_end_line() -> None:
    body = "\n".join(made(64) for _ in range(12))
    key = f"{PEM}\n{body}\n{PEM_END}"
    assert found(f"a {key} b") == [key]
    assert found("a " + key.replace("\n", "\\n") + " b") == [key.replace("\n", "\\n")]
    assert found("> " + key.replace("\n", "\n> ")) == [key.replace("\n", "\n> ")]


def test_a_private_key_without_its_end_line_reaches_as_far_as_it_looks_like_one() -> None:
    cut = f"{PEM}\nProc-Type: 4,ENCRYPTED\n\n{made(64)}\n{made(64)}\n{made(20)}"
    assert found(cut) == [cut]
    assert found(f"{cut}... [300 more]\nThe end, my friend.") == [cut]
    assert found(f"grep '{PEM}' notes.txt") == [PEM]
    numbered = f"1: {PEM}\n2: {made(64)}\n3: {made(64)}"
    assert found(numbered) == [numbered.removeprefix("1: ")]


HARMLESS = {
    "commits": "\n".join(f"{sha256(b'%d' % at).hexdigest()[:40]} message" for at in range(100)),
    "digests": "\n".join(f"sha256:{sha256(b'%d' % at).hexdigest()}" for at in range(100)),
    "uuids": "\n".join(str(UUID(int=Random(at).getrandbits(128))) for at in range(100)),
    "ids": "\n".join(
        f'{{"toolCallId":"call_{made(at)}","id":"msg_{made(at)}"}}' for at in range(9, 40)
    ),
    "image": "data:image/png;base64," + b64encode(Random(1).randbytes(30_000)).decode(),
    "base64 lines": "\n".join(b64encode(Random(at).randbytes(57)).decode() for at in range(99)),
    "integrity": "\n".join(
        f'"integrity": "sha512-{b64encode(Random(at).randbytes(64)).decode()}"' for at in range(50)
    ),
    "cids": "\n".join("bafyrei" + made(at, LETTERS[26:52] + "234567") for at in range(45, 53)),
    "connections": "postgres://localhost/db mysql://user@host:3306/db http://a.org:8080/x@y "
    "https://[::1]:80/ ssh://git@a.org:22/x postgresql://${USER}:${PASSWORD}@localhost/db",
    "placeholders": "Authorization: Bearer <token>\nAuthorization: Bearer $TOKEN\n"
    "Authorization: Bearer ${TOKEN}\n{'Authorization': f'Bearer {token}'}\n"
    "api_key = os.environ['API_KEY']\npassword = 'password'\nPASSWORD=$SECRET\n"
    "password: str = field()\ntoken: Optional[str] = None\napi_key=your_api_key_goes_here_1",
    "prose": "Authorization: required. The cookie: a biscuit. My password is in the safe; the "
    "api key, too. Basic authorization is described below. A bearer token identifies who holds it.",
    "public": "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQ\n-----END PUBLIC KEY-----\n"
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk5 me@example.org",
    "paths": "\n".join(f"/usr/lib/python3/{made(9)}/{made(12)}.py" for _ in range(50)),
    "etag": f'ETag: "{made(32)}"\nX-Request-Id: {made(32)}',
}


@pytest.mark.parametrize("name", HARMLESS)
def test_o43_what_only_looks_random_is_no_secret(name: str) -> None:
    assert found(HARMLESS[name]) == []


def test_source_code_is_not_full_of_secrets() -> None:
    modules = (argparse, ast, http.client, subprocess, tarfile, typing)
    sources = [Path(module.__file__).read_text() for module in modules]
    assert sum(map(len, sources)) > 500_000
    assert found("\n".join(sources)) == []


_TEXTS = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from([*TOKENS.values(), PEM, PEM_END, "[redacted: jwt]", "\0", "\ud800", "İ"]),
        st.sampled_from(["password=", "Authorization: ", "://u:", "@h", "\\", '"', "Cookie: a="]),
    ),
    max_size=8,
).map("".join)


@settings(deadline=None, max_examples=200)
@given(_TEXTS)
def test_spans_are_in_order_apart_within_the_text_and_outside_of_marks(text: str) -> None:
    last = 0
    for start, end, kind in find_secrets(text):
        assert last <= start < end <= len(text)
        assert secretrules.MARKER.fullmatch(f"[redacted: {kind}]")
        assert not secretrules.MARKER.search(text[start:end])
        last = end


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=40), st.sampled_from(sorted(TOKENS)), st.text(max_size=40))
def test_offsets_are_code_points(before: str, name: str, after: str) -> None:
    token = TOKENS[name]
    text = f"{before}\n{token}\n{after}"
    span = Span(len(before) + 1, len(before) + 1 + len(token), "")
    assert any(a <= span.start and span.end <= b for a, b, _ in find_secrets(text))


def test_overlapping_spans_become_one_and_marks_are_left_out() -> None:
    text = "abc[redacted: jwt]defghij"
    spans = [Span(0, 20, "a"), Span(1, 3, "b"), Span(19, 22, "c"), Span(24, 25, "d")]
    assert merged(text, spans) == [Span(0, 3, "a"), Span(18, 22, "a"), Span(24, 25, "d")]


HOSTILE = [
    PEM + "\n", "eyJ-", "eyJaaaaaaaa.eyJ", "sk-ant-", "://a:", "://a:b@", "a", "password=",
    "authorization: ", "cookie: a", "cookie:a=b;", "x-api-key:", '\\\\\\"', "bearer a/", "AKIA",
    "[redacted: jwt]", "{[", '{"a":', "-", "--BEGIN ", "api_key:'", " \t", GITHUB + " ",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_repetition_is_looked_at_once(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: how often a rule looks, and how far what it looked at reaches."""
    looked = [0]

    def counting(look: secretrules._Look) -> secretrules._Look:
        def counted(text: str, at: int, end: int) -> tuple[Span | None, int]:
            span, stop = look(text, at, end)
            assert stop >= end
            looked[0] += 1 + stop - at
            return span, stop

        return counted

    for rules in ("_RULES", "_FOLDED_RULES"):
        counted = tuple((needles, counting(look)) for needles, look in getattr(secretrules, rules))
        monkeypatch.setattr(secretrules, rules, counted)
    size = 2_000_000
    text = unit * (size // len(unit))
    find_secrets(text)
    assert looked[0] <= 8 * size


def test_nothing_is_loaded_before_a_text_is_looked_at() -> None:
    script = (
        "import sys, lettaspace.conversation.redaction, lettaspace.conversation.space\n"
        "assert not [name for name in sys.modules if 'kingfisher' in name]\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=SECONDS)
    assert done.returncode == 0
