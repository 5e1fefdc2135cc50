"""All conversations and agents of a space in memory, in order, and how writes change them."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from lettaspace.conversation import overview
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.overview import AgentInfo, ConversationInfo, Count
from lettaspace.conversation.ranges import Ranges
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    Address,
)
from lettaspace.space.view import View
from lettaspace.space.writes import Op

Key = tuple[str, str, str]
"""When a conversation was last used, its TID, its URI."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The TIDs of conversations and the keys of agents that writes changed."""

    conversations: frozenset[str]
    agents: frozenset[str]


@dataclass(slots=True)
class _Added:
    """What became of one conversation's messages."""

    messages: int = 0
    active: int = 0
    times: list[str] = field(default_factory=list[str])
    """When they were made."""
    recount: bool = False
    """Messages were rewritten, or a summary came: others may have left the window."""


class Roster:
    """Not safe to use from several threads. All agents and conversations named are URIs."""

    def __init__(self, connection: Connection, view: View, address: Address) -> None:
        self._address = address
        self._counts = overview.own_counts(connection, address)
        self._others = overview.other_repos(connection, address)
        self._agents = {address.agent(record.rkey): record.value for record in view.records(AGENT)}
        self.infos: dict[str, ConversationInfo] = {}
        self.uris: dict[str, str] = {}
        """By TID; the space's own conversation, where others name one of the same TID."""
        self.keys: list[Key] = []
        """Of all conversations, the one used last at the end."""
        self.keys_of: dict[str, list[Key]] = {}
        """The same of each agent's."""
        self._messages_of: dict[str, int] = {}
        self._known_agents: dict[str, AgentInfo] | None = None
        found = overview.described(view, address, self._counts)
        for info in sorted(found, key=_key):
            self._add(info)

    def agents(self) -> dict[str, AgentInfo]:
        """All agents by URI, in order of their names."""
        if self._known_agents is None:
            unrecorded = {uri: None for uri in self.keys_of if uri and uri not in self._agents}
            found = [
                overview.agent_info(
                    uri, value, len(self.keys_of.get(uri, ())), self._messages_of.get(uri, 0)
                )
                for uri, value in (self._agents | unrecorded).items()
            ]
            found.sort(key=lambda each: ((each.name or "").casefold(), each.rkey))
            self._known_agents = {each.uri: each for each in found}
        return self._known_agents

    def agent(self, rkey: str) -> AgentInfo | None:
        known = self.agents()
        own = known.get(self._address.agent(rkey))
        return own or next((each for each in known.values() if each.rkey == rkey), None)

    def apply(self, connection: Connection, view: View, ops: Iterable[Op]) -> Touched | None:
        """Takes in the writes since the last; None where that cannot be told from them, and
        everything must be read anew."""
        messages: dict[str, bool] = {}
        agents: set[str] = set()
        described: set[str] = set()
        prompts: set[str] = set()
        for op in ops:
            if op.collection == MESSAGE:
                if op.cid is None:
                    return None  # the conversation it was in is not known any more
                messages.setdefault(op.rkey, op.prev is None)
            elif op.collection == AGENT:
                agents.add(op.rkey)
            elif op.collection == COMPILED_PROMPT:
                prompts.add(op.rkey)
            elif op.collection in (CONVERSATION, CONVERSATION_STATE):
                described.add(self._address.conversation(op.rkey))
        counted = self._count(connection, view, messages)
        if counted is None:
            return None
        self._counts.update(counted)
        changed = described | counted.keys()
        for uri in changed:
            self._remove(uri)
            info = overview.conversation(view, self._address, uri, self._counts.get(uri))
            if info is not None:
                self._add(info)
        for rkey in agents:
            record = view.get(AGENT, rkey)
            if record is None:
                self._agents.pop(self._address.agent(rkey), None)
            else:
                self._agents[self._address.agent(rkey)] = record.value
        self._known_agents = None
        return Touched(frozenset(map(overview.last, changed)) | prompts, frozenset(agents))

    def _count(
        self, connection: Connection, view: View, messages: dict[str, bool]
    ) -> dict[str, Count] | None:
        added: dict[str, _Added] = {}
        for rkey, is_new in messages.items():
            record = view.get(MESSAGE, rkey)
            if record is None:
                return None
            uri = str(record.value["conversation"])
            if uri.startswith(self._others):
                continue  # it is in the list of whose it is
            entry = added.setdefault(uri, _Added(recount=uri not in self._counts))
            entry.messages += is_new
            if not is_new or "compactedMessageIds" in record.value:
                entry.recount = True
            elif not entry.recount:
                node = Ranges(connection, find_conversation_id(connection, uri)).find(rkey)
                if node is None:
                    return None
                entry.active += node.in_window
                entry.times.append(str(record.value["createdAt"]))
        counted = {}
        for uri, entry in added.items():
            old = self._counts.get(uri)
            if old is None or entry.recount:
                new = overview.counts(connection, uri).get(uri)
                if new is None or new.messages != entry.messages + (old.messages if old else 0):
                    return None  # a rewritten message came here from another conversation
            else:
                new = Count(
                    old.messages + entry.messages,
                    old.active + entry.active,
                    min(old.first, *entry.times),
                    max(old.last, *entry.times),
                )
            counted[uri] = new
        return counted

    def _add(self, info: ConversationInfo) -> None:
        key, agent = _key(info), info.agent
        insort(self.keys, key)
        insort(self.keys_of.setdefault(agent, []), key)
        self.infos[info.uri] = info
        self._messages_of[agent] = self._messages_of.get(agent, 0) + info.messages
        if info.uri == self._address.conversation(info.rkey):
            self.uris[info.rkey] = info.uri
        else:
            self.uris.setdefault(info.rkey, info.uri)

    def _remove(self, uri: str) -> None:
        info = self.infos.pop(uri, None)
        if info is None:
            return
        key, agent = _key(info), info.agent
        for keys in (self.keys, self.keys_of[agent]):
            del keys[bisect_left(keys, key)]
        if not self.keys_of[agent]:
            del self.keys_of[agent]
        self._messages_of[agent] -= info.messages
        if self.uris.get(info.rkey) == uri:
            del self.uris[info.rkey]


def _key(info: ConversationInfo) -> Key:
    return (info.updated_at, info.rkey, info.uri)
