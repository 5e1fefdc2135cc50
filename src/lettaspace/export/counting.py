"""Counting what a redaction replaces."""

from typing import Any, Self

from lettaspace.conversation.redaction import Redacting, Redactor
from lettaspace.conversation.secretrules import MARKER


class Counting:
    """A redaction that also counts the places where something was replaced."""

    def __init__(self, redaction: Redacting) -> None:
        self._redaction = redaction
        self.count = 0

    @classmethod
    def secrets(cls) -> Self:
        """The one that replaces secrets."""
        return cls(Redactor())

    def text(self, text: str) -> str:
        redacted = self._redaction.text(text)
        self.count += _replaced(text, redacted)
        return redacted

    def json(self, value: Any) -> Any:
        redacted = self._redaction.json(value)
        self.count += _replaced(value, redacted)
        return redacted


def _replaced(before: Any, after: Any) -> int:
    """How many places differ, in two values of one shape."""
    if before is after:
        return 0
    if isinstance(before, str):
        marks = len(MARKER.findall(after)) - len(MARKER.findall(before))
        return max(1, marks) if before != after else 0
    if isinstance(before, list):
        return sum(map(_replaced, before, after))
    if isinstance(before, dict):
        keys = sum(map(_replaced, before, after))
        return keys + sum(map(_replaced, before.values(), after.values()))
    return 0
