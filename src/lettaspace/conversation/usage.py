"""What conversations used: tokens and cost, each provider response counted once.

One response may stand in several messages: split over rows, or copied into forks. It is known
by its provider and response id; one that has no id by when it was and what it said. Messages
of one response that differ in usage are read as stages of it, and the largest counts.

Tokens are whole numbers. Costs are summed exactly, as decimals of the text they were stored
with, in US dollars. A cost that is absent, or no sensible number, is unknown: such responses
are counted (`unpriced`), their tokens too.

Source: `usage` of LocalMessage; what counting too often looks like: ccusage's issues.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation import codec
from lettaspace.conversation.formats import OpenBlob, Stored
from lettaspace.conversation.jsontext import number_text
from lettaspace.conversation.records import LOCAL_MESSAGE
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.space import schema
from lettaspace.space.writes import Value

_K = TypeVar("_K")

_STAGES = timedelta(minutes=10)
"""How far apart the messages of one response may be. Some local servers draw their ids from
so few numbers that the same one comes again: then it is another response."""

_EXACT = Context(prec=120)
"""Digits for sums of costs of the sizes below."""
_LARGEST = 15
_SMALLEST = -60
_MAX_DIGITS = 80


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over responses."""

    responses: int = 0
    input: int = 0
    """Tokens read that no cache had."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    """Those of the output that were thinking, where the provider says so."""
    total: int = 0
    """All tokens."""
    cost: Decimal = Decimal(0)
    """US dollars, of the responses whose cost is known."""
    unpriced: int = 0
    """Responses whose cost is not known."""

    def __add__(self, other: "Totals") -> "Totals":
        with localcontext(_EXACT):
            cost = self.cost + other.cost
        counts = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name != "cost"
        }
        return Totals(cost=cost, **counts)


@dataclass(frozen=True, slots=True)
class Row:
    """What one model used on one day."""

    day: str
    """The date in UTC, as in 2026-03-09."""
    provider: str | None
    model: str | None
    totals: Totals


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Tokens and cost, in all and by day and model."""

    rows: list[Row] = field(default_factory=list)
    """By day, provider and model; a day without responses has none."""
    copies: int = 0
    """Messages that were not counted, since another one holds the same response."""
    unreadable: int = 0
    """Messages whose usage could not be read."""

    @property
    def total(self) -> Totals:
        return sum((row.totals for row in self.rows), Totals())

    def by_day(self) -> dict[str, Totals]:
        return _grouped((row.day, row.totals) for row in self.rows)

    def by_model(self) -> dict[tuple[str | None, str | None], Totals]:
        """By provider and model."""
        return _grouped(((row.provider, row.model), row.totals) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Response:
    """What a message says of the provider response that it came from."""

    provider: str | None
    model: str | None
    id: str | None
    totals: Totals


def count_usage(
    connection: Connection,
    open_blob: OpenBlob,
    *,
    conversation: str | None = None,
    agent: str | None = None,
) -> UsageReport:
    """What was used in a conversation, by an agent (their URIs), or in all of a store."""
    counted: list[_Counted] = []
    by_key: dict[Any, _Counted] = {}
    copies = unreadable = 0
    for stored in _messages(connection, conversation):
        try:
            value = cbor.decode(stored)
            if value["role"] != "assistant" or agent not in (None, value["agent"]):
                continue
            response = _response(value, open_blob)
        except (Damaged, InvalidInput, NotFound, RecursionError):
            unreadable += 1
            continue
        if response is None:
            continue
        key, at = _key(value, response), _moment(value["createdAt"])
        known = by_key.get(key)
        if known is not None and abs(at - known.last) <= _STAGES:
            copies += 1
            known.last = at
            if _size(response) > _size(known.response):
                known.response = response
        else:
            by_key[key] = _Counted(response, at.date().isoformat(), at)
            counted.append(by_key[key])
    grouped = _grouped(
        ((each.day, each.response.provider, each.response.model), each.response.totals)
        for each in counted
    )
    order = sorted(grouped, key=lambda key: tuple(part or "" for part in key))
    return UsageReport([Row(*key, grouped[key]) for key in order], copies, unreadable)


@dataclass(slots=True)
class _Counted:
    response: Response
    day: str
    last: datetime


def _messages(connection: Connection, conversation: str | None) -> Iterator[bytes]:
    index = schema.message_index.c
    names = schema.message_conversations.c
    query = (
        select(schema.records.c.value)
        .join(schema.message_index, index.record == schema.records.c.id)
        .order_by(index.created_at, index.rkey)
    )
    if conversation is not None:
        query = query.join(schema.message_conversations, names.id == index.conversation)
        query = query.where(names.uri == conversation)
    return iter(connection.execute(query).scalars())


def _response(value: Value, open_blob: OpenBlob) -> Response | None:
    payload = value["message"]
    if (payload["format"], payload["version"]) != (LOCAL_MESSAGE, 1):
        return None
    return _local_message(payload["data"], open_blob)


def _local_message(data: Stored, open_blob: OpenBlob) -> Response | None:
    if "$type" in data:
        data = codec.decode(data, open_blob, images=False)
        if not isinstance(data, dict):
            return None
    metadata = data.get("metadata")
    noted = metadata.get("provider") if isinstance(metadata, dict) else None
    parts = {key: data.get(key) for key in ("provider", "model", "responseId", "usage")}
    found = codec.decode({**parts, "noted": noted}, open_blob)
    noted = found["noted"] if isinstance(found["noted"], dict) else {}
    used = found["usage"] if isinstance(found["usage"], dict) else noted.get("usage")
    if not isinstance(used, dict):
        return None
    return Response(
        _text(found["provider"]) or _text(noted.get("provider_id")),
        _text(found["model"]) or _text(noted.get("model_id")),
        _text(found["responseId"]) or _text(noted.get("response_id")),
        _totals(used),
    )


def _totals(used: Mapping[str, Any]) -> Totals:
    names = {"input": "input", "output": "output", "cache_read": "cacheRead"}
    names |= {"cache_write": "cacheWrite", "reasoning": "reasoning"}
    counts: dict[str, Any] = {name: _count(used.get(key)) for name, key in names.items()}
    total = _count(used.get("totalTokens")) or (
        counts["input"] + counts["output"] + counts["cache_read"] + counts["cache_write"]
    )
    cost = _cost(used.get("cost"))
    known = Totals(responses=1, total=total, **counts)
    return replace(known, unpriced=1) if cost is None else replace(known, cost=cost)


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
    with localcontext(_EXACT):
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


def _key(value: Value, response: Response) -> Any:
    if response.id is not None:
        return response.provider, response.id
    said = {"content": value["message"]["data"].get("content")}
    return value["createdAt"], CID.for_cbor(cbor.encode(said))


def _size(response: Response) -> tuple[int, Decimal]:
    return response.totals.total, response.totals.cost


def _moment(written: str) -> datetime:
    try:
        return datetime.fromisoformat(written).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime(1970, 1, 1, tzinfo=UTC)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _grouped(pairs: Iterable[tuple[_K, Totals]]) -> dict[_K, Totals]:
    sums: dict[_K, Totals] = {}
    for key, totals in pairs:
        sums[key] = sums.get(key, Totals()) + totals
    return sums
