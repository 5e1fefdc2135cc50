"""Derived TIDs: the same conversation or message gets the same key on every machine.

Row ids and conversation ids do not survive a trip, so they play no part. What is hashed is a
domain string and the texts given below, each preceded by its length in bytes, which no two
different lists share.
"""

from hashlib import sha256

from lettaspace.atproto import tid
from lettaspace.conversation.times import to_millis

_CONVERSATION = "xyz.quasigod.lab.letta.conversation"
_MESSAGE = "xyz.quasigod.lab.letta.message"


def conversation_tid(agent_id: str, created_at: str, ordinal: int = 0) -> str:
    """The key of a conversation.

    `agent_id` is "" where there is none; `created_at` is an AT Protocol datetime; `ordinal`
    counts the conversations of one directory that share both (or whose hashes meet).
    """
    return tid.derive(to_millis(created_at), _digest(_CONVERSATION, agent_id, created_at, ordinal))


def message_tid(
    conversation: str,
    role: str,
    message_id: str,
    created_at: str,
    tool_call_id: str,
    ordinal: int = 0,
    probe: int = 0,
) -> str:
    """The key of a message in the conversation with that TID.

    `created_at` is the record's createdAt; `tool_call_id` is "" where there is none;
    `ordinal` counts messages that are equal in all of these, in file order; `probe` counts
    how often the hash met another message of the same millisecond in the same conversation.
    """
    return tid.derive(
        to_millis(created_at),
        _digest(_MESSAGE, conversation, role, message_id, created_at, tool_call_id, ordinal, probe),
    )


def agent_rkey(agent_id: str) -> str:
    """A record key for an agent id that is none itself."""
    return "id-" + _digest("xyz.quasigod.lab.letta.agent", agent_id).hex()[:32]


def _digest(*parts: str | int) -> bytes:
    # Ids are JSON strings, so they may hold lone surrogates.
    texts = [str(part).encode("utf-8", "surrogatepass") for part in parts]
    return sha256(b"".join(b"%d:%b" % (len(text), text) for text in texts)).digest()
