"""What stays between the imports of one directory that is being watched."""

from collections.abc import Callable

from lettaspace.letta.damage import TORN_ROW
from lettaspace.letta.directory import MESSAGES, ConversationDir
from lettaspace.letta.doubt import Doubts, Unsettled
from lettaspace.letta.live import Live, Lives
from lettaspace.letta.source import Source


class Following:
    """What makes the next import of a conversation cheap, and what it need not wait for."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check
        """Called again and again during an import; what it raises ends it, and the next one
        goes on from there."""
        self._lives = Lives()
        self._accepted: dict[str, frozenset[str]] = {}

    def rows(
        self, directory: ConversationDir, source: Source, tid: str, patient: bool
    ) -> Live | None:
        """What is kept of a conversation, with the rows added since.

        Where the last row has no end, there is nothing to be kept: None, or Unsettled if
        `patient`. Raises scan.Changed when the rows are other ones than before.
        """
        key, path = directory.key, directory.path / MESSAGES
        live = self._lives.take(key, path, tid, source.created_at)
        if not live.advance(self.check):
            return live
        if patient:
            self._lives.keep(key, live)
            raise Unsettled(frozenset({f"{TORN_ROW} {live.seen_size}"}))
        return None

    def wait(self, key: str, found: Doubts, live: Live | None) -> None:
        """Raises Unsettled for what was not so when the conversation was last stored."""
        reasons = found.reasons - self._accepted.get(key, frozenset())
        if reasons:
            if live is not None:
                self._lives.keep(key, live)
            raise Unsettled(reasons)

    def stored(self, key: str, found: Doubts, live: Live | None) -> None:
        """All that was read of a conversation is in the space."""
        self._accepted[key] = found.reasons | found.streaming
        if live is not None:
            self._lives.keep(key, live)
