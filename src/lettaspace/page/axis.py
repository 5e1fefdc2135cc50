"""Axes of plots: round numbers upwards, dates along the bottom."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal, localcontext
from itertools import pairwise

_EXACT = Context(prec=200)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CHARACTER = 7.2
"""How wide a character of a label is at most, on average."""
_GAP = 10.0
"""What is left free between two labels."""


def text_width(text: str) -> float:
    return len(text) * _CHARACTER


def ticks(largest: Decimal, about: int, smallest_step: Decimal) -> list[Decimal]:
    """From 0 up to at least `largest`, in steps of 1, 2 or 5 times a power of ten."""
    with localcontext(_EXACT):
        wanted = max(largest / about, smallest_step)
        power = Decimal(1).scaleb(wanted.adjusted())
        step = next(step for n in (1, 2, 5, 10) if (step := power * n) >= wanted)
        # The whole part is taken by the integers, which have no precision to run out of.
        number = -int(-largest // step)
        number += step * number < largest
        return [step * each for each in range(max(1, number) + 1)]


@dataclass(frozen=True, slots=True)
class Unit:
    """A span of time that one bar stands for. Spans are numbered through, without gaps."""

    name: str
    number: Callable[[date], int]
    span: Callable[[int], str]
    """What a span is called, in full."""
    label: Callable[[int], tuple[str, str]]
    """What it is called below an axis, and the year."""
    steps: Sequence[Callable[[int], bool]]
    """Which spans may be labelled: ever fewer."""


@dataclass(frozen=True, slots=True)
class Label:
    at: float
    text: str
    year: str
    """Empty where the label to the left is of the same year."""


def unit_for(days: Sequence[date], limit: int) -> Unit:
    """The smallest unit of which at most `limit` cover all the days."""
    first, last = min(days), max(days)
    return next(
        unit
        for unit in UNITS
        if unit.number(last) - unit.number(first) < limit or unit is UNITS[-1]
    )


def labels(unit: Unit, spans: range, place: Callable[[int], float]) -> list[Label]:
    """As many labels as there is room for; `place` says where the middle of a span is."""
    found: list[Label] = []
    for chosen in unit.steps:
        found = list(_labels(unit, filter(chosen, spans), place))
        if found and _fit(found):
            return found
    return found[:1] or list(_labels(unit, iter(spans[:1]), place))


def _labels(unit: Unit, spans: Iterator[int], place: Callable[[int], float]) -> Iterator[Label]:
    before = ""
    for span in spans:
        text, year = unit.label(span)
        yield Label(place(span), text, "" if year == before else year)
        before = year


def _fit(found: Sequence[Label]) -> bool:
    return all(
        right.at - left.at >= (_wide(left) + _wide(right)) / 2 + _GAP
        for left, right in pairwise(found)
    )


def _wide(label: Label) -> float:
    return max(text_width(label.text), text_width(label.year))


def _every(step: int, phase: int = 0) -> Callable[[int], bool]:
    return lambda span: (span - phase) % step == 0


def _day(start: date) -> tuple[str, str]:
    return f"{start.day} {_MONTHS[start.month - 1]}", f"{start.year}"


def _monday(week: int) -> date:
    return date.fromordinal(week * 7 + 1)


def _first_of(step: int) -> Callable[[int], bool]:
    """The first week of every so manieth month."""
    return lambda week: (start := _monday(week)).day <= 7 and (start.month - 1) % step == 0


def _years(name: str, size: int) -> Unit:
    return Unit(
        name,
        lambda day: day.year // size,
        lambda span: (
            f"{span * size}" if size == 1 else f"{span * size} to {span * size + size - 1}"
        ),
        lambda span: (f"{span * size}", ""),
        [_every(step) for step in (1, 2, 5, 10, 20, 50)],
    )


# Day 1 of the calendar was a Monday.
_DAYS = (_every(1), _every(2), _every(3), _every(4), _every(7, 1), _every(14, 1), _every(28, 1))

UNITS = (
    Unit(
        "day",
        date.toordinal,
        lambda span: date.fromordinal(span).isoformat(),
        lambda span: _day(date.fromordinal(span)),
        _DAYS,
    ),
    Unit(
        "week",
        lambda day: (day.toordinal() - 1) // 7,
        lambda span: f"Week of {_monday(span).isoformat()}",
        lambda span: (_MONTHS[(start := _monday(span)).month - 1], f"{start.year}"),
        [_first_of(step) for step in (1, 2, 3, 6, 12)],
    ),
    Unit(
        "month",
        lambda day: day.year * 12 + day.month - 1,
        lambda span: f"{_MONTHS[span % 12]} {span // 12}",
        lambda span: (_MONTHS[span % 12], f"{span // 12}"),
        [_every(step) for step in (1, 2, 3, 6, 12, 24)],
    ),
    _years("year", 1),
    _years("decade", 10),
    _years("century", 100),
    _years("millennium", 1000),
)
"""From the smallest to one of which a few cover every date there is."""
