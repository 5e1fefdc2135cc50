"""Planning helpers: where a window is cut, by messages and by tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.conversation.message import Message
from lettaspace.conversation.payload import (
    AssistantMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from lettaspace.conversation.planning import (
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    estimate_tokens,
    everything,
    fits,
    sliding_window,
)
from lettaspace.conversation.writing import encode
from lettaspace.errors import InvalidInput


def message(payload, flags=()):
    encoded = encode(payload, role=None, name="letta.localMessage", version=1)
    value = {"role": encoded.role, "seq": 1, "message": encoded.message}
    return Message("3k", "at://", None, value, None, True, encoded.blobs.__getitem__, flags)


def user(text="x"):
    return message(UserMessage.text(text))


def assistant(text="x"):
    return message(AssistantMessage.text(text))


def calling(call_id="c1"):
    return message(AssistantMessage([ToolCall(call_id, "ls")]))


def result(call_id="c1", flags=()):
    return message(ToolResult.of(ToolCall(call_id, "ls"), "ok"), flags)


MAKERS = {"u": user, "a": assistant, "c": calling, "r": result, "o": lambda: result("c9", ("odd",))}


def window(kinds):
    return [MAKERS[kind]() for kind in kinds]


def test_everything_keeps_only_a_call_in_flight():
    assert everything([]) == 0
    assert everything(window("ua")) == 2
    assert everything(window("uac")) == 2
    assert everything(window("ucr")) == 3


def test_sliding_window_cuts_at_an_assistant_message():
    assert sliding_window(0.3)(window("uauauauaua")) == 3
    assert sliding_window(0.5)(window("uauauauaua")) == 5
    assert sliding_window(0.4)(window("uauauauaua")) == 5
    assert sliding_window(0.2)(window("ucruuuuuua")) == 9
    assert sliding_window(1)(window("uaua")) == 4
    # Nothing but the user's: there is no place to cut at.
    assert sliding_window(0.3)(window("uuuu")) == 4
    assert sliding_window(0.3)(window("u")) == 1
    assert sliding_window(0.3)([]) == 0


def test_sliding_window_cuts_until_the_rest_fits():
    messages = window("uauauauaua")
    one = estimate_tokens(messages[0])
    sizes = dict.fromkeys(range(10), one)
    assert sliding_window(0.1, budget=1000)(messages) == 1
    budget = int(sum(sizes.values()))
    assert sliding_window(0.5, budget=budget)(messages) == 5
    assert sliding_window(0.8, budget=budget)(messages) == 9
    assert sliding_window(0.1, budget=one)(messages) == 10


def test_a_caller_may_count_otherwise():
    messages = window("uauaua")
    seen = []

    def flat(message):
        seen.append(message)
        return 10

    assert sliding_window(0.5, budget=40, estimate=flat)(messages) == 5
    assert len(seen) == 6
    assert fits(messages, 60, flat)
    assert not fits(messages, 59, flat)


def test_estimates():
    assert estimate_tokens(user("x" * 400)) == 100 + MESSAGE_TOKENS
    assert estimate_tokens(user("é" * 200)) == 100 + MESSAGE_TOKENS
    assert estimate_tokens(user("\ud83c")) == 1 + MESSAGE_TOKENS
    assert estimate_tokens(user("")) == MESSAGE_TOKENS
    # As long as it is, an image costs the same; so does one beside a text so long it is sealed.
    small, large = Image.of(b"x", "image/png"), Image.of(bytes(300_000), "image/png")
    assert estimate_tokens(message(UserMessage([small]))) == IMAGE_TOKENS + MESSAGE_TOKENS
    assert estimate_tokens(message(UserMessage([large, small]))) == 2 * IMAGE_TOKENS + 4
    long = message(UserMessage([Text("y" * 400_000), large]))
    assert estimate_tokens(long) == 100_000 + IMAGE_TOKENS + MESSAGE_TOKENS
    many = message(UserMessage([*[Text("y" * 40)] * 4_000, large]))
    assert estimate_tokens(many) == pytest.approx(40_000 + IMAGE_TOKENS, rel=0.01)
    thought = message(
        AssistantMessage([Thinking("z" * 40), ToolCall("c", "abcd", {"k": "v" * 31})])
    )
    assert estimate_tokens(thought) == (40 + 4 + 32) // 4 + MESSAGE_TOKENS


def test_what_no_model_is_given_costs_nothing():
    flagged = result("c9", ("orphan-result",))
    assert fits([flagged], 0)
    assert not fits([result()], 0)


def test_window_and_messages_are_both_taken(space):
    talk = space.create_conversation(space.create_agent("Otter"))
    talk.append(UserMessage.text("x" * 40))
    assert fits(talk.window(), 10 + MESSAGE_TOKENS)
    assert not fits(talk.window(), 9 + MESSAGE_TOKENS)
    assert not fits(talk.window().messages, 9 + MESSAGE_TOKENS)


@pytest.mark.parametrize("percentage", [0, -0.1, 1.1, float("nan")])
def test_impossible_percentages_are_refused(percentage):
    with pytest.raises(InvalidInput, match="percentage"):
        sliding_window(percentage)


def test_an_impossible_budget_is_refused():
    with pytest.raises(InvalidInput, match="budget"):
        sliding_window(budget=0)


MADE = {kind: maker() for kind, maker in MAKERS.items()}


@given(
    st.text("uacro", max_size=14),
    st.floats(0.01, 1),
    st.none() | st.integers(1, 120),
)
def test_the_least_that_is_enough(kinds, percentage, budget):
    messages = [MADE[kind] for kind in kinds]
    room = None if budget is None else (1 - percentage) * budget

    def enough(at):
        kept = [each for each in messages[at:] if not each.flags]
        if at < max(1, percentage * len(messages)) or kinds[at] not in "ac":
            return False
        return room is None or sum(map(estimate_tokens, kept)) <= room

    places = [at for at in range(len(messages)) if enough(at)]
    wanted = places[0] if places else everything(messages)
    assert sliding_window(percentage, budget)(messages) == wanted


def test_compacting_with_a_plan(space):
    talk = space.create_conversation(space.create_agent("Otter"))
    for number in range(6):
        talk.append(UserMessage.text(f"question {number}"))
        call = ToolCall(f"c{number}", "ls")
        talk.append(AssistantMessage([call]))
        talk.append(ToolResult.of(call, "ok"))
        talk.append(AssistantMessage.text("answer"))
    # A tenth is three messages: the next assistant's is the answer after them.
    done = talk.compact(lambda covered: f"{len(covered)} messages", sliding_window(0.1))
    assert done.covered == done.asked == done.boundary == 3
    assert [each.role for each in talk.window().messages][:3] == ["user", "assistant", "user"]
    talk.append(AssistantMessage([ToolCall("open", "ls")]))
    talk.compact(lambda covered: f"all {len(covered)}", everything)
    assert [each.role for each in talk.window().messages] == ["user", "assistant"]
    assert talk.pending() == ["open"]


@pytest.mark.parametrize("keep", [2, 3])
def test_o11_a_parallel_batch_stays_together(space, keep):
    talk = space.create_conversation(space.create_agent("Otter"))
    first, second = ToolCall("c1", "ls"), ToolCall("c2", "ls")
    talk.append(UserMessage.text("go"))
    talk.append(AssistantMessage([first, second]))
    talk.append(ToolResult.of(first, "one"))
    talk.append(ToolResult.of(second, "two"))
    talk.append(AssistantMessage.text("done"))
    done = talk.compact(lambda covered: f"{len(covered)}", lambda window: len(window) - keep)
    assert (done.asked, done.boundary, done.covered) == (5 - keep, 1, 1)
    roles = ["user", "assistant", "toolResult", "toolResult", "assistant"]
    assert [each.role for each in talk.window().messages] == roles
    assert talk.window().left_out == []
