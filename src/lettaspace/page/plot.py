"""Usage over time as pictures: stacked bars of tokens and of cost, by model.

Each is a `figure` with two drawings, for wide and for narrow pages, of which `plot.css` shows
one, and a legend. They have no script, no style of their own and no links: colours are
classes. What a bar stands for is its tooltip, too; the table of `page.usage` has it as text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal, localcontext

from markupsafe import Markup

from lettaspace.conversation.usage import Totals, UsageReport
from lettaspace.page.axis import Unit, labels, text_width, ticks, unit_for
from lettaspace.page.usage import dollars, exact_dollars, isolated, model_name, short
from lettaspace.page.words import counted

MODELS = 8
"""If there are more models than these, the smallest are drawn as one, the others."""

_EXACT = Context(prec=200)
_LEAST_SPANS = 7
_TOP, _BOTTOM, _LEFT, _RIGHT = 30.0, 42.0, 54.0, 26.0
_WIDEST_BAR = 44.0
_EDGED = 3.0
"""Parts of a bar that are lower than this have no edge: nothing would be left of them."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_Model = tuple[str | None, str | None]
_Amounts = Mapping[int, Decimal]
"""An amount for each series, by its number."""


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a plot shows of totals, and how."""

    name: str
    title: str
    unit: str
    of: Callable[[Totals], Decimal]
    exact: Callable[[Decimal], str]
    rough: Callable[[Decimal], str]
    tick: Callable[[Decimal, Decimal], str]
    """A label for an amount on an axis with such steps."""
    smallest_step: Decimal


@dataclass(frozen=True, slots=True)
class _Frame:
    """The size of a drawing, in its own units, and how many bars it has room for."""

    name: str
    width: float
    height: float
    bars: int


_FRAMES = (_Frame("wide", 800, 290, 90), _Frame("narrow", 360, 280, 45))


def tokens_plot(report: UsageReport) -> Markup:
    """Tokens over time, by model."""
    return _figure(report, _TOKENS)


def cost_plot(report: UsageReport) -> Markup:
    """US dollars over time, by model; of the responses whose cost is known."""
    return _figure(report, _COST)


def _figure(report: UsageReport, measure: _Measure) -> Markup:
    if not report.rows:
        return Markup('<p class="plot-nothing">No usage yet.</p>')
    with localcontext(_EXACT):
        places = _places(report)
        days: dict[date, dict[int, Decimal]] = {}
        for row in report.rows:
            day = days.setdefault(date.fromisoformat(row.day), {})
            _add(day, {places[row.provider, row.model]: measure.of(row.totals)})
        sums: dict[int, Decimal] = {}
        for amounts in days.values():
            _add(sums, amounts)
        names = {at: _name(at, places) for at in sorted(sums)}
        if sums:
            drawn = [_Drawing(frame, measure, names, days).markup() for frame in _FRAMES]
            body = Markup("").join([*drawn, _legend(measure, names, sums)])
        else:
            body = Markup('<p class="plot-nothing">{}</p>').format(_nothing(report.total))
    caption = Markup("<figcaption>{}</figcaption>").format(measure.title)
    note = _note(report.total) if measure is _COST and sums else ""
    return Markup('<figure class="plot">{}{}{}</figure>').format(caption, body, note)


def _places(report: UsageReport) -> dict[_Model, int]:
    """The series of each model, 0 for the largest, `MODELS` for the others.

    By tokens or by cost, whichever is the larger share, so that a model has one colour in
    both plots.
    """
    models, total = report.by_model(), report.total

    def share(model: _Model) -> Decimal:
        used = models[model]
        return max(Decimal(used.total) / (total.total or 1), used.cost / (total.cost or 1))

    order = sorted(models, key=lambda model: (-share(model), model[0] or "", model[1] or ""))
    return {model: min(at, MODELS) for at, model in enumerate(order)}


def _name(series: int, places: Mapping[_Model, int]) -> str:
    """Inert; isolated, so that it cannot reorder what stands beside it."""
    models = [model for model, place in places.items() if place == series]
    return counted(len(models), "other") if series == MODELS else isolated(model_name(*models[0]))


def _add(sums: dict[int, Decimal], amounts: _Amounts) -> None:
    for series, amount in amounts.items():
        if amount:
            sums[series] = sums.get(series, Decimal(0)) + amount


def _css(series: int) -> str:
    return "plot-others" if series == MODELS else f"plot-{series + 1}"


def _legend(measure: _Measure, names: Mapping[int, str], sums: _Amounts) -> Markup:
    """From the bottom of the bars upwards."""
    item = Markup(
        '<li><svg class="plot-key" viewBox="0 0 12 12" aria-hidden="true">'
        '<rect width="12" height="12" rx="2" class="{}"/></svg> {} <b>{}</b></li>'
    )
    items = [item.format(_css(at), name, measure.rough(sums[at])) for at, name in names.items()]
    return Markup('<ul class="plot-legend">{}</ul>').format(Markup("").join(items))


def _nothing(total: Totals) -> str:
    if total.unpriced == total.responses:
        return f"The cost of {counted(total.responses, 'response')} is unknown."
    rest = f"; unknown for {counted(total.unpriced, 'response')}" if total.unpriced else ""
    return f"The cost is $0{rest}."


def _note(total: Totals) -> Markup:
    if not total.unpriced:
        return Markup("")
    return Markup('<p class="plot-note">Cost unknown for {}, not in the plot.</p>').format(
        counted(total.unpriced, "response")
    )


class _Drawing:
    """One drawing of a plot."""

    def __init__(
        self,
        frame: _Frame,
        measure: _Measure,
        names: Mapping[int, str],
        days: Mapping[date, _Amounts],
    ) -> None:
        self.frame, self.measure, self.names = frame, measure, names
        self.unit: Unit = unit_for(list(days), frame.bars)
        self.bars: dict[int, dict[int, Decimal]] = {}
        for day, amounts in days.items():
            _add(self.bars.setdefault(self.unit.number(day), {}), amounts)
        first, last = min(self.bars), max(self.bars)
        self.spans = range(min(first, max(0, last - _LEAST_SPANS + 1)), last + 1)
        largest = max(sum(amounts.values(), Decimal(0)) for amounts in self.bars.values())
        self.ticks = ticks(largest, 5, measure.smallest_step)
        self.tick_labels = [measure.tick(tick, self.ticks[1]) for tick in self.ticks]
        self.left = max(_LEFT, 12 + max(map(text_width, self.tick_labels)))
        self.step = (frame.width - self.left - _RIGHT) / len(self.spans)

    def markup(self) -> Markup:
        frame, name = self.frame, f"plot-{self.measure.name}-{self.frame.name}"
        return Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" class="plot-{0}" viewBox="0 0 {1} {2}" '
            'role="img" aria-labelledby="{3}-title {3}-about">'
            '<title id="{3}-title">{4}</title><desc id="{3}-about">{5}</desc>{6}{7}{8}</svg>'
        ).format(
            frame.name,
            _number(frame.width),
            _number(frame.height),
            name,
            f"{self.measure.title}: {self._per}",
            self._about(),
            self._upwards(),
            Markup("").join(self._bar(span) for span in self.spans if self.bars.get(span)),
            self._along(),
        )

    @property
    def _per(self) -> str:
        return f"{self.measure.unit} per {self.unit.name}"

    @property
    def _base(self) -> float:
        return self.frame.height - _BOTTOM

    def _about(self) -> str:
        total = sum((sum(bar.values(), Decimal(0)) for bar in self.bars.values()), Decimal(0))
        used = [span for span in sorted(self.bars) if self.bars[span]]
        top = max(used, key=lambda span: (sum(self.bars[span].values()), -span))
        most = self.measure.rough(sum(self.bars[top].values(), Decimal(0)))
        return (
            f"{self.measure.rough(total)} in all, from {self.unit.span(used[0])} to "
            f"{self.unit.span(used[-1])}; the most, {most}: {self.unit.span(top)}. "
            f"From the bottom upwards: {', '.join(self.names.values())}."
        )

    def _height(self, amount: Decimal) -> float:
        return float(amount / self.ticks[-1]) * (self._base - _TOP)

    def _middle(self, span: int) -> float:
        return self.left + (span - self.spans[0] + 0.5) * self.step

    def _upwards(self) -> Markup:
        text = Markup('<text x="{}" y="{}" text-anchor="end">{}</text>')
        parts = [Markup('<text x="0" y="13">{}</text>').format(self._per)]
        for tick, label in zip(self.ticks, self.tick_labels, strict=True):
            at = self._base - self._height(tick)
            parts.append(self._line("plot-line", at) if tick else Markup(""))
            parts.append(text.format(_number(self.left - 8), _number(at + 4.5), label))
        return Markup("").join(parts)

    def _line(self, css: str, at: float) -> Markup:
        ends = _number(self.left), _number(at), _number(self.frame.width - _RIGHT)
        return Markup('<path class="{}" d="M{} {}H{}"/>').format(css, *ends)

    def _bar(self, span: int) -> Markup:
        amounts = sorted(self.bars[span].items())
        wide = min(self.step * 0.78, _WIDEST_BAR)
        left, bottom = self._middle(span) - wide / 2, self._base
        parts: list[Markup] = []
        part = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
        for series, amount in amounts:
            height = self._height(amount)
            bottom -= height
            css = _css(series) + (" plot-edge" if height >= _EDGED else "")
            box = (left, bottom, wide, height)
            parts.append(part.format(css, *map(_number, box)))
        # Low bars are hard to point at, so the whole height answers.
        box = (self._middle(span) - self.step / 2, _TOP, self.step, self._base - _TOP)
        area = part.format("plot-area", *map(_number, box))
        return Markup("<g><title>{}</title>{}{}</g>").format(
            self._tip(span), area, Markup("").join(parts)
        )

    def _tip(self, span: int) -> str:
        amounts, exact = self.bars[span], self.measure.exact
        lines = [f"{self.names[at]}: {exact(amounts[at])}" for at in sorted(amounts, reverse=True)]
        if len(lines) > 1:
            lines.append(f"In all: {exact(sum(amounts.values(), Decimal(0)))}")
        return "\n".join([self.unit.span(span), *lines])

    def _along(self) -> Markup:
        text = Markup('<text class="plot-{}" x="{}" y="{}" text-anchor="middle">{}</text>')
        found = [self._line("plot-base", self._base)]
        for label in labels(self.unit, self.spans, self._middle):
            at = _number(label.at)
            found.append(text.format("date", at, _number(self._base + 18), label.text))
            if label.year:
                found.append(text.format("year", at, _number(self._base + 34), label.year))
        return Markup("").join(found)


def _number(value: float) -> str:
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _dollar_tick(amount: Decimal, step: Decimal) -> str:
    if not amount:
        return "$0"
    if amount >= 1000:
        return f"${short(amount)}"
    if step >= 1:
        return f"${amount:.0f}"
    if step.adjusted() >= -4:
        return f"${amount:.{max(2, -step.adjusted())}f}"
    power = amount.adjusted()
    digits = f"{amount.scaleb(-power).normalize():f}"
    return f"${digits}·10{str(power).translate(_SUPERSCRIPTS)}"


_TOKENS = _Measure(
    "tokens",
    "Tokens by model",
    "tokens",
    of=lambda totals: Decimal(totals.total),
    exact=lambda amount: counted(int(amount), "token"),
    rough=short,
    tick=lambda amount, _step: short(amount),
    smallest_step=Decimal(1),
)
_COST = _Measure(
    "cost",
    "Cost by model",
    "US dollars",
    of=lambda totals: totals.cost,
    exact=exact_dollars,
    rough=dollars,
    tick=_dollar_tick,
    smallest_step=Decimal("1E-70"),
)
