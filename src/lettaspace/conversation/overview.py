"""What a space holds: its conversations and agents, with counts and times."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

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
        """Two copies of it went on separately, and only one of them is here."""
        return any(each.get("kind") == "diverged" for each in self.damage)

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
class _Count:
    messages: int
    active: int
    first: str
    last: str


def conversations(
    connection: Connection, reader: Reader, address: Address, *, agent: str | None = None
) -> list[ConversationInfo]:
    """All conversations, the most recently used first; with `agent` (a URI) only its own."""
    counts = _counts(connection)
    states = {record.rkey: record.value for record in reader.records(CONVERSATION_STATE)}
    found = [
        _conversation(
            record.rkey,
            address.conversation(record.rkey),
            record.value,
            states.get(record.rkey),
            counts.pop(address.conversation(record.rkey), None),
            reader,
        )
        for record in reader.records(CONVERSATION)
    ]
    found += [_unrecorded(uri, count) for uri, count in counts.items() if count.messages]
    if agent is not None:
        found = [conversation for conversation in found if conversation.agent == agent]
    return sorted(found, key=lambda each: (each.updated_at, each.rkey), reverse=True)


def agents(connection: Connection, reader: Reader, address: Address) -> list[AgentInfo]:
    """All agents by name, those included that only conversations name."""
    tally: dict[str, list[int]] = {}
    for conversation in conversations(connection, reader, address):
        if conversation.agent:
            entry = tally.setdefault(conversation.agent, [0, 0])
            entry[0] += 1
            entry[1] += conversation.messages
    found = []
    for record in reader.records(AGENT):
        uri = address.agent(record.rkey)
        count = tally.pop(uri, [0, 0])
        value = record.value
        found.append(
            AgentInfo(
                rkey=record.rkey,
                uri=uri,
                name=value.get("name"),
                description=value.get("description"),
                created_at=value.get("createdAt"),
                updated_at=value.get("updatedAt"),
                conversations=count[0],
                messages=count[1],
                hidden=value.get("hidden", False),
                tags=tuple(value.get("tags", ())),
            )
        )
    found += [
        AgentInfo(_last(uri), uri, None, None, None, None, count[0], count[1], recorded=False)
        for uri, count in tally.items()
    ]
    return sorted(found, key=lambda each: ((each.name or "").casefold(), each.rkey))


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


def _counts(connection: Connection) -> dict[str, _Count]:
    rows = connection.execute(
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
    return {row.uri: _Count(row.messages, int(row.active), row.first, row.last) for row in rows}


def _conversation(
    rkey: str,
    uri: str,
    value: Value,
    state: Value | None,
    count: _Count | None,
    reader: Reader,
) -> ConversationInfo:
    state = state or {}
    updated = state.get("lastMessageAt") or (count and count.last) or state.get("updatedAt")
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


def _unrecorded(uri: str, count: _Count) -> ConversationInfo:
    return ConversationInfo(
        rkey=_last(uri),
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
        return {"id": letta_id, "key": f"default:{_last(value['agent'])}"}
    return {"id": letta_id, "key": f"conversation:{letta_id}"}


def _last(uri: str) -> str:
    try:
        return rkey_of(uri)
    except InvalidInput:
        return uri.rpartition("/")[2]
