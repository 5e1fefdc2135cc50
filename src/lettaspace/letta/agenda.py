"""When what is to be imported next.

Times are seconds of one monotonic clock, which the caller reads.
"""

from dataclasses import dataclass

GAP = 0.25
"""Seconds between two imports of one thing, at least."""

QUIET = 0.3
"""Seconds without a change to wait for where only small files change: Letta writes them anew
with every piece of an answer."""

LATEST = 2.0
"""Seconds after which such a change is imported although more of them follow."""

RETRY = 0.05
MAX_RETRY = 1.0
"""Seconds between two looks at what is half written: at first, and at most."""

PATIENCE = 3.0
"""Seconds for which that must stay the same to be taken as it is."""


@dataclass(slots=True)
class _Pending:
    since: float
    due: float
    small: bool


@dataclass(slots=True)
class _Doubt:
    reasons: frozenset[str]
    since: float
    pause: float


class Agenda:
    """What changed, by path, and when to look at it."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}
        self._doubts: dict[str, _Doubt] = {}
        self._earliest: dict[str, float] = {}

    def changed(self, path: str, now: float, *, small: bool = False) -> None:
        """Something changed; with `small`, nothing but what an answer being streamed changes."""
        before = self._pending.get(path)
        since = now if before is None else before.since
        due = min(now + QUIET, since + LATEST) if small else now
        due = max(due, self._earliest.get(path, due))
        if before is not None and not before.small:
            due, small = min(due, before.due), False
        self._pending[path] = _Pending(since, due, small)

    def doubtful(self, path: str, reasons: frozenset[str], now: float) -> None:
        """What was found may be half of something: it is looked at again soon."""
        doubt = self._doubts.get(path)
        if doubt is None or doubt.reasons != reasons:
            doubt = self._doubts[path] = _Doubt(reasons, now, RETRY)
        self.later(path, now, doubt.pause)
        doubt.pause = min(2 * doubt.pause, MAX_RETRY)

    def later(self, path: str, now: float, pause: float) -> None:
        """It is to be looked at once more."""
        self._pending[path] = _Pending(now, now + pause, small=False)

    def done(self, path: str, began: float, now: float) -> None:
        """It was imported, which took from `began` till `now`."""
        self._doubts.pop(path, None)
        # What takes long takes at most half of the time.
        self._earliest[path] = now + max(GAP, now - began)

    def is_final(self, path: str, now: float) -> bool:
        """Whether it has stayed doubtful, and the same, for so long that it is what it is."""
        doubt = self._doubts.get(path)
        return doubt is not None and now - doubt.since >= PATIENCE

    def take(self, now: float, limit: int) -> list[str]:
        """At most `limit` of those whose time has come, the longest due first."""
        due = [path for path, each in self._pending.items() if each.due <= now]
        due.sort(key=lambda path: self._pending[path].due)
        for path in due[:limit]:
            del self._pending[path]
        return due[:limit]

    def next(self) -> float | None:
        """When the next one is due."""
        return min((each.due for each in self._pending.values()), default=None)
