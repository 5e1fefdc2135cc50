"""Telling services of writes into spaces of accounts here, and of spaces that were deleted.

In the background, once, in the order of the space's revisions, and one at a time for each
service. A service that is slow gets of each repo only the newest write; what came between is
left out of the chain of revisions as if it had not been. A notice that is lost leaves a gap in
the chain, which tells the service to look what it missed. Source: protocol, section 8.
"""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lettaspace.network.identity import IdentityError
from lettaspace.server import calling
from lettaspace.server.calling import CallError

if TYPE_CHECKING:
    from lettaspace.server.host import Host
    from lettaspace.server.writers import Change

WRITE: Final = "com.atproto.space.notifyWrite"
DELETED: Final = "com.atproto.space.notifySpaceDeleted"

MAX_PENDING: Final = 500
"""Notices that wait for one service; of more, the oldest are lost."""

_THREADS = 4
_STOP_SECONDS = 5.0

_log = logging.getLogger("lettaspace.server")


@dataclass(slots=True)
class _Notice:
    nsid: str
    body: dict[str, Any]

    @property
    def space_rev(self) -> str:
        rev: str = self.body.get("spaceRev", "")
        return rev


@dataclass(slots=True)
class _Line:
    """What one service is still to be told: by space and repo, in order."""

    notices: "OrderedDict[tuple[str, str], _Notice]" = field(default_factory=OrderedDict)
    busy: bool = False


class Forwards:
    """A host's worker. What is told before it starts waits for that."""

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._changed = threading.Condition()
        self._lines: dict[str, _Line] = {}
        self._ready: deque[str] = deque()
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def tell(self, change: "Change") -> None:
        """Tells the change's services of it, later. Neither raises nor waits."""
        writer = change.writer
        body = {
            "space": change.space,
            "repo": writer.did,
            "repoRev": writer.rev,
            "hash": writer.hash,
            "spaceRev": writer.space_rev,
        }
        if change.prev is not None:
            body["prevSpaceRev"] = change.prev
        with self._changed:
            for service in change.services:
                line = self._lines.setdefault(service, _Line())
                _add(line, (change.space, writer.did), _Notice(WRITE, dict(body)))
                self._wake(service, line)

    def tell_deleted(self, space: str, services: Iterable[str]) -> None:
        """Tells services that the space was deleted, later."""
        with self._changed:
            for service in services:
                line = self._lines.setdefault(service, _Line())
                for key in [key for key in line.notices if key[0] == space]:
                    del line.notices[key]
                line.notices[space, ""] = _Notice(DELETED, {"space": space})
                self._wake(service, line)

    def start(self) -> None:
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"forwards-{i}", daemon=True)
            for i in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; what still waits is lost."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def flush(self) -> None:
        """Tells all that waits, here and now: for tests, without `start`."""
        while True:
            with self._changed:
                if not self._ready:
                    return
                service, notice = self._take()
            self._deliver(service, notice)

    def _wake(self, service: str, line: _Line) -> None:
        if not line.busy and service not in self._ready:
            self._ready.append(service)
        self._changed.notify()

    def _take(self) -> tuple[str, _Notice]:
        service = self._ready.popleft()
        line = self._lines[service]
        line.busy = True
        return service, line.notices.popitem(last=False)[1]

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._ready and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                service, notice = self._take()
            self._deliver(service, notice)

    def _deliver(self, service: str, notice: _Notice) -> None:
        try:
            self._send(service, notice)
        except (CallError, IdentityError) as error:
            _log.info("%s was not told: %s", service.partition("#")[0], error)
        except Exception as error:
            _log.error("telling a service failed: %s", type(error).__name__)
        finally:
            with self._changed:
                line = self._lines[service]
                line.busy = False
                if line.notices:
                    self._wake(service, line)
                else:
                    del self._lines[service]

    def _send(self, service: str, notice: _Notice) -> None:
        authority = notice.body["space"].removeprefix("at://").partition("/")[0]
        origin = calling.service_origin(self._host.background.identity, service)
        calling.post(
            self._host, origin, notice.nsid, notice.body, issuer=authority, audience=service
        )


def _add(line: _Line, key: tuple[str, str], notice: _Notice) -> None:
    """Adds a notice. Of two of one repo the later stays, and what followed the other in the
    chain now follows what was before that."""
    older = line.notices.get(key)
    if older is None:
        line.notices[key] = notice
    elif older.space_rev < notice.space_rev:
        del line.notices[key]
        line.notices[key] = notice
        _leave_out(line, older)
    else:  # told of in another order than written
        _leave_out(line, notice)
    while len(line.notices) > MAX_PENDING:
        line.notices.popitem(last=False)


def _leave_out(line: _Line, gone: _Notice) -> None:
    for notice in line.notices.values():
        body = notice.body
        if body["space"] == gone.body["space"] and body.get("prevSpaceRev") == gone.space_rev:
            del body["prevSpaceRev"]
            if "prevSpaceRev" in gone.body:
                body["prevSpaceRev"] = gone.body["prevSpaceRev"]
