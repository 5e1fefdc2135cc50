"""Usage as people look at it: a table by day and model, and the words for its numbers."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

from lettaspace.conversation.usage import Totals, UsageReport
from lettaspace.page.inert import inert
from lettaspace.page.words import counted

_NAME = 60
_UNKNOWN = "unknown"
_EXACT = Context(prec=200, rounding=ROUND_HALF_EVEN)
_CENT = Decimal("0.01")
_SMALLEST = Decimal("1E-9")
_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


@dataclass(frozen=True, slots=True)
class UsageLine:
    """A line of the table. Texts are inert, and still to be escaped."""

    day: str
    model: str
    totals: Totals
    cost: str
    """Rounded; "unknown" where no response has a cost."""
    exact_cost: str
    """The same to the last digit."""


@dataclass(frozen=True, slots=True)
class UsageTable:
    lines: list[UsageLine]
    """The newest day first, within a day by provider and model."""
    total: UsageLine
    """Its cost is the exact sum of the exact costs."""
    notes: list[str]
    """What the numbers leave out, a sentence each."""


def usage_table(report: UsageReport) -> UsageTable:
    """What a table under the plots shows."""
    lines = [_line(row.day, model_name(row.provider, row.model), row.totals) for row in report.rows]
    lines.sort(key=lambda line: line.day, reverse=True)
    return UsageTable(lines, _line("", "", report.total), usage_notes(report))


def usage_notes(report: UsageReport) -> list[str]:
    """What the numbers of a report leave out, a sentence each."""
    notes = []
    if unpriced := report.total.unpriced:
        notes.append(f"The cost is unknown for {counted(unpriced, 'response')}.")
    if copies := report.copies:
        verb = "repeats a response that is" if copies == 1 else "repeat responses that are"
        notes.append(f"{counted(copies, 'message')} {verb} counted already.")
    if unreadable := report.unreadable:
        notes.append(f"The usage of {counted(unreadable, 'message')} could not be read.")
    return notes


def usage_cost(totals: Totals) -> str:
    """The cost as people read it; "unknown" where no response has one."""
    return dollars(totals.cost) if _is_priced(totals) else _UNKNOWN


def model_name(provider: str | None, model: str | None) -> str:
    """One inert line."""
    parts = [part for part in (provider, model) if part is not None]
    name = " / ".join(parts) if model is not None else " / ".join([*parts, "unknown model"])
    return inert(name if len(name) <= _NAME else name[: _NAME - 1] + "…")


def isolated(text: str) -> str:
    """Inert text that cannot reorder what stands beside it in a tooltip."""
    return text if text.isascii() else f"\u2068{text}\u2069"


def dollars(amount: Decimal) -> str:
    """An amount as people read it, never with an exponent: `$1,234.50`, `$0.0123`, `$0`.

    In cents from a dollar on; below four decimals, or of less than a cent three digits.
    """
    if not amount:
        return "$0"
    if amount < _SMALLEST:
        return f"under {exact_dollars(_SMALLEST)}"
    with localcontext(_EXACT):
        if amount >= 1:
            rounded = amount.quantize(_CENT)
        elif amount >= _CENT:
            rounded = amount.quantize(Decimal("0.0001"))
        else:
            rounded = amount.quantize(Decimal(1).scaleb(amount.adjusted() - 2))
    return exact_dollars(rounded)


def exact_dollars(amount: Decimal) -> str:
    """An amount with all its digits, and at least cents."""
    whole, _, decimals = f"{amount:,f}".partition(".")
    decimals = decimals.rstrip("0")
    return f"${whole}.{decimals:0<2}" if decimals else f"${whole}" + (".00" if amount else "")


def short(number: Decimal) -> str:
    """A number in few characters: `950`, `12.5k`, `3M`. Cut to three digits, or exact where
    it has no more."""
    for size, unit in _UNITS:
        if number >= size:
            scaled = number / size
            text = short(scaled) if scaled >= 1000 else _three_digits(scaled)
            return text + unit
    return _three_digits(number)


def _three_digits(number: Decimal) -> str:
    places = max(0, 2 - max(0, number.adjusted()))
    text = f"{number:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _line(day: str, model: str, totals: Totals) -> UsageLine:
    exact = exact_dollars(totals.cost) if _is_priced(totals) else _UNKNOWN
    return UsageLine(day, model, totals, usage_cost(totals), exact)


def _is_priced(totals: Totals) -> bool:
    return totals.unpriced < totals.responses or not totals.responses
