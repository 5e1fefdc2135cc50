"""Handles of others: a host name that says, by DNS or over HTTPS, which DID it stands for.

Source: the AT Protocol's specification of handles.
"""

import threading
from collections.abc import Callable
from typing import TypeAlias

import dns.exception
import dns.rdatatype
import dns.resolver

from lettaspace.atproto.syntax import MAX_DID, is_did
from lettaspace.network.fetching import Fetcher
from lettaspace.network.targets import FetchError, loopback

Texts: TypeAlias = Callable[[str, float], list[str]]
"""The TXT records of a name, within so many seconds; none if it has none, or nobody knows."""

_REDIRECTS = 3

_local = threading.local()


def texts(name: str, timeout: float) -> list[str]:
    """The TXT records that the system's name servers have, as the `Texts` it is."""
    try:
        answer = _resolver().resolve(name, dns.rdatatype.TXT, lifetime=timeout, search=False)
    except (dns.exception.DNSException, OSError):
        return []
    return [b"".join(record.strings).decode("latin-1") for record in answer]


def resolve(handle: str, fetcher: Fetcher, *, texts: Texts = texts, patience: float = 3.0) -> str:
    """The DID that a handle, in lower case, stands for. Raises FetchError.

    Two different DIDs in DNS are as good as none; a name that has none there is asked itself.
    `patience` is for each of the two. Whether the DID claims the handle too, its document says.
    """
    if not (fetcher.development and loopback(handle)):
        records = texts(f"_atproto.{handle}", patience)
        dids = {record[4:].strip() for record in records if record.startswith("did=")}
        if len(dids) == 1 and is_did(did := dids.pop()):
            return did
    return _well_known(handle, fetcher, patience)


def _well_known(handle: str, fetcher: Fetcher, patience: float) -> str:
    fetched = fetcher.get(
        f"https://{handle}/.well-known/atproto-did",
        accept="text/plain",
        limit=MAX_DID + 64,
        redirects=_REDIRECTS,
        patience=patience,
    )
    did = fetched.body.decode("latin-1").strip()
    if fetched.status != 200 or not is_did(did):
        raise FetchError("handle names no DID", status=fetched.status)
    return did


def _resolver() -> dns.resolver.Resolver:
    """One for each thread: reading the system's settings takes longer than asking a cache."""
    if not hasattr(_local, "resolver"):
        _local.resolver = dns.resolver.Resolver()
    resolver: dns.resolver.Resolver = _local.resolver
    return resolver
