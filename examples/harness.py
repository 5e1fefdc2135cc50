"""A small harness: a tool-calling loop whose whole state is a conversation in a space.

    python examples/harness.py HOME "Squares of 3 and 4?" "Squares of 5, 6 and 7?"

Kill it at any time and start it again with the same words: it goes on where it was. It keeps
nothing in memory that the next step needs, and gives every append a key, so that a step that
is done again is not stored again. The model is a stand-in that always does the same.
"""

import re
import sys
from collections.abc import Sequence

from lettaspace import (
    AssistantMessage,
    Conversation,
    LocalMessage,
    Message,
    Space,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    parse_message,
    planning,
)

BUDGET = 200
"""Tokens that a window may have; a real model's is a thousand times that."""


def model(messages: Sequence[LocalMessage], turn: int) -> AssistantMessage:
    """Squares what was asked for, with a tool; then adds up. A failed call it makes again."""
    wanted = re.findall(r"\d+", last_question(messages))
    called: dict[str, str] = {}
    known: dict[str, int] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            called.update({call.id: call.arguments["n"] for call in message.tool_calls})
        elif isinstance(message, ToolResult) and not message.is_error:
            known[called[message.tool_call_id]] = int(message.plain_text)
    missing = [number for number in dict.fromkeys(wanted) if number not in known]
    if missing:
        calls = [ToolCall(f"call-{turn}-{n}", "square", {"n": n}) for n in missing]
        return AssistantMessage([Text("Let me see."), *calls], stop_reason="toolUse")
    total = sum(known[number] for number in wanted)
    return AssistantMessage.text(f"Together {total}.", stop_reason="stop")


def tool(call: ToolCall) -> str:
    """The only tool there is."""
    return str(int(call.arguments["n"]) ** 2)


def summarize(covered: Sequence[Message]) -> str:
    """A real harness asks a model. What is asked just now must not get lost."""
    question = last_question([parse_message(message.payload()) for message in covered])
    return f"{len(covered)} messages were summarised. The last question: {question}"


def last_question(messages: Sequence[LocalMessage]) -> str:
    texts = "\n".join(m.plain_text for m in messages if isinstance(m, UserMessage))
    questions: list[str] = re.findall(r"Squares of [^?]*\?", texts)
    return questions[-1] if questions else ""


def step(talk: Conversation) -> bool:
    """Asks the model once and runs what it calls; False if there is nothing to answer."""
    window = talk.window().messages
    turn = window[-1].seq
    if window[-1].role == "assistant":  # an answer: calls would have results behind them
        return False
    if not planning.fits(window, BUDGET):
        choose = planning.sliding_window(0.5, BUDGET)
        talk.compact(summarize, choose, key=f"compact-{turn}")
        window = talk.window().messages
    answer = model([parse_message(message.payload()) for message in window], turn)
    talk.append(answer, key=f"answer-{turn}")
    for call in answer.tool_calls:
        talk.append(ToolResult.of(call, tool(call)), key=f"result-{call.id}")
    return True


def open_talk(space: Space) -> Conversation:
    """The one conversation of this harness."""
    agent = space.address.agent("harness")
    if all(each.uri != agent for each in space.agents()):
        space.create_agent("Harness", key="harness")
    for known in space.conversations(agent=agent):
        return space.conversation(known.uri)
    return space.create_conversation(agent, title="Squares")


def run(home: str, questions: Sequence[str]) -> list[str]:
    """Asks the questions one after another; returns the answers."""
    answers = []
    with Space.open(home) as space:
        talk = open_talk(space)
        talk.repair()  # a compaction that was cut off
        talk.settle()  # calls that were in flight: nobody knows whether their tools ran
        for number, question in enumerate(questions):
            talk.append(UserMessage.text(question), key=f"question-{number}")
            while step(talk):
                pass
        for message in talk.transcript():
            said = parse_message(message.payload())
            if isinstance(said, AssistantMessage) and not said.tool_calls:
                answers.append(said.plain_text)
    return answers


if __name__ == "__main__":
    print(*run(sys.argv[1], sys.argv[2:]), sep="\n")  # noqa: T201
