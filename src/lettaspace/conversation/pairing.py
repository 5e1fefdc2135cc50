"""Tool calls and their results."""

from collections.abc import Iterable
from dataclasses import replace

from lettaspace.conversation import formats
from lettaspace.conversation.formats import Call, names
from lettaspace.conversation.message import Message

ORPHAN = "orphan-result"


def calls(message: Message) -> list[Call]:
    """The tool calls in a message, in order."""
    known = formats.of(message.value)
    if known is None or message.role != "assistant":
        return []
    return known.calls(message.data, message.open_blob)


def answers(message: Message) -> str | None:
    """The id of the call that a tool result answers."""
    known = formats.of(message.value)
    if known is None or message.role != "toolResult":
        return None
    return known.answers(message.data)


class Pairs:
    """Remembers the tool calls met so far, and flags results that answer none of them."""

    def __init__(self) -> None:
        self._calls: set[str] = set()

    def flag(self, message: Message) -> Message:
        if message.role == "assistant":
            for call in calls(message):
                self._calls.update(names(call.id))
        elif message.role == "toolResult" and formats.of(message.value) is not None:
            answered = answers(message)
            if answered is None or not self._calls.intersection(names(answered)):
                return replace(message, flags=(*message.flags, ORPHAN))
        return message


def unanswered(messages: Iterable[Message]) -> list[tuple[Message, Call]]:
    """The calls among messages that no later one of them answers, each with its message."""
    waiting: dict[str, tuple[Message, Call]] = {}
    for message in messages:
        for call in calls(message):
            waiting[call.id] = (message, call)
        answered = answers(message)
        if answered is not None:
            wanted = set(names(answered))
            for call_id in [each for each in waiting if wanted.intersection(names(each))]:
                del waiting[call_id]
    return list(waiting.values())
