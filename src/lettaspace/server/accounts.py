"""Whose repos are here: accounts, their states, passwords and signing keys."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal, TypeAlias, cast, get_args

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from lettaspace.atproto.keys import Curve, SigningKey
from lettaspace.atproto.syntax import is_did, is_handle
from lettaspace.errors import Conflict, InvalidInput, NotFound
from lettaspace.server import passwords
from lettaspace.server.tables import accounts, app_passwords, sessions
from lettaspace.space.database import Database
from lettaspace.space.statement import Statement

State: TypeAlias = Literal["active", "deactivated", "takendown"]

STATES: tuple[State, ...] = get_args(State)

MAX_NAME = 64
"""Characters of an app password's name."""

_NOBODYS = frozenset(
    ("alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion", "test")
)
"""Top-level domains that no handle has (handle spec)."""

_FOR_DEVELOPMENT = frozenset(("localhost", "test"))


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this host, as it was when it was looked up."""

    id: int
    did: str
    handle: str
    state: State
    created_at: int
    """Seconds since 1970."""

    @property
    def is_active(self) -> bool:
        return self.state == "active"


@dataclass(frozen=True, slots=True)
class AppPassword:
    """An app password, by its name; nobody knows it any more."""

    name: str
    privileged: bool
    created_at: int


@dataclass(frozen=True, slots=True)
class Proven:
    """Whose password it was, and which one: an app password, or None for the account's own."""

    account: Account
    app_password: str | None


_columns = [accounts.c[each.name] for each in fields(Account)]


def _look_up(name: str) -> Statement:
    """The account whose DID or handle is `name`, and what is kept of its password."""
    where = accounts.c[name] == bindparam("name")
    return Statement(lambda: select(*_columns, accounts.c.password).where(where))


_by_did, _by_handle = _look_up("did"), _look_up("handle")

_all = Statement(lambda: select(*_columns).order_by(accounts.c.handle))

_get_key = Statement(
    lambda: select(accounts.c.key_type, accounts.c.key).where(accounts.c.did == bindparam("did"))
)


class Accounts:
    """The accounts in a database. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def add(self, handle: str, did: str, *, password: str, key: SigningKey) -> Account:
        """A new account, active. The handle must have passed `check_handle`.

        Raises Conflict if the handle or the DID has an account, InvalidInput.
        """
        if not is_did(did):
            raise InvalidInput("not a DID")
        row = {
            "did": did,
            "handle": handle,
            "password": passwords.keep(password),
            "key": key.to_bytes(),
            "key_type": key.curve,
            "state": "active",
            "created_at": int(self._clock()),
        }
        try:
            with self._database.write() as connection:
                connection.execute(insert(accounts).values(row))
        except IntegrityError:
            raise Conflict(f"{handle} or {did} has an account here already") from None
        return self.get(did)

    def all(self) -> list[Account]:
        """By handle."""
        with self._database.read() as connection:
            return [Account(*row) for row in _all.all(connection)]

    def by_did(self, did: str) -> Account | None:
        return self._find(did) if is_did(did) else None

    def by_handle(self, handle: str) -> Account | None:
        return self._find(handle) if is_handle(handle) else None

    def get(self, name: str) -> Account:
        """By DID, or by handle, with or without an @. Raises NotFound."""
        account = self._find(name)
        if account is None:
            raise NotFound(f"no account is called {name!r}")
        return account

    def set_state(self, account: Account, state: State) -> None:
        """Raises InvalidInput for a state that there is not."""
        if state not in STATES:
            raise InvalidInput(f"a state is one of {', '.join(STATES)}")
        change = update(accounts).where(accounts.c.id == account.id).values(state=state)
        with self._database.write() as connection:
            connection.execute(change)

    def signing_key(self, did: str) -> SigningKey:
        """What signs in this account's name. Raises NotFound."""
        with self._database.read() as connection:
            row = _get_key.one(connection, did=did)
        if row is None:
            raise NotFound(f"no account is called {did!r}")
        return _key(*row)

    def set_key(self, account: Account, key: SigningKey) -> None:
        """What is signed from now on, its key signs; with the one before, nothing holds."""
        values = {"key": key.to_bytes(), "key_type": key.curve}
        with self._database.write() as connection:
            connection.execute(update(accounts).where(accounts.c.id == account.id).values(values))

    def sign_out(self, account: Account | None) -> int:
        """Ends all sessions of an account, or of all, and returns how many there were."""
        query = delete(sessions)
        if account is not None:
            query = query.where(sessions.c.account == account.id)
        with self._database.write() as connection:
            return connection.execute(query).rowcount

    # Passwords

    def set_password(self, account: Account, password: str) -> None:
        """Ends the sessions that were opened with the one before."""
        kept = passwords.keep(password)
        own = sessions.c.app_password.is_(None)
        with self._database.write() as connection:
            connection.execute(
                update(accounts).where(accounts.c.id == account.id).values(password=kept)
            )
            connection.execute(delete(sessions).where(sessions.c.account == account.id, own))

    def prove(self, name: str, password: str) -> Proven | None:
        """Whose password this is, if it is one of that account's.

        Takes the same time whether or not there is such an account. Slow on purpose: not for
        an event loop.
        """
        with self._database.read() as connection:
            account, kept = _find(connection, name) or (None, None)
            if account is not None and passwords.is_app_password(password):
                found = connection.execute(
                    select(app_passwords.c.name).where(
                        app_passwords.c.account == account.id,
                        app_passwords.c.hash == passwords.keep_app_password(account.did, password),
                    )
                ).scalar()
                if found is not None:
                    return Proven(account, found)
        if not passwords.matches(password, kept):
            return None
        return None if account is None else Proven(account, None)

    def add_app_password(self, account: Account, name: str, *, privileged: bool = False) -> str:
        """A new one, which is not to be had again.

        Raises Conflict if one has this name, InvalidInput for a name that is none.
        """
        if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
            raise InvalidInput(f"the name of an app password has 1 to {MAX_NAME} characters")
        password = passwords.new_app_password()
        row = {
            "account": account.id,
            "name": name,
            "hash": passwords.keep_app_password(account.did, password),
            "privileged": privileged,
            "created_at": int(self._clock()),
        }
        try:
            with self._database.write() as connection:
                connection.execute(insert(app_passwords).values(row))
        except IntegrityError:
            raise Conflict("there is an app password of this name") from None
        return password

    def app_passwords(self, account: Account) -> list[AppPassword]:
        """By name."""
        query = (
            select(app_passwords.c.name, app_passwords.c.privileged, app_passwords.c.created_at)
            .where(app_passwords.c.account == account.id)
            .order_by(app_passwords.c.name)
        )
        with self._database.read() as connection:
            return [AppPassword(*row) for row in connection.execute(query)]

    def remove_app_password(self, account: Account, name: str) -> bool:
        """Ends its sessions, too. False if there was none of that name."""
        with self._database.write() as connection:
            connection.execute(
                delete(sessions).where(
                    sessions.c.account == account.id, sessions.c.app_password == name
                )
            )
            gone = connection.execute(
                delete(app_passwords).where(
                    app_passwords.c.account == account.id, app_passwords.c.name == name
                )
            )
            return gone.rowcount > 0

    def _find(self, name: str) -> Account | None:
        with self._database.read() as connection:
            found = _find(connection, name)
        return None if found is None else found[0]


def _find(connection: Connection, name: str) -> tuple[Account, str] | None:
    """The account of this name and what is kept of its password."""
    if is_did(name):
        row = _by_did.one(connection, name=name)
    elif is_handle(handle := _bare(name)):
        row = _by_handle.one(connection, name=handle.lower())
    else:
        row = None
    return None if row is None else (Account(*row[:-1]), row[-1])


def check_handle(text: str, *, development: bool = False) -> str:
    """The handle in its normal form. Raises InvalidInput.

    In development it may end in `.localhost` or `.test`, which never leave a machine.
    """
    handle = _bare(text).lower()
    if not is_handle(handle):
        raise InvalidInput("a handle is a domain name, such as mira.example.com")
    top = handle.rpartition(".")[2]
    if top in _NOBODYS and not (development and top in _FOR_DEVELOPMENT):
        raise InvalidInput(f"a handle cannot end in .{top}")
    return handle


def _bare(handle: str) -> str:
    return handle.removeprefix("@")


@lru_cache(maxsize=256)
def _key(curve: str, secret: bytes) -> SigningKey:
    # Making the object of it takes longer than finding the row.
    return SigningKey.from_bytes(cast(Curve, curve), secret)
