"""The host's first tables."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    Text,
    UniqueConstraint,
    text,
)

revision = "0001"
down_revision = None

_Id = BigInteger().with_variant(Integer, "sqlite")
_Key = Text().with_variant(Text(collation="C"), "postgresql")


def _account() -> Column[int]:
    return Column("account", _Id, ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)


def upgrade() -> None:
    op.create_table(
        "accounts",
        Column("id", _Id, primary_key=True),
        Column("did", _Key, nullable=False, unique=True),
        Column("handle", _Key, nullable=False, unique=True),
        Column("password", Text, nullable=False),
        Column("key", LargeBinary, nullable=False),
        Column("key_type", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
    )
    op.create_table(
        "app_passwords",
        _account(),
        Column("name", Text, primary_key=True),
        Column("hash", LargeBinary, nullable=False),
        Column("privileged", Boolean, nullable=False),
        Column("created_at", BigInteger, nullable=False),
    )
    op.create_table(
        "sessions",
        Column("id", _Key, primary_key=True),
        Column("account", _Id, ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False),
        Column("app_password", Text),
        Column("token", _Key, nullable=False),
        Column("replaced", _Key),
        Column("refreshed_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
    )
    op.create_index("sessions_account", "sessions", ["account"])
    op.create_index("sessions_expires", "sessions", ["expires_at"])
    op.create_table(
        "secrets",
        Column("name", _Key, primary_key=True),
        Column("value", LargeBinary, nullable=False),
    )
    op.create_table(
        "removals",
        Column("id", _Id, primary_key=True),
        Column("did", _Key, nullable=False),
        Column("handle", _Key, nullable=False),
        Column("what", Text, nullable=False),
        Column("removed_at", BigInteger, nullable=False),
    )
    op.create_table(
        "spaces",
        Column("uri", _Key, primary_key=True),
        Column("authority", _Key, nullable=False),
        Column("type", _Key, nullable=False),
        Column("skey", _Key, nullable=False),
        Column("read_policy", Text, nullable=False),
        Column("write_policy", Text, nullable=False),
        Column("app_access", Text, nullable=False),
        Column("space_rev", _Key),
        Column("created_at", BigInteger, nullable=False),
        Column("deleted_at", BigInteger),
        UniqueConstraint("authority", "type", "skey"),
    )
    op.create_table(
        "members",
        Column("space", _Key, primary_key=True),
        Column("did", _Key, primary_key=True),
        Column("read", Boolean, nullable=False),
        Column("write", Boolean, nullable=False),
    )
    op.create_table(
        "writers",
        Column("space", _Key, primary_key=True),
        Column("did", _Key, primary_key=True),
        Column("repo_rev", _Key, nullable=False),
        Column("hash", LargeBinary, nullable=False),
        Column("space_rev", _Key, nullable=False),
    )
    op.create_index("writers_space_rev", "writers", ["space", "space_rev"], unique=True)
    op.create_table(
        "registrations",
        Column("space", _Key, primary_key=True),
        Column("service", _Key, primary_key=True),
        Column("expires_at", BigInteger, nullable=False),
    )
    op.create_table(
        "used",
        Column("kind", _Key, primary_key=True),
        Column("issuer", _Key, primary_key=True),
        Column("jti", _Key, primary_key=True),
        Column("expires_at", BigInteger, nullable=False),
    )
    op.create_index("used_expires", "used", ["expires_at"])
    op.create_table(
        "revoked",
        Column("space", _Key, primary_key=True),
        Column("jti", _Key, primary_key=True),
        Column("expires_at", BigInteger, nullable=False),
    )
    op.create_index("revoked_expires", "revoked", ["expires_at"])
    op.create_table(
        "outbox",
        Column("space", _Key, primary_key=True),
        Column("repo", _Key, primary_key=True),
        Column("rev", _Key, nullable=False),
        Column("hash", LargeBinary, nullable=False),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("next_at", BigInteger, nullable=False),
        Column("deadline", BigInteger, nullable=False),
        Column("leased_until", BigInteger),
    )
    op.create_index("outbox_next", "outbox", ["next_at"])
    op.create_table(
        "uploads",
        _account(),
        Column("cid", LargeBinary, primary_key=True),
        Column("size", BigInteger, nullable=False),
        Column("mime", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
    )
