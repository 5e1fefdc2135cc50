"""How directories stood when they and the records last said the same."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, Text

revision = "0004"
down_revision = "0003"

_Id = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        return
    op.create_table(
        "synced",
        Column("repo", _Id, primary_key=True),
        Column("directory", Text, primary_key=True),
        Column("key", Text, primary_key=True),
        Column("name", Text, nullable=False),
        Column("derived", Text, nullable=False),
        Column("mark", Text, nullable=False),
        Column("revs", Text, nullable=False),
        Column("size", BigInteger, nullable=False),
        Column("base", Text, nullable=False),
    )
