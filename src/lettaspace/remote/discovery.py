"""Who signs the users of a host in: the documents that say so, checked.

A host names its authorization server, which names its endpoints. Whatever they name is fetched
from only by the rules of `network.fetching`. Sources: RFC 8414, RFC 9728, the AT Protocol's
OAuth specification.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lettaspace.atproto.scopes import BASE
from lettaspace.errors import HostRefused, NotFound, Unreachable
from lettaspace.network.fetching import Fetcher
from lettaspace.network.targets import FetchError, Target

_NEEDED: Final[dict[str, object]] = {
    "authorization_response_iss_parameter_supported": True,
    "client_id_metadata_document_supported": True,
    "require_pushed_authorization_requests": True,
    "code_challenge_methods_supported": "S256",
    "dpop_signing_alg_values_supported": "ES256",
    "scopes_supported": BASE,
}
"""What the profile demands of a server's metadata: a value, or a list with it."""


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """Who signs users of a host in. Of its addresses each is one that may be fetched from."""

    issuer: str
    metadata: Mapping[str, Any] = field(repr=False)


def discover(origin: str, fetcher: Fetcher) -> AuthorizationServer:
    """The server that signs users of the host at `origin` in.

    Raises NotFound if the host offers no OAuth, HostRefused for documents that are not what they
    should be, Unreachable.
    """
    where = f"{origin}/.well-known/oauth-protected-resource"
    resource = _document(where, fetcher)
    if resource is None:
        raise NotFound(f"{origin} offers no OAuth: sign in with --app-password")
    servers = resource.get("authorization_servers")
    if resource.get("resource") != origin or type(servers) is not list or len(servers) != 1:
        raise _unusable(origin, "it does not say which one authorization server it has")
    return server_at(servers[0], fetcher)


def server_at(issuer: Any, fetcher: Fetcher) -> AuthorizationServer:
    """The authorization server of this name. Raises as `discover` does, but no NotFound."""
    where = address(issuer, fetcher, "its authorization server")
    if where.path != "/" or issuer != where.origin:
        raise _unusable(where.origin, "an authorization server is named by an origin")
    found = _document(f"{issuer}/.well-known/oauth-authorization-server", fetcher)
    if found is None:
        raise _unusable(issuer, "it has no metadata")
    if found.get("issuer") != issuer:
        raise _unusable(issuer, "its metadata is another's")
    for name, needed in _NEEDED.items():
        value = found.get(name)
        if value is not needed and not (type(value) is list and needed in value):
            raise _unusable(issuer, f"its {name} is not the AT Protocol's")
    for name in ("authorization", "token", "pushed_authorization_request"):
        address(found.get(f"{name}_endpoint"), fetcher, f"its {name} endpoint")
    return AuthorizationServer(issuer, found)


def _document(url: str, fetcher: Fetcher) -> dict[str, Any] | None:
    """The JSON object at an address; None if there is nothing."""
    try:
        value = fetcher.get_json(url)
    except FetchError as error:
        if error.status in (404, 405, 410, 501):
            return None
        if error.status is not None and error.status < 500:
            raise HostRefused(f"{url}: {error}", status=error.status, error="") from None
        raise Unreachable(f"{url}: {error}", sent=error.sent) from None
    if type(value) is not dict:
        raise _unusable(url, "it is not a JSON object")
    return value


def address(url: Any, fetcher: Fetcher, what: str) -> Target:
    """An address that another names. Raises HostRefused unless it may be fetched from."""
    try:
        return fetcher.reach.parse(url if type(url) is str else "")
    except FetchError as error:
        raise _unusable(what, str(error)) from None


def _unusable(what: str, why: str) -> HostRefused:
    return HostRefused(f"OAuth cannot be used: {what}: {why}", status=200, error="")
