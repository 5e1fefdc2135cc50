"""What a message says of the provider response that it came from: tokens and cost.

Kept small, since a process may remember a hundred thousand of them.

Source: `usage` of LocalMessage.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation import codec, formats
from lettaspace.conversation.formats import OpenBlob, Stored
from lettaspace.conversation.jsontext import number_text
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.space.writes import Value

EXACT = Context(prec=120)
"""Digits for sums of costs of the sizes below."""
_LARGEST = 15
_SMALLEST = -60
_MAX_DIGITS = 80

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NUMBERS = Struct("<7q")
_KEY_SIZE = 15  # with the head of a bytes object, a whole number of words

# A record of another role than "assistant" begins like this: a map with the keys `seq`, a whole
# number, and `role`. Most messages are such, and need not be decoded to know it.
_OTHER_ROLE = re.compile(
    rb"(?:[\xa1-\xb7]|\xb8.)\x63seq"
    rb"(?:[\x00-\x17]|\x18.|\x19..|\x1a.{4}|\x1b.{8})\x64role(?!\x69assistant)",
    re.DOTALL,
).match

_USED = ("input", "output", "cacheRead", "cacheWrite", "reasoning", "totalTokens", "cost")


class Place(NamedTuple):
    """Whose response it is. The many responses of one place share the object."""

    conversation: str
    agent: str
    provider: str | None
    model: str | None


class Counts(NamedTuple):
    """Tokens of one response; `usage.Totals` says what each is."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    total: int


class Unreadable(NamedTuple):
    """A message whose usage could not be read, and as much as is known of whose it is."""

    conversation: str | None
    agent: str | None


@dataclass(frozen=True, slots=True)
class Response:
    """One message's word on a response."""

    place: Place
    key: bytes
    """Equal in messages that may be of one response."""
    packed: bytes
    """When, the counts, and the text of the cost, which is empty where it is unknown."""

    @property
    def at(self) -> int:
        """When the message was made, in microseconds since 1970."""
        return int.from_bytes(self.packed[:8], "little", signed=True)

    @property
    def counts(self) -> Counts:
        return Counts(*_NUMBERS.unpack_from(self.packed)[1:])

    @property
    def cost(self) -> Decimal | None:
        """In US dollars; None where it is unknown."""
        text = self.packed[_NUMBERS.size :]
        return Decimal(text.decode()) if text else None


class Reader:
    """Reads records of messages."""

    def __init__(self, open_blob: OpenBlob) -> None:
        self._open_blob = open_blob
        self._places: dict[Place, Place] = {}

    def read(self, record: bytes) -> Response | Unreadable | None:
        """What a record, as stored, says; None where it speaks of no response."""
        if _OTHER_ROLE(record):
            return None
        whose = Unreadable(None, None)
        try:
            value: Value = cbor.decode(record)
            if value["role"] != "assistant":
                return None
            whose = Unreadable(value["conversation"], value["agent"])
            known = formats.of(value)
            if known is None or known.form is None:
                return None
            form = known.form(value["message"]["data"], self._open_blob)
            return self._local_message(value, form)
        except (Damaged, InvalidInput, NotFound, RecursionError):
            return whose

    def _local_message(self, value: Value, stored: Stored) -> Response | None:
        data = stored
        if "$type" in data:
            data = codec.decode(data, self._open_blob, images=False)
            if not isinstance(data, dict):
                return None
        found = self._decode(data, ("provider", "model", "responseId"))
        used = self._used(data.get("usage"))
        provider, model, id_ = map(_text, found.values())
        if used is None or None in (provider, model, id_):
            # Letta notes the same in a second place.
            metadata = data.get("metadata")
            noted = metadata.get("provider") if isinstance(metadata, dict) else None
            if isinstance(noted, dict) and "$type" in noted:
                noted = codec.decode(noted, self._open_blob)
            if isinstance(noted, dict):
                found = self._decode(noted, ("provider_id", "model_id", "response_id"))
                also = [_text(each) for each in found.values()]
                provider, model, id_ = provider or also[0], model or also[1], id_ or also[2]
                used = self._used(noted.get("usage")) if used is None else used
        if used is None:
            return None
        place = Place(value["conversation"], value["agent"], provider, model)
        cost = _cost(used.get("cost"))
        numbers = _NUMBERS.pack(_moment(value["createdAt"]), *_counts(used))
        return Response(
            self._places.setdefault(place, place),
            _key(value["createdAt"], stored, provider, id_),
            numbers + (b"" if cost is None else str(cost).encode()),
        )

    def _decode(self, data: Stored, names: tuple[str, ...]) -> dict[str, Any]:
        found = {name: data.get(name) for name in names}
        if not any(isinstance(each, dict) for each in found.values()):
            return found
        return {name: codec.decode(each, self._open_blob) for name, each in found.items()}

    def _used(self, usage: Any) -> Mapping[str, Any] | None:
        """The usage, as far as it is looked at: to decode all of it takes most of the time."""
        if not isinstance(usage, dict):
            return None
        if "$type" not in usage:
            usage = {name: usage[name] for name in _USED if name in usage}
            cost = usage.get("cost")
            if isinstance(cost, dict) and "$type" not in cost and "total" in cost:
                usage["cost"] = {"total": cost["total"]}
        used = codec.decode(usage, self._open_blob)
        return used if isinstance(used, dict) else None


def _counts(used: Mapping[str, Any]) -> Counts:
    read, written = _count(used.get("input")), _count(used.get("output"))
    cache_read, cache_write = _count(used.get("cacheRead")), _count(used.get("cacheWrite"))
    total = _count(used.get("totalTokens")) or read + written + cache_read + cache_write
    return Counts(read, written, cache_read, cache_write, _count(used.get("reasoning")), total)


def _count(value: Any) -> int:
    """A number of tokens; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 1 << 53 else 0


def _cost(cost: Any) -> Decimal | None:
    if not isinstance(cost, dict):
        return None
    if "total" in cost:
        return _amount(cost["total"])
    parts = [cost[key] for key in ("input", "output", "cacheRead", "cacheWrite") if key in cost]
    amounts = [amount for part in parts if (amount := _amount(part)) is not None]
    if not parts or len(amounts) < len(parts):
        return None
    with localcontext(EXACT):
        return sum(amounts, Decimal(0))


def _amount(value: Any) -> Decimal | None:
    """A cost, of its text; None for what is none or has more digits than any cost."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    text = number_text(value) if isinstance(value, float) else str(value)
    if len(text) > _MAX_DIGITS:
        return None
    amount = Decimal(text)
    if not amount:
        return Decimal(0)
    exponent = amount.as_tuple().exponent
    # For what is no number at all, the exponent is a letter.
    fits = isinstance(exponent, int) and exponent >= _SMALLEST and amount.adjusted() <= _LARGEST
    return amount if fits and amount > 0 else None


def _key(at: str, data: Stored, provider: str | None, id_: str | None) -> bytes:
    if id_ is not None:
        named = ascii(("id", provider, id_))
    else:
        said = cbor.encode({"content": data.get("content")})
        named = ascii(("said", at, str(CID.for_cbor(said))))
    return blake2b(named.encode(), digest_size=_KEY_SIZE).digest()


def _moment(written: str) -> int:
    try:
        return (datetime.fromisoformat(written).astimezone(UTC) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
