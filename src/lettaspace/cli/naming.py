"""Agents and conversations by the names that people have for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from lettaspace.errors import Ambiguous, NotFound

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

T = TypeVar("T")


def agent_key(space: "Space", name: str) -> str:
    """The record key of the agent with this key, URI or name. Raises NotFound, Ambiguous."""
    agents = space.agents()
    for each in agents:
        if name in (each.rkey, each.uri):
            return each.rkey
    found = [each for each in agents if (each.name or "").casefold() == name.casefold()]
    return _one(found, [each.rkey for each in found], f"agent is called {name!r}").rkey


def conversation_key(space: "Space", name: str) -> str:
    """The TID of the conversation with this TID, URI, Letta id, beginning of one of these, or
    title. Raises NotFound, Ambiguous."""
    try:
        return space.conversation(name).rkey
    except NotFound:
        titled = [
            each
            for each in space.conversations()
            if (each.title or "").casefold() == name.casefold()
        ]
        if not titled:
            raise
        keys = [each.rkey for each in titled]
        return _one(titled, keys, f"conversation is called {name!r}").rkey


def _one(found: Sequence[T], keys: Sequence[str], what: str) -> T:
    if not found:
        raise NotFound(f"no {what}")
    if len(found) > 1:
        raise Ambiguous(f"more than one {what}: {', '.join(keys)}")
    return found[0]
