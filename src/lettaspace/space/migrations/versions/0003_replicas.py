"""What a host has of the repos in a store."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, Text

revision = "0003"
down_revision = "0002"

_Id = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        return
    op.create_table(
        "replicas",
        Column("repo", _Id, primary_key=True),
        Column("own", Boolean, nullable=False),
        Column("host", Text, nullable=False),
        Column("signing_key", Text),
        Column("rev", Text),
        Column("set_hash", LargeBinary, nullable=False),
        Column("pushed", Text),
        Column("synced_at", BigInteger),
        Column("problem", Text),
        Column("problem_since", BigInteger),
    )
    op.create_table(
        "mirror",
        Column("repo", _Id, primary_key=True),
        Column("collection", Text, primary_key=True),
        Column("rkey", Text, primary_key=True),
        Column("cid", LargeBinary, nullable=False),
        Column("said", LargeBinary),
        Column("said_before", LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "mirror_blobs",
        Column("repo", _Id, primary_key=True),
        Column("cid", LargeBinary, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "held",
        Column("repo", _Id, primary_key=True),
        Column("collection", Text, primary_key=True),
        Column("rkey", Text, primary_key=True),
        Column("reason", Text, nullable=False),
        sqlite_with_rowid=False,
    )
