"""What was last brought in from where, and what the space has of a conversation already.

The first is a table of this machine, never a record: a conversation whose files are those of
the last complete import is passed over after a few stats.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.space import Space
from lettaspace.conversation.writing import top_seq
from lettaspace.letta.directory import ConversationDir, Listing, fingerprint
from lettaspace.letta.scan import TID_LENGTH
from lettaspace.space.schema import message_conversations, message_index, sources
from lettaspace.space.statement import replacing

IMPORTER = "2"
"""Changes when the same files would give other records than before."""

_index = message_index.c
_note = replacing(sources)


@dataclass(frozen=True, slots=True)
class Known:
    """The last import of a key: which conversation it is, and the files' fingerprint."""

    conversation: str
    fingerprint: str

    def is_current(self, directory: ConversationDir) -> bool:
        """Whether the files are still those."""
        return self.fingerprint == mark(directory)


def mark(directory: ConversationDir) -> str:
    """What tells that files would give the records they gave before."""
    return f"{IMPORTER} {fingerprint(directory)}"


def waiting(space: Space, directory: Path, listing: Listing) -> int:
    """How many conversations of a directory are not in the space as they are now."""
    known = load(space, str(directory.resolve()))
    return sum(
        each.key not in known or not known[each.key].is_current(each)
        for each in listing.conversations
    )


def load(space: Space, directory: str) -> dict[str, Known]:
    """What is known of a directory, by key."""
    query = select(sources.c.key, sources.c.conversation, sources.c.fingerprint).where(
        sources.c.repo == space.repo.id, sources.c.directory == directory
    )
    with space.database.read() as connection:
        return {
            row.key: Known(row.conversation, row.fingerprint) for row in connection.execute(query)
        }


def remember(space: Space, directory: str, key: str, known: Known) -> None:
    """Notes a complete import."""
    with space.database.write() as connection:
        note(connection, space.repo.id, directory, key, known.conversation, known.fingerprint)


def note(
    connection: Connection, repo: int, directory: str, key: str, conversation: str, mark: str
) -> None:
    """The same, in somebody's transaction."""
    _note.run(
        connection,
        repo=repo,
        directory=directory,
        key=key,
        conversation=conversation,
        fingerprint=mark,
    )


@dataclass(slots=True)
class Stored:
    """The messages of a conversation that the space has, in no order."""

    tids: NDArray[np.bytes_] = field(default_factory=lambda: np.empty(0, f"S{TID_LENGTH}"))
    in_window: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    top: int = 0
    """The highest seq."""

    def __len__(self) -> int:
        return len(self.tids)


def stored_messages(space: Space, conversation: str) -> Stored:
    """What is stored of the conversation with that URI."""
    mine = (
        select(message_conversations.c.id)
        .where(message_conversations.c.uri == conversation)
        .scalar_subquery()
    )
    with space.database.read() as connection:
        # One long text of each: a row at a time takes five times as long.
        rkeys, flags = connection.execute(
            select(
                func.group_concat(_index.rkey, ""), func.group_concat(_index.in_window, "")
            ).where(_index.conversation == mine)
        ).one()
        number = find_conversation_id(connection, conversation)
        top = 0 if number is None else top_seq(connection, number)
    return Stored(
        np.frombuffer((rkeys or "").encode(), f"S{TID_LENGTH}"),
        np.frombuffer((flags or "").encode(), np.uint8) == ord("1"),
        top,
    )
