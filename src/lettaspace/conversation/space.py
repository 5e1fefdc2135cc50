"""The library's face: a space on this machine, opened and read.

from lettaspace import Space

with Space.open("/path/to/home") as space:
    for conversation in space.conversations():
        print(conversation.rkey, conversation.title, conversation.messages)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, literal_column, select

from lettaspace.atproto import lexicon
from lettaspace.atproto.syntax import is_tid
from lettaspace.atproto.uri import SpaceRef, parse_record_uri, parse_space_ref
from lettaspace.conversation import landmarks, overview, paging, reading, times
from lettaspace.conversation import local_message as local_message  # formats known from the start
from lettaspace.conversation import pi_entry as pi_entry
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.index import MessageIndex, find_conversation_id
from lettaspace.conversation.message import Message
from lettaspace.conversation.origins import Origins
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    Address,
    default_space,
)
from lettaspace.conversation.search import SearchIndex, blob_reader, snippet
from lettaspace.conversation.usage import UsageReport, count_usage
from lettaspace.conversation.verify import (
    conversation_problems,
    projection_problems,
    trigram_problems,
)
from lettaspace.conversation.writing import appended, updated
from lettaspace.errors import InvalidRecord, NotFound, StoreUnavailable
from lettaspace.space import schema
from lettaspace.space.database import Database
from lettaspace.space.identity import Identity
from lettaspace.space.repo import EmbeddedRepo, ReadOnlyRepo
from lettaspace.space.statement import Statement
from lettaspace.space.verify import Problem, Progress, blob_problems, repo_problems
from lettaspace.space.view import View
from lettaspace.space.writes import Create, Reader, Record, Update, Value, Write

STORE_FILE = "space.db"
IDENTITY_FILE = "identity.json"

_own = Statement(
    lambda: (
        select(schema.repos.c.space, schema.repos.c.author)
        .join(schema.replicas, schema.replicas.c.repo == schema.repos.c.id)
        .where(schema.replicas.c.own == literal_column("1"))
    )
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that holds what was searched for, and the text around the first place."""

    conversation: str
    """The conversation's URI."""
    message: Message
    snippet: str
    copy_of: str | None = None
    """In a fork: the URI of the message of its source that this is the copy of."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search gave. `unreadable`: messages whose text could not be looked at."""

    hits: list[Hit]
    total: int
    unreadable: int
    distinct: int
    """`total` without the copies in forks."""


class Space:
    """One author's conversations in one space, in a directory on this machine.

    The author is the account that the store was attached to, else the home's own key.
    """

    def __init__(
        self,
        home: Path,
        identity: Identity,
        database: Database,
        address: Address | None = None,
        *,
        member: bool = False,
    ) -> None:
        """`address`: where the author's records stand; by default those of the home's key. A
        `member` is another author, whose repo is here already and is only read."""
        database.require_sqlite("the embedded library")
        self.home = home
        self.identity = identity
        """The home's own key. It signs what leaves; the author may be another."""
        self.database = database
        self.address = address or Address(default_space(identity.did), identity.did)
        self.ref: SpaceRef = self.address.space
        self.messages = MessageIndex()
        self.index = SearchIndex()
        self.repo = (ReadOnlyRepo if member else EmbeddedRepo)(
            database,
            str(self.ref),
            self.address.author,
            validate=validate,
            projections=(self.messages, self.index),
            create=not member,
        )

    @classmethod
    def open(cls, home: Path | str, *, create: bool = True) -> "Space":
        """Opens the space in the directory `home`, making it (mode 0700) when it is new.

        Raises StoreUnavailable, or Damaged for an unusable identity file.
        """
        home = Path(home)
        database = Database.open(home / STORE_FILE, create=create)
        try:
            key_file = home / IDENTITY_FILE
            address = _attached(database)
            if address is None and _is_lost(key_file, database):
                # A fresh key would show an empty space beside the one that is there.
                raise StoreUnavailable(f"{key_file} is missing; put the one of this store back")
            return cls(home, Identity.open(key_file), database, address)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        self.database.close()

    def member(self, did: str) -> "Space":
        """The records of another author in this space, to be read: whatever would write raises
        InvalidInput. It is on the same open database, which closing either of them closes.

        Raises NotFound where nothing of that author is here.
        """
        if did == self.address.author:
            return self
        address = Address(self.ref, did)
        return Space(self.home, self.identity, self.database, address, member=True)

    def members(self) -> list[str]:
        """The other authors whose records in this space are here."""
        repos = schema.repos.c
        query = select(repos.author).where(
            repos.space == str(self.ref), repos.author != self.address.author
        )
        with self.database.read() as connection:
            return list(connection.execute(query.order_by(repos.author)).scalars())

    def __enter__(self) -> "Space":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def create_agent(
        self,
        name: str,
        *,
        key: str | None = None,
        description: str | None = None,
        system: str | None = None,
    ) -> str:
        """Makes an agent and returns its URI. `key` is its record key, a fresh TID unless
        given; `system` the raw template of its prompt. Raises Conflict if the key is taken."""
        at = self.now()
        value: Value = {"name": name, "createdAt": at, "updatedAt": at}
        if description is not None:
            value["description"] = description
        if system is not None:
            value["system"] = system
        (written,) = self.repo.apply_writes([Create(AGENT, key, value)])
        return self.address.agent(written.rkey)

    def create_conversation(
        self,
        agent: str,
        *,
        title: str | None = None,
        forked_from: Value | None = None,
        incomplete: bool = False,
    ) -> Conversation:
        """Makes a conversation with an agent (its URI or key)."""
        agent = self._agent_uri(agent)
        at = self.now()
        rkey = self.repo.clock.mint()
        uri = self.address.conversation(rkey)
        value: Value = {"agent": agent, "createdAt": at}
        state: Value = {"conversation": uri, "updatedAt": at}
        if forked_from is not None:
            value["forkedFrom"] = forked_from
        if title is not None:
            state["title"] = title
        if incomplete:
            state["incomplete"] = True
        self.repo.apply_writes(
            [Create(CONVERSATION, rkey, value), Create(CONVERSATION_STATE, rkey, state)]
        )
        return Conversation(self, rkey, uri, agent)

    def complete(self, rkey: str) -> None:
        """Takes the mark off a conversation that was made in several steps."""

        def plan(view: Reader) -> list[Write]:
            stored = view.get(CONVERSATION_STATE, rkey)
            if stored is None or "incomplete" not in stored.value:
                return []
            value = {key: each for key, each in stored.value.items() if key != "incomplete"}
            return [Update(CONVERSATION_STATE, rkey, updated(value, self.now()))]

        self.repo.transact(plan)

    def agents(self) -> list[overview.AgentInfo]:
        """All agents, by name."""
        with self._view() as (connection, view):
            return overview.agents(connection, view, self.address)

    def conversations(self, *, agent: str | None = None) -> list[overview.ConversationInfo]:
        """All conversations, the most recently used first; `agent` is an agent's URI or key."""
        if agent is not None:
            agent = self._agent_uri(agent)
        with self._view() as (connection, view):
            return overview.conversations(connection, view, self.address, agent=agent)

    def conversation(self, name: str) -> Conversation:
        """The conversation called by a TID, URI, Letta id or an unambiguous prefix.

        Raises NotFound or Ambiguous.
        """
        rkey = self._own_conversation(name)
        record = None if rkey is None else self.repo.get(CONVERSATION, rkey)
        if record is not None:
            uri = self.address.conversation(record.rkey)
            return Conversation(self, record.rkey, uri, record.value["agent"])
        found = self.conversation_info(name)
        return Conversation(self, found.rkey, found.uri, found.agent)

    def conversation_info(self, name: str) -> overview.ConversationInfo:
        """Title, times and counts of the conversation called so; like `conversation`.

        By its TID or URI it is found at once; by another name all are looked through.
        """
        if (rkey := self._own_conversation(name)) is not None:
            uri = self.address.conversation(rkey)
            with self._view() as (connection, view):
                count = overview.counts(connection, uri).get(uri)
                found = overview.conversation(view, self.address, uri, count)
            if found is not None:
                return found
        return overview.find(self.conversations(), name)

    def _own_conversation(self, name: str) -> str | None:
        """The TID in a name that is one, or this space's own URI of one."""
        rkey = name.removeprefix(self.address.conversation(""))
        return rkey if is_tid(rkey) else None

    def active(self, conversation: str) -> list[Message]:
        """The window of a conversation (its URI) with what a model is not given."""
        with self.database.read() as connection:
            return reading.active(connection, conversation, self.repo.get_blob)

    def message(self, conversation: str, rkey: str) -> Message:
        """One message of a conversation (its URI) by TID. Raises NotFound."""
        with self.database.read() as connection:
            return reading.one(connection, conversation, rkey, self.repo.get_blob)

    def appended(self, conversation: str, key: str) -> str | None:
        """The TID of what was written in a conversation (its URI) under a key."""
        with self.database.read() as connection:
            number = find_conversation_id(connection, conversation)
            return None if number is None else appended(connection, number, key)

    def now(self) -> str:
        """The time as records hold it, in milliseconds."""
        return times.text(datetime.now(UTC))

    def _agent_uri(self, agent: str) -> str:
        return agent if agent.startswith("at://") else self.address.agent(agent)

    def window(self, conversation: str) -> reading.Window:
        """The window of a conversation (its URI)."""
        with self.database.read() as connection:
            return reading.window(connection, conversation, self.repo.get_blob)

    def transcript(self, conversation: str) -> Iterator[Message]:
        """Every retained message of a conversation (its URI), streamed from one snapshot."""
        with self.database.read() as connection:
            yield from reading.transcript(connection, conversation, self.repo.get_blob)

    def page(
        self, conversation: str, *, view: paging.View, anchor: paging.Anchor, limit: int
    ) -> paging.Page:
        """A page of a conversation (its URI); see `paging.page`."""
        with self.database.read() as connection:
            get_blob = self.repo.get_blob
            return paging.page(connection, conversation, get_blob, view, anchor, limit)

    def covered(
        self, conversation: str, summary: str, *, anchor: paging.Anchor, limit: int
    ) -> paging.Page:
        """A page of what a summary (its TID) lists; see `paging.covered`."""
        with self.database.read() as connection:
            get_blob = self.repo.get_blob
            return paging.covered(connection, conversation, get_blob, summary, anchor, limit)

    def compactions(self, conversation: str) -> list[landmarks.CompactionPoint]:
        """The summaries of a conversation (its URI), by seq."""
        with self.database.read() as connection:
            return landmarks.compactions(connection, conversation)

    def covering(self, conversation: str, rkey: str) -> list[landmarks.CompactionPoint]:
        """The summaries that cover a message (its TID), the outermost last."""
        with self.database.read() as connection:
            return landmarks.covering(connection, conversation, rkey)

    def ticks(self, conversation: str, *, view: paging.View, count: int) -> list[landmarks.Tick]:
        """Messages that divide a conversation evenly; see `landmarks.ticks`."""
        with self.database.read() as connection:
            return landmarks.ticks(connection, conversation, window=view == "window", count=count)

    def prompt(self, conversation: str) -> Record | None:
        """The compiled prompt of a conversation (its TID), as stored."""
        return self.repo.get(COMPILED_PROMPT, conversation)

    def record(self, uri: str) -> Record:
        """Any record of this space by its URI, whoever wrote it. Raises NotFound."""
        wanted = parse_record_uri(uri)
        with self.database.read() as connection:
            repo = connection.execute(
                select(schema.repos.c.id).where(
                    schema.repos.c.space == str(wanted.space),
                    schema.repos.c.author == wanted.author,
                )
            ).scalar()
            found = View(connection, repo).get(wanted.collection, wanted.rkey) if repo else None
        if found is None:
            raise NotFound(f"no record {uri}")
        return found

    def search(
        self,
        query: str,
        *,
        thinking: bool = False,
        start: int = 0,
        limit: int = 50,
        own: bool = False,
    ) -> Found:
        """Messages that hold `query` as a substring, letter case aside, newest first; `limit`
        of them from the one numbered `start`, and how many there are in all. Members' messages
        are among them, unless only the author's `own` are wanted."""
        hits: list[Hit] = []
        total = copies = 0
        repo = self.repo.id if own else None
        with self.database.read() as connection:
            origins = Origins(connection, self.repo.id, self.address)
            for record in self.index.matches(connection, query, thinking=thinking, repo=repo):
                total += 1
                original = origins.of(record)
                copies += original is not None
                if start < total <= start + limit:
                    hits.append(self._hit(connection, record, query, original))
            return Found(hits, total, self.index.unreadable(connection), total - copies)

    def usage(self, *, conversation: str | None = None, agent: str | None = None) -> UsageReport:
        """Tokens and cost of all the author's conversations, of one (its URI), or of an agent's
        (its URI or key), each provider response counted once."""
        if agent is not None:
            agent = self._agent_uri(agent)
        with self._view() as (_, view):
            return count_usage(view, conversation=conversation, agent=agent)

    def verify(self, progress: Progress = lambda _what, _done, _total: None) -> Iterator[Problem]:
        """Everything that is not as it should be: records, set hash, oplog, blobs, projections,
        seqs, summaries, tool results. Changes nothing."""
        with self.database.read() as connection:
            yield from repo_problems(connection, self.repo.id, validate, progress)
            yield from blob_problems(connection, progress)
            yield from projection_problems(connection, progress)
            yield from conversation_problems(connection, blob_reader(connection), progress)
        yield from trigram_problems(self.database)

    def _hit(self, connection: Connection, record: int, query: str, original: str | None) -> Hit:
        message = reading.message(connection, record, self.repo.get_blob)
        conversation = str(message.value["conversation"])
        text = snippet(message.value, query, self.repo.get_blob) or ""
        return Hit(conversation, message, text, original)

    @contextmanager
    def _view(self) -> Iterator[tuple[Connection, View]]:
        with self.database.read() as connection:
            yield connection, View(connection, self.repo.id)


def _is_lost(key_file: Path, database: Database) -> bool:
    """Whether the key of a store that is in use is not there. Whoever makes a store right now
    makes the key first: so it is looked for again once the store is seen to be in use."""
    return not key_file.exists() and bool(database.authors()) and not key_file.exists()


def _attached(database: Database) -> Address | None:
    """Where the account writes that the store is attached to, if it is to one."""
    with database.read() as connection:
        found = _own.one(connection)
    return None if found is None else Address(parse_space_ref(found[0]), found[1])


def validate(collection: str, rkey: str, value: Value) -> None:
    """Raises InvalidRecord unless a record satisfies its lexicon, if we know one."""
    lexicons = lexicon.shipped()
    if lexicons.has(collection):
        lexicons.check_key(collection, rkey)
        lexicons.validate_record(collection, value)


def verdict(record: Record) -> dict[str, Any]:
    """What a record's lexicon says of it: `id`, `valid`, and the `problem` where it is not.
    `valid` is None where there is no such lexicon here."""
    if not lexicon.shipped().has(record.collection):
        return {"id": record.collection, "valid": None}
    try:
        validate(record.collection, record.rkey, record.value)
    except InvalidRecord as error:
        return {"id": record.collection, "valid": False, "problem": str(error)}
    return {"id": record.collection, "valid": True}
