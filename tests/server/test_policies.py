"""Settings of a space: what is taken, what is refused, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from lettaspace.server.errors import XrpcError
from lettaspace.server.policies import (
    MAX_ALLOWED,
    AppAccess,
    ManagingApp,
    MemberList,
    Public,
    Settings,
    access,
    is_service,
    policy,
)
from tests.server.parties import DEFS, MEMBERS, OPEN, PUBLIC, managed_by, only


@pytest.mark.parametrize(
    ("form", "meant"),
    [
        (PUBLIC, Public()),
        (MEMBERS, MemberList()),
        (managed_by("did:web:app.example"), ManagingApp("did:web:app.example")),
        (managed_by("did:web:app.example#x"), ManagingApp("did:web:app.example#x")),
        # What comes later in a policy that is known does not change what it means.
        (PUBLIC | {"note": "hello"}, Public()),
    ],
)
def test_policies(form: dict[str, Any], meant: Any) -> None:
    assert policy(form) == meant
    assert policy(meant.form) == meant


@pytest.mark.parametrize(
    "form",
    [
        {"$type": "org.example.defs#publicPolicy"},
        {"$type": DEFS + "secretPolicy"},
        {"$type": DEFS.rstrip("#")},
        {"$type": "publicPolicy"},
        OPEN,
        managed_by("app.example"),
        managed_by("https://app.example"),
        managed_by("did:web:app.example#"),
        managed_by("did:web:app.example#a#b"),
        managed_by(""),
    ],
)
def test_policies_that_are_refused(form: dict[str, Any]) -> None:
    with pytest.raises(XrpcError, match="UnsupportedPolicy"):
        policy(form)


def test_access_for_apps() -> None:
    assert access(OPEN) == AppAccess()
    assert access(OPEN).admits(None)
    assert access(OPEN).admits("https://app.example/client")
    listed = access(only("https://app.example/client", "https://app.example/client"))
    assert listed.allowed == ("https://app.example/client",)
    assert access(listed.form) == listed
    assert listed.admits("https://app.example/client")
    # Exactly, and one that does not say who it is is nobody.
    for other in ("https://app.example/client/", "https://APP.example/client", "", None):
        assert not listed.admits(other)
    assert not access(only()).admits(None)


@pytest.mark.parametrize(
    "form",
    [
        PUBLIC,
        {"$type": DEFS + "closed"},
        only(*map(str, range(MAX_ALLOWED + 1))),
        only("x" * 3000),
    ],
)
def test_access_that_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(XrpcError, match="UnsupportedAppAccess"):
        access(form)


def test_settings_are_kept_and_replaced_one_by_one() -> None:
    settings = Settings(Public(), ManagingApp("did:web:app.example"), AppAccess(("x",)))
    assert Settings.of(**settings.columns) == settings
    assert settings.changed({}) == settings
    changed = settings.changed({"writePolicy": MEMBERS, "appAccess": OPEN})
    assert changed == Settings(Public(), MemberList(), AppAccess())
    assert changed.form == {"readPolicy": PUBLIC, "writePolicy": MEMBERS, "appAccess": OPEN}


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("did:web:app.example", True),
        ("did:web:app.example#notify", True),
        ("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa#a", True),
        ("app.example", False),
        ("did:web:app.example#", False),
        ("did:web:app.example#a b", False),
        ("did:web:app.example#é", False),
        ("#notify", False),
        ("", False),
        (None, False),
        ("did:web:app.example#" + "x" * 3000, False),
    ],
)
def test_services(text: object, valid: bool) -> None:
    assert is_service(text) is valid
