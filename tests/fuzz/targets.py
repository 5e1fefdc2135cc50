"""Addresses to fetch from: everybody reads the host in them that was checked."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx

from lettaspace.atproto import dpop
from lettaspace.errors import InvalidInput
from lettaspace.network.addresses import is_loopback, is_public
from lettaspace.network.fetching import _join
from lettaspace.network.targets import FetchError, parse
from tests.fuzz.texts import outcome, text

WORDS = (
    *(b"https://", b"http://", b"host.example", b":443", b":8443", b"localhost", b"[::1]", b"@"),
    *(b"127.0.0.1", b"0x7f.1", b"[::ffff:7f00:1]", b"%2e", b"\\", b"//", b"?", b"#", b"..", b"\t"),
)


def fuzz_targets(given: bytes) -> None:
    url = text(given)
    for development in (False, True):
        target, _ = outcome(lambda d=development: parse(url, development=d), FetchError)
        if target is None:
            continue
        assert parse(f"{target.origin}{target.path}", development=development) == target
        for host, port in (
            (urlsplit(url).hostname, urlsplit(url).port),
            (httpx.URL(url).raw_host.decode(), httpx.URL(url).port),
        ):
            assert host == target.host.strip("[]")
            assert (port or (443 if target.scheme == "https" else 80)) == target.port
        if not development:
            assert target.scheme == "https"
            assert not target.host.rpartition(".")[2].isdigit()
    outcome(lambda: _join("https://host.example/a", url), FetchError)
    named, _ = outcome(lambda: dpop.target(url), InvalidInput)
    assert named is None or dpop.target(named) == named
    try:
        address = ip_address(url)
    except ValueError:
        return
    assert not (is_public(address) and is_loopback(address))
    if is_public(address):
        assert address.is_global or address.version == 6
