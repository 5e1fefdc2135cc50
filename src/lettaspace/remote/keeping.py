"""Where a session's tokens are kept: in the platform's keyring, else in a private file.

What is kept is one JSON object, by home and account. The keyring is used where there is one
that keeps anything, which it is asked to prove; the file, `session.json` of the home, has mode
0600 and is replaced as a whole. Where there is a file, it counts and the keyring is not asked.

    with keeping.locked():      # one process at a time
        tokens = keeping.load()
"""

import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from lettaspace.errors import Damaged, StoreUnavailable

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SESSION_FILE: Final = "session.json"
LOCK_FILE: Final = "session.lock"
SERVICE: Final = "lettaspace"
"""What the keyring's entries are filed under."""

PATIENCE: Final = 60.0
"""Seconds to wait for another process, which may be talking to the host."""


class Keeping:
    """The place of one account's tokens at one home."""

    def __init__(self, home: Path, did: str) -> None:
        self.home = home
        self.did = did
        self._file = home / SESSION_FILE
        # Two homes of one account have a session each, and none may end the other's.
        where = sha256(str(home.absolute()).encode(errors="surrogatepass")).hexdigest()
        self._entry = f"{did} {where[:16]}"

    @property
    def place(self) -> Literal["file", "keyring"]:
        """Where the tokens are."""
        return "file" if self._file.exists() else "keyring"

    def load(self) -> dict[str, Any] | None:
        """What was saved last; None if there is nothing of this account.

        Raises StoreUnavailable if it cannot be read now, or could be by others, and Damaged.
        """
        if self._file.exists():
            kept = read_private(self._file)
            return kept if kept.get("did") == self.did else None
        keyring = _keyring()
        if keyring is None:
            return None
        try:
            text = keyring.get_password(SERVICE, self._entry)
        except Exception as error:  # backends raise what their platform does
            raise _unavailable(error) from None
        if text is None:
            return None
        found = _object(text)
        if found is None:
            raise Damaged("what the keyring has for this account is no session")
        return found

    def save(self, session: dict[str, Any]) -> None:
        """Keeps this instead, durably. Raises StoreUnavailable."""
        session = {"did": self.did, **session}
        if not self._file.exists() and self._into_keyring(json.dumps(session)):
            return
        write_private(self._file, session)

    def forget(self) -> None:
        """Keeps nothing of this account any more. Raises StoreUnavailable."""
        remove_private(self._file)
        keyring = _keyring()
        if keyring is None:
            return
        try:
            if keyring.get_password(SERVICE, self._entry) is not None:
                keyring.delete_password(SERVICE, self._entry)
        except Exception as error:
            raise _unavailable(error) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes, and other threads, out of the block.

        Raises StoreUnavailable if they don't leave for `PATIENCE` seconds.
        """
        from filelock import FileLock, Timeout

        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = FileLock(self.home / LOCK_FILE, timeout=PATIENCE, mode=0o600)
            lock.acquire()
        except Timeout:
            raise StoreUnavailable(
                f"another process holds {self.home / LOCK_FILE} for too long"
            ) from None
        except OSError as error:
            raise StoreUnavailable(
                f"cannot lock {self.home / LOCK_FILE}: {error.strerror or error}"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _into_keyring(self, text: str) -> bool:
        """Whether the keyring took it, and has it."""
        keyring = _keyring()
        if keyring is None:
            return False
        try:
            keyring.set_password(SERVICE, self._entry, text)
            return keyring.get_password(SERVICE, self._entry) == text
        except Exception:
            return False


class InMemory:
    """Keeps tokens for as long as it is not certain that they are to be kept."""

    def __init__(self, did: str, session: dict[str, Any]) -> None:
        self.did = did
        self._session = session

    def load(self) -> dict[str, Any] | None:
        return self._session

    def save(self, session: dict[str, Any]) -> None:
        self._session = session

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()


def write_private(path: Path, value: dict[str, Any]) -> None:
    """Puts JSON into a file that its owner alone may read: all of it, or the old one stays.

    On the disk when this returns. Raises StoreUnavailable.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(value, indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
            _sync_directory(path.parent)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {path}: {error.strerror or error}") from None


def read_private(path: Path) -> dict[str, Any]:
    """The JSON object in a file that its owner alone may read.

    Raises StoreUnavailable, also where others may read it, and Damaged.
    """
    try:
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise StoreUnavailable(f"{path} can be read by others; run: chmod 600 '{path}'")
        text = path.read_text()
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror or error}") from None
    value = _object(text)
    if value is None:
        raise Damaged(f"{path} does not hold what it should")
    return value


def remove_private(path: Path) -> None:
    """Removes a file, if there is one. Raises StoreUnavailable."""
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            _sync_directory(path.parent)
    except OSError as error:
        raise StoreUnavailable(f"cannot remove {path}: {error.strerror or error}") from None


def _keyring() -> "KeyringBackend | None":
    """The platform's keyring; None where there is none that keeps anything."""
    import keyring

    try:
        backend = keyring.get_keyring()
        # The library's own bound for what it recommends: below are those that always fail,
        # keep nothing, or write plain text.
        return backend if backend.priority >= 1 else None
    except Exception:
        return None


def _unavailable(error: Exception) -> StoreUnavailable:
    # What backends say may hold anything, so only the kind is told.
    return StoreUnavailable(f"the keyring cannot be used now ({type(error).__name__})")


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if type(value) is dict else None


def _sync_directory(path: Path) -> None:
    if os.name != "posix":
        return
    with suppress(OSError):  # some file systems cannot
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
