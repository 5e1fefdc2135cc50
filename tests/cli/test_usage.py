"""`usage` as people and programs meet it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from lettaspace.conversation import jsontext
from lettaspace.conversation.payload import AssistantMessage, Cost, Text, ToolCall, Usage
from lettaspace.conversation.space import Space
from tests.cli.conftest import Cli

KEYS = [
    "responses", "input", "output", "cacheRead", "cacheWrite", "reasoning", "totalTokens", "cost",
    "unpriced",
]  # fmt: skip


@pytest.fixture
def spent(home: Path, cli: Cli) -> Cli:
    """Two days, two models, one response in four messages, one without a cost."""
    with Space.open(home) as space:
        talk = space.create_conversation(space.create_agent("Otter", key="otter"), title="one")
        parts = {"provider": "acme", "model": "m-1", "response_id": "resp_7"}
        used = Usage(input=10, output=4, cost=Cost(total=jsontext.loads("1e-7")))
        at = "2026-03-05T10:00:00Z"
        talk.append(AssistantMessage([Text("Looking.")], usage=used, **parts), created_at=at)
        talk.append(AssistantMessage([ToolCall("c1", "ls")], usage=used, **parts), created_at=at)
        talk.fork()
        other = space.create_conversation(space.create_agent("Kiln", key="kiln"))
        other.append(
            AssistantMessage.text("ok", model="m\x1b[2J", usage=Usage(input=1200, output=0)),
            created_at="2026-03-06T10:00:00Z",
        )
    return cli


def test_people_see_a_table(spent: Cli) -> None:
    assert spent("usage").out.splitlines() == [
        "DAY         MODEL       RESPONSES  INPUT  OUTPUT  CACHED  TOKENS  COST",
        "2026-03-05  acme / m-1          1     10       4       0      14  $0.0000001",
        "2026-03-06  m␛[2J               1   1200       0       0    1200  unknown",
        "total                           2   1210       4       0    1214  $0.0000001",
        "The cost is unknown for 1 response.",
        "3 messages repeat responses that are counted already.",
    ]


def test_by_day_or_model(spent: Cli) -> None:
    assert spent("usage", "--by", "day").out.split()[:1] == ["DAY"]
    assert [line.split()[0] for line in spent("usage", "--by", "model").out.splitlines()[:4]] == [
        "MODEL",
        "acme",
        "m␛[2J",
        "total",
    ]
    assert [next(iter(row)) for row in spent("usage", "--by", "day", "--json").json["rows"]] == [
        "day",
        "day",
    ]
    assert spent("usage", "--by", "week").code == 2


def test_o22_o23_programs_see_exact_sums(spent: Cli) -> None:
    answer = spent("usage", "--json")
    assert list(answer.json) == ["total", "rows", "copies", "unreadable"]
    assert list(answer.json["total"]) == KEYS
    first, second = answer.json["rows"]
    assert list(first) == ["day", "provider", "model", *KEYS]
    assert (first["input"], first["output"], first["unpriced"]) == (10, 4, 0)
    assert (second["provider"], second["model"], second["unpriced"]) == (None, "m\x1b[2J", 1)
    assert (answer.json["copies"], answer.json["unreadable"]) == (3, 0)
    assert '"cost":0.0000001,' in answer.out
    assert Decimal(str(answer.json["total"]["cost"])) == Decimal("1E-7")


def test_of_one_conversation_or_agent(spent: Cli, home: Path) -> None:
    with Space.open(home) as space:
        one = next(each for each in space.conversations() if each.agent.endswith("kiln"))
    for arguments in (("--conversation", one.rkey), ("--agent", "kiln"), ("--agent", one.agent)):
        assert spent("usage", *arguments, "--json").json["total"]["input"] == 1200
    assert spent("usage", "--agent", "nobody").err.endswith("no agent is called 'nobody'\n")
    assert spent("usage", "--conversation", "nothing").code == 1


def test_none(home: Path, cli: Cli) -> None:
    Space.open(home).close()
    assert cli("usage").out == "No usage is known.\n"
    assert cli("usage", "--json").json["rows"] == []
