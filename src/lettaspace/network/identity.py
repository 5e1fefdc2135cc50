"""Who a DID is: its document, from this host, the network, or a moment ago.

    resolver = Resolver(Fetcher(), local=accounts.document)
    try:
        claims = token.verify(resolver.key(token.issuer, token.kid))
    except Refused:
        claims = token.verify(resolver.key(token.issuer, token.kid, refresh=True))

Accounts of this host and `did:key` are never fetched. Everything here may block; all of it may
be called from several threads. Source: protocol, section 2; the DID methods web, plc and key.
"""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.syntax import is_did, is_handle
from lettaspace.atproto.tokens import ACCOUNT_KEY
from lettaspace.errors import InvalidInput, NotFound
from lettaspace.network import handles
from lettaspace.network.didweb import document_url
from lettaspace.network.documents import MAX_DOCUMENT, Document
from lettaspace.network.fetching import Busy, Fetcher
from lettaspace.network.handles import Texts
from lettaspace.network.targets import FetchError

PLC_DIRECTORY = "https://plc.directory"

Local = Callable[[str], dict[str, Any] | None]
"""The document of an account of this host, as JSON; None for a DID that is not one."""

T = TypeVar("T")

_plc = re.compile(r"did:plc:[a-z2-7]{24}").fullmatch


class IdentityError(Exception):
    """A DID, or what it was asked for, cannot be had. The text says why in a few words.

    `transient` tells whether it may be different later. Not one of `lettaspace.errors`: what
    it means for an answer depends on whose DID it is.
    """

    def __init__(self, reason: str, *, transient: bool = False) -> None:
        super().__init__(reason)
        self.transient = transient


class Resolver:
    """Finds out about DIDs.

    A document is kept for `ttl` seconds, and that there is none for `absent`. `refresh` asks
    again sooner, but not within `rest` seconds, so that bad signatures cannot make this host
    ask others time and again. At most `size` documents and as many failures are kept. `plc` is
    the directory of did:plc, `patience` the seconds for one document, `texts` looks up handles.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        local: Local | None = None,
        plc: str = PLC_DIRECTORY,
        ttl: float = 300.0,
        absent: float = 15.0,
        rest: float = 10.0,
        size: int = 1000,
        patience: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        texts: Texts = handles.texts,
    ) -> None:
        self._fetcher = fetcher
        self._local = local
        self._plc = plc.rstrip("/")
        self._rest = rest
        self._patience = patience
        self._clock = clock
        self._texts = texts
        self._documents: _Kept[Document] = _Kept(size, ttl)
        self._failures: _Kept[IdentityError] = _Kept(size, absent)
        self._lock = threading.Lock()
        self._pending: dict[str, Future[Document]] = {}

    def key(self, did: str, fragment: str, *, refresh: bool = False) -> VerifyingKey:
        """The key of a DID with this id, `#atproto` or `#atproto_space`, and never another.

        A `did:key` is its own `#atproto`. `refresh` is for a signature that a key a moment old
        does not fit: it may have been replaced. Raises IdentityError.
        """
        with _reasons():
            if did.startswith("did:key:"):
                if fragment != ACCOUNT_KEY:
                    raise NotFound(f"did:key: no key {fragment}")
                return VerifyingKey.from_did(did)
            return self.document(did, refresh=refresh).key(fragment)

    def space_host(self, did: str) -> str:
        """The origin of the host of an authority's spaces. Raises IdentityError."""
        with _reasons():
            return self.document(did).space_host(
                development=self._fetcher.development, trusted=self._fetcher.trusted
            )

    def service(self, did: str, fragment: str) -> str:
        """The origin of a DID's service with this id, such as `#notify`. Raises IdentityError."""
        with _reasons():
            document = self.document(did)
            return document.endpoint(
                fragment, development=self._fetcher.development, trusted=self._fetcher.trusted
            )

    def document(self, did: str, *, refresh: bool = False) -> Document:
        """The document of a DID; a `did:key` has none. Raises IdentityError."""
        if not is_did(did):
            raise IdentityError("not a DID")
        if self._local is not None and (own := self._local(did)) is not None:
            with _reasons():
                return Document.read(own, did)
        with self._lock:
            now = self._clock()
            if (kept := self._documents.get(did, now)) is not None:
                document, since = kept
                if not refresh or now - since < self._rest:
                    return document
            if (failed := self._failures.get(did, now)) is not None:
                raise IdentityError(*failed[0].args, transient=failed[0].transient)
            theirs = self._pending.get(did)
            if theirs is None:
                mine = self._pending[did] = Future()
        if theirs is None:
            return self._fetch(did, mine)
        with _reasons(), self._fetcher.place():
            return theirs.result()

    def resolve_handle(self, handle: str) -> str:
        """The DID that another host's handle stands for, by DNS or HTTPS. Raises IdentityError.

        Nothing is kept, and whether the DID's document names the handle is not looked at.
        """
        if not is_handle(handle):
            raise IdentityError("not a handle")
        with _reasons():
            return handles.resolve(handle.lower(), self._fetcher, texts=self._texts)

    def _fetch(self, did: str, future: Future[Document]) -> Document:
        """Gets the document for all who wait for it."""
        try:
            with _reasons():
                document = Document.read(self._get(did), did)
        except BaseException as error:
            with self._lock:
                del self._pending[did]
                if isinstance(error, IdentityError) and not isinstance(error.__cause__, Busy):
                    self._failures.put(did, error, self._clock())
                    if not error.transient:
                        self._documents.drop(did)
            future.set_exception(error)
            raise
        with self._lock:
            del self._pending[did]
            self._documents.put(did, document, self._clock())
        future.set_result(document)
        return document

    def _get(self, did: str) -> Any:
        if did.startswith("did:web:"):
            url = document_url(did, development=self._fetcher.development)
        elif _plc(did):
            url = f"{self._plc}/{did}"
        else:
            raise InvalidInput("DID: of a method that is not known here")
        return self._fetcher.get_json(url, limit=MAX_DOCUMENT, patience=self._patience)


class _Kept(Generic[T]):
    """Values with the time they are from, for a while; when there are too many, the ones that
    were not asked for the longest go first."""

    def __init__(self, size: int, ttl: float) -> None:
        self._size = size
        self._ttl = ttl
        self._values: OrderedDict[str, tuple[T, float]] = OrderedDict()

    def get(self, name: str, now: float) -> tuple[T, float] | None:
        found = self._values.get(name)
        if found is None:
            return None
        if now - found[1] >= self._ttl:
            del self._values[name]
            return None
        self._values.move_to_end(name)
        return found

    def put(self, name: str, value: T, now: float) -> None:
        self._values[name] = value, now
        self._values.move_to_end(name)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def drop(self, name: str) -> None:
        self._values.pop(name, None)


@contextmanager
def _reasons() -> Iterator[None]:
    """What the layers below say, as the one error that this module has."""
    try:
        yield
    except (NotFound, InvalidInput) as error:
        raise IdentityError(str(error)) from error
    except FetchError as error:
        raise IdentityError(str(error), transient=error.transient) from error
