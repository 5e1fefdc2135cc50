"""The first schema."""

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


def upgrade() -> None:
    op.create_table(
        "repos",
        Column("id", _Id, primary_key=True),
        Column("space", _Key, nullable=False),
        Column("author", _Key, nullable=False),
        Column("rev", _Key),
        Column("set_hash", LargeBinary, nullable=False),
        UniqueConstraint("space", "author"),
    )
    op.create_table(
        "records",
        Column("id", _Id, primary_key=True),
        Column("repo", _Id, ForeignKey("repos.id"), nullable=False),
        Column("collection", _Key, nullable=False),
        Column("rkey", _Key, nullable=False),
        Column("cid", LargeBinary, nullable=False),
        Column("rev", _Key, nullable=False),
        Column("value", LargeBinary, nullable=False),
        UniqueConstraint("repo", "collection", "rkey"),
    )
    op.create_table(
        "ops",
        Column("repo", _Id, ForeignKey("repos.id"), primary_key=True),
        Column("rev", _Key, primary_key=True),
        Column("idx", Integer, primary_key=True),
        Column("collection", _Key, nullable=False),
        Column("rkey", _Key, nullable=False),
        Column("cid", LargeBinary),
        Column("prev", LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "blobs",
        Column("cid", LargeBinary, primary_key=True),
        Column("data", LargeBinary, nullable=False),
    )
    op.create_table(
        "blob_refs",
        Column("record", _Id, primary_key=True),
        Column("cid", LargeBinary, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index("blob_refs_cid", "blob_refs", ["cid"])
    if op.get_context().dialect.name == "sqlite":
        _create_embedded()
    else:
        _set_storage()


def _set_storage() -> None:
    # The set hash changes with every write and cannot be compressed. In its row it costs that
    # row; beside it, two rows more and their index. A new version finds room on the same page.
    op.execute("ALTER TABLE repos ALTER COLUMN set_hash SET STORAGE PLAIN")
    op.execute("ALTER TABLE repos SET (fillfactor = 50)")
    # Blobs are images or sealed: there is nothing to be compressed.
    op.execute("ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL")


def _create_embedded() -> None:
    """What the embedded library alone needs."""
    op.create_table(
        "message_conversations",
        Column("id", _Id, primary_key=True),
        Column("uri", Text, nullable=False, unique=True),
    )
    op.create_table(
        "message_index",
        Column("conversation", _Id, primary_key=True),
        Column("rkey", Text, primary_key=True),
        Column("record", _Id, primary_key=True),
        Column("seq", BigInteger, nullable=False),
        Column("place", BigInteger, nullable=False),
        Column("active", Boolean, nullable=False),
        Column("covered_by", Text),
        Column("in_window", Boolean, nullable=False),
        Column("summary", Boolean, nullable=False),
        Column("settles", Text),
        Column("created_at", Text, nullable=False),
        Column("updated_at", Text),
        sqlite_with_rowid=False,
    )
    op.create_index("message_index_window", "message_index", ["conversation", "in_window", "place"])
    op.create_index(
        "message_index_summaries",
        "message_index",
        ["conversation", "seq"],
        sqlite_where=text("summary = 1"),
    )
    op.create_index(
        "message_index_settles",
        "message_index",
        ["conversation", "settles", "seq"],
        sqlite_where=text("settles IS NOT NULL"),
    )
    op.create_table(
        "message_covers",
        Column("conversation", _Id, primary_key=True),
        Column("summary", Text, primary_key=True),
        Column("ordinal", Integer, primary_key=True),
        Column("covered", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("message_covers_covered", "message_covers", ["conversation", "covered"])
    op.create_table(
        "sources",
        Column("repo", _Id, primary_key=True),
        Column("directory", Text, primary_key=True),
        Column("key", Text, primary_key=True),
        Column("conversation", Text, nullable=False),
        Column("fingerprint", Text, nullable=False),
    )
    op.create_table(
        "append_keys",
        Column("conversation", _Id, primary_key=True),
        Column("key", Text, primary_key=True),
        Column("rkey", Text, nullable=False),
        Column("content", LargeBinary, nullable=False),
    )
    op.create_table(
        "search_text",
        Column("record", _Id, primary_key=True),
        Column("text", Text, nullable=False),
        Column("thinking", Text, nullable=False),
    )
    op.create_table("search_unreadable", Column("record", _Id, primary_key=True))
    op.create_table("search_progress", Column("indexed", _Id, primary_key=True))
    op.execute("INSERT INTO search_progress (indexed) VALUES (0)")
    op.execute(
        "CREATE VIEW search_indexed AS SELECT record, text, thinking FROM search_text "
        "WHERE record <= (SELECT indexed FROM search_progress)"
    )
    op.execute(
        "CREATE VIRTUAL TABLE search_trigrams USING fts5("
        "text, thinking, content = 'search_indexed', content_rowid = 'record', "
        "tokenize = 'trigram case_sensitive 1', detail = none, columnsize = 0)"
    )
