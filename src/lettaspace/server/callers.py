"""Who calls: gates that read it from a request's headers.

    reader    the session of an account, or a credential that its holder presents
    writer    the session of an account that is not taken down
    holder    a credential only
    service   another host, in the name of one of its accounts

Each raises the declared error. What a caller may do is then up to `access`. All may wait for
the database, and the last three for the network too, so they run in worker threads: the gate of
a coroutine handler is to call them through `host.xrpc`'s threads. Source: protocol, sections 4
and 5.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from lettaspace.atproto.admission import Access, Use, require_not_revoked
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.proof import Request, presented
from lettaspace.atproto.proof import bearer as service_bearer
from lettaspace.atproto.tokens import KeyId, ServiceAuth, Unverified, read_service_auth
from lettaspace.errors import Refused
from lettaspace.network.identity import IdentityError
from lettaspace.server.calls import Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.sessions import Session, bearer

Caller: TypeAlias = Session | Access

T = TypeVar("T")


def reader(host: Host, call: Call) -> Caller:
    """An account's session, whatever its state, or a credential."""
    if presented(fields(call)) is not None:
        return holder(host, call)
    return host.sessions.read(bearer(call.headers))


def writer(host: Host, call: Call) -> Session:
    """The session of an account that may write. Raises AccountTakedown, RepoDeactivated."""
    session = host.sessions.read(bearer(call.headers))
    session.require_in_service()
    if not session.account.is_active:
        raise XrpcError("RepoDeactivated", "this account is deactivated")
    return session


def holder(host: Host, call: Call) -> Access:
    """A credential, presented by who proves to hold it, that was not revoked here.

    Which space it opens, and for which audience, `access` compares with what is asked.
    """
    now = host.clock()
    known = host.presented.find(call.headers, now)
    if known is not None:
        require_not_revoked(known.credential, host.revocations)
        return known
    request = Request(verb(call), f"{host.config.origin}/xrpc/{call.method.nsid}", fields(call))
    use = Use(request, now, alpha=True)

    def finish(key: VerifyingKey) -> Access:
        return use.finish(key, host.proofs, host.revocations)

    access = verified(host, use, finish)
    host.presented.add(call.headers, access, now)
    return access


def service(host: Host, call: Call) -> ServiceAuth:
    """Another host, calling this method. Whose account and which audience it names is for the
    handler to compare: Forbidden if it is another."""
    text = service_bearer(fields(call))
    token: Unverified[ServiceAuth] = read_service_auth(text, host.clock(), call.method.nsid)
    # Handlers call this themselves; the log wants to know all the same.
    call.caller = caller = verified(host, token, token.verify)
    return caller


class Signed(Protocol):
    """A token that says who must have signed it: `Use`, `Exchange` or `Unverified`."""

    @property
    def issuer(self) -> str: ...

    @property
    def kid(self) -> KeyId: ...


def verified(host: Host, token: Signed, finish: Callable[[VerifyingKey], T]) -> T:
    """What `finish` makes of the key that must have signed the token; if that does not fit, of
    the one its issuer has by now. Raises XrpcError if there is no such key, UpstreamTimeout
    if it cannot be had at the moment; Refused (BadJwtSignature)."""
    key = _key(host, token, refresh=False)
    try:
        return finish(key)
    except Refused as error:
        if error.code != "BadJwtSignature":
            raise
        newer = _key(host, token, refresh=True)
        if newer == key:
            raise
    return finish(newer)


def fields(call: Call) -> list[tuple[str, str]]:
    """The request's headers as texts."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in call.headers]


def verb(call: Call) -> str:
    return "GET" if call.method.kind == "query" else "POST"


def _key(host: Host, token: Signed, *, refresh: bool) -> VerifyingKey:
    try:
        return host.identity.key(token.issuer, token.kid, refresh=refresh)
    except IdentityError as error:
        if error.transient:
            raise XrpcError("UpstreamTimeout", f"the token's issuer: {error}") from None
        raise XrpcError("BadJwtIss", f"the token's issuer: {error}") from None
