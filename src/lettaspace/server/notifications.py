"""News of writes: taken from hosts of repos, given to whoever reads the space.

A syncer asks which repos there are, registers a service to be told of changes, and looks up
what it missed. Source: protocol, sections 6 and 8.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Final

from sqlalchemy import Connection, delete, func, select

from lettaspace.atproto.admission import Access
from lettaspace.atproto.tokens import host_id
from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from lettaspace.errors import NotFound
from lettaspace.network.identity import IdentityError
from lettaspace.server import access, callers, tables, writers
from lettaspace.server.calling import service_origin
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.policies import is_service
from lettaspace.server.upsert import upsert

REGISTRATION_SECONDS: Final = 24 * 3600
MAX_REGISTRATIONS: Final = 256
"""Services that one space has at a time."""

_SPACE = "com.atproto.space."

_registrations = tables.registrations.c
_put = upsert(tables.registrations, "expires_at")


def register(host: Host) -> None:
    host.written = partial(writers.written, host)
    host.workers += [host.outbox, host.forwards]
    host.add(_SPACE + "notifyWrite", notify_write, slow=True)
    host.add(_SPACE + "listRepos", list_repos, gate=callers.holder, slow=True)
    host.add(_SPACE + "registerNotify", register_notify, gate=callers.holder, slow=True)
    host.add(_SPACE + "unregisterNotify", unregister_notify, gate=callers.holder, slow=True)


def notify_write(host: Host, call: Call) -> Answer:
    caller = callers.service(host, call)
    ref = parse_space_ref(call.input["space"])
    repo: str = call.input["repo"]
    hash_: bytes = call.input["hash"]
    if caller.issuer != repo:
        raise XrpcError("Forbidden", "this is another account's repo")
    if caller.audience not in (ref.authority, host_id(ref.authority)):
        raise XrpcError("Forbidden", "this is for another authority")
    if len(hash_) != writers.HASH_BYTES:
        raise XrpcError("InvalidRequest", f"hash: is not {writers.HASH_BYTES} bytes")
    writers.receive(host, ref, repo, call.input["repoRev"], hash_)
    return Answer()


def list_repos(host: Host, call: Call) -> Answer:
    uri = str(_opened(host, call, call.params["space"]))
    page = host.writers.page(uri, call.params.get("cursor", ""), call.params["limit"])
    repos = [
        {"did": each.did, "repoRev": each.rev, "hash": each.hash, "spaceRev": each.space_rev}
        for each in page
    ]
    # The cursor is a checkpoint to come back to, so a page that is not full has one too.
    return Answer({"repos": repos, "cursor": page[-1].space_rev} if page else {"repos": repos})


def register_notify(host: Host, call: Call) -> Answer:
    uri = str(_opened(host, call, call.input["space"]))
    service: str = call.input["service"]
    try:
        if not is_service(service):
            raise IdentityError("not a DID, nor a DID and a fragment")
        service_origin(host.identity, service)
    except IdentityError as error:
        raise XrpcError("ServiceNotResolvable", f"service: {error}") from None
    now = int(host.clock())
    expires_at = now + REGISTRATION_SECONDS

    def work(connection: Connection) -> None:
        if host.writers.hold(connection, uri) is None:
            raise XrpcError("SpaceNotFound", "no such space here")
        of_space = _registrations.space == uri
        expired = delete(tables.registrations).where(of_space, _registrations.expires_at <= now)
        connection.execute(expired)
        others = select(func.count()).where(of_space, _registrations.service != service)
        if connection.execute(others).scalar_one() >= MAX_REGISTRATIONS:
            raise XrpcError("InvalidRequest", "too many services are told of this space")
        _put.run(connection, space=uri, service=service, expires_at=expires_at)

    host.database.run(work)
    text = datetime.fromtimestamp(expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return Answer({"expiresAt": text})


def unregister_notify(host: Host, call: Call) -> Answer:
    uri = str(_opened(host, call, call.input["space"]))
    gone = delete(tables.registrations).where(
        _registrations.space == uri, _registrations.service == call.input["service"]
    )
    host.database.run(lambda connection: connection.execute(gone))
    return Answer()


def _opened(host: Host, call: Call, text: str) -> SpaceRef:
    """The space, if the caller's credential opens it and it is here."""
    caller: Access = call.caller
    ref = access.open_space(caller, text)
    try:
        host.spaces.get(text)
    except NotFound as error:
        raise XrpcError("SpaceNotFound", str(error)) from None
    return ref
