"""How Letta's directory stood when it and the space last said the same.

That is what the next sync compares both with: whatever differs from it has changed since. A
table of this machine, never a record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, func, select

from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.jsontext import dumps, loads
from lettaspace.conversation.records import COMPILED_PROMPT, CONVERSATION, CONVERSATION_STATE
from lettaspace.conversation.space import Space
from lettaspace.letta import tracking
from lettaspace.space.schema import message_index, records, synced
from lettaspace.space.statement import Statement, replacing
from lettaspace.space.view import View

AGENT = "agent:"
"""The keys of agents begin with it; those of conversations are the directory's own."""

MEMORY = "memory:"
"""The keys of agents' memories begin with it."""

_DIRECTORY = ""
_LETTA = "conversation:", "default:"

_messages = Statement(
    lambda: (
        select(func.count(), func.max(records.c.rev))
        .select_from(message_index)
        .join(records, records.c.id == message_index.c.record)
        .where(message_index.c.conversation == bindparam("conversation"))
    )
)
_rev = Statement(
    lambda: select(records.c.rev).where(
        records.c.repo == bindparam("repo"),
        records.c.collection == bindparam("collection"),
        records.c.rkey == bindparam("rkey"),
    )
)
_note = replacing(synced)


@dataclass(frozen=True, slots=True)
class Synced:
    """How one thing in the directory stood."""

    name: str
    """The TID of the conversation that it is, or the agent's record key."""
    derived: str = ""
    """The conversation (its TID) that the keys of rows derive from. It is another one where two
    machines went on with a conversation and these rows became the fork."""
    mark: str = ""
    """Tells whether the files are as they were; "" is never so."""
    revs: str = ""
    """Tells whether the records are as they were; "" is never so."""
    size: int = 0
    """Bytes of messages.jsonl; rows behind them are new."""


@dataclass(frozen=True, slots=True)
class Base:
    """What the small files said."""

    value: dict[str, Any]
    """conversation.json without the window, or the agent's file."""
    window: list[str] | None = None
    prompt: str | None = None
    """A digest of system-prompt.json; None: there was none."""

    def text(self) -> str:
        whole = {"value": self.value, "window": self.window, "prompt": self.prompt}
        return dumps(whole, ascii=True)


def load(space: Space, directory: str) -> dict[str, Synced]:
    """What is known of a directory, by key."""
    table = synced.c
    query = select(table.key, table.name, table.derived, table.mark, table.revs, table.size).where(
        table.repo == space.repo.id, table.directory == directory
    )
    with space.database.read() as connection:
        rows = connection.execute(query).all()
    return {key: Synced(*rest) for key, *rest in rows if key != _DIRECTORY}


def get(space: Space, directory: str, key: str) -> tuple[Synced, Base] | None:
    """What is known of one thing."""
    table = synced.c
    with space.database.read() as connection:
        row = connection.execute(
            select(table.name, table.derived, table.mark, table.revs, table.size, table.base).where(
                *_named(space, directory, key)
            )
        ).one_or_none()
    if row is None:
        return None
    *rest, base = row
    value: Any = loads(base)
    return Synced(*rest), Base(value["value"], value["window"], value["prompt"])


def remember(space: Space, directory: str, key: str, known: Synced, base: Base) -> None:
    """Notes how something stands now that both sides say the same; of a conversation, also that
    its files are imported, as `tracking` has it."""
    _put(space, directory, key, known, base.text())


def forget(space: Space, directory: str, key: str) -> None:
    with space.database.write() as connection:
        connection.execute(delete(synced).where(*_named(space, directory, key)))


def rev(space: Space, directory: str) -> str | None:
    """Up to which revision of the repo all has been compared with the directory."""
    with space.database.read() as connection:
        found: str | None = connection.execute(
            select(synced.c.name).where(*_named(space, directory, _DIRECTORY))
        ).scalar()
    return found


def set_rev(space: Space, directory: str, rev: str) -> None:
    _put(space, directory, _DIRECTORY, Synced(rev), "{}")


def conversation_revs(
    view: View, uri: str, rkey: str, *, messages: tuple[int, str] | None = None
) -> str:
    """Changes when any record of a conversation does, or when messages leave it.

    Where its messages were just read, `messages` says how many there are, and the newest
    revision that any was written in.
    """
    parts: list[str] = []
    if messages is not None:
        parts += [str(messages[0]), messages[1]]
    elif (number := find_conversation_id(view.connection, uri)) is not None:
        count, newest = _messages.only(view.connection, conversation=number)
        parts += [str(count), newest or "-"]
    for collection in (CONVERSATION, CONVERSATION_STATE, COMPILED_PROMPT):
        parts.append(record_rev(view, collection, rkey))
    return " ".join(parts)


def record_rev(view: View, collection: str, rkey: str) -> str:
    """The revision that a record was last written in; "-" where there is none."""
    row = _rev.one(view.connection, repo=view.repo, collection=collection, rkey=rkey)
    return "-" if row is None else str(row[0])


def is_conversation(key: str) -> bool:
    return key.startswith(_LETTA)


def _put(space: Space, directory: str, key: str, known: Synced, base: str) -> None:
    with space.database.write() as connection:
        _note.run(
            connection,
            repo=space.repo.id,
            directory=directory,
            key=key,
            name=known.name,
            derived=known.derived,
            mark=known.mark,
            revs=known.revs,
            size=known.size,
            base=base,
        )
        if is_conversation(key):
            tracking.note(connection, space.repo.id, directory, key, known.name, known.mark)


def _named(space: Space, directory: str, key: str) -> Sequence[Any]:
    table = synced.c
    return table.repo == space.repo.id, table.directory == directory, table.key == key
