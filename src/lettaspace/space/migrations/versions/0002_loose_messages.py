"""An index of the messages that are compacted and that no summary lists."""

from alembic import op
from sqlalchemy import text

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        return
    op.create_index(
        "message_index_loose",
        "message_index",
        ["conversation", "place"],
        sqlite_where=text("active = 0 AND covered_by IS NULL"),
    )
