"""OAuth clients: the keys with which apps prove which app they are.

A client's id is the URL of its metadata, which has its keys or says where they are. Source:
protocol, section 4 (tokens); the AT Protocol's profile of OAuth.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lettaspace.network.fetching import Fetcher
from lettaspace.network.targets import FetchError, parse

_MAX_METADATA = 64 * 1024


class Clients:
    """Looks up the keys of clients, and keeps them for `ttl` seconds.

    `refresh` asks again sooner, but not within `rest` seconds. At most `size` are kept. May be
    called from several threads; blocks while it fetches.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        ttl: float = 600.0,
        rest: float = 10.0,
        size: int = 500,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._ttl = ttl
        self._rest = rest
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def jwks(self, client_id: str, *, refresh: bool = False) -> Any:
        """The client's key set, parsed and otherwise not looked at. Raises FetchError."""
        with self._lock:
            kept = self._kept.get(client_id)
        if kept is not None:
            age = self._clock() - kept[0]
            if age < (self._rest if refresh else self._ttl):
                return kept[1]
        keys = self._fetch(client_id)
        with self._lock:
            self._kept[client_id] = self._clock(), keys
            self._kept.move_to_end(client_id)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return keys

    def _fetch(self, client_id: str) -> Any:
        # The metadata must be where its id says, not where that redirects to; the keys too.
        parse(client_id, development=self._fetcher.development)
        metadata = self._fetcher.get_json(client_id, limit=_MAX_METADATA)
        if type(metadata) is not dict or metadata.get("client_id") != client_id:
            raise FetchError("metadata is not of this client")
        keys, where = metadata.get("jwks"), metadata.get("jwks_uri")
        if (keys is None) == (where is None):
            raise FetchError("metadata has no keys, or two places of them")
        if where is None:
            return keys
        if type(where) is not str:
            raise FetchError("metadata has no address of its keys")
        return self._fetcher.get_json(where, limit=_MAX_METADATA)
