"""Writes that the authority of a space, on another host, is still to be told of.

The row is stored in the write's own transaction, so nothing that was acknowledged goes untold.
Of each repo only the newest write is told. The process that wrote tells it at once, beside the
answer; what fails for now is tried again for a day, by whichever process comes first. A lease
keeps the others away meanwhile. Source: protocol, section 8 (retry).
"""

import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Row, delete, or_, select, update

from lettaspace.atproto.tokens import host_id
from lettaspace.atproto.uri import parse_space_ref
from lettaspace.errors import StoreUnavailable
from lettaspace.network.identity import IdentityError
from lettaspace.server import calling, tables, writers
from lettaspace.server.calling import CallError
from lettaspace.server.errors import XrpcError
from lettaspace.server.forwards import WRITE
from lettaspace.server.upsert import upsert

if TYPE_CHECKING:
    from lettaspace.server.host import Host

TICK_SECONDS: Final = 10.0
LEASE_SECONDS: Final = 60
FIRST_DELAY: Final = 60
LONGEST_DELAY: Final = 3600
WINDOW: Final = 24 * 3600
BATCH: Final = 5
MAX_FRESH: Final = 1000
"""Writes that wait to be told of at once; more are left to the next tick."""

_FRESH_THREADS = 3
_STOP_SECONDS = 5.0

_log = logging.getLogger("lettaspace.server")

_outbox = tables.outbox.c
_put = upsert(tables.outbox, "rev", "hash", "attempts", "next_at", "deadline", "leased_until")


@dataclass(frozen=True, slots=True)
class Notice:
    """A write that is to be told of."""

    space: str
    repo: str
    rev: str
    hash: bytes
    attempts: int
    deadline: int


class Outbox:
    """A host's worker. `jitter` gives numbers from 0 to 1, by which delays differ."""

    def __init__(self, host: "Host", *, jitter: Callable[[], float] = random.random) -> None:
        self._host = host
        self._jitter = jitter
        self._changed = threading.Condition()
        self._fresh: OrderedDict[tuple[str, str], Notice] = OrderedDict()
        self._running = False
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def put(
        self, connection: Connection, space: str, repo: str, rev: str, hash_: bytes
    ) -> Callable[[], None] | None:
        """Stores a write in its own transaction. What it returns is called after the commit."""
        now = int(self._host.clock())
        at_once = self._running and len(self._fresh) < MAX_FRESH
        notice = Notice(space, repo, rev, hash_, 0, now + WINDOW)
        _put.run(
            connection,
            space=space,
            repo=repo,
            rev=rev,
            hash=hash_,
            attempts=0,
            next_at=now,
            deadline=notice.deadline,
            leased_until=now + LEASE_SECONDS if at_once else None,
        )
        return partial(self._tell, notice) if at_once else None

    def start(self) -> None:
        self._running = True
        self._over.clear()
        works = [self._work_due, *[self._work_fresh] * _FRESH_THREADS]
        self._threads = [
            threading.Thread(target=work, name=f"outbox-{i}", daemon=True)
            for i, work in enumerate(works)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; what they have not done stays in the table."""
        with self._changed:
            self._running = False
            self._changed.notify_all()
        self._over.set()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def deliver_due(self) -> int:
        """Tells of all that is due, here and now. Returns how many were tried."""
        tried = 0
        while batch := self._claim():
            for notice in batch:
                self._deliver(notice)
            tried += len(batch)
        return tried

    def _tell(self, notice: Notice) -> None:
        with self._changed:
            key = notice.space, notice.repo
            known = self._fresh.get(key)
            if known is None or known.rev < notice.rev:
                self._fresh[key] = notice
            self._changed.notify()

    def _work_fresh(self) -> None:
        while True:
            with self._changed:
                while self._running and not self._fresh:
                    self._changed.wait()
                if not self._running:
                    return
                notice = self._fresh.popitem(last=False)[1]
            self._guarded(partial(self._deliver, notice))

    def _work_due(self) -> None:
        self._guarded(self.deliver_due)
        while not self._over.wait(TICK_SECONDS):
            self._guarded(self.deliver_due)

    def _guarded(self, work: Callable[[], object]) -> None:
        """A worker outlives whatever happens to it."""
        try:
            work()
        except Exception as error:
            _log.error("the outbox failed: %s", type(error).__name__)

    def _claim(self) -> list[Notice]:
        """Some of what is due, which is then this process's for a while."""
        now = int(self._host.clock())
        free = or_(_outbox.leased_until.is_(None), _outbox.leased_until <= now)
        due = select(tables.outbox).where(_outbox.next_at <= now, free)
        due = due.order_by(_outbox.next_at).limit(BATCH)
        with self._host.database.read() as connection:
            if connection.execute(due).first() is None:
                return []  # mostly so, and then nobody is kept from writing

        def work(connection: Connection) -> list[Notice]:
            rows = connection.execute(due.with_for_update(skip_locked=True)).all()
            for row in rows:
                connection.execute(
                    update(tables.outbox)
                    .where(_outbox.space == row.space, _outbox.repo == row.repo)
                    .values(leased_until=now + LEASE_SECONDS)
                )
            return [_notice(row) for row in rows]

        return self._host.database.run(work)

    def _deliver(self, notice: Notice) -> None:
        account = self._host.accounts.by_did(notice.repo)
        if account is None:
            self._forget(notice)
        elif not account.is_active:
            self._postpone(notice, "its account is not active")
        else:
            try:
                self._send(notice)
            except (CallError, IdentityError) as error:
                # That a DID cannot be looked up may pass; only its authority could say no.
                if isinstance(error, CallError) and not error.transient:
                    _log.info("a space's host does not want to be told: %s", error)
                    self._forget(notice)
                else:
                    self._postpone(notice, str(error))
            except StoreUnavailable as error:
                self._postpone(notice, str(error))
            else:
                self._forget(notice)

    def _send(self, notice: Notice) -> None:
        ref = parse_space_ref(notice.space)
        if self._host.accounts.by_did(ref.authority) is not None:
            try:
                writers.receive(self._host, ref, notice.repo, notice.rev, notice.hash)
            except XrpcError as error:
                raise CallError(error.name, transient=False) from None
            return
        body = {
            "space": notice.space,
            "repo": notice.repo,
            "repoRev": notice.rev,
            "hash": notice.hash,
        }
        origin = self._host.background.identity.space_host(ref.authority)
        audience = host_id(ref.authority)
        calling.post(self._host, origin, WRITE, body, issuer=notice.repo, audience=audience)

    def _forget(self, notice: Notice) -> None:
        """The write, and those before it, are done with."""
        of_repo = _outbox.space == notice.space, _outbox.repo == notice.repo
        done = delete(tables.outbox).where(*of_repo, _outbox.rev <= notice.rev)
        self._host.database.run(lambda connection: connection.execute(done))

    def _postpone(self, notice: Notice, reason: str) -> None:
        now = self._host.clock()
        delay = min(FIRST_DELAY * 2.0**notice.attempts, LONGEST_DELAY)
        next_at = int(now + delay * (0.5 + self._jitter() / 2))
        if next_at > notice.deadline:
            _log.warning("a space's host could not be told of a write for a day: %s", reason)
            self._forget(notice)
            return
        later = (
            update(tables.outbox)
            .where(
                _outbox.space == notice.space,
                _outbox.repo == notice.repo,
                _outbox.rev == notice.rev,  # a newer one starts anew
            )
            .values(attempts=notice.attempts + 1, next_at=next_at, leased_until=None)
        )
        self._host.database.run(lambda connection: connection.execute(later))


def _notice(row: Row[tuple[object, ...]]) -> Notice:
    return Notice(row.space, row.repo, row.rev, row.hash, row.attempts, row.deadline)
