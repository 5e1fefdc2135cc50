"""The records of the contract: their collections, their references, their fields.

The lexicons under `xyz.quasigod.lab.letta` say what a record may hold; docs/records.md says
what it means. A record is a plain dict in the data model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from lettaspace.atproto.uri import SpaceRef, parse_record_uri
from lettaspace.conversation.jsontext import well_formed

NAMESPACE = "xyz.quasigod.lab.letta"

MESSAGE = f"{NAMESPACE}.message"
COMPILED_PROMPT = f"{NAMESPACE}.compiledPrompt"
AGENT = f"{NAMESPACE}.agent"
CONVERSATION = f"{NAMESPACE}.conversation"
CONVERSATION_STATE = f"{NAMESPACE}.conversationState"
MEMORY = f"{NAMESPACE}.memory"

SPACE_TYPE = f"{NAMESPACE}.space"
DEFAULT_SKEY = "self"

NO_AGENT = "none"
"""The key of the agent that conversations without one hang on."""

LOCAL_MESSAGE = "letta.localMessage"
LOCAL_AGENT = "letta.localAgentRecord"
LOCAL_CONVERSATION = "letta.localConversation"

COMPACTED = "compacted"
ACTIVE = "active"


class Envelope(TypedDict):
    """A harness's own payload: which format, which version of it, and the data."""

    format: str
    version: int
    data: Any


def envelope(format: str, version: int, data: Any) -> Envelope:  # noqa: A002
    return {"format": format, "version": version, "data": data}


def default_space(did: str) -> SpaceRef:
    """The one space of an account that holds everything, unless told otherwise."""
    return SpaceRef(did, SPACE_TYPE, DEFAULT_SKEY)


@dataclass(frozen=True, slots=True)
class Address:
    """Where an author's records stand: makes the URIs that records refer to each other by."""

    space: SpaceRef
    author: str

    @property
    def prefix(self) -> str:
        """What the URIs of these records begin with, and no others."""
        return f"{self.space}/{self.author}/"

    def uri(self, collection: str, rkey: str) -> str:
        return f"{self.space}/{self.author}/{collection}/{rkey}"

    def agent(self, rkey: str) -> str:
        return self.uri(AGENT, rkey)

    def conversation(self, rkey: str) -> str:
        return self.uri(CONVERSATION, rkey)


def rkey_of(uri: str) -> str:
    """The record key in a space record URI. Raises InvalidInput."""
    return parse_record_uri(uri).rkey


def new_message(
    conversation: str, agent: str, role: str, seq: int, message: Envelope, created_at: str
) -> dict[str, Any]:
    """The record of a message at the end of a conversation. `conversation` and `agent` are
    URIs, `created_at` is a datetime."""
    return {
        "$type": MESSAGE,
        "conversation": conversation,
        "agent": agent,
        "role": role,
        "seq": seq,
        "message": message,
        "createdAt": created_at,
    }


def is_active(message: Mapping[str, Any]) -> bool:
    """A message's own status; absent means active. A summary may still cover it."""
    return message.get("status") != COMPACTED


def clip(value: Any, limit: int) -> str:
    """A text for people: at most `limit` bytes of UTF-8, half characters shown as a mark.

    The exact text stands in the harness's own record. Anything that is no text gives "".
    """
    if type(value) is not str:
        return ""
    text = str(value)
    if not well_formed(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    data = text.encode()
    return text if len(data) <= limit else data[:limit].decode(errors="ignore")
