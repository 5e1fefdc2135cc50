"""The host's own tables, beside those of `space.schema` in the same database.

Made and migrated by `prepare`, with a history of their own. All times are whole seconds since
1970. The migrations under `migrations/` create these tables; a test holds the two together.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    text,
)

from lettaspace.errors import StoreUnavailable
from lettaspace.space.database import Database

REVISION = "0001"
"""The newest migration."""

VERSION_TABLE = "server_version"

metadata = MetaData()

_Id = BigInteger().with_variant(Integer, "sqlite")
# Keys are ASCII and sorted by their bytes, as SQLite does anyway.
_Key = Text().with_variant(Text(collation="C"), "postgresql")


def _account() -> Column[int]:
    return Column("account", _Id, ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)


accounts = Table(
    "accounts",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("did", _Key, nullable=False, unique=True),
    Column("handle", _Key, nullable=False, unique=True),
    # What argon2 makes of the password.
    Column("password", Text, nullable=False),
    # The private signing key, 32 bytes, and its curve.
    Column("key", LargeBinary, nullable=False),
    Column("key_type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

app_passwords = Table(
    "app_passwords",
    metadata,
    _account(),
    Column("name", Text, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    Column("privileged", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# A session lasts over all its refreshes; both of its tokens name it.
sessions = Table(
    "sessions",
    metadata,
    Column("id", _Key, primary_key=True),
    Column("account", _Id, ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False),
    # The app password it was opened with; null for the account's own.
    Column("app_password", Text),
    # The refresh token that is to be used next, and the one it took the place of.
    Column("token", _Key, nullable=False),
    Column("replaced", _Key),
    Column("refreshed_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("sessions_account", "account"),
    Index("sessions_expires", "expires_at"),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", _Key, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

# What was removed with an account, for good.
removals = Table(
    "removals",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("did", _Key, nullable=False),
    Column("handle", _Key, nullable=False),
    # Names and numbers, JSON.
    Column("what", Text, nullable=False),
    Column("removed_at", BigInteger, nullable=False),
)

# Spaces whose authority is an account here. A deleted one stays as a tombstone.
spaces = Table(
    "spaces",
    metadata,
    Column("uri", _Key, primary_key=True),
    Column("authority", _Key, nullable=False),
    Column("type", _Key, nullable=False),
    Column("skey", _Key, nullable=False),
    # JSON objects of the simplespace lexicon.
    Column("read_policy", Text, nullable=False),
    Column("write_policy", Text, nullable=False),
    Column("app_access", Text, nullable=False),
    # The newest space revision, a TID; null before the first write.
    Column("space_rev", _Key),
    Column("created_at", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
    UniqueConstraint("authority", "type", "skey"),
)

members = Table(
    "members",
    metadata,
    Column("space", _Key, primary_key=True),
    Column("did", _Key, primary_key=True),
    Column("read", Boolean, nullable=False),
    Column("write", Boolean, nullable=False),
)

# Who writes into a space of an account here, and the newest that is known of each.
writers = Table(
    "writers",
    metadata,
    Column("space", _Key, primary_key=True),
    Column("did", _Key, primary_key=True),
    Column("repo_rev", _Key, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("space_rev", _Key, nullable=False),
    Index("writers_space_rev", "space", "space_rev", unique=True),
)

# Services that are told of writes.
registrations = Table(
    "registrations",
    metadata,
    Column("space", _Key, primary_key=True),
    Column("service", _Key, primary_key=True),
    Column("expires_at", BigInteger, nullable=False),
)

# Tokens that may be used once, and were.
used = Table(
    "used",
    metadata,
    Column("kind", _Key, primary_key=True),
    Column("issuer", _Key, primary_key=True),
    Column("jti", _Key, primary_key=True),
    Column("expires_at", BigInteger, nullable=False),
    Index("used_expires", "expires_at"),
)

# Credentials that an authority took back.
revoked = Table(
    "revoked",
    metadata,
    Column("space", _Key, primary_key=True),
    Column("jti", _Key, primary_key=True),
    Column("expires_at", BigInteger, nullable=False),
    Index("revoked_expires", "expires_at"),
)

# Writes that an authority elsewhere is still to be told of: of each repo, the newest one.
outbox = Table(
    "outbox",
    metadata,
    Column("space", _Key, primary_key=True),
    Column("repo", _Key, primary_key=True),
    Column("rev", _Key, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("next_at", BigInteger, nullable=False),
    Column("deadline", BigInteger, nullable=False),
    # Until then one process has it.
    Column("leased_until", BigInteger),
    Index("outbox_next", "next_at"),
)

# Which blobs an account has uploaded: those it may refer to.
uploads = Table(
    "uploads",
    metadata,
    _account(),
    Column("cid", LargeBinary, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("mime", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

_MIGRATION_LOCK = 0x6C65747461686F  # any number that nobody else takes


def prepare(database: Database) -> None:
    """Makes or migrates the host's tables where needed. Raises StoreUnavailable for those of a
    newer version."""
    with database.read() as connection:
        if _revision(connection) == REVISION:
            return
    from lettaspace.server.migrations import upgrade  # Alembic takes long to import

    with database.write() as connection:
        if connection.dialect.name == "postgresql":  # SQLite has one writer anyway
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        current = _revision(connection)
        if current is None:
            _refuse_others(connection, database.name)
        upgrade(connection, current, database.name)


def is_host(connection: Connection) -> bool:
    """Whether a database has a host's tables."""
    return _revision(connection) is not None


def _refuse_others(connection: Connection, store: str) -> None:
    for name in inspect(connection).get_table_names():
        if name in metadata.tables:
            raise StoreUnavailable(f"{store} has a table {name} that is not lettaspace's")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()  # noqa: S608
    return None if found is None else str(found)
