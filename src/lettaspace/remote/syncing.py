"""Syncing: pull, push, and again while the two still differ.

    report = sync(space, replica_host)

Whatever ends it, what is here and what is there are both good, and the next one goes on from
where this one was.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lettaspace.conversation.space import Space, validate
from lettaspace.errors import (
    Conflict,
    HostRefused,
    LettaspaceError,
    SignedOut,
    StoreUnavailable,
    Unreachable,
)
from lettaspace.remote import replicas
from lettaspace.remote.branches import Divergence
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.mirror import DELETED, NO_BLOB, REFUSED, Mirror
from lettaspace.remote.pulling import Emptied, Keys, Puller
from lettaspace.remote.pushing import Pushed, Pusher, Stale
from lettaspace.remote.taking import Taken, Terms
from lettaspace.space.database import LOCK_SECONDS
from lettaspace.space.sethash import SetHash
from lettaspace.space.verify import Progress

ROUNDS = 8
"""So often a sync begins anew when the host changed meanwhile, or an answer was lost."""

PATIENCE = 90.0
"""Seconds that a sync waits altogether when the host asks for it, and after which it does not
ask again a host that answers nothing."""

LOCK_FILE = "sync.lock"

_PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(slots=True)
class SyncReport:
    """What a sync did: records that came and went, and conversations that were parted."""

    created: int = 0
    """Records that are new here."""
    updated: int = 0
    pushed: int = 0
    blobs: int = 0
    """Blobs that the host was given."""
    held: int = 0
    refused: int = 0
    forks: list[Divergence] = field(default_factory=list[Divergence])

    @property
    def did_something(self) -> bool:
        return bool(self.created or self.updated or self.pushed or self.held or self.forks)

    @property
    def asked_others(self) -> bool:
        return False

    def add(self, later: "SyncReport") -> None:
        """Adds what a later sync did."""
        self.created += later.created
        self.updated += later.updated
        self.pushed += later.pushed
        self.blobs += later.blobs
        self.held += later.held
        self.refused = later.refused
        self.forks += later.forks

    def add_taken(self, taken: Taken) -> None:
        self.created += taken.created
        self.updated += taken.updated
        self.held += taken.held
        self.forks += taken.forks

    def add_pushed(self, pushed: Pushed) -> None:
        self.pushed += pushed.records
        self.blobs += pushed.blobs
        self.refused += pushed.refused

    def to_json(self) -> dict[str, Any]:
        return {
            "created": self.created,
            "updated": self.updated,
            "pushed": self.pushed,
            "blobs": self.blobs,
            "held": self.held,
            "refused": self.refused,
            "forks": [fork._asdict() for fork in self.forks],
        }


class Syncer:
    """Syncs one repo with its host, as often as it is asked to.

    `keys` tells the author's signing key. `own` is as in `taking.Terms`. `sleep` is for tests.
    """

    def __init__(
        self,
        space: Space,
        host: HostRepo,
        keys: Keys,
        *,
        own: bool = True,
        progress: Progress = lambda _what, _done, _total: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._space = space
        self._repo = space.repo
        self._host = host
        self._keys = keys
        self._own = own
        self._progress = progress
        self._sleep = sleep
        self._waited = 0.0

    def sync(self, *, pull: bool = True, push: bool = True) -> SyncReport:
        """Pulls and pushes. A push alone pulls, too, where it cannot do without.

        Raises Unreachable, SignedOut, HostRefused, Conflict where the host has lost all of it,
        Damaged for what no host may answer, StoreUnavailable while another process syncs this
        home. What was done until then stays done.
        """
        report = SyncReport()
        self._waited = 0.0
        with self._alone():
            try:
                self._retry_held(report)
                self._rounds(report, pull, push and self._own)
            except LettaspaceError as error:
                self._note(error)
                raise
            self._note(None)
        return report

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """What is known of the host is one state. Two syncs at once would each spoil what the
        other one works on, so the second waits."""
        from filelock import FileLock, Timeout

        path = self._space.home / LOCK_FILE
        try:
            lock = FileLock(path, timeout=LOCK_SECONDS, mode=0o600)
            lock.acquire()
        except Timeout:
            raise StoreUnavailable(
                f"another sync holds {path}; try again when it is done"
            ) from None
        except OSError as error:
            raise StoreUnavailable(f"cannot lock {path}: {error.strerror or error}") from None
        try:
            yield
        finally:
            lock.release()

    def start_over(self) -> None:
        """Forgets what the host has: the next sync looks at all of it, and gives it whatever it
        lacks, what somebody deleted there as well. For a host that has lost everything."""
        with self._alone(), self._repo.database.write() as connection:
            mirror = Mirror(connection, self._repo.id)
            mirror.clear()
            mirror.forget_blobs()
            mirror.release([key for key, _ in mirror.held(DELETED)])
            mirror.set_head(None, SetHash().state)
            mirror.set_pushed(None)

    def _rounds(self, report: SyncReport, pull: bool, push: bool) -> None:
        began, pushed = time.monotonic(), 0
        for pause in _PAUSES[:ROUNDS]:
            self._wait(pause)
            if report.pushed > pushed:
                began, pushed = time.monotonic(), report.pushed
            try:
                if pull:
                    report.add_taken(self._puller().pull())
                if push:
                    self._push(report, fresh=pull)
                return
            except Stale:
                pull = True
            except Unreachable as error:
                if not error.sent or time.monotonic() - began >= PATIENCE:
                    raise
                pull = True
            except HostRefused as error:
                if not self._passes(error):
                    raise
                pull = True
            except Emptied:
                raise Conflict(
                    "the host has nothing of this space any more, and everything is still here; "
                    "`lettaspace push --again` gives it all back"
                ) from None
        raise Unreachable("the host's answers keep getting lost", sent=True)

    def _push(self, report: SyncReport, *, fresh: bool) -> None:
        pusher = Pusher(self._repo, self._host, self._keys, progress=self._progress)
        try:
            pusher.push(fresh=fresh)
        finally:
            report.add_pushed(pusher.pushed)

    def _passes(self, error: HostRefused) -> bool:
        """Whether a refusal is one for the moment, after waiting as long as the host says."""
        if error.status == 429 and error.retry_after is not None:
            if self._waited + error.retry_after > PATIENCE:
                return False
            self._wait(error.retry_after)
            return True
        return error.status >= 500 and self._waited < PATIENCE

    def _wait(self, seconds: float) -> None:
        if seconds:
            self._waited += seconds
            self._sleep(seconds)

    def _puller(self) -> Puller:
        terms = Terms(self._space.address, self._own, validate)
        return Puller(self._repo, self._host, self._keys, terms, progress=self._progress)

    def _retry_held(self, report: SyncReport) -> None:
        """What could not be taken or given last time may go now."""
        with self._repo.database.read() as connection:
            held = Mirror(connection, self._repo.id).held(NO_BLOB, REFUSED)
        refused = [key for key, reason in held if reason == REFUSED]
        if refused:
            with self._repo.database.write() as connection:
                mirror = Mirror(connection, self._repo.id)
                mirror.release(refused)
                mirror.set_pushed(None)
        lacking = [key for key, reason in held if reason == NO_BLOB]
        if lacking:
            report.add_taken(self._puller().again(lacking))

    def _note(self, error: LettaspaceError | None) -> None:
        """Remembers how it went, for `status`."""
        with self._repo.database.write() as connection:
            if error is None:
                replicas.note_synced(connection, self._repo.id, int(time.time()))
            else:
                replicas.note_problem(connection, self._repo.id, problem(error), int(time.time()))


_NOT_ADMITTED = frozenset({"UserNotAuthorized", "NotAuthorized", "AppNotAuthorized"})


def problem(error: LettaspaceError) -> str:
    """What keeps a replica from being in sync, in a word that never changes: `unreachable`,
    `signed-out`, `not-a-member`, `space-deleted`, `rate-limited`, `emptied`, `refused`, or
    `damaged`."""
    match error:
        case Unreachable():
            return "unreachable"
        case SignedOut():
            return "signed-out"
        case HostRefused(error=name) if name in _NOT_ADMITTED:
            return "not-a-member"
        case HostRefused(error="SpaceDeleted"):
            return "space-deleted"
        case HostRefused(status=429):
            return "rate-limited"
        case HostRefused():
            return "refused"
        case Conflict():
            return "emptied"
        case _:
            return "damaged"
