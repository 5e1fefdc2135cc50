"""Who is signed in at a home."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lettaspace.errors import Damaged, StoreUnavailable
from lettaspace.remote.account import Account
from lettaspace.remote.capabilities import Capabilities

KNOWN = Capabilities("signature", delegates=True, leaks_blobs=False)


@pytest.fixture
def account(home: Path) -> Account:
    return Account(
        home, "did:web:mira.example", "mira.example", "https://host.example", "oauth", False, KNOWN
    )


def test_nobody(home: Path) -> None:
    assert Account.load(home) is None


def test_kept_as_it_was(home: Path, account: Account) -> None:
    account.save()
    assert Account.load(home) == account
    assert stat.S_IMODE((home / "account.json").stat().st_mode) == 0o600
    assert account.name == "mira.example"


def test_forgotten_with_its_tokens(home: Path, account: Account) -> None:
    account.save()
    account.keeping.save({"access": "a", "refresh": "r"})
    (home / "space.db").write_bytes(b"the space")
    account.forget()
    account.forget()
    assert Account.load(home) is None
    assert [each.name for each in home.iterdir()] == ["space.db"]


@pytest.mark.parametrize(
    "change",
    [
        {"did": "mira"},
        {"did": None},
        {"handle": "no handle"},
        {"handle": 3},
        {"host": None},
        {"auth": "telepathy"},
        {"auth": ["oauth"]},
        {"loopback": 0},
        {"capabilities": None},
    ],
)
def test_a_file_that_is_damaged(home: Path, account: Account, change: dict[str, Any]) -> None:
    account.save()
    path = home / "account.json"
    path.write_text(json.dumps(account.json() | change))
    with pytest.raises(Damaged, match="sign in again"):
        Account.load(home)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_file_that_others_may_read(home: Path, account: Account) -> None:
    account.save()
    (home / "account.json").chmod(0o644)
    with pytest.raises(StoreUnavailable, match="chmod 600"):
        Account.load(home)


def test_who_it_is_can_be_said_without_going_online(home: Path, account: Account) -> None:
    account.save()
    code = (
        "import sys; from pathlib import Path\n"
        "from lettaspace.remote.account import Account\n"
        "print(Account.load(Path(sys.argv[1])).did, *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(home)], capture_output=True, text=True, check=True
    )
    did, *modules = done.stdout.split()
    assert did == account.did
    assert not {"httpx", "httpcore", "keyring", "requests", "filelock"} & set(modules)
