"""Where tokens are kept."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringError

from lettaspace.errors import Damaged, StoreUnavailable
from lettaspace.remote import keeping as module
from lettaspace.remote.keeping import Keeping, read_private, write_private

DID = "did:web:mira.example"
SESSION = {"access": "a", "refresh": "r"}
KEPT = {"did": DID, **SESSION}


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.broken = False

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        del self.entries[service, username]

    def _check(self) -> None:
        if self.broken:
            raise KeyringError("locked, secret-token-text")


class Null(Ring):
    """Takes everything, and keeps nothing."""

    def get_password(self, service: str, username: str) -> str | None:  # noqa: ARG002
        return None


class Low(Ring):
    """What the library does not recommend, such as plain text in a file."""

    priority = 0.5


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    ring = Ring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    return ring


def test_without_a_keyring_there_is_a_private_file(home: Path) -> None:
    keeping = Keeping(home, DID)
    assert keeping.load() is None
    keeping.save(SESSION)
    assert keeping.load() == KEPT
    assert keeping.place == "file"
    mode = stat.S_IMODE((home / "session.json").stat().st_mode)
    assert mode == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    keeping.save({**SESSION, "access": "b"})
    assert keeping.load() == {**KEPT, "access": "b"}
    assert [each.name for each in home.iterdir()] == ["session.json"]
    keeping.forget()
    keeping.forget()
    assert keeping.load() is None
    assert list(home.iterdir()) == []


def test_where_there_is_a_keyring_there_is_no_file(home: Path, ring: Ring) -> None:
    keeping = Keeping(home, DID)
    keeping.save(SESSION)
    assert keeping.place == "keyring"
    assert not home.exists()
    assert keeping.load() == KEPT
    keeping.forget()
    assert keeping.load() is None
    assert ring.entries == {}


def test_each_home_and_each_account_has_an_entry_of_its_own(tmp_path: Path, ring: Ring) -> None:
    places = [Keeping(tmp_path / home, did) for home in ("one", "two") for did in (DID, DID + "2")]
    for number, keeping in enumerate(places):
        keeping.save({"number": number})
    assert len(ring.entries) == 4
    assert {service for service, _ in ring.entries} == {"lettaspace"}
    assert [kept["number"] for kept in map(Keeping.load, places) if kept] == [0, 1, 2, 3]
    places[0].forget()
    assert [each.load() is None for each in places] == [True, False, False, False]


@pytest.mark.parametrize("backend", [Null, Low])
def test_a_keyring_that_keeps_nothing_is_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, backend: type[Ring]
) -> None:
    ring = backend()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    keeping = Keeping(home, DID)
    keeping.save(SESSION)
    assert keeping.place == "file"
    assert keeping.load() == KEPT


def test_a_keyring_that_fails_gives_way_to_the_file(home: Path, ring: Ring) -> None:
    keeping = Keeping(home, DID)
    keeping.save({**SESSION, "access": "old"})
    ring.broken = True
    keeping.save(SESSION)
    assert keeping.load() == KEPT
    ring.broken = False  # what it has is older, and stays out of it
    assert keeping.load() == KEPT
    keeping.save({**SESSION, "access": "new"})
    assert keeping.load() == {**KEPT, "access": "new"}
    assert keeping.place == "file"


def test_a_locked_keyring_is_not_a_missing_session(home: Path, ring: Ring) -> None:
    keeping = Keeping(home, DID)
    keeping.save(SESSION)
    ring.broken = True
    with pytest.raises(StoreUnavailable) as caught:
        keeping.load()
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreUnavailable):
        keeping.forget()


def test_what_the_keyring_has_may_be_damaged(home: Path, ring: Ring) -> None:
    keeping = Keeping(home, DID)
    keeping.save(SESSION)
    for entry in ring.entries:
        ring.entries[entry] = "[1]"
    with pytest.raises(Damaged):
        keeping.load()


def test_the_file_of_another_account_is_not_this_ones(home: Path) -> None:
    Keeping(home, DID).save(SESSION)
    assert Keeping(home, DID + "2").load() is None


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_is_refused(home: Path, mode: int) -> None:
    keeping = Keeping(home, DID)
    keeping.save(SESSION)
    (home / "session.json").chmod(mode)
    with pytest.raises(StoreUnavailable, match="chmod 600"):
        keeping.load()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_session(home: Path, content: bytes) -> None:
    path = home / "session.json"
    write_private(path, {})
    path.write_bytes(content)
    with pytest.raises(Damaged) as caught:
        read_private(path)
    assert str(path) in str(caught.value)


def test_a_write_that_fails_leaves_what_was_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "session.json"
    write_private(path, {"number": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        write_private(path, {"number": 2})
    assert json.loads(path.read_text()) == {"number": 1}
    assert [each.name for each in home.iterdir()] == ["session.json"]


def test_one_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = Keeping(home, DID)
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(5):
            with keeping.locked():
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20

    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with (
        keeping.locked(),
        pytest.raises(StoreUnavailable, match="another process"),
        Keeping(home, DID).locked(),
    ):
        pass
