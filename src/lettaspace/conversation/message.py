"""One stored message, as the reading side hands it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.conversation import codec, formats
from lettaspace.conversation.formats import OpenBlob
from lettaspace.space.writes import Value


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

    def form(self, *, images: bool = True) -> Any:
        """The payload as a LocalMessage has it, whichever harness wrote it; as it is, where its
        format has no such form. Raises as `payload`."""
        known = formats.of(self.value)
        data = self.data
        if known is not None and known.form is not None:
            data = known.form(data, self._open_blob)
        return codec.decode(data, self._open_blob, images=images)

    def open_blob(self, cid: CID) -> bytes:
        return self._open_blob(cid)
