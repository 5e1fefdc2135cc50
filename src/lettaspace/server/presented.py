"""Credentials that were presented a moment ago: what the same headers proved then they prove now.

A signature of the current generation is good for any request with one credential and audience,
and clients send it many times (protocol, section 5). Checking it takes longer than most reads.
Revocation is not remembered here, nor is anything whose proof is good once, as DPoP's is.
"""

import threading
from collections import OrderedDict
from hashlib import sha256
from typing import Final

from lettaspace.atproto.admission import Access
from lettaspace.atproto.jwt import Time
from lettaspace.server.calls import RawHeaders

KEPT_SECONDS: Final = 60
"""How long: so much later an authority's new key is noticed."""

_MOST = 4096

_FIELDS = (b"authorization", b"atproto-space-audience", b"signature-input", b"signature")


class Presented:
    """What was proven, by the headers that proved it. Safe in many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, tuple[Access, Time]] = OrderedDict()

    def find(self, headers: RawHeaders, now: Time) -> Access | None:
        key = _key(headers)
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            access, until = found
            if not until - KEPT_SECONDS <= now < min(until, access.credential.exp):
                del self._found[key]
                return None
        return access

    def add(self, headers: RawHeaders, access: Access, now: Time) -> None:
        if access.audience is None:
            return
        with self._lock:
            self._found[_key(headers)] = access, now + KEPT_SECONDS
            if len(self._found) > _MOST:
                self._found.popitem(last=False)


def _key(headers: RawHeaders) -> bytes:
    """Of all fields that are looked at, as often and in the order in which they were sent."""
    hashed = sha256()
    for name, value in headers:
        if name in _FIELDS:
            hashed.update(b"%s %d " % (name, len(value)))
            hashed.update(value)
    return hashed.digest()
