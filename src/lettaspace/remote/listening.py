"""Listening: a host that knows how to wait says when there is something new (RFC 7240, `wait`).

It is asked what is newer than what is known here, and holds its answer until there is something.
That takes a thread and a connection of its own, so nothing else waits for it. Hosts that answer
at once are left alone again, and asked from time to time whether they have learnt it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lettaspace.errors import LettaspaceError, Unreachable
from lettaspace.remote.hostrepo import HostRepo

LONGEST: Final = 55
"""Seconds that an answer may be held: proxies take what lasts longer for dead."""
SHORTEST: Final = 10
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 600.0
"""Seconds until a host that could not be asked so is asked again, growing."""
UNABLE: Final = 600.0
VERY_UNABLE: Final = 3600.0
"""The same for a host that does not know how to wait."""
_STOP_SECONDS: Final = 5.0


class Patience:
    """For how many `seconds` an answer may be held, and the pauses where it does not work."""

    def __init__(self) -> None:
        self.seconds = LONGEST
        self._failures = 0
        self._unable = 0

    def worked(self) -> None:
        """The host waits."""
        self._failures = self._unable = 0

    def unable(self) -> float:
        """The host has answered and does not wait. Returns the seconds to leave it alone."""
        self._unable += 1
        return min(VERY_UNABLE, UNABLE * 2.0 ** min(self._unable - 1, 16))

    def cut(self, elapsed: float) -> None:
        """Something between here and the host has cut a request of so many seconds: the next
        one is shorter."""
        self.seconds = max(SHORTEST, min(self.seconds, int(elapsed)) * 4 // 5)

    def failed(self) -> float:
        """The host could not be asked. Returns the seconds to leave it alone."""
        self._failures += 1
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures - 1, 16))


class Listener:
    """Asks in a thread, beside somebody who syncs and does so in `syncing`.

    `known` gives the revision that the last sync has led to, None before there was one. `wake` is
    set when the host has something newer, `has_news` then, until a sync has ended. `on_failure`
    is told of what should not happen; that a host cannot be asked, the next sync meets as well.
    """

    def __init__(
        self,
        host: HostRepo,
        known: Callable[[], str | None],
        wake: threading.Event,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._host = host
        self._known = known
        self._wake = wake
        self._on_failure = on_failure
        self._thread = threading.Thread(target=self._run, name="listening", daemon=True)
        # Of all that follows. It is not held while anything is asked or synced.
        self._changed = threading.Condition()
        self._stopped = False
        self._busy = False
        self._ended = 0
        self._good = False
        self.tells = False
        """Whether the host says when there is something new."""
        self.has_news = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Breaks off what waits. Who then still looks up a name is not waited for."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._host.client.interrupt()
        self._thread.join(_STOP_SECONDS)

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """While a sync is under way, which is a good one if nothing is raised."""
        with self._changed:
            self._busy = True
        good = False
        try:
            yield
            good = True
        finally:
            with self._changed:
                self._busy = self.has_news = False
                self._ended += 1
                self._good |= good
                self._changed.notify_all()

    def _run(self) -> None:
        patience = Patience()
        while self._until(lambda: self._good):
            try:
                pause = self._listen(patience)
            except Exception as error:
                self._on_failure(error)
                pause = patience.failed()
            # A host that cannot be had is asked by who syncs.
            self.tells = self._good = False
            self._wake.set()
            self._until(lambda: False, pause)

    def _listen(self, patience: Patience) -> float:
        """Listens for as long as that works. Returns the seconds to leave the host alone."""
        while self._until(lambda: not self._busy):
            known = self._known()
            if known is None:
                return patience.failed()
            begun = time.monotonic()
            try:
                newer, waits = self._host.wait(known, patience.seconds)
            except LettaspaceError as error:
                elapsed = time.monotonic() - begun
                if isinstance(error, Unreachable) and error.sent and elapsed > SHORTEST:
                    patience.cut(elapsed)
                    continue
                return patience.failed()
            if waits:
                patience.worked()
                self.tells = True
            if newer and not self._synced_past(known):
                return patience.failed()
            if not waits:
                return patience.unable()
        return 0.0

    def _synced_past(self, known: str) -> bool:
        """Has what is new taken, unless it is our own, or has come already. False if that did
        not go well."""
        if not self._until(lambda: not self._busy):
            return False
        if self._known() != known:
            return True
        with self._changed:
            ended = self._ended
            self.has_news = True
        self._wake.set()
        return self._until(lambda: self._ended > ended) and self._known() != known

    def _until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Waits until something is so; False if that is not to be waited for any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or condition(), seconds)
            return not self._stopped and condition()
