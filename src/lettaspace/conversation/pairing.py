"""Tool calls and their results."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lettaspace.conversation import formats
from lettaspace.conversation.formats import Call, names
from lettaspace.conversation.message import Message
from lettaspace.errors import Damaged, InvalidInput, NotFound

ORPHAN = "orphan-result"


def calls(message: Message) -> list[Call]:
    """The tool calls in a message, in order."""
    known = formats.of(message.value)
    if known is None or message.role != "assistant":
        return []
    try:
        return known.calls(message.data, message.open_blob)
    except (Damaged, InvalidInput, NotFound):
        return []  # a lost leaf hides this message's calls, not the messages around it


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


@dataclass(slots=True)
class Paired:
    """A tool call among messages, and where the results stand that answer it."""

    at: int
    message: Message
    call: Call
    results: list[int] = field(default_factory=list[int])


class Ledger:
    """The tool calls in a list of messages, each with its results.

    Ids come again with models that number the calls of every turn: a result answers the
    nearest call of its name that has none yet.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self.calls: list[Paired] = []
        self._named: dict[str, list[Paired]] = {}
        for at, message in enumerate(messages):
            for call in {call.id: call for call in calls(message)}.values():
                paired = Paired(at, message, call)
                self.calls.append(paired)
                for name in names(call.id):
                    self._named.setdefault(name, []).append(paired)
            answered = answers(message)
            if answered is not None and (paired_with := self.called(answered)) is not None:
                paired_with.results.append(at)

    def called(self, answered: str) -> Paired | None:
        """The call that a result behind these messages answers, by the id it carries."""
        for name in names(answered):
            if found := self._named.get(name):
                return next((each for each in reversed(found) if not each.results), found[-1])
        return None


def unanswered(messages: Iterable[Message]) -> list[tuple[Message, Call]]:
    """The calls among messages that no later one of them answers, each with its message."""
    return [(each.message, each.call) for each in Ledger(messages).calls if not each.results]
