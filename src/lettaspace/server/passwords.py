"""Passwords: made, kept and compared.

An account's own password is anything that people choose, so it is kept as argon2id makes it,
at a cost. App passwords are made here, `xxxx-xxxx-xxxx-xxxx` with 80 random bits that nobody
guesses, so a plain hash keeps them just as well, and many of them cost nothing to compare.
"""

import hashlib
import re
import secrets
import threading
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from lettaspace.errors import InvalidInput
from lettaspace.server.errors import XrpcError

SHORTEST = 8
LONGEST = 256

# OWASP's recommendation for argon2id: 19 MiB, two passes. Some 20 ms of one core.
_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)

# However many sign in at once, memory, cores and threads are left for everybody else.
_at_once = threading.BoundedSemaphore(2)
_waiting = threading.BoundedSemaphore(4)

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_app_password = re.compile(rf"[{_ALPHABET}]{{4}}(?:-[{_ALPHABET}]{{4}}){{3}}").fullmatch


def new_password() -> str:
    """A random password."""
    return secrets.token_urlsafe(18)


def new_app_password() -> str:
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(4)) for _ in range(4))
    return "-".join(groups)


def is_app_password(text: str) -> bool:
    """Whether it has the form of one."""
    return _app_password(text) is not None


def keep(password: str) -> str:
    """What to store of an account's password. Raises InvalidInput for one of a bad length."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidInput(f"a password has {SHORTEST} to {LONGEST} characters")
    with _at_once:
        return _hasher.hash(password)


def matches(password: str, kept: str | None) -> bool:
    """Whether this is the password that was kept. With None it never is, after as much work.

    Raises XrpcError, NotEnoughResources, where too many are compared already.
    """
    if len(password) > LONGEST:
        password, kept = "", None
    if not _waiting.acquire(blocking=False):
        raise XrpcError("NotEnoughResources", "too many are signing in; try again in a moment")
    try:
        with _at_once:
            return _hasher.verify(kept or _nobodys(), password) and kept is not None
    except (Argon2Error, InvalidHashError):
        return False
    finally:
        _waiting.release()


def keep_app_password(did: str, password: str) -> bytes:
    """What to store of an account's app password."""
    return hashlib.sha256(f"lettaspace app password\0{did}\0{password}".encode()).digest()


@cache
def _nobodys() -> str:
    return _hasher.hash(secrets.token_urlsafe())
