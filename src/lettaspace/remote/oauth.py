"""Signing in by OAuth, in the AT Protocol's profile, as a program on the user's own machine.

    server = discover("https://host.example", fetcher)
    with signing_in(server, fetcher, hint="mira.example") as attempt:
        …show attempt.url…
        grant = attempt.finish(600)

The program needs no registration: its client id is a `http://localhost` address that says where
the browser comes back to and what is asked for. Requests are pushed, codes bound by PKCE, tokens
bound to a key of this session by DPoP. The flow is the library's (docs/libraries.md says which,
and why); what it sends goes through `network.fetching`, since others name the addresses.
Sources: the AT Protocol's OAuth specification; RFC 6749, 7636, 8252, 9126, 9207, 9449.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from lettaspace.atproto.jwk import to_jwk
from lettaspace.atproto.jwt import base64url
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.scopes import ANY, BASE, SpaceScope
from lettaspace.atproto.syntax import is_did
from lettaspace.conversation import records
from lettaspace.errors import HostRefused, SignedOut, Unreachable
from lettaspace.network.fetching import Fetcher
from lettaspace.remote.discovery import AuthorizationServer, address, server_at

if TYPE_CHECKING:
    from requests_oauth2client import AuthorizationRequest, BearerToken, DPoPKey, OAuth2Client

    from lettaspace.remote.callback import Callback

COLLECTIONS: Final = (
    records.AGENT,
    records.CONVERSATION,
    records.CONVERSATION_STATE,
    records.MESSAGE,
    records.COMPILED_PROMPT,
    records.MEMORY,
)
"""What a space of ours holds, as its type declares."""

_PATIENCE: Final = 20.0
"""Seconds for one request to an authorization server."""

_error_name = re.compile(r"[a-z][a-z0-9_]{0,63}").fullmatch


def wanted_scope() -> str:
    """What is asked for: the user's own spaces of our type with all that sync does to them, to
    read those of others that the user is a member of, and to upload blobs.

    The collections are named, so that no host has to look up what the type declares.
    """
    own = SpaceScope(
        records.SPACE_TYPE, collections=frozenset(COLLECTIONS), manage=frozenset({"create"})
    )
    others = SpaceScope(records.SPACE_TYPE, authority=ANY, actions=frozenset({"read"}))
    return f"{BASE} {own} {others} blob:*/*"


@dataclass(frozen=True, slots=True)
class Binding:
    """What of an OAuth session stays the same when its tokens are renewed."""

    issuer: str
    client_id: str
    key: SigningKey = field(repr=False)
    scope: str = ""
    """What was granted."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What an authorization server gave, and to whom."""

    did: str
    access: str = field(repr=False)
    refresh: str = field(repr=False)
    binding: Binding


class Attempt:
    """A sign-in under way: `url` is what the user opens."""

    def __init__(
        self,
        client: "OAuth2Client",
        request: "AuthorizationRequest",
        key: SigningKey,
        callback: "Callback",
    ) -> None:
        self._client = client
        self._request = request
        self._key = key
        self._callback = callback
        self._issuer = str(client.issuer)
        with _reasons(self._issuer):
            pushed = client.pushed_authorization_request(request)
            if type(pushed.request_uri) is not str:
                raise TypeError
        self.url: Final = pushed.uri

    def finish(self, seconds: float) -> Grant:
        """Waits for the browser, and takes the tokens.

        Raises SignedOut if nobody agrees within so many seconds, or the answer is not the
        server's; HostRefused if it says no; Unreachable.
        """
        answer = self._callback.wait(seconds)
        if answer is None:
            raise SignedOut("nobody signed in: the browser did not come back in time")
        with _reasons(self._issuer):
            try:
                code = self._request.validate_callback(answer)
            except (ValueError, TypeError):
                raise SignedOut(
                    f"what came back is not the answer of {self._issuer}; start again"
                ) from None
            token = self._client.authorization_code(code, validate=False)
        return _grant(token, Binding(self._issuer, self._client.client_id, self._key))


@contextmanager
def signing_in(
    server: AuthorizationServer, fetcher: Fetcher, *, hint: str | None = None
) -> Iterator[Attempt]:
    """A sign-in while the block runs. `hint` is the handle or DID of who is to sign in.

    Raises HostRefused, Unreachable.
    """
    import secrets

    from lettaspace.remote.callback import listening

    state = secrets.token_urlsafe(32)
    with listening(state) as callback:
        scope = wanted_scope()
        query = urlencode({"redirect_uri": callback.uri, "scope": scope}, quote_via=quote, safe="")
        key = SigningKey.generate("p256")
        client, proof = _client(server, f"http://localhost?{query}", key, fetcher)
        request = client.authorization_request(
            redirect_uri=callback.uri,
            scope=scope,
            state=state,
            dpop_key=proof,
            login_hint=hint,
            authorization_response_iss_parameter_supported=True,
        )
        yield Attempt(client, request, key, callback)


def renew(did: str, refresh: str, binding: Binding, fetcher: Fetcher) -> Grant:
    """New tokens for a refresh token, which is good once.

    Raises SignedOut if the server does not take it, HostRefused for other refusals, Unreachable,
    whose `sent` is False as long as the token was not sent.
    """
    try:
        server = server_at(binding.issuer, fetcher)
    except Unreachable as error:
        raise Unreachable(str(error), sent=False) from None
    client, proof = _client(server, binding.client_id, binding.key, fetcher)
    with _reasons(binding.issuer):
        token = client.token_request(
            {"grant_type": "refresh_token", "refresh_token": refresh}, dpop_key=proof
        )
    grant = _grant(token, binding, refresh)
    if grant.did != did:
        raise SignedOut(f"{binding.issuer} renewed the session of another account; sign in again")
    return grant


def revoke(refresh: str, binding: Binding, fetcher: Fetcher) -> None:
    """Ends a session at its server, if that can. Raises HostRefused, Unreachable."""
    server = server_at(binding.issuer, fetcher)
    if "revocation_endpoint" not in server.metadata:
        return
    address(server.metadata["revocation_endpoint"], fetcher, "its revocation endpoint")
    client, _ = _client(server, binding.client_id, binding.key, fetcher)
    with _reasons(binding.issuer):
        client.revoke_refresh_token(refresh)


def _grant(token: "BearerToken", binding: Binding, before: str | None = None) -> Grant:
    """What a token is. Raises SignedOut if it is not what was asked for.

    When tokens are renewed, a refresh token (`before`) and a scope that stay may be left out.
    """
    did = token.kwargs.get("sub")
    scope = binding.scope if token.scope is None else token.scope
    refresh = before if token.refresh_token is None else token.refresh_token
    if type(did) is not str or not is_did(did):
        raise SignedOut(f"{binding.issuer} does not say whose tokens it gives; start again")
    if type(refresh) is not str:
        raise SignedOut(f"{binding.issuer} gives no refresh token; start again")
    if type(scope) is not str or BASE not in scope.split(" "):
        raise SignedOut(f"{binding.issuer} does not give the scope {BASE}; start again")
    return Grant(did, token.access_token, refresh, replace(binding, scope=scope))


def _client(
    server: AuthorizationServer, client_id: str, key: SigningKey, fetcher: Fetcher
) -> "tuple[OAuth2Client, DPoPKey]":
    """The library's client, whose requests go through `fetcher`, and the key as it wants it."""
    from requests_oauth2client import DPoPKey, OAuth2Client, PublicApp

    from lettaspace.remote.carrying import session

    private = {**to_jwk(key.verifying_key), "d": base64url(key.to_bytes())}
    proof = DPoPKey(private, alg="ES256")
    client = OAuth2Client.from_discovery_document(
        {**server.metadata, "jwks_uri": None},
        issuer=server.issuer,
        auth=PublicApp(client_id),
        session=session(fetcher, proof, _PATIENCE),
        testing=True,  # its own rules for addresses know no loopback; `discovery` has ours
    )
    return client, proof


@contextmanager
def _reasons(issuer: str) -> Iterator[None]:
    """What the library raises, as our errors. Its texts may hold tokens, and are left out."""
    from requests_oauth2client import OAuth2Error
    from requests_oauth2client.exceptions import AuthorizationResponseError

    try:
        yield
    except OAuth2Error as error:
        raise _refused(issuer, error.response.status_code, _name(error.response)) from None
    except AuthorizationResponseError as error:
        raise _refused(issuer, 0, error.error) from None
    except (ValueError, TypeError, AttributeError):  # JSON that is none, or not an object
        raise Unreachable(f"{issuer} gives an answer that is none", sent=True) from None


def _refused(issuer: str, status: int, name: Any) -> HostRefused | SignedOut | Unreachable:
    """What a refusal with this status and OAuth's name for the reason means."""
    if status // 100 == 2:
        return Unreachable(f"{issuer} gives an answer that is none", sent=True)
    name = name if type(name) is str and _error_name(name) else ""
    if name == "invalid_grant":
        return SignedOut(f"{issuer} no longer knows this sign-in; sign in again")
    reason = _REASONS.get(name, name or f"status {status}")
    return HostRefused(f"{issuer} refuses: {reason}", status=status, error=name)


_REASONS: Final = {
    "access_denied": "the sign-in was not allowed",
    "invalid_scope": "it does not give what was asked for (invalid_scope); "
    "it may not know of spaces",
    "invalid_dpop_proof": "it does not take this machine's proof (invalid_dpop_proof); "
    "is the clock right?",
    "use_dpop_nonce": "it wants another nonce each time (use_dpop_nonce)",
}


def _name(response: Any) -> Any:
    try:
        return response.json()["error"]
    except (ValueError, LookupError, TypeError):
        return None
