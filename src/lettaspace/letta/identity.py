"""What tells a message from the others of its conversation."""

from typing import Any, NamedTuple

from lettaspace.atproto.syntax import is_tid
from lettaspace.conversation.jsontext import well_formed
from lettaspace.conversation.times import from_millis, valid

NOBODY = "unknown"
"""The role of a message that does not say one."""


class Identity(NamedTuple):
    """What tells a message from the others of its conversation, wherever it is read."""

    role: str
    message_id: str
    created_at: str
    tool_call_id: str


def identify(row: dict[str, Any], message: dict[str, Any], fallback: str) -> tuple[Identity, bool]:
    """The identity of a message, and whether its time is made up."""
    metadata = message.get("metadata")
    created = valid(metadata.get("created_at")) if type(metadata) is dict else None
    if created is None:
        created = valid(row.get("timestamp")) or from_millis(message.get("timestamp"))
    role = message.get("role")
    if type(role) is not str or not role or not well_formed(role):
        role = NOBODY
    message_id = message.get("id")
    call = message.get("toolCallId")
    identity = Identity(
        role,
        message_id if type(message_id) is str else "",
        created or fallback,
        call if type(call) is str else "",
    )
    return identity, created is None


def given_tid(row: dict[str, Any]) -> str | None:
    """The TID that a row of our own making carries. Letta's row ids are of another form."""
    row_id = row.get("id")
    return row_id if "message" in row and is_tid(row_id) else None
