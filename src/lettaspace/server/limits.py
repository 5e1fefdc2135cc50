"""How often something may be done: by an account, from an address, to an account's password.

A window begins with the first thing that is counted in it and ends some time later, all at
once, as in the reference. Counts are this process's own and in memory: where several processes
serve, what is allowed altogether is up to as many times more. Addresses of IPv6 are counted by
their /64, which is what one customer has. Source: protocol, section 10 (points of writes).
"""

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, Literal, TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lettaspace.server.errors import XrpcError
from lettaspace.server.incoming import CLOSE
from lettaspace.server.rates import Rates
from lettaspace.server.replies import refuse, send_reply
from lettaspace.server.xrpc import CALL

What: TypeAlias = Literal[
    "write", "upload", "delegate", "signInAs", "signIn", "exchange", "notify", "anonymous", "refuse"
]

_MINUTES: Final = 300
_HOUR: Final = 3600
_DAY: Final = 86400

MOST_KEYS: Final = 50_000
"""Accounts or addresses that a window counts at most; beyond, the oldest are forgotten."""

_LONGEST_KEY = 256


class Limits:
    """The counts of one process, safe in many threads. `clock` gives seconds since 1970."""

    def __init__(self, rates: Rates, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: Mapping[What, tuple[_Window, ...]] = {
            "write": _windows((rates.writes_per_hour, _HOUR), (rates.writes_per_day, _DAY)),
            "upload": _windows((rates.uploads_per_hour, _HOUR)),
            "delegate": _windows((rates.delegations_per_hour, _HOUR)),
            "signInAs": _windows((rates.sign_ins_of_account, _MINUTES)),
            "signIn": _windows((rates.sign_ins, _MINUTES)),
            "exchange": _windows((rates.exchanges, _MINUTES)),
            "notify": _windows((rates.notices, _MINUTES)),
            "anonymous": _windows((rates.anonymous, _MINUTES)),
            "refuse": _windows((rates.refused, _MINUTES)),
        }

    def spend(self, what: What, who: str, points: int = 1) -> None:
        """Counts what `who`, an account or an address, does.

        Raises XrpcError (RateLimitExceeded), and counts nothing, if that is too much.
        """
        self._count(what, who, points, points)

    def require(self, what: What, who: str) -> None:
        """Raises XrpcError (RateLimitExceeded) if nothing is left; counts nothing."""
        self._count(what, who, 1, 0)

    def note(self, what: What, who: str) -> None:
        """Counts what has happened already."""
        now = self._clock()
        with self._lock:
            for window in self._windows[what]:
                window.add(who, now, 1)

    def _count(self, what: What, who: str, wanted: int, points: int) -> None:
        windows = self._windows[what]
        if not windows:
            return
        key = who if len(who) <= _LONGEST_KEY else _digest(who)
        now = self._clock()
        with self._lock:
            for window in windows:
                window.check(key, now, wanted)
            if points:
                for window in windows:
                    window.add(key, now, points)


class AddressLimits:
    """An ASGI application behind the limits of addresses.

    `gated` are the paths where authorization is looked at before anything else is done; at
    others a header that says nothing makes no request less anonymous.
    """

    def __init__(self, app: ASGIApp, limits: Limits, gated: Collection[str]) -> None:
        self._app = app
        self._limits = limits
        self._gated = gated

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "OPTIONS":
            await self._app(scope, receive, send)
            return
        who = address(scope)
        path = scope["path"]
        known = path in self._gated and any(
            name == b"authorization" for name, _ in scope["headers"]
        )
        try:
            what = _BY_ADDRESS.get(path)
            if what is not None:
                self._limits.spend(what, who)
            if known:
                self._limits.require("refuse", who)
            else:
                self._limits.spend("anonymous", who)
        except XrpcError as error:
            error.headers += CLOSE  # the body is not read
            await send_reply(refuse(error), scope, send)
            return

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _REFUSALS:
                call = scope.get(CALL)
                if call is None or call.caller is None:
                    self._limits.note("refuse", who)
            await send(message)

        await self._app(scope, receive, counting if known else send)


def address(scope: Scope) -> str:
    """Where a request comes from, as it is counted."""
    client = scope.get("client")
    return _network(client[0]) if client else ""


@lru_cache(maxsize=4096)
def _network(text: str) -> str:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return text[:_LONGEST_KEY]
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((found, 64), strict=False))
    return str(found)


def _digest(text: str) -> str:
    # Whoever signs in may send any text as a name.
    return hashlib.blake2b(text.encode(errors="backslashreplace")).hexdigest()


class _Window:
    """What each one did since their window began: so many points, in so many seconds."""

    def __init__(self, limit: int, seconds: int) -> None:
        self._limit = limit
        self._seconds = seconds
        # Begin and points; the oldest come first, for all windows are equally long.
        self._used: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, key: str, now: float, wanted: int) -> None:
        begin, used = self._current(key, now)
        if used + wanted <= self._limit:
            return
        seconds = max(1, math.ceil(begin + self._seconds - now))
        raise XrpcError(
            "RateLimitExceeded",
            f"too much of this; again in {seconds} seconds",
            headers=[
                ("ratelimit-limit", str(self._limit)),
                ("ratelimit-remaining", str(max(0, self._limit - used))),
                ("ratelimit-reset", str(math.ceil(begin + self._seconds))),
                ("ratelimit-policy", f"{self._limit};w={self._seconds}"),
                ("retry-after", str(seconds)),
            ],
        )

    def add(self, key: str, now: float, points: int) -> None:
        begin, used = self._current(key, now)
        if not used:
            self._used.pop(key, None)
            self._make_room(now)
        self._used[key] = (begin, used + points)

    def _current(self, key: str, now: float) -> tuple[float, int]:
        begin, used = self._used.get(key, (now, 0))
        # A clock that was set back must not make a window last for ever.
        return (begin, used) if begin <= now < begin + self._seconds else (now, 0)

    def _make_room(self, now: float) -> None:
        while self._used:
            key, (begin, _) = next(iter(self._used.items()))
            if len(self._used) < MOST_KEYS and begin <= now < begin + self._seconds:
                return
            del self._used[key]


def _windows(*pairs: tuple[int, int]) -> tuple[_Window, ...]:
    return tuple(_Window(limit, seconds) for limit, seconds in pairs if limit)


# What a gate answers with; a token that is none is a 400, as with the reference.
_REFUSALS = (400, 401, 403)

_SPACE = "/xrpc/com.atproto.space."

_BY_ADDRESS: dict[str, What] = {
    "/xrpc/com.atproto.server.createSession": "signIn",
    _SPACE + "getSpaceCredential": "exchange",
    _SPACE + "notifyWrite": "notify",
    _SPACE + "notifySpaceDeleted": "notify",
    _SPACE + "notifyCredentialRevoked": "notify",
}
