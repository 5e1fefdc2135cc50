"""What a space holds: its conversations and agents, with counts and times."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from lettaspace.conversation import codec
from lettaspace.conversation.records import (
    AGENT,
    CONVERSATION,
    CONVERSATION_STATE,
    LOCAL_CONVERSATION,
    Address,
    rkey_of,
)
from lettaspace.errors import Ambiguous, Damaged, InvalidInput, NotFound
from lettaspace.space import schema
from lettaspace.space.schema import message_conversations, message_index
from lettaspace.space.writes import Reader, Value

_index = message_index.c


@dataclass(frozen=True, slots=True)
class ConversationInfo:
    """A conversation with its state and counts. Times are datetimes as stored."""

    rkey: str
    uri: str
    agent: str
    title: str | None
    created_at: str
    updated_at: str
    messages: int
    """Messages retained, compacted ones included."""
    active: int
    """Messages in the window."""
    archived: bool = False
    hidden: bool = False
    tags: tuple[str, ...] = ()
    cwd: str | None = None
    """The directory the harness worked in, on the machine it ran on."""
    incomplete: bool = False
    """What was brought in is known to lack something."""
    damage: tuple[Mapping[str, Any], ...] = ()
    forked_from: Mapping[str, Any] | None = None
    letta: Mapping[str, Any] = field(default_factory=dict)
    """Letta's own names: `id`, and `key`, which also tells default conversations apart."""
    recorded: bool = True
    """False: messages name this conversation, but there is no record of it."""

    @property
    def diverged(self) -> bool:
        """Two copies of it went on separately."""
        return any(each.get("kind") == "diverged" for each in self.damage)

    @property
    def damaged(self) -> bool:
        """Something about it is odd, beyond that."""
        return any(each.get("kind") != "diverged" for each in self.damage)

    def names(self) -> tuple[str, ...]:
        """What it may be called by, besides its URI."""
        letta = (str(self.letta[key]) for key in ("id", "key") if key in self.letta)
        return (self.rkey, *letta)


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent with the counts of its conversations."""

    rkey: str
    uri: str
    name: str | None
    description: str | None
    created_at: str | None
    updated_at: str | None
    conversations: int
    messages: int
    hidden: bool = False
    tags: tuple[str, ...] = ()
    recorded: bool = True
    """False: conversations name this agent, but there is no record of it."""


@dataclass(frozen=True, slots=True)
class Count:
    """What stands in a conversation: how many messages, and when the first and last were made."""

    messages: int
    active: int
    first: str
    last: str


def conversations(
    connection: Connection, reader: Reader, address: Address, *, agent: str | None = None
) -> list[ConversationInfo]:
    """All conversations, the most recently used first; with `agent` (a URI) only its own."""
    found = described(reader, address, own_counts(connection, address))
    if agent is not None:
        found = [conversation for conversation in found if conversation.agent == agent]
    return sorted(found, key=lambda each: (each.updated_at, each.rkey), reverse=True)


def described(
    reader: Reader, address: Address, counted: Mapping[str, Count]
) -> list[ConversationInfo]:
    """All conversations, in no order, from what was counted in each, by URI."""
    states = {record.rkey: record.value for record in reader.records(CONVERSATION_STATE)}
    found = []
    rest = dict(counted)
    for record in reader.records(CONVERSATION):
        uri = address.conversation(record.rkey)
        state, count = states.get(record.rkey), rest.pop(uri, None)
        found.append(_conversation(record.rkey, uri, record.value, state, count, reader))
    return found + [_unrecorded(uri, count) for uri, count in rest.items() if count.messages]


def conversation(
    reader: Reader, address: Address, uri: str, count: Count | None
) -> ConversationInfo | None:
    """One conversation, with what was counted in it; None if there is nothing of it."""
    rkey = last(uri)
    record = reader.get(CONVERSATION, rkey) if uri == address.conversation(rkey) else None
    if record is not None:
        state = reader.get(CONVERSATION_STATE, rkey)
        value = None if state is None else state.value
        return _conversation(rkey, uri, record.value, value, count, reader)
    return _unrecorded(uri, count) if count is not None and count.messages else None


def agents(connection: Connection, reader: Reader, address: Address) -> list[AgentInfo]:
    """All agents by name, those included that only conversations name."""
    tally: dict[str, tuple[int, int]] = {}
    for each in described(reader, address, own_counts(connection, address)):
        if each.agent:
            of_agent, messages = tally.get(each.agent, (0, 0))
            tally[each.agent] = of_agent + 1, messages + each.messages
    found = []
    for record in reader.records(AGENT):
        uri = address.agent(record.rkey)
        found.append(agent_info(uri, record.value, *tally.pop(uri, (0, 0))))
    found += [agent_info(uri, None, *count) for uri, count in tally.items()]
    return sorted(found, key=lambda each: ((each.name or "").casefold(), each.rkey))


def agent_info(uri: str, value: Value | None, conversations: int, messages: int) -> AgentInfo:
    """An agent from its record, or without one, and the counts of its conversations."""
    known = value or {}
    return AgentInfo(
        rkey=last(uri),
        uri=uri,
        name=known.get("name"),
        description=known.get("description"),
        created_at=known.get("createdAt"),
        updated_at=known.get("updatedAt"),
        conversations=conversations,
        messages=messages,
        hidden=known.get("hidden", False),
        tags=tuple(known.get("tags", ())),
        recorded=value is not None,
    )


def find(among: Iterable[ConversationInfo], name: str) -> ConversationInfo:
    """The conversation called `name`: a TID, URI, Letta id or key, or an unambiguous prefix.

    Raises NotFound, or Ambiguous with the candidates.
    """
    if not name:
        raise InvalidInput("a conversation's name is empty")
    known = list(among)
    for matches in (
        [each for each in known if each.uri == name or name in each.names()],
        [each for each in known if any(label.startswith(name) for label in each.names())],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise Ambiguous(f"{name!r} may be {_listed(matches)}; name one by its TID")
    raise NotFound(f"no conversation is called {name!r}")


def _listed(matches: list[ConversationInfo]) -> str:
    names = [f"{each.rkey} ({each.letta.get('key', 'no Letta id')})" for each in matches]
    more = f" or {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def counts(connection: Connection, uri: str | None = None) -> dict[str, Count]:
    """What stands in each conversation that messages name, by URI; or in the one given."""
    query = (
        select(
            message_conversations.c.uri,
            func.count().label("messages"),
            func.count().filter(_index.in_window).label("active"),
            func.min(_index.created_at).label("first"),
            func.max(_index.created_at).label("last"),
        )
        .join(message_index, _index.conversation == message_conversations.c.id)
        .group_by(message_conversations.c.id)
    )
    if uri is not None:
        query = query.where(message_conversations.c.uri == uri)
    return {
        row.uri: Count(row.messages, row.active, row.first, row.last)
        for row in connection.execute(query)
    }


def own_counts(connection: Connection, address: Address) -> dict[str, Count]:
    """The `counts` that concern an author: not those of conversations that stand in another
    repo of the store, nor of those that only others' messages name."""
    found = counts(connection)
    others = other_repos(connection, address)
    if not others:
        return found
    named = (
        select(schema.records.c.id)
        .join(schema.repos, schema.repos.c.id == schema.records.c.repo)
        .join(message_index, _index.record == schema.records.c.id)
        .join(message_conversations, message_conversations.c.id == _index.conversation)
        .where(
            message_conversations.c.uri == bindparam("uri"),
            schema.repos.c.space == str(address.space),
            schema.repos.c.author == address.author,
        )
        .limit(1)
    )
    return {
        uri: count
        for uri, count in found.items()
        if uri.startswith(address.prefix)
        or not (uri.startswith(others) or connection.execute(named, {"uri": uri}).first() is None)
    }


def other_repos(connection: Connection, address: Address) -> tuple[str, ...]:
    """What the URIs of the other authors whose repos are here begin with."""
    rows = connection.execute(select(schema.repos.c.space, schema.repos.c.author))
    prefixes = (f"{row.space}/{row.author}/" for row in rows)
    return tuple(prefix for prefix in prefixes if prefix != address.prefix)


def _conversation(
    rkey: str,
    uri: str,
    value: Value,
    state: Value | None,
    count: Count | None,
    reader: Reader,
) -> ConversationInfo:
    state = state or {}
    # A harness says when it was last used; what was appended since then, it may not know.
    used = [time for time in (state.get("lastMessageAt"), count and count.last) if time]
    updated = max(used, default=None) or state.get("updatedAt")
    return ConversationInfo(
        rkey=rkey,
        uri=uri,
        agent=value["agent"],
        title=state.get("title"),
        created_at=value["createdAt"],
        updated_at=updated or value["createdAt"],
        messages=count.messages if count else 0,
        active=count.active if count else 0,
        archived=state.get("archived", False),
        hidden=state.get("hidden", False),
        tags=tuple(state.get("tags", ())),
        cwd=state.get("cwd"),
        incomplete=state.get("incomplete", False),
        damage=tuple(state.get("damage", ())),
        forked_from=value.get("forkedFrom"),
        letta=_letta(value, state, reader),
    )


def _unrecorded(uri: str, count: Count) -> ConversationInfo:
    return ConversationInfo(
        rkey=last(uri),
        uri=uri,
        agent="",
        title=None,
        created_at=count.first,
        updated_at=count.last,
        messages=count.messages,
        active=count.active,
        recorded=False,
    )


def _letta(value: Value, state: Value, reader: Reader) -> dict[str, Any]:
    payload = state.get("state")
    if not payload or (payload["format"], payload["version"]) != (LOCAL_CONVERSATION, 1):
        return {}
    try:
        data = codec.decode(payload["data"], reader.get_blob, images=False)
    except (Damaged, NotFound):
        return {}
    letta_id = data.get("id") if isinstance(data, dict) else None
    if not isinstance(letta_id, str):
        return {}
    if letta_id == "default":
        return {"id": letta_id, "key": f"default:{last(value['agent'])}"}
    return {"id": letta_id, "key": f"conversation:{letta_id}"}


def last(uri: str) -> str:
    """The key in a record's URI; of anything else what stands behind its last slash."""
    try:
        return rkey_of(uri)
    except InvalidInput:
        return uri.rpartition("/")[2]
