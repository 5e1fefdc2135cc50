"""Sums over provider responses, by day and model, each response counted once.

`usage` says by which rules.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import date
from decimal import Decimal, localcontext
from operator import add, itemgetter
from typing import TypeVar

from lettaspace.conversation.responses import EXACT, Counts, Response, Unreadable

_K = TypeVar("_K")

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_FIRST_DAY = date(1970, 1, 1).toordinal()

_STAGES = 600 * _SECOND
"""How far apart the messages of one response may be, in microseconds. Some local servers draw
their ids from so few numbers that the same one comes again: then it is another response."""


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
        with localcontext(EXACT):
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


def add_up(
    said: Iterable[tuple[str, Response | Unreadable | None]],
    conversation: str | None,
    agent: str | None,
) -> UsageReport:
    """What messages, by record key, say in all."""
    unreadable = 0
    responses: list[tuple[int, str, Response]] = []
    for rkey, each in said:
        if isinstance(each, Response):
            place = each.place
            if conversation in (None, place.conversation) and agent in (None, place.agent):
                responses.append((each.at, rkey, each))
        elif each is not None:
            # One that cannot be decoded at all may be of any agent.
            of_agent = agent is None or each.agent in (None, agent)
            unreadable += conversation in (None, each.conversation) and of_agent
    responses.sort(key=itemgetter(0, 1))
    counted: list[_Counted] = []
    by_key: dict[bytes, _Counted] = {}
    for at, _, response in responses:
        known = by_key.get(response.key)
        if known is not None and at - known.last <= _STAGES:
            known.last = at
            if _size(response) > _size(known.response):
                known.response = response
        else:
            by_key[response.key] = known = _Counted(response, at // _DAY, at)
            counted.append(known)
    return UsageReport(_rows(counted), len(responses) - len(counted), unreadable)


@dataclass(slots=True)
class _Counted:
    response: Response
    day: int
    last: int


def _rows(counted: Iterable[_Counted]) -> list[Row]:
    sums: dict[tuple[int, str | None, str | None], _Sum] = {}
    with localcontext(EXACT):
        for each in counted:
            place = each.response.place
            key = each.day, place.provider, place.model
            if key not in sums:
                sums[key] = _Sum()
            sums[key].add(each.response)
    order = sorted(sums, key=lambda key: (key[0], key[1] or "", key[2] or ""))
    days = {day: date.fromordinal(_FIRST_DAY + day).isoformat() for day, _, _ in order}
    return [Row(days[key[0]], *key[1:], sums[key].totals()) for key in order]


class _Sum:
    """`Totals` in the making."""

    __slots__ = ("cost", "counts", "responses", "unpriced")

    def __init__(self) -> None:
        self.responses = self.unpriced = 0
        self.counts = Counts(0, 0, 0, 0, 0, 0)
        self.cost = Decimal(0)

    def add(self, response: Response) -> None:
        self.responses += 1
        self.counts = Counts(*map(add, self.counts, response.counts))
        cost = response.cost
        if cost is None:
            self.unpriced += 1
        else:
            self.cost += cost

    def totals(self) -> Totals:
        return Totals(
            responses=self.responses,
            cost=self.cost,
            unpriced=self.unpriced,
            **self.counts._asdict(),
        )


def _size(response: Response) -> tuple[int, Decimal]:
    return response.counts.total, response.cost or Decimal(0)


def _grouped(pairs: Iterable[tuple[_K, Totals]]) -> dict[_K, Totals]:
    sums: dict[_K, Totals] = {}
    for key, totals in pairs:
        sums[key] = sums.get(key, Totals()) + totals
    return sums
