"""Calling other hosts: XRPC requests in the name of an account of this one.

Source: protocol, sections 6 and 8 (who signs what, what may be tried again).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from lettaspace.atproto import data
from lettaspace.atproto.tokens import mint_service_auth
from lettaspace.errors import InvalidRecord, NotFound
from lettaspace.network.documents import PDS
from lettaspace.network.fetching import TRANSIENT, Fetched, Fetcher
from lettaspace.network.identity import Resolver
from lettaspace.network.targets import FetchError

if TYPE_CHECKING:
    from lettaspace.server.host import Host

PATIENCE: Final = 10.0
"""Seconds for one call."""

_MAX_ANSWER = 16 * 1024


class CallError(Exception):
    """A call did not do what it should. The text says why in a few words.

    `transient` tells whether it may go well later. Not one of `lettaspace.errors`: what it
    means for an answer of this host, its caller says.
    """

    def __init__(self, reason: str, *, transient: bool) -> None:
        super().__init__(reason)
        self.transient = transient


class Network(NamedTuple):
    """What is asked for addresses and documents. What goes on in the background has one of its
    own, so that hosts which are slow to be told of things hold up no request."""

    fetcher: Fetcher
    identity: Resolver


def service_origin(identity: Resolver, service: str) -> str:
    """Where a service is, which is a DID with a fragment, or an account by its DID alone: then
    its PDS. Raises IdentityError."""
    did, _, fragment = service.partition("#")
    return identity.service(did, f"#{fragment}" if fragment else PDS)


def post(
    host: "Host", origin: str, nsid: str, body: dict[str, Any], *, issuer: str, audience: str
) -> None:
    """Calls a procedure, in the background; what it answers is not looked at. Raises CallError.

    `issuer` is the account of this host that calls, `audience` whom the call is for.
    """
    headers = {"authorization": f"Bearer {_token(host, issuer, audience, nsid)}"}
    sent = data.dumps(body).encode()
    _checked(
        lambda: host.background.fetcher.post(
            f"{origin}/xrpc/{nsid}", sent, headers=headers, limit=_MAX_ANSWER, patience=PATIENCE
        )
    )


def get(
    host: "Host", origin: str, nsid: str, params: Mapping[str, str], *, issuer: str, audience: str
) -> Any:
    """What a query answers, in the data model. Raises CallError."""
    headers = {"authorization": f"Bearer {_token(host, issuer, audience, nsid)}"}
    url = f"{origin}/xrpc/{nsid}?{urlencode(params)}"
    fetched = _checked(
        lambda: host.fetcher.get(
            url, accept="application/json", headers=headers, limit=_MAX_ANSWER, patience=PATIENCE
        )
    )
    try:
        return data.loads(fetched.body)
    except InvalidRecord:
        raise CallError("answer is not JSON", transient=False) from None


def _token(host: "Host", issuer: str, audience: str, nsid: str) -> str:
    try:
        key = host.accounts.signing_key(issuer)
    except NotFound:
        raise CallError("the account that calls is gone", transient=False) from None
    return mint_service_auth(key, issuer, audience, nsid, host.clock())


def _checked(fetch: Callable[[], Fetched]) -> Fetched:
    try:
        fetched = fetch()
    except FetchError as error:
        raise CallError(str(error), transient=error.transient) from None
    if fetched.status // 100 != 2:
        reason = f"answered with status {fetched.status}"
        raise CallError(reason, transient=fetched.status in TRANSIENT)
    return fetched
