"""What is remembered of tokens: those that may be used once and were, those that were revoked.

Both are tables, so they outlive the process and are the same for all processes of a host. A row
is kept until nothing could come of its loss; `clean` then removes it, whenever it likes.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from lettaspace.atproto.jwt import SKEW, Time
from lettaspace.atproto.tokens import MAX_ALPHA_CREDENTIAL
from lettaspace.server.tables import revoked, used
from lettaspace.space.database import Database
from lettaspace.space.statement import Statement, insert_new

REVOKED_SECONDS: Final = MAX_ALPHA_CREDENTIAL + 60
"""How long a revocation is kept: longer than any credential lives, whichever clock is right."""

_MARGIN = 60
"""Seconds that a used token is kept after its expiry; it is taken until `SKEW` after that."""

_LONGEST_KEY = 200

_use = insert_new(used)
_revoke = insert_new(revoked)
_is_revoked = Statement(
    lambda: select(revoked.c.expires_at).where(
        revoked.c.space == bindparam("space"), revoked.c.jti == bindparam("jti")
    )
)


class UsedTokens:
    """Implements `proof.Replays` for one kind of token, such as `delegation`."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database = database
        self._kind = kind

    def seen(self, iss: str, jti: str, exp: Time) -> bool:
        row = {
            "kind": self._kind,
            "issuer": _key(iss),
            "jti": _key(jti),
            "expires_at": int(exp) + SKEW + _MARGIN,
        }
        return self._database.run_together(lambda connection: _use.many(connection, [row])) == 0


class Revocations:
    """Implements `admission.Revocations`. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def revoked(self, space: str, jti: str) -> bool:
        with self._database.read() as connection:
            return _is_revoked.one(connection, space=_key(space), jti=_key(jti)) is not None

    def add(self, space: str, jtis: Iterable[str]) -> None:
        """The credentials of the space that have these ids are no longer good. Twice is no
        error."""
        expires_at = int(self._clock()) + REVOKED_SECONDS
        rows = [
            {"space": _key(space), "jti": _key(jti), "expires_at": expires_at}
            for jti in sorted(set(jtis))
        ]
        self._database.run(lambda connection: _revoke.many(connection, rows))


def clean(connection: Connection, now: float) -> None:
    """Removes what has expired, in a write transaction."""
    for table in (used, revoked):
        connection.execute(delete(table).where(table.c.expires_at <= int(now)))


def _key(text: str) -> str:
    """The text, or its hash where it is longer than a database's index takes."""
    if len(text) <= _LONGEST_KEY:
        return text
    return f"sha256 {sha256(text.encode()).hexdigest()}"
