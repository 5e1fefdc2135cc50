"""The plots: well-formed, inert, to scale, and with labels that can be read."""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lettaspace
from lettaspace.conversation.usage import Row, Totals, UsageReport
from lettaspace.page.axis import text_width
from lettaspace.page.plot import MODELS, cost_plot, tokens_plot

CSS = (Path(lettaspace.__file__).parent / "page" / "static" / "plot.css").read_text("utf-8")
SVG = "{http://www.w3.org/2000/svg}"
SERIES = re.compile(r"plot-(\d|others)( plot-edge)?")

HOSTILE = [
    "<script>alert(1)</script>\"'&",
    '" onload="alert(1)',
    "</title><a href='javascript:x'>",
    "\x1b[2J\u202egnp.exe\x00",
    "]]> <!-- {{ 7*7 }} url(http://x)",
    "\ud800" + "m" * 500,
]


def row(day: str, model: str | None = "m-1", tokens: int = 0, cost: str | None = "0") -> Row:
    used = Totals(
        responses=1,
        total=tokens,
        cost=Decimal(cost or 0),
        unpriced=int(cost is None),
    )
    return Row(day, None if model is None else "acme", model, used)


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)  # noqa: S314 - our own text


def drawing(markup: str, name: str = "wide") -> ElementTree.Element:
    (found,) = [
        svg for svg in parsed(markup).iter(f"{SVG}svg") if svg.get("class") == f"plot-{name}"
    ]
    return found


def bars(svg: ElementTree.Element) -> list[dict[str, float]]:
    """For each bar the heights of its parts, by class."""
    return [
        {
            found[1]: float(rect.get("height", ""))
            for rect in group.iter(f"{SVG}rect")
            if (found := SERIES.fullmatch(rect.get("class", "")))
        }
        for group in svg.iter(f"{SVG}g")
    ]


def middles(svg: ElementTree.Element) -> list[float]:
    areas = svg.iterfind(f".//{SVG}rect[@class='plot-area']")
    return [float(each.get("x", "")) + float(each.get("width", "")) / 2 for each in areas]


def texts(svg: ElementTree.Element, css: str) -> list[ElementTree.Element]:
    return svg.findall(f"{SVG}text[@class='plot-{css}']")


def scale(svg: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in svg.findall(f"{SVG}text[@text-anchor='end']")]


def many(days: int, models: int, start: date = date(2025, 12, 20)) -> UsageReport:
    rng = Random(days)
    return UsageReport(
        [
            row(
                (start + timedelta(number)).isoformat(),
                f"m-{model}",
                rng.randrange(1, 10**6) // (model + 1),
                f"{rng.randrange(1, 10**6)}e-6",
            )
            for number in range(days)
            for model in range(models)
        ]
    )


def test_heights_are_to_scale() -> None:
    report = UsageReport(
        [
            row("2026-03-01", "a", 300),
            row("2026-03-01", "b", 100),
            row("2026-03-04", "b", 50),
            row("2026-03-05", "a", 700),
        ]
    )
    svg = drawing(tokens_plot(report))
    first, second, third = bars(svg)
    unit = third["1"] / 700
    assert first == pytest.approx({"1": 300 * unit, "2": 100 * unit}, abs=0.002)
    assert second == pytest.approx({"2": 50 * unit}, abs=0.002)
    # Its place says when: three days between the first two, one between the others.
    one, two, three = middles(svg)
    assert two - one == pytest.approx(3 * (three - two), abs=0.01)
    # Parts stand upon each other, and all on the line below.
    lower, upper = (
        rect
        for rect in next(svg.iter(f"{SVG}g")).iter(f"{SVG}rect")
        if rect.get("class") != "plot-area"
    )
    top = float(upper.get("y", "")) + float(upper.get("height", ""))
    assert top == pytest.approx(float(lower.get("y", "")), abs=0.002)


def test_tips_have_the_exact_numbers() -> None:
    report = UsageReport(
        [
            row("2026-03-01", "a", 1_234_567, "0.000049999999999999996"),
            row("2026-03-01", "b", 1, "1"),
        ]
    )
    (tip,) = [each.text for each in drawing(tokens_plot(report)).iterfind(f"{SVG}g/{SVG}title")]
    assert tip == (
        "2026-03-01\nacme / b: 1 token\nacme / a: 1,234,567 tokens\nIn all: 1,234,568 tokens"
    )
    (tip,) = [each.text for each in drawing(cost_plot(report)).iterfind(f"{SVG}g/{SVG}title")]
    assert tip is not None
    assert "acme / a: $0.000049999999999999996" in tip
    assert "In all: $1.000049999999999999996" in tip


@pytest.mark.parametrize(
    ("largest", "labels"),
    [
        (1, ["0", "1"]),
        (7, ["0", "2", "4", "6", "8"]),
        (950, ["0", "200", "400", "600", "800", "1k"]),
        (1_500_000, ["0", "500k", "1M", "1.5M"]),
        (42_000_000, ["0", "10M", "20M", "30M", "40M", "50M"]),
    ],
)
def test_round_numbers_of_tokens(largest: int, labels: list[str]) -> None:
    assert scale(drawing(tokens_plot(UsageReport([row("2026-03-01", "a", largest)])))) == labels


@pytest.mark.parametrize(
    ("largest", "labels"),
    [
        ("0.93", ["$0", "$0.20", "$0.40", "$0.60", "$0.80", "$1.00"]),
        ("3", ["$0", "$1", "$2", "$3"]),
        ("0.0123", ["$0", "$0.005", "$0.010", "$0.015"]),
        ("1e-7", ["$0", "$2·10⁻⁸", "$4·10⁻⁸", "$6·10⁻⁸", "$8·10⁻⁸", "$1·10⁻⁷"]),
        ("12345", ["$0", "$5k", "$10k", "$15k"]),
    ],
)
def test_round_numbers_of_dollars(largest: str, labels: list[str]) -> None:
    report = UsageReport([row("2026-03-01", "a", 1, largest)])
    assert scale(drawing(cost_plot(report))) == labels


@pytest.mark.parametrize("name", ["wide", "narrow"])
@pytest.mark.parametrize("days", [1, 2, 3, 8, 12, 30, 40, 46, 90, 91, 150, 400, 700, 2000, 9000])
def test_labels_have_room_and_bars_are_few(days: int, name: str) -> None:
    svg = drawing(cost_plot(many(days, 2)), name)
    width, height = map(float, svg.get("viewBox", "").split()[2:])
    assert 0 < len(bars(svg)) <= {"wide": 90, "narrow": 45}[name]
    for css in ("date", "year"):
        found = texts(svg, css)
        ends = [0.0]
        for each in found:
            at, half = float(each.get("x", "")), text_width(each.text or "") / 2
            assert at - half >= ends[-1]
            ends.append(at + half)
        assert ends[-1] <= width
        assert found or css == "year"  # which is there but where bars are years
    heights = [float(each.get("y", "")) for each in svg.findall(f"{SVG}text[@text-anchor='end']")]
    assert all(above - below >= 16 for above, below in pairwise(heights))
    assert max(heights) < height
    for group in svg.iter(f"{SVG}g"):
        for rect in group.iter(f"{SVG}rect"):
            left, wide = float(rect.get("x", "")), float(rect.get("width", ""))
            assert left >= 0
            assert left + wide <= width
            assert float(rect.get("y", "")) >= 0


def test_sums_are_kept_when_days_are_drawn_together() -> None:
    report = many(400, 3)
    top = {"wide": Decimal(0), "narrow": Decimal(0)}
    for name in top:
        svg = drawing(tokens_plot(report), name)
        tips = [each.text or "" for each in svg.iterfind(f"{SVG}g/{SVG}title")]
        for tip in tips:
            top[name] += int(tip.rpartition("In all: ")[2].split()[0].replace(",", ""))
    assert top["wide"] == top["narrow"] == report.total.total


def test_the_smallest_models_are_others() -> None:
    plot = tokens_plot(many(5, 12))
    legend = ["".join(each.itertext()).strip() for each in parsed(plot).iterfind(".//ul/li")]
    assert len(legend) == MODELS + 1
    assert legend[0].startswith("acme / m-0 ")
    assert legend[-1].startswith("4 others ")
    assert {key for bar in bars(drawing(plot)) for key in bar} == {*"12345678", "others"}


def test_a_model_has_one_colour_in_both() -> None:
    report = UsageReport(
        [row("2026-03-01", "cheap", 10_000, "0.1"), row("2026-03-01", "dear", 900, "0.9")]
    )
    for plot in (tokens_plot(report), cost_plot(report)):
        legend = parsed(plot).findall(".//ul/li")
        assert [each[0][0].get("class") for each in legend] == ["plot-1", "plot-2"]
        assert "cheap" in "".join(legend[0].itertext())


def test_it_says_what_it_is() -> None:
    svg = drawing(tokens_plot(many(40, 2)))
    assert svg.get("role") == "img"
    named = svg.get("aria-labelledby", "").split()
    found = {each.get("id"): each.text for each in svg.iter() if each.get("id")}
    assert list(found) == named
    assert found[named[0]] == "Tokens by model: tokens per day"
    assert "from 2025-12-20 to 2026-01-28" in (found[named[1]] or "")
    both = tokens_plot(many(40, 2)) + cost_plot(many(40, 2))
    ids = re.findall(r' id="([^"]+)"', both)
    assert len(ids) == len(set(ids)) == 8


def test_it_is_the_same_each_time() -> None:
    report = many(30, 10)
    again = UsageReport(list(reversed(report.rows)))
    assert tokens_plot(report) == tokens_plot(report) == tokens_plot(again)
    assert cost_plot(report) == cost_plot(again)


def inert(markup: str) -> None:
    for each in parsed(markup).iter():
        name = each.tag.removeprefix(SVG)
        assert name in {
            "figure", "figcaption", "p", "ul", "li", "b", "svg", "title", "desc", "g", "rect",
            "path", "text",
        }  # fmt: skip
        for key in each.attrib:
            assert key in {
                "class", "viewBox", "role", "aria-labelledby", "aria-hidden", "id", "x", "y", "d",
                "width", "height", "rx", "text-anchor",
            }, key  # fmt: skip
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]", markup)


def test_names_of_models_do_nothing() -> None:
    report = UsageReport([row("2026-03-01", name, 10, "0.1") for name in HOSTILE])
    for plot in (tokens_plot(report), cost_plot(report)):
        inert(plot)
        plot.encode()
        assert "<script" not in plot
        assert "&lt;script&gt;" in plot
        assert len(max(parsed(plot).itertext(), key=len)) < 1500


ROWS = st.builds(
    row,
    st.dates().map(date.isoformat),
    st.none() | st.text(max_size=8) | st.sampled_from(HOSTILE),
    st.integers(0, 1 << 60) | st.integers(0, 9),
    st.none()
    | st.sampled_from(["0", "1e-60", "9.99e15", "0.5"])
    | st.decimals(0, 10**9, allow_nan=False, allow_infinity=False, places=12).map(str),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, max_size=12))
def test_any_report_can_be_drawn(rows: list[Row]) -> None:
    report = UsageReport(rows)
    for plot in (tokens_plot(report), cost_plot(report)):
        inert(plot)
        for svg in parsed(plot).iter(f"{SVG}svg"):
            for bar in bars(svg):
                assert all(0 <= height <= 290 for height in bar.values())
            for each in scale(svg):
                assert text_width(each) < 140


def test_nothing_to_draw() -> None:
    assert tokens_plot(UsageReport()) == '<p class="plot-nothing">No usage yet.</p>'
    free = cost_plot(UsageReport([row("2026-03-01", "a", 5, "0")]))
    assert "The cost is $0." in free
    assert "<svg" not in free
    assert "The cost is $0; unknown for 1 response." in cost_plot(
        UsageReport([row("2026-03-01", "a", 5, "0"), row("2026-03-02", "a", 5, None)])
    )


def test_o22_unknown_costs_are_left_out_and_counted() -> None:
    report = UsageReport(
        [row("2026-03-01", "a", 5, "1e-7"), *[row("2026-03-02", "b", 5, None)] * 3]
    )
    plot = cost_plot(report)
    assert "Cost unknown for 3 responses, not in the plot." in plot
    assert "acme / b" not in plot
    assert "$0.0000001<" in plot
    assert "unknown" not in tokens_plot(report)
    only = cost_plot(UsageReport([row("2026-03-02", "b", 5, None)]))
    assert "The cost of 1 response is unknown." in only


def test_colours_stand_out_from_the_page() -> None:
    light, dark = CSS.split("@media (prefers-color-scheme: dark)")[:2]
    for part, page in ((light, "#fbfaf8"), (dark.partition(".plot {")[0], "#151617")):
        assert f"--plot-page: var(--page, {page})" in part
        colours = dict(re.findall(r"--(plot-(?:\d|others)): (#[0-9a-f]{6})", part))
        assert len(colours) == len(set(colours.values())) == MODELS + 1
        for colour in colours.values():
            assert contrast(colour, page) >= 3


def test_every_class_has_its_rules() -> None:
    used = set(re.findall(r'class="([^"]+)"', tokens_plot(many(9, 12)) + cost_plot(many(9, 12))))
    names = {name for each in used for name in each.split()}
    plain = {"plot-line", "plot-date", "plot-year"}  # as all paths, as all texts
    assert {f".{name}" for name in names - plain} <= set(re.findall(r"\.plot[a-z0-9-]*", CSS))


def contrast(one: str, two: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(two)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
