"""Sessions: who has signed in, and the tokens that say so.

A session is a row and lasts until it is ended or not refreshed for 90 days. Its access token is
good for two hours; its refresh token for one use, which replaces both. Whoever repeats a
refresh within a minute, because the answer was lost or another process did the same, gets the
same new tokens again. A refresh token that comes back later was in two hands: it ends the
session. Tokens are the host's own (HS256), so only their row is ever looked up.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import jwt
from sqlalchemy import Connection, Select, bindparam, delete, insert, select, update

from lettaspace.server import vault
from lettaspace.server.accounts import Account, State
from lettaspace.server.calls import RawHeaders
from lettaspace.server.errors import XrpcError
from lettaspace.server.tables import accounts, sessions
from lettaspace.space.database import Database
from lettaspace.space.statement import Statement

ACCESS_SECONDS: Final = 2 * 3600
REFRESH_SECONDS: Final = 90 * 24 * 3600
GRACE_SECONDS: Final = 60
"""How long a refresh may be repeated."""

ACCESS_TYPE: Final = "at+jwt"
REFRESH_TYPE: Final = "refresh+jwt"

_ALGORITHM = "HS256"
_LONGEST = 4096
_TOKENS = 2048

# As the reference names them; clients may look, this host has its own ways to know.
_SCOPE_OWN = "com.atproto.access"
_SCOPE_APP = "com.atproto.appPass"
_SCOPE_REFRESH = "com.atproto.refresh"


@dataclass(frozen=True, slots=True)
class Session:
    """Who calls, proven by an access token. The account's state is for the caller to look at."""

    id: str
    account: Account
    app_password: str | None
    """The name of the app password it was opened with, None for the account's own password."""

    @property
    def did(self) -> str:
        return self.account.did

    @property
    def is_app_password(self) -> bool:
        return self.app_password is not None

    def require_in_service(self) -> None:
        """Raises XrpcError, AccountTakedown, if the account is taken down."""
        if self.account.state == "takendown":
            raise XrpcError("AccountTakedown", "this account has been taken down")

    def require_own_password(self) -> None:
        """Raises XrpcError, InvalidToken, for a session of an app password."""
        if self.is_app_password:
            raise XrpcError("InvalidToken", "an app password may not do this")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a client keeps of a session."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)


class Sessions:
    """The sessions in a database, of the host `did`. `clock` gives seconds since 1970.

    All that is refused raises XrpcError: ExpiredToken for what was good once, InvalidToken for
    what never was, AccountTakedown.
    """

    def __init__(self, database: Database, did: str, clock: Callable[[], float]) -> None:
        self._database = database
        self._did = did
        self._clock = clock
        # A client sends one token many times, and checking it takes longer than finding its row.
        self._decoded = lru_cache(maxsize=_TOKENS)(self._decode)

    def open(self, account: Account, app_password: str | None = None) -> Tokens:
        """A new session, after a password was proven."""
        now = int(self._clock())
        session = Session(secrets.token_urlsafe(16), account, app_password)
        state = _State(secrets.token_urlsafe(16), now)
        with self._database.write() as connection:
            old = sessions.c.account == account.id, sessions.c.expires_at <= now
            connection.execute(delete(sessions).where(*old))
            connection.execute(
                insert(sessions).values(
                    id=session.id, account=account.id, app_password=app_password, **state.columns
                )
            )
        return self._tokens(session, state)

    def refresh(self, token: str) -> tuple[Session, Tokens]:
        """The session that a refresh token is of, and its new tokens."""
        claims = self._read(token, REFRESH_TYPE)
        now = int(self._clock())

        def work(connection: Connection) -> tuple[Session, _State | None]:
            row = _find(connection, _lock, claims)
            session = row.session
            session.require_in_service()
            own = sessions.c.id == session.id
            if row.token == claims["jti"]:
                state = _State(secrets.token_urlsafe(16), now)
                changed = {**state.columns, "replaced": row.token}
                connection.execute(update(sessions).where(own).values(changed))
            elif row.replaced == claims["jti"] and now <= row.refreshed_at + GRACE_SECONDS:
                state = _State(row.token, row.refreshed_at)
            else:
                connection.execute(delete(sessions).where(own))
                return session, None
            return session, state

        session, state = self._database.run(work)
        if state is None:
            raise XrpcError(
                "ExpiredToken", "this token was used before; the session has ended, sign in again"
            )
        return session, self._tokens(session, state)

    def read(self, token: str) -> Session:
        """The session that an access token is of."""
        claims = self._read(token, ACCESS_TYPE)
        with self._database.read() as connection:
            return _find(connection, _get, claims).session

    def end(self, token: str) -> None:
        """Ends the session that a refresh token is of, were it an old one. Twice is no error."""
        claims = self._read(token, REFRESH_TYPE, expired=True)
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.id == claims["sid"]))

    @cached_property
    def _secret(self) -> bytes:
        return vault.secret(self._database, "sessions")

    def _tokens(self, session: Session, state: "_State") -> Tokens:
        # The same state gives the same tokens, which is how a refresh can be repeated.
        claims = {"sub": session.did, "aud": self._did, "sid": session.id, "iat": state.since}
        access = {
            "scope": _SCOPE_APP if session.is_app_password else _SCOPE_OWN,
            **claims,
            "exp": state.since + ACCESS_SECONDS,
        }
        refresh = {"scope": _SCOPE_REFRESH, **claims, "jti": state.token, "exp": state.expiry}
        return Tokens(self._sign(ACCESS_TYPE, access), self._sign(REFRESH_TYPE, refresh))

    def _sign(self, typ: str, claims: dict[str, Any]) -> str:
        return jwt.encode(claims, self._secret, _ALGORITHM, headers={"typ": typ})

    def _read(self, token: str, typ: str, *, expired: bool = False) -> dict[str, Any]:
        try:
            found, claims = self._decoded(token)
        except jwt.InvalidTokenError:
            raise XrpcError("InvalidToken", "this is no token of this host") from None
        if found != typ:
            kind = "an access" if typ == ACCESS_TYPE else "a refresh"
            raise XrpcError("InvalidToken", f"this is not {kind} token")
        if claims["exp"] <= self._clock() and not expired:
            raise XrpcError("ExpiredToken", "this token has expired")
        return claims

    def _decode(self, token: str) -> tuple[object, dict[str, Any]]:
        """Type and claims of a token that this host has signed, whenever that was."""
        if len(token) > _LONGEST:
            raise jwt.InvalidTokenError
        read = jwt.decode_complete(
            token,
            self._secret,
            algorithms=[_ALGORITHM],
            audience=self._did,
            options={
                "require": ["sub", "sid", "exp"],
                "verify_exp": False,
                "verify_iat": False,
            },
        )
        return read["header"].get("typ"), read["payload"]


def bearer(headers: RawHeaders) -> str:
    """The token in `Authorization: Bearer …`. Raises XrpcError, AuthMissing or InvalidToken."""
    values = [value for name, value in headers if name == b"authorization"]
    if not values:
        raise XrpcError("AuthMissing", "sign in first: there is no Authorization header")
    scheme, _, token = values[0].decode("latin-1").partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token.strip(" ").isascii():
        raise XrpcError("InvalidToken", "the Authorization header is not one Bearer token")
    return token.strip(" ")


@dataclass(frozen=True, slots=True)
class _State:
    """What of a session a refresh changes."""

    token: str
    since: int

    @property
    def expiry(self) -> int:
        return self.since + REFRESH_SECONDS

    @property
    def columns(self) -> dict[str, Any]:
        return {"token": self.token, "refreshed_at": self.since, "expires_at": self.expiry}


class _Row(NamedTuple):
    """A session and its account, as `_get` reads them."""

    id: str
    account: int
    app_password: str | None
    token: str
    replaced: str | None
    refreshed_at: int
    did: str
    handle: str
    state: State
    created_at: int

    @property
    def session(self) -> Session:
        account = Account(self.account, self.did, self.handle, self.state, self.created_at)
        return Session(self.id, account, self.app_password)


def _query() -> "Select[Any]":
    tables = {**accounts.c, **sessions.c}  # of the two ids, the session's
    return (
        select(*(tables[name] for name in _Row._fields))
        .join_from(sessions, accounts)
        .where(sessions.c.id == bindparam("sid"), accounts.c.did == bindparam("sub"))
    )


_get = Statement(_query)
_lock = Statement(lambda: _query().with_for_update(of=sessions))


def _find(connection: Connection, statement: Statement, claims: dict[str, Any]) -> _Row:
    row = statement.one(connection, sid=claims["sid"], sub=claims["sub"])
    if row is None:
        raise XrpcError("ExpiredToken", "the session has ended; sign in again")
    return _Row(*row)
