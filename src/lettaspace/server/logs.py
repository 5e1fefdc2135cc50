"""Logs: one line of JSON for each request and each fault, without anything a request held.

A line about a request has its time, method, status, error name, milliseconds, sizes, and who
called as a keyed hash of the DID: the same account has the same hash for as long as the
database lives, and nobody without the database can tell whose it is. What other libraries log
may hold anything, so of theirs only the logger, the level and an exception's class are kept.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TextIO

from lettaspace.atproto.tokens import ServiceAuth
from lettaspace.server.calls import Call
from lettaspace.server.config import Level
from lettaspace.server.sessions import Session
from lettaspace.server.traffic import Exchange

OURS: Final = "lettaspace"

KEY: Final = "logs"
"""The name of the host's secret that makes the hashes of callers."""

_requests = logging.getLogger("lettaspace.server.requests")


def install(level: Level, stream: TextIO | None = None) -> None:
    """Sends all logs of this process to a stream, standard error by default.

    `error` has faults only, `info` also a line for each request. Replaces what was there.
    """
    handler: logging.Handler
    if level == "off":
        handler = logging.NullHandler()
    else:
        handler = logging.StreamHandler(stream or sys.stderr)
        handler.setFormatter(Formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR)
    ours = logging.getLogger(OURS)
    ours.handlers.clear()
    ours.propagate = True
    ours.setLevel(logging.INFO if level == "info" else logging.ERROR)
    # A line that cannot be written must not be told about with its content.
    logging.raiseExceptions = False
    # What no line has need not be found out: the place in the code, thread and process.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


class Formatter(logging.Formatter):
    """A record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
        }
        request: dict[str, Any] | None = getattr(record, "request", None)
        ours = record.name == OURS or record.name.startswith(OURS + ".")
        if ours and request is not None:
            line |= request
        elif ours:
            line["message"] = record.getMessage()
        else:
            line["logger"] = record.name
        if record.exc_info and record.exc_info[0]:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line)


class RequestLog:
    """Logs requests. An `Observer` of them. `key` makes the hashes of callers."""

    def __init__(self, key: bytes) -> None:
        self._name: Callable[[str], str] = lru_cache(maxsize=4096)(lambda did: name(did, key))

    def began(self) -> None:
        pass

    def ended(self, exchange: Exchange) -> None:
        if not _requests.isEnabledFor(logging.INFO):
            return
        line: dict[str, Any] = {
            "method": exchange.method,
            "status": exchange.status,
            "ms": round(exchange.seconds * 1000, 1),
            "received": exchange.received,
            "sent": exchange.sent,
        }
        if exchange.error is not None:
            line["error"] = exchange.error
        if exchange.status is not None and not exchange.whole:
            line["broken"] = True
        caller = None if exchange.call is None else _caller(exchange.call)
        if caller is not None:
            line["caller"] = self._name(caller)
        _requests.info("request", extra={"request": line})


def name(did: str, key: bytes) -> str:
    """What the logs call an account: 16 hexadecimal digits."""
    return hashlib.blake2b(did.encode(), key=key, digest_size=8).hexdigest()


def _caller(call: Call) -> str | None:
    """The account that calls; whoever holds a credential has none that we know."""
    if isinstance(call.caller, Session):
        return call.caller.did
    if isinstance(call.caller, ServiceAuth):
        return call.caller.issuer
    return None


def _time(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
