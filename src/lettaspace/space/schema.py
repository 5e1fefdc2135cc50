"""The tables. All SQL that touches them is written with these objects.

`records` is the truth. `message_*` and `search_*` are projections: derived from records, and
rebuildable from them at any time. `ops` is the repo's log; `blobs` are kept by content.
The migrations under `migrations/` create these tables; a test holds the two together.
On PostgreSQL there are only those in `EVERYWHERE`.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    Table,
    Text,
    UniqueConstraint,
    text,
)

REVISION = "0004"
"""The newest migration. A store that says otherwise is migrated, or refused when newer."""

EMPTY_SET_HASH = bytes(2048)
"""The state of `sethash.SetHash` for a repo that was never written to."""

metadata = MetaData()

# SQLite only counts rows up by itself in a column that is exactly INTEGER.
_Id = BigInteger().with_variant(Integer, "sqlite")

# Keys, revisions and collections are ASCII and sorted by their bytes, as SQLite does anyway.
_Key = Text().with_variant(Text(collation="C"), "postgresql")

repos = Table(
    "repos",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("space", _Key, nullable=False),
    Column("author", _Key, nullable=False),
    Column("rev", _Key),
    Column("set_hash", LargeBinary, nullable=False),
    UniqueConstraint("space", "author"),
)

records = Table(
    "records",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("repo", _Id, ForeignKey("repos.id"), nullable=False),
    Column("collection", _Key, nullable=False),
    Column("rkey", _Key, nullable=False),
    Column("cid", LargeBinary, nullable=False),
    Column("rev", _Key, nullable=False),
    Column("value", LargeBinary, nullable=False),
    UniqueConstraint("repo", "collection", "rkey"),
)

record_ids = Sequence("records_id_seq")
"""On PostgreSQL, which makes it for the table's key."""

ops = Table(
    "ops",
    metadata,
    Column("repo", _Id, ForeignKey("repos.id"), primary_key=True),
    Column("rev", _Key, primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("collection", _Key, nullable=False),
    Column("rkey", _Key, nullable=False),
    Column("cid", LargeBinary),
    Column("prev", LargeBinary),
    sqlite_with_rowid=False,
)

blobs = Table(
    "blobs",
    metadata,
    Column("cid", LargeBinary, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

blob_refs = Table(
    "blob_refs",
    metadata,
    Column("record", _Id, primary_key=True),
    Column("cid", LargeBinary, primary_key=True),
    Index("blob_refs_cid", "cid"),
    sqlite_with_rowid=False,
)

EVERYWHERE = (repos, records, ops, blobs, blob_refs)
"""What a store has on any database. The rest serves the embedded library, in SQLite only."""

message_conversations = Table(
    "message_conversations",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("uri", Text, nullable=False, unique=True),
)

message_index = Table(
    "message_index",
    metadata,
    Column("conversation", _Id, primary_key=True),
    Column("rkey", Text, primary_key=True),
    Column("record", _Id, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    # Where the message stands: its seq, or for a summary the place of what it covers.
    Column("place", BigInteger, nullable=False),
    # The record's own status is not "compacted".
    Column("active", Boolean, nullable=False),
    # The rkey of the summary that lists it, whatever its own status says.
    Column("covered_by", Text),
    # Active, and listed by no summary.
    Column("in_window", Boolean, nullable=False),
    Column("summary", Boolean, nullable=False),
    # On a placeholder that settles a tool call: the call's id.
    Column("settles", Text),
    Column("created_at", Text, nullable=False),
    Column("updated_at", Text),
    Index("message_index_window", "conversation", "in_window", "place"),
    # Compacted, and listed by no summary: rare, and not to be looked for among all others.
    Index(
        "message_index_loose",
        "conversation",
        "place",
        sqlite_where=text("active = 0 AND covered_by IS NULL"),
    ),
    # Of all others the place is the seq, so the window's index tells it.
    Index("message_index_summaries", "conversation", "seq", sqlite_where=text("summary = 1")),
    Index(
        "message_index_settles",
        "conversation",
        "settles",
        "seq",
        sqlite_where=text("settles IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
)

message_covers = Table(
    "message_covers",
    metadata,
    Column("conversation", _Id, primary_key=True),
    Column("summary", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("covered", Text, nullable=False),
    Index("message_covers_covered", "conversation", "covered"),
    sqlite_with_rowid=False,
)

# What a harness's directory held when it was last brought in, so that an unchanged
# conversation costs a few stats. Local to this machine; never a record.
sources = Table(
    "sources",
    metadata,
    Column("repo", _Id, primary_key=True),
    Column("directory", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("conversation", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
)

# How an agent, a conversation or (key "") the whole of a harness's directory stood when the
# directory and the records here last said the same. Local to this machine; never a record.
synced = Table(
    "synced",
    metadata,
    Column("repo", _Id, primary_key=True),
    Column("directory", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    # The record's key; of the directory the repo's revision.
    Column("name", Text, nullable=False),
    # The conversation that the rows' TIDs derive from: a fork has those of what it left.
    Column("derived", Text, nullable=False),
    # What tells that files, and records, are as they were.
    Column("mark", Text, nullable=False),
    Column("revs", Text, nullable=False),
    # The size of messages.jsonl.
    Column("size", BigInteger, nullable=False),
    # What the small files said, as JSON.
    Column("base", Text, nullable=False),
)

# The keys under which messages were appended, so that a retried append is recognised.
append_keys = Table(
    "append_keys",
    metadata,
    Column("conversation", _Id, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("rkey", Text, nullable=False),
    # The CID of what was appended: role and payload.
    Column("content", LargeBinary, nullable=False),
)

# The repos here that a host has, too: how they stood there when it was last asked.
replicas = Table(
    "replicas",
    metadata,
    Column("repo", _Id, primary_key=True),
    # The one whose author writes here. The others are members' repos, which are only read.
    Column("own", Boolean, nullable=False),
    Column("host", Text, nullable=False),
    # The did:key that the author's commits are signed with.
    Column("signing_key", Text),
    # The host's revision and set hash, which are those of `mirror`; none while it is not known.
    Column("rev", Text),
    Column("set_hash", LargeBinary, nullable=False),
    # Up to which revision of our own all that is here is there.
    Column("pushed", Text),
    # When the two were last in sync (seconds since 1970), and what went wrong since then.
    Column("synced_at", BigInteger),
    Column("problem", Text),
    Column("problem_since", BigInteger),
)

# The records that the host of a replica has.
mirror = Table(
    "mirror",
    metadata,
    Column("repo", _Id, primary_key=True),
    Column("collection", Text, primary_key=True),
    Column("rkey", Text, primary_key=True),
    Column("cid", LargeBinary, nullable=False),
    # Of a message: a CID of what it says, wherever it stands; and of what it said before that.
    Column("said", LargeBinary),
    Column("said_before", LargeBinary),
    sqlite_with_rowid=False,
)

# The blobs that a host was given.
mirror_blobs = Table(
    "mirror_blobs",
    metadata,
    Column("repo", _Id, primary_key=True),
    Column("cid", LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)

# The records that a host has otherwise than we do, and why that stays so.
held = Table(
    "held",
    metadata,
    Column("repo", _Id, primary_key=True),
    Column("collection", Text, primary_key=True),
    Column("rkey", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    sqlite_with_rowid=False,
)

# The texts that search compares, case folded.
search_text = Table(
    "search_text",
    metadata,
    Column("record", _Id, primary_key=True),
    Column("text", Text, nullable=False),
    Column("thinking", Text, nullable=False),
)

# Messages whose text could not be read.
search_unreadable = Table(
    "search_unreadable",
    metadata,
    Column("record", _Id, primary_key=True),
)

# One row: up to which record the trigram index has the texts. Later ones are scanned.
search_progress = Table(
    "search_progress",
    metadata,
    Column("indexed", _Id, primary_key=True),
)

# The trigram index, in SQLite's own dialect (FTS5). Its content is the view `search_indexed`,
# the texts up to `search_progress`. The migration makes both, so they stand outside
# `metadata`. The column of the table's own name takes commands.
search_trigrams = Table(
    "search_trigrams",
    MetaData(),
    Column("rowid", _Id, primary_key=True),
    Column("text", Text),
    Column("thinking", Text),
    Column("search_trigrams", Text),
)
