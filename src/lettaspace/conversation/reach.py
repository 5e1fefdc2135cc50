"""How far a page must reach so that no tool call is parted from its results."""

from collections.abc import Iterator

from lettaspace.conversation.formats import names
from lettaspace.conversation.message import Message
from lettaspace.conversation.pairing import answers, calls

REACH = 100
"""How far beyond a page is looked for the results of its calls and the calls of its results."""


class Side:
    """The messages beyond one end of a page, the nearest first, read as they are asked for."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self._rest = messages
        self._read: list[Message] = []

    def at(self, place: int) -> Message | None:
        """The message at a place, the nearest being 0."""
        while len(self._read) <= place:
            message = next(self._rest, None)
            if message is None:
                return None
            self._read.append(message)
        return self._read[place]

    def take(self, count: int) -> list[Message]:
        """The nearest messages, which from then on are no longer here."""
        if count > 0:
            self.at(count - 1)
        taken, self._read = self._read[:count], self._read[count:]
        return taken


def results_ahead(messages: list[Message], ahead: Side) -> int:
    """How many messages ahead a page must take in, so that no call is parted from a result."""
    ours = _Calls()
    for message in messages:
        ours.meet(message)
    taken, beyond = 0, _Calls()
    for at in range(REACH):
        # A result that directly follows may be the second one of a call.
        if not ours.waiting and at > taken:
            break
        following = ahead.at(at)
        if following is None:
            break
        answered = answers(following)
        if answered is None:
            beyond.meet(following)
        elif not beyond.answer(answered) and (
            ours.answer(answered) or (at == taken and ours.has(answered))
        ):
            ours.add(beyond)
            taken, beyond = at + 1, _Calls()
    return taken


class _Calls:
    """Calls, of which those wait that have no result yet."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, ...]] = []
        self._known: set[str] = set()

    def meet(self, message: Message) -> None:
        for call in calls(message):
            self.waiting.append(names(call.id))
            self._known.update(names(call.id))
        if (answered := answers(message)) is not None:
            self.answer(answered)

    def answer(self, answered: str) -> bool:
        """Whether one of those that wait is answered, the latest first."""
        for at in range(len(self.waiting) - 1, -1, -1):
            if set(self.waiting[at]).intersection(names(answered)):
                del self.waiting[at]
                return True
        return False

    def has(self, answered: str) -> bool:
        return not self._known.isdisjoint(names(answered))

    def add(self, others: "_Calls") -> None:
        self.waiting += others.waiting
        self._known |= others._known


def calls_behind(messages: list[Message], behind: Side) -> int:
    """How many messages behind a page it must take in, for the same reason."""
    ours: set[str] = set()
    met = _Calls()
    for message in messages:
        answered = answers(message)
        if answered is not None and not met.has(answered):
            ours.add(answered)
        met.meet(message)
    taken = 0
    beyond: set[str] = set()
    for at in range(REACH):
        if not ours:
            break
        preceding = behind.at(at)
        if preceding is None:
            break
        if (answered := answers(preceding)) is not None:
            beyond.add(answered)
        called = {name for call in calls(preceding) for name in names(call.id)}
        if without_call(ours, called) != ours:
            ours = without_call(ours | beyond, called)
            taken, beyond = at + 1, set()
        else:
            beyond = without_call(beyond, called)
    return taken


def without_call(results: set[str], called: set[str]) -> set[str]:
    """Those of some results, by the ids they carry, whose call is not among those named."""
    return {answered for answered in results if called.isdisjoint(names(answered))}
