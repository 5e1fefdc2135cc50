"""Tokens and cost: each provider response once, and sums to the last digit."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.conversation import jsontext
from lettaspace.conversation.payload import (
    AssistantMessage,
    Cost,
    Metadata,
    Provider,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from lettaspace.conversation.usage import Totals
from lettaspace.letta.importer import import_directory


@pytest.fixture
def agent(space):
    return space.create_agent("Otter")


@pytest.fixture
def talk(space, agent):
    return space.create_conversation(agent)


def answer(text="ok", cost=None, **fields):
    used = Usage(input=10, output=4, total=14, cost=None if cost is None else Cost(total=cost))
    fields = {"provider": "acme", "model": "m-1", "usage": used, **fields}
    return AssistantMessage.text(text, **fields)


def counted(report):
    return report.total.responses, report.total.input, report.total.output


def test_o23_a_response_is_counted_once(space, agent, talk):
    call = ToolCall("c1", "ls")
    used = Usage(input=10, output=4, cost=Cost(total=jsontext.loads("0.1")))
    parts = {"provider": "acme", "model": "m-1", "response_id": "resp_7", "usage": used}
    talk.append(UserMessage.text("go"))
    talk.append(AssistantMessage([Text("Looking.")], **parts))
    talk.append(AssistantMessage([call], **parts))
    talk.append(ToolResult.of(call, "ok"))
    fork = talk.fork()

    for report in (
        space.usage(conversation=talk.uri),
        space.usage(conversation=fork.uri),
        space.usage(agent=agent),
        space.usage(agent=agent.rpartition("/")[2]),
        space.usage(),
    ):
        assert counted(report) == (1, 10, 4)
        assert report.total.cost == Decimal("0.1")
    assert space.usage(conversation=talk.uri).copies == 1
    assert space.usage().copies == 3
    # What a message itself says is not touched.
    assert [m.payload()["usage"]["input"] for m in talk.transcript() if "usage" in m.data] == [
        10,
        10,
    ]
    # The fork goes on by itself.
    fork.append(answer(response_id="resp_8"))
    assert counted(space.usage()) == (2, 20, 8)
    assert counted(space.usage(conversation=talk.uri)) == (1, 10, 4)


def test_o23_without_an_id_time_and_content_tell(space, talk):
    talk.append(answer("a"), created_at="2026-03-05T10:00:00.000Z")
    talk.append(answer("b"), created_at="2026-03-05T10:00:00.000Z")
    talk.append(answer("a"), created_at="2026-03-05T10:00:01.000Z")
    talk.fork()
    assert counted(space.usage()) == (3, 30, 12)
    assert space.usage().copies == 3


def test_one_id_of_two_providers_or_of_another_day_is_two_responses(space, talk):
    talk.append(answer(response_id="r"), created_at="2026-03-05T23:59:00+01:00")
    talk.append(answer(response_id="r", provider="other"), created_at="2026-03-05T23:00:00Z")
    talk.append(answer(response_id="r"), created_at="2026-03-06T23:00:00Z")
    report = space.usage()
    assert counted(report) == (3, 30, 12)
    assert {day: totals.responses for day, totals in report.by_day().items()} == {
        "2026-03-05": 2,
        "2026-03-06": 1,
    }


def test_stages_of_a_response_count_as_the_largest(space, talk):
    for output in (1, 40, 7):
        used = Usage(input=10, output=output, cost=Cost(total=output / 4))
        talk.append(answer(f"{output}", response_id="r", usage=used))
    assert counted(space.usage()) == (1, 10, 40)
    assert space.usage().total.cost == 10


def test_what_the_metadata_repeat_is_enough(space, talk):
    noted = Provider(
        provider_id="acme", model_id="m-2", response_id="r", usage=Usage(input=3, output=2)
    )
    talk.append(AssistantMessage([Text("x")], metadata=Metadata(provider=noted)))
    talk.append(answer(response_id="r"))
    assert space.usage().copies == 1
    assert counted(space.usage()) == (1, 10, 4)
    assert space.usage().by_model().keys() == {("acme", "m-1")}


def test_costs_are_summed_to_the_last_digit(space, talk):
    texts = ["0.1", "0.2", "0.000049999999999999996", "5.5e-06", "0.12230500000000001", "3"]
    for number, text in enumerate(texts):
        talk.append(answer(response_id=f"r{number}", cost=jsontext.loads(text)))
    assert space.usage().total.cost == Decimal("3.422360499999999999996") + Decimal("1E-17")
    assert space.usage().total.unpriced == 0


def test_unknown_costs_are_counted_and_left_out(space, talk):
    unknown = ["1e400", "-1", "true", '"0.5"', "1e-400", "[]", "9" * 90, "1e16"]
    for number, text in enumerate(unknown):
        talk.append(
            answer(response_id=f"r{number}", cost=None).to_json()
            | {"usage": {"input": 1, "output": 1, "cost": {"total": jsontext.loads(text)}}}
        )
    talk.append(answer(response_id="none"))
    talk.append(answer(response_id="known", cost=jsontext.loads("0.25")))
    talk.append(answer(response_id="zero", cost=jsontext.loads("0e-999")))
    parts = {"input": jsontext.loads("0.5"), "output": jsontext.loads("0.125")}
    talk.append({**answer(response_id="parts").to_json(), "usage": {"cost": parts}})
    total = space.usage().total
    assert total.unpriced == len(unknown) + 1
    assert total.cost == Decimal("0.875")
    assert total.responses == len(unknown) + 4


def test_odd_counts_are_none(space, talk):
    used = {"input": -1, "output": True, "cacheRead": "7", "cacheWrite": jsontext.loads("2.0")}
    talk.append({**answer().to_json(), "usage": {**used, "reasoning": jsontext.loads("1e999")}})
    total = space.usage().total
    assert (total.input, total.output, total.cache_read, total.reasoning) == (0, 0, 0, 0)
    assert (total.cache_write, total.total) == (2, 2)


def test_only_what_has_usage_counts(space, talk):
    talk.append(UserMessage.text("hi"))
    talk.append(AssistantMessage.text("no usage"))
    talk.append({"role": "assistant", "usage": {"input": 5}}, format="acme.msg")
    talk.append({**answer().to_json(), "usage": 5})
    assert space.usage().rows == []
    assert space.usage().total == Totals()
    assert space.usage(conversation="at://nobody").rows == []


def test_compacted_messages_count_and_large_ones_too(space, talk):
    talk.append(answer("x" * 300_000, response_id="r1"))
    talk.append(AssistantMessage([Text("y" * 40)] * 5_000, usage=Usage(input=1), provider="acme"))
    talk.compact(lambda covered: f"{len(covered)}")
    assert counted(space.usage()) == (2, 11, 4)
    assert space.usage().unreadable == 0


def test_days_and_models(space, talk):
    for number, (day, model) in enumerate(
        [("2026-03-05", "b"), ("2026-03-04", "b"), ("2026-03-05", "a"), ("2026-03-05", "b")]
    ):
        message = answer(model=model, response_id=f"r{number}", cost=0.5)
        talk.append(message, created_at=f"{day}T10:00:0{number}Z")
    report = space.usage()
    assert [(row.day, row.model, row.totals.responses) for row in report.rows] == [
        ("2026-03-04", "b", 1),
        ("2026-03-05", "a", 1),
        ("2026-03-05", "b", 2),
    ]
    assert report.by_model()["acme", "b"].cost == Decimal("1.5")
    assert report.by_day()["2026-03-05"].responses == 3
    assert report.total == sum(report.by_day().values(), Totals())


def test_the_real_thing(letta_lab, space):
    import_directory(space, letta_lab("numbers"))
    before = space.usage()
    assert before.total.cost > 0
    assert before.total.unpriced == 0
    for conversation in space.conversations():
        if conversation.messages:
            space.conversation(conversation.rkey).fork()
    assert space.usage().rows == before.rows


def test_forks_of_the_real_thing(letta_lab, space):
    import_directory(space, letta_lab("forks"))
    report = space.usage()
    assert report.copies > 0
    one_by_one = [space.usage(conversation=each.uri) for each in space.conversations()]
    assert not any(each.copies for each in one_by_one)
    assert sum(each.total.responses for each in one_by_one) == (
        report.total.responses + report.copies
    )


@given(st.lists(st.decimals(0, 10**6, allow_nan=False, places=9), max_size=20))
def test_sums_do_not_depend_on_order(costs):
    rows = [Totals(responses=1, cost=cost) for cost in costs]
    assert sum(rows, Totals()).cost == sum(reversed(rows), Totals()).cost == sum(costs)
