"""Who may see the viewer, and what browsers are told."""

from __future__ import annotations

import socket

import httpx
import pytest

from lettaspace.errors import InvalidInput, StoreUnavailable
from lettaspace.viewer.guard import Hosts, is_loopback
from lettaspace.viewer.server import bind
from tests.viewer.conftest import TOKEN, Running
from tests.waiting import SECONDS

PATHS = (
    "/",
    "/agents",
    "/search?q=celadon",
    "/usage",
    "/live",
    "/record?uri=at://x",
    "/static/style.css",
    "/static/viewer.js",
    "/c/3mgmzct4q5gka",
    "/c/nothing",
    "/nothing",
    "/static/nothing",
    "/static/../app.py",
)


def raw(running: Running, request: str) -> bytes:
    """What is answered to a request as it stands."""
    with socket.create_connection(("127.0.0.1", running.bound.port), timeout=SECONDS) as connection:
        request += "\nConnection: close\n\n"
        connection.sendall(request.replace("\n", "\r\n").encode())
        connection.settimeout(SECONDS)
        answer = b""
        while b"</html>" not in answer and (some := connection.recv(65536)):
            answer += some
    return answer


@pytest.mark.parametrize("path", PATHS)
def test_without_the_cookie_everything_is_as_if_it_did_not_exist(demo: Running, path: str) -> None:
    answer = httpx.get(demo.base + path, timeout=SECONDS)
    missing = demo.get("/there/is/no/such/page")
    assert (answer.status_code, answer.text) == (404, missing.text)
    same = {key: value for key, value in answer.headers.items() if key != "date"}
    assert same == {key: value for key, value in missing.headers.items() if key != "date"}


def test_the_first_address_gives_a_cookie_and_leads_on(demo: Running) -> None:
    answer = httpx.get(f"{demo.base}/search?q=a%26b&token={TOKEN}&thinking=1", timeout=SECONDS)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/search?q=a%26b&thinking=1"
    cookie = answer.headers["set-cookie"]
    assert f"lettaspace-{demo.bound.port}=" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie


@pytest.mark.parametrize("token", ["", "x", TOKEN + "x", TOKEN[:-1], "é", "%ff%00"])
def test_another_token_gives_nothing(demo: Running, token: str) -> None:
    answer = httpx.get(f"{demo.base}/?token={token}", timeout=SECONDS)
    assert answer.status_code == 404
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "///evil.example"])
def test_the_first_address_never_leads_elsewhere(demo: Running, path: str) -> None:
    answer = raw(demo, f"GET {path}?token={TOKEN} HTTP/1.1\nHost: 127.0.0.1:{demo.bound.port}")
    assert b" 303 " in answer.splitlines()[0]
    location = next(
        line for line in answer.splitlines() if line.lower().startswith(b"location:")
    ).partition(b": ")[2]
    assert location.startswith(b"/")
    assert location[1:2] not in (b"/", b"\\")


@pytest.mark.parametrize(
    "cookie", ["", "nonsense", "lettaspace-1=x", 'a="; lettaspace', "\xff=\xfe"]
)
def test_any_other_cookie_is_none(demo: Running, cookie: str) -> None:
    answer = httpx.get(demo.base, headers={"Cookie": cookie.encode("latin-1")}, timeout=SECONDS)
    assert answer.status_code == 404


def known(demo: Running) -> str:
    return "; ".join(f"{name}={value}" for name, value in demo.browser.cookies.items())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:PORT"}, 200),
        ({"Host": "LOCALHOST:PORT"}, 200),
        ({"Host": "[::1]:PORT"}, 200),
        ({"Host": "evil.example"}, 404),
        ({"Host": "evil.example:PORT"}, 404),
        ({"Host": "127.0.0.1.evil.example:PORT"}, 404),
        ({"Host": "127.0.0.1:1"}, 404),
        ({"Host": "127.0.0.1"}, 404),
        ({"Host": "0.0.0.0:PORT"}, 404),
        ({"Host": "127.0.0.1:PORT:PORT"}, 404),
        ({"Host": "127.0.0.1:٣"}, 404),
        ({"Origin": "http://127.0.0.1:PORT"}, 200),
        ({"Origin": "http://evil.example"}, 404),
        ({"Origin": "http://127.0.0.1:1"}, 404),
        ({"Origin": "null"}, 404),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 404),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 404),
    ],
)
def test_only_what_is_meant_for_this_server_is_answered(
    demo: Running, headers: dict[str, str], status: int
) -> None:
    sent = {key: value.replace("PORT", str(demo.bound.port)) for key, value in headers.items()}
    raw_headers = {key: value.encode() for key, value in sent.items()}
    answer = httpx.get(
        f"{demo.base}/agents",
        headers={"Cookie": known(demo).encode()} | raw_headers,
        timeout=SECONDS,
    )
    assert answer.status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_pages_are_only_read(demo: Running, method: str) -> None:
    assert demo.browser.request(method, demo.base).status_code == 404


@pytest.mark.parametrize("path", [*PATHS[:4], *PATHS[6:]])
def test_every_answer_carries_the_policy(demo: Running, path: str) -> None:
    headers = demo.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["img-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_a_server_for_all_addresses_answers_to_numbers_and_its_names() -> None:
    hosts = Hosts("0.0.0.0", 7430, ["box.home"])
    for host in ("127.0.0.1:7430", "192.168.1.7:7430", "[fe80::1]:7430", "Box.Home:7430"):
        assert hosts.allows(host), host
    for host in (
        "evil.example:7430",
        "192.168.1.7",
        "box.home:80",
        "",
        ":",
        "[::1",
        "1.2.3.4.5:7430",
    ):
        assert not hosts.allows(host), host


def test_loopback_is_told_from_the_rest() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("192.168.1.7")
    assert not is_loopback("example.com")


def test_a_port_that_is_taken_is_said_or_passed_over() -> None:
    taken = bind("127.0.0.1", 0)
    try:
        with pytest.raises(StoreUnavailable, match=r"cannot listen on 127\.0\.0\.1"):
            bind("127.0.0.1", taken.port)
    finally:
        taken.socket.close()
    first = bind("127.0.0.1")
    second = bind("127.0.0.1")
    try:
        assert first.port != second.port
    finally:
        first.socket.close()
        second.socket.close()


def test_what_is_no_address_is_said() -> None:
    with pytest.raises(InvalidInput, match="no address"):
        bind("no such host at all", 0)


def test_answers_on_the_socket_are_not_held_back() -> None:
    bound = bind("127.0.0.1", 0)
    assert bound.socket.proto == socket.IPPROTO_TCP
    bound.socket.close()


def test_the_address_to_open_is_one_that_leads_here() -> None:
    bound = bind("0.0.0.0", 0)
    try:
        assert bound.url("t") == f"http://127.0.0.1:{bound.port}/?token=t"
    finally:
        bound.socket.close()
