"""Signing in: from what the user typed to an account whose host speaks spaces.

    place = find("mira.example")
    account = with_password(home, place, password)
    account = with_oauth(home, place, show)

A handle leads to a DID, whose document has to name the handle again and says where the account's
host is. An address (`https://host.example`) is a host's, and whose account it is shows when
somebody signed in there; the document of the account has to name that host, then.

Addresses on this machine are taken only where the user typed one: `http://localhost:2583`, or a
did:web of localhost. Then what the host's documents name may be on this machine, too. A host in a
private network is taken where the user typed its address, https; then its documents and those of
its accounts are, too. Nothing is saved before all has gone well.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lettaspace.atproto.syntax import is_did, is_handle
from lettaspace.errors import (
    Conflict,
    Damaged,
    HostRefused,
    InvalidInput,
    LettaspaceError,
    NotFound,
    SignedOut,
    Unreachable,
)
from lettaspace.network.addresses import is_home, lookup
from lettaspace.network.didweb import document_url
from lettaspace.network.documents import PDS, PDS_TYPE, Document
from lettaspace.network.fetching import Fetcher
from lettaspace.network.identity import IdentityError, Resolver
from lettaspace.network.targets import FetchError, Target, loopback, parse
from lettaspace.remote.account import Account, How
from lettaspace.remote.discovery import discover
from lettaspace.remote.keeping import InMemory
from lettaspace.remote.oauth import signing_in
from lettaspace.remote.probe import probe
from lettaspace.remote.sessions import Session, Tokens
from lettaspace.remote.xrpc import Client

PATIENCE: Final = 600.0
"""Seconds that somebody has to agree in the browser."""

_LOOKUP_SECONDS = 5.0

_PLAIN = (
    "not https: whoever is in the same network could read the password and all that is kept; "
    "give the host a certificate"
)
_TYPE_IT = "; for a host in a private network type its address, https://NAME"


@dataclass(frozen=True, slots=True)
class Place:
    """Where to sign in. `did` and `handle` are None where only the host is known."""

    host: str
    loopback: bool
    did: str | None = None
    handle: str | None = None
    trusted: bool = False
    """Whether it is in a private network, and the user typed its address."""

    @property
    def fetcher(self) -> Fetcher:
        return Fetcher(development=self.loopback, trusted=self.host if self.trusted else None)


def find(who: str) -> Place:
    """Where to sign in, from a handle, a DID or the address of a host.

    Raises InvalidInput for what is none of these, NotFound if nobody is called that, or it leads
    to no host; Unreachable.
    """
    if "://" in who:
        return _host(who)
    local = _is_local(who)
    resolver = Resolver(Fetcher(development=local))
    if is_did(who):
        document = _document(who, resolver)
        return Place(_endpoint(document, local), local, who, _handle(document, resolver, local))
    handle = who.removeprefix("@").lower()
    if not is_handle(handle):
        raise InvalidInput(f"{who!r} is neither a handle nor a DID nor the address of a host")
    with _identity(handle):
        did = resolver.resolve_handle(handle)
    document = _document(did, resolver)
    if handle not in document.handles:
        raise NotFound(f"{handle} stands for {did}, whose document does not name it")
    return Place(_endpoint(document, local), local, did, handle)


def with_password(home: Path, place: Place, name: str, password: str) -> Account:
    """Signs in with a password, the account's own or an app password.

    `name` is a handle or DID. Raises as `Client.procedure` does, and as `_settle`.
    """
    _require_nobody_else(home, place.did)
    with Client(place.host) as client:
        try:
            answer = client.procedure(
                "com.atproto.server.createSession", {"identifier": name, "password": password}
            )
        except HostRefused as error:
            raise _explained(error, place.host) from None
    tokens = Tokens(answer["accessJwt"], answer["refreshJwt"])
    if not answer.get("active", True):
        status = answer.get("status", "inactive")
        _end(Session(InMemory(answer["did"], tokens.json()), place.host, place.fetcher))
        raise HostRefused(f"this account is {status}", status=200, error="AccountInactive")
    return _settle(home, place, answer["did"], tokens, "password")


def with_oauth(
    home: Path,
    place: Place,
    show: Callable[[str], None],
    *,
    name: str | None = None,
    seconds: float = PATIENCE,
) -> Account:
    """Signs in by OAuth. `show` is given the address to open, `name` is who is to sign in there.

    Raises NotFound if the host offers no OAuth; as `oauth` does, and as `_settle`.
    """
    _require_nobody_else(home, place.did)
    fetcher = place.fetcher
    server = discover(place.host, fetcher)
    with signing_in(server, fetcher, hint=name or place.handle or place.did) as attempt:
        show(attempt.url)
        grant = attempt.finish(seconds)
    tokens = Tokens(grant.access, grant.refresh, grant.binding)
    return _settle(home, place, grant.did, tokens, "oauth")


def _require_nobody_else(home: Path, did: str | None = None) -> None:
    """Raises Conflict if another account is signed in at this home."""
    before = _before(home)
    if before is not None and did is not None and before.did != did:
        raise Conflict(f"{before.name} is signed in here; `lettaspace logout` first")


def _settle(home: Path, place: Place, did: str, tokens: Tokens, how: How) -> Account:
    """The account that somebody signed in to, once all is in order; saved.

    Raises SignedOut if it is not the one that was meant, NotFound if it is not this host's,
    HostRefused if the host does not speak spaces; Conflict, Unreachable, StoreUnavailable. The
    session is ended then.
    """
    session = Session(InMemory(did, tokens.json()), place.host, place.fetcher)
    try:
        if place.did not in (None, did):
            raise SignedOut(f"somebody else signed in: {did}, not {place.did}")
        _require_nobody_else(home, did)
        if place.did is None:
            place = _confirmed(place, did)
        with Client(place.host, auth=session) as client:
            capabilities = probe(client, did, place.fetcher)
        account = Account(
            home, did, place.handle, place.host, how, place.loopback, capabilities, place.trusted
        )
        _replace(account, session.tokens())
    except BaseException:
        _end(session)
        raise
    return account


def _replace(account: Account, tokens: Tokens) -> None:
    """Keeps the account and its tokens, and ends the session that was there before."""
    before = _before(account.home)
    keeping = account.keeping
    with keeping.locked():
        if before is not None:
            _end(before.session())
        keeping.forget()
        keeping.save(tokens.json())
        account.save()


def _before(home: Path) -> Account | None:
    """Who is signed in; nobody, if what is kept of the account is damaged."""
    try:
        return Account.load(home)
    except Damaged:
        return None


def _end(session: Session) -> None:
    """Ends a session at its host, if that can be."""
    with suppress(LettaspaceError):
        session.end()


def _host(url: str) -> Place:
    """The host that the user typed the address of, wherever it is."""
    try:
        target = parse(url, development=True)
    except FetchError as error:
        target = _at_home(url, error)
    local = loopback(target.host) is not None
    if not local and target.scheme != "https":
        raise InvalidInput(f"{url}: {_PLAIN}")
    if target.path != "/":
        raise InvalidInput(f"{url}: the address of a host has no path")
    return Place(target.origin, local, trusted=not local and _is_inside(target))


def _at_home(url: str, error: FetchError) -> Target:
    """An address of a form that only hosts in private networks may have."""
    origin = url.removesuffix("/").lower()
    with suppress(FetchError):
        target = parse(url, trusted=origin)
        if target.origin == origin and _is_inside(target):
            return target
    raise InvalidInput(f"{url}: {_PLAIN if origin.startswith('http://') else error}") from None


def _is_inside(target: Target) -> bool:
    """Whether a host is in a private network, as far as can be told."""
    try:
        found = lookup(target.host.strip("[]"), _LOOKUP_SECONDS)
    except TimeoutError:
        return False
    return any(map(is_home, found))


def _is_local(who: str) -> bool:
    """Whether a DID or a handle names this machine."""
    if who.startswith("did:web:"):
        with suppress(InvalidInput):
            return document_url(who, development=True).startswith("http://")
        return False
    return loopback(who.removeprefix("@").lower()) is not None


def _confirmed(place: Place, did: str) -> Place:
    """The place with whose account it is, which has to be of its host."""
    resolver = Resolver(place.fetcher)
    document = _document(did, resolver)
    named = _endpoint(document, place.loopback, place.fetcher.trusted)
    if named != place.host:
        raise NotFound(f"{did} is not an account of {place.host}: its document names {named}")
    return replace(place, did=did, handle=_handle(document, resolver, place.loopback))


def _handle(document: Document, resolver: Resolver, local: bool) -> str | None:
    """The handle that a document names and that leads back to it. On this machine, where names
    lead nowhere, what the document says is taken."""
    if not document.handles:
        return None
    handle = document.handles[0]
    if local:
        return handle
    try:
        return handle if resolver.resolve_handle(handle) == document.did else None
    except IdentityError:
        return None


def _document(did: str, resolver: Resolver) -> Document:
    with _identity(did):
        return resolver.document(did)


def _endpoint(document: Document, local: bool, trusted: str | None = None) -> str:
    try:
        return document.endpoint(PDS, PDS_TYPE, development=local, trusted=trusted)
    except (InvalidInput, NotFound) as error:
        raise NotFound(f"{document.did}: {error}") from None


@contextmanager
def _identity(who: str) -> Iterator[None]:
    try:
        yield
    except IdentityError as error:
        if error.transient:
            raise Unreachable(f"{who}: {error}", sent=False) from None
        hint = "" if "public" not in str(error) else _TYPE_IT
        raise NotFound(f"{who}: {error}{hint}") from None


def _explained(error: HostRefused, host: str) -> HostRefused:
    """What a refused password means."""
    reasons = {
        "AuthenticationRequired": f"{host} does not know this name and password",
        "AuthFactorTokenRequired": f"{host} wants a code with this password: use an app password",
    }
    reason = reasons.get(error.error)
    if reason is None:
        return error
    return HostRefused(reason, status=error.status, error=error.error)
