"""How a host is reached, and what it is called by that."""

from __future__ import annotations

import pytest

from lettaspace.errors import InvalidInput
from lettaspace.server.config import Config


@pytest.mark.parametrize(
    ("origin", "did"),
    [
        ("https://host.example.com", "did:web:host.example.com"),
        ("https://host.example.com:8443", "did:web:host.example.com%3A8443"),
    ],
)
def test_origins(origin: str, did: str) -> None:
    config = Config(origin, "host.db")
    assert config.did == did
    assert config.origin == f"https://{config.netloc}"
    assert config.hostname == "host.example.com"


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:7480",
        "http://127.0.0.1:80080"[:-1],
        "http://mira.localhost:1",
        "https://x",
    ],
)
def test_origins_for_development(origin: str) -> None:
    assert Config(origin, "host.db", development=True).origin == origin
    with pytest.raises(InvalidInput):
        Config(origin, "host.db")


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "host.example.com",
        "https://",
        "https://host.example.com/",
        "https://host.example.com/path",
        "https://host.example.com?x",
        "https://host.example.com#x",
        "https://host.example.com:443",
        "https://host.example.com:x",
        "https://host.example.com:99999",
        "https://HOST.example.com",
        "HTTPS://host.example.com",
        "https://mira:secret@host.example.com",
        "https://host..example.com",
        "https://-host.example.com",
        "https://host_.example.com",
        "https://host.example.com\n",
        "https://hòst.example.com",
        "https://[::1]",
        "http://host.example.com",
        "http://localhost:80",
        "ftp://host.example.com",
        "ftp://localhost:7480",
    ],
)
def test_origins_that_are_none(origin: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Config(origin, "host.db", development=True)
    assert "secret" not in str(caught.value)


def test_its_representation_holds_no_password() -> None:
    config = Config("https://host.example.com", "postgresql://host:secret@db/host")
    assert "secret" not in repr(config)
