"""One stored message, as the reading side hands it out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.conversation import codec
from lettaspace.conversation.leaves import BLOB_JSON
from lettaspace.conversation.records import LOCAL_MESSAGE
from lettaspace.space.writes import Value

OpenBlob = Callable[[CID], bytes]

KNOWN_FORMATS = frozenset({(LOCAL_MESSAGE, 1)})
"""The payload formats a window can be made of: (format, version)."""


@dataclass(frozen=True, slots=True)
class Message:
    """A `message` record with what the conversation around it says of it."""

    rkey: str
    uri: str
    cid: CID
    value: Value
    """The record as stored."""
    covered_by: str | None
    """The rkey of the summary that lists it."""
    active: bool
    """In the window: neither marked compacted nor listed by a summary."""
    _open_blob: OpenBlob
    flags: tuple[str, ...] = ()
    """What is odd about it: `orphan-result`, `unknown-format`."""

    @property
    def seq(self) -> int:
        return int(self.value["seq"])

    @property
    def role(self) -> str:
        return str(self.value["role"])

    @property
    def status(self) -> str:
        return "active" if self.active else "compacted"

    @property
    def created_at(self) -> str:
        return str(self.value["createdAt"])

    @property
    def updated_at(self) -> str | None:
        return self.value.get("updatedAt")

    @property
    def compacted_message_ids(self) -> list[str] | None:
        """On a summary: the TIDs of what it covers, in seq order."""
        return self.value.get("compactedMessageIds")

    @property
    def format(self) -> str:
        return str(self.value["message"]["format"])

    @property
    def version(self) -> int:
        return int(self.value["message"]["version"])

    @property
    def data(self) -> Mapping[str, Any]:
        """The payload as stored: escapes and sealed leaves in place."""
        data: Mapping[str, Any] = self.value["message"]["data"]
        return data

    def payload(self, *, images: bool = True) -> Any:
        """The payload as the harness wrote it. Raises Damaged or NotFound for a bad leaf."""
        return codec.decode(self.data, self._open_blob, images=images)

    def open_blob(self, cid: CID) -> bytes:
        return self._open_blob(cid)


def tool_calls(data: Mapping[str, Any], open_blob: OpenBlob) -> list[str]:
    """The ids of the tool calls in a stored payload, in order."""
    content = data.get("content")
    if isinstance(content, dict) and content.get("$type") == BLOB_JSON:
        content = codec.decode(content, open_blob)
    if not isinstance(content, list):
        return []
    return [
        part["id"]
        for part in content
        if isinstance(part, dict)
        and part.get("type") == "toolCall"
        and isinstance(part.get("id"), str)
    ]


def answered_call(data: Mapping[str, Any]) -> str | None:
    """The id of the tool call that a stored toolResult payload answers."""
    call = data.get("toolCallId")
    return call if isinstance(call, str) else None
