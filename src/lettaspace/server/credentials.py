"""Delegations and credentials: how a user's client comes to read a space.

The user's host gives a delegation, the host of the space's authority exchanges it for a
credential, and hosts of repos take credentials until they expire or are revoked. Source:
protocol, sections 4 and 7; the order of the checks is the protocol's.
"""

from lettaspace.atproto.admission import Exchange, open_attestation, use_attestation
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.proof import Request
from lettaspace.atproto.tokens import Delegation, Holder, mint_credential, mint_delegation
from lettaspace.atproto.uri import parse_space_ref
from lettaspace.errors import Refused
from lettaspace.network.targets import FetchError
from lettaspace.server import callers, managing
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.sessions import Session

_SPACE = "com.atproto.space."


def register(host: Host) -> None:
    host.add(_SPACE + "getDelegationToken", get_delegation_token, gate=callers.writer)
    host.add(_SPACE + "getSpaceCredential", get_space_credential, slow=True)
    host.add(_SPACE + "notifyCredentialRevoked", notify_credential_revoked, slow=True)


def get_delegation_token(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    caller.require_own_password()
    host.limits.spend("delegate", caller.did)
    space = parse_space_ref(call.params["space"])
    key = host.accounts.signing_key(caller.did)
    return Answer({"token": mint_delegation(key, caller.did, space, host.clock())})


def get_space_credential(host: Host, call: Call) -> Answer:
    now = host.clock()
    uri: str = call.input["space"]
    delegation, holder = _exchange(host, call, uri)
    ref = delegation.space
    authority = host.accounts.by_did(ref.authority)
    if authority is None:
        raise XrpcError("SpaceNotFound", "this host has no such authority")
    client_id = _client(host, call.input.get("clientAttestation"), ref.authority)
    space = host.spaces.find(uri)
    if space is not None and space.deleted_at is not None:
        raise XrpcError("SpaceDeleted", "this space was deleted")
    if space is None:
        raise XrpcError("SpaceNotFound", "no such space here")
    if authority.state == "takendown":
        raise XrpcError("RepoTakendown", "the authority of this space has been taken down")
    if not authority.is_active:
        raise XrpcError("RepoDeactivated", "the authority of this space is deactivated")
    if not space.settings.apps.admits(client_id):
        raise XrpcError("AppNotAuthorized", "this space is not open to this app")
    if not managing.may(host, space, delegation.issuer, "read", client_id):
        raise XrpcError("UserNotAuthorized", "this space is not open to this account")
    key = host.accounts.signing_key(ref.authority)
    lifetime = host.config.credential_lifetime
    return Answer({"credential": mint_credential(key, ref, holder, now, lifetime=lifetime)})


def notify_credential_revoked(host: Host, call: Call) -> Answer:
    caller = callers.service(host, call)
    uri: str = call.input["space"]
    if caller.issuer != parse_space_ref(uri).authority:
        raise XrpcError("Forbidden", "this space has another authority")
    if host.accounts.by_did(caller.audience) is None:
        raise XrpcError("Forbidden", "this is for an account that is not here")
    host.revocations.add(uri, call.input["credentials"])
    return Answer()


def _exchange(host: Host, call: Call, uri: str) -> tuple[Delegation, Holder]:
    """The delegation that a request brings, now used up, and who is to hold the credential."""
    url = f"{host.config.origin}/xrpc/{call.method.nsid}"
    request = Request(callers.verb(call), url, callers.fields(call))
    exchange = Exchange(request, host.clock(), alpha=True)

    def finish(key: VerifyingKey) -> tuple[Delegation, Holder]:
        return exchange.finish(key, uri, host.delegations)

    return callers.verified(host, exchange, finish)


def _client(host: Host, text: str | None, authority: str) -> str | None:
    """The app that an attestation proves, None without one.

    Raises Refused (InvalidClientAttestation) for one that proves nothing.
    """
    if text is None:
        return None
    attestation = open_attestation(text, host.clock(), authority)
    try:
        keys = host.clients.jwks(attestation.client_id)
        try:
            proven = attestation.verify(keys)
        except Refused:
            newer = host.clients.jwks(attestation.client_id, refresh=True)
            if newer == keys:
                raise
            proven = attestation.verify(newer)
    except FetchError as error:
        raise XrpcError("InvalidClientAttestation", f"the client's keys: {error}") from None
    return use_attestation(proven, host.attestations)
