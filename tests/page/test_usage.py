"""The table of usage: exact sums, amounts that can be read, and what they leave out."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.conversation.payload import AssistantMessage, Cost, Text, ToolCall, Usage
from lettaspace.conversation.space import Space
from lettaspace.conversation.usage import Row, Totals, UsageReport
from lettaspace.page.usage import dollars, exact_dollars, model_name, short, usage_table


def row(day: str, model: str | None, cost: str | None, tokens: int = 0) -> Row:
    used = Totals(responses=1, total=tokens, cost=Decimal(cost or 0), unpriced=int(cost is None))
    return Row(day, "acme", model, used)


@pytest.mark.parametrize(
    ("amount", "text", "exact"),
    [
        ("0", "$0", "$0"),
        ("0E-9", "$0", "$0"),
        ("0.0123", "$0.0123", "$0.0123"),
        ("0.5", "$0.50", "$0.50"),
        ("1E-7", "$0.0000001", "$0.0000001"),
        ("0.000049999999999999996", "$0.00005", "$0.000049999999999999996"),
        ("1.23456", "$1.23", "$1.23456"),
        ("1234.5", "$1,234.50", "$1,234.50"),
        ("1E+15", "$1,000,000,000,000,000.00", "$1,000,000,000,000,000.00"),
        ("7", "$7.00", "$7.00"),
        ("1E-30", "under $0.000000001", "$0." + "0" * 29 + "1"),
        ("0.99999", "$1.00", "$0.99999"),
    ],
)
def test_amounts(amount: str, text: str, exact: str) -> None:
    assert dollars(Decimal(amount)) == text
    assert exact_dollars(Decimal(amount)) == exact


@given(st.decimals(0, 10**17, allow_nan=False, allow_infinity=False, places=25))
def test_no_amount_has_an_exponent(amount: Decimal) -> None:
    for text in (dollars(amount), exact_dollars(amount)):
        assert re.fullmatch(r"(under )?\$[\d,]+(\.\d{2,})?", text)
    assert Decimal(exact_dollars(amount).replace("$", "").replace(",", "")) == amount


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (1234, "1.23k"),
        (12_345_678, "12.3M"),
        (10**16, "10kT"),
    ],
)
def test_short_numbers(number: int, text: str) -> None:
    assert short(Decimal(number)) == text


def test_names_of_models() -> None:
    assert model_name("acme", "m-1") == "acme / m-1"
    assert model_name(None, "m-1") == "m-1"
    assert model_name("acme", None) == "acme / unknown model"
    assert model_name(None, None) == "unknown model"
    assert model_name("a\n\u202e", "b\x1b") == "a␊\\u202e / b␛"
    assert len(model_name("a" * 99, "b")) == 60


def test_o22_the_table_skips_unknown_costs_and_says_how_many() -> None:
    table = usage_table(
        UsageReport(
            [
                row("2026-03-01", "a", "1e-7"),
                row("2026-03-01", "b", None),
                row("2026-03-02", "a", "0.1"),
            ]
        )
    )
    assert [(line.day, line.model, line.cost) for line in table.lines] == [
        ("2026-03-02", "acme / a", "$0.10"),
        ("2026-03-01", "acme / a", "$0.0000001"),
        ("2026-03-01", "acme / b", "unknown"),
    ]
    assert (table.total.cost, table.total.exact_cost) == ("$0.10", "$0.1000001")
    assert table.notes == ["The cost is unknown for 1 response."]


def test_o23_the_table_counts_a_response_once(home: Path) -> None:
    used = Usage(input=10, output=4, cost=Cost(total=0.25))
    of = {"provider": "acme", "model": "m-1", "response_id": "resp_7", "usage": used}
    with Space.open(home) as space:
        talk = space.create_conversation(space.create_agent("Otter"))
        talk.append(AssistantMessage([Text("Looking.")], **of))
        talk.append(AssistantMessage([ToolCall("c1", "ls")], **of))
        talk.fork()
        table = usage_table(space.usage())
    (line,) = table.lines
    assert (line.totals.input, line.totals.output, line.cost) == (10, 4, "$0.25")
    assert table.total.totals == line.totals
    assert table.notes == ["3 messages repeat responses that are counted already."]


def test_what_could_not_be_read() -> None:
    table = usage_table(UsageReport(copies=1, unreadable=1200))
    assert table.notes == [
        "1 message repeats a response that is counted already.",
        "The usage of 1,200 messages could not be read.",
    ]
    assert table.lines == []
    assert table.total.cost == "$0"
