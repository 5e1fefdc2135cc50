"""Payload formats: what the contract must know of a harness's own message form.

A `message` record carries its payload in an envelope of format, version and data. The
contract never looks into data by itself; it asks the `Format` registered for it. A format
may be registered from outside:

    from lettaspace.conversation.formats import Format, register

    register(Format("acme.msg", 1, texts=..., calls=..., answers=..., ...))

Payloads of a format that nobody registered are kept, shown raw, searched as plain strings,
and left out of windows.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.conversation.shapes import FREE, Shape
from lettaspace.errors import InvalidInput

OpenBlob = Callable[[CID], bytes]

Piece = tuple[str, str]
"""Where a text stands ("text", "thinking", "toolCall", "summary", ...), and the text."""

Stored = Mapping[str, Any]
"""A payload as stored: in the data model, escapes and sealed leaves in place."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call inside a payload."""

    id: str
    name: str


def names(call: str) -> tuple[str, ...]:
    """What a call may be called by. Some providers' ids have two halves, `call|item`; a
    result may carry the first alone, which comes last here."""
    head = call.partition("|")[0]
    return (call,) if head == call else (call, head)


@dataclass(frozen=True, slots=True)
class Format:
    """One payload format in one version. The functions take the stored form, so that images
    need not be opened; they may raise Damaged or NotFound for a leaf that cannot be."""

    name: str
    version: int
    texts: Callable[[Stored, OpenBlob], Iterator[Piece]]
    """The texts of a payload, in reading order, for search and previews."""
    calls: Callable[[Stored, OpenBlob], list[Call]]
    """The tool calls in a payload, in order."""
    answers: Callable[[Stored], str | None]
    """The id of the tool call that a payload is the result of."""
    placeholder: Callable[[Call, str, str], Any]
    """Makes the error result that settles a call: for a call, with a text, at a datetime."""
    is_placeholder: Callable[[Stored], bool]
    """Whether a tool result is one that `placeholder` made."""
    shape: Shape = FREE
    """Known structure, where the order of keys carries no meaning."""
    form: Callable[[Stored, OpenBlob], Stored] | None = None
    """The payload as a LocalMessage has it, stored as it is: `content` in parts, and where they
    are known `role`, `model`, `usage`, `stopReason`, `errorMessage`, `toolCallId`, `toolName`
    and `isError`. For whoever shows messages and counts usage; of a format that has none, they
    have the texts and the calls."""


_registered: dict[tuple[str, int], Format] = {}


def register(added: Format) -> None:
    """Makes a format known to this process. Raises InvalidInput if another one is already."""
    known = _registered.setdefault((added.name, added.version), added)
    if known is not added:
        raise InvalidInput(f"format {added.name} {added.version} is registered already")


def find(name: str, version: int) -> Format | None:
    """The format of an envelope, or None."""
    return _registered.get((name, version))


def of(message: Mapping[str, Any]) -> Format | None:
    """The format of a `message` record's payload, or None."""
    payload = message["message"]
    return find(payload["format"], payload["version"])
