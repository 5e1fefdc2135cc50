"""What is cleaned up beside the requests: expired tokens, unused blobs, old entries of logs."""

import logging
import random
import threading

from lettaspace.errors import StoreUnavailable
from lettaspace.server import replay, sync, uploads
from lettaspace.server.host import Host

EVERY_SECONDS = 600.0

_log = logging.getLogger("lettaspace.server")


def register(host: Host) -> None:
    host.workers.append(Maintenance(host))


def maintain(host: Host) -> None:
    """One round. Several processes may do it at once."""
    host.database.run(lambda connection: replay.clean(connection, host.clock()))
    uploads.clean(host.database, host.clock())
    sync.compact_all(host.database)


class Maintenance:
    """A thread that does so now and then. A round that fails leaves all to the next one."""

    def __init__(self, host: Host, every: float = EVERY_SECONDS) -> None:
        self._host = host
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits for a round that is under way."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        # Not all processes of a host at the same time.
        while not self._over.wait(self._every * random.uniform(0.5, 1.0)):  # noqa: S311
            try:
                maintain(self._host)
            except StoreUnavailable as error:
                _log.warning("cleaning up failed: %s", error)
            except Exception as error:
                _log.error("cleaning up failed: %s", type(error).__name__)
