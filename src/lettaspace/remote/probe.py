"""What a host can do: found out at sign-in, by asking it.

    capabilities = probe(client, did, fetcher)

Leaves an empty repo in a space of the account's own, `…/probe`, and nothing else. Source:
protocol, sections 1 (the two generations), 10 (limits) and 12 (black-box checks).
"""

import secrets
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from lettaspace.atproto.proof import Generation
from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from lettaspace.conversation import records
from lettaspace.errors import HostRefused, Unreachable
from lettaspace.network.fetching import Fetcher
from lettaspace.network.targets import FetchError
from lettaspace.remote.capabilities import Capabilities
from lettaspace.remote.xrpc import Client

SCRATCH: Final = "probe"
"""The key of the space that is written to for a moment."""

_LIST: Final = "com.atproto.space.listSpaces"
_DELEGATION: Final = "com.atproto.space.getDelegationToken"
_CREATE: Final = "com.atproto.simplespace.createSpace"
_BLOB: Final = 1024
"""Bytes of the blob that is asked for."""


def probe(client: Client, did: str, fetcher: Fetcher) -> Capabilities:
    """What the client's host can do for its session, which is the account `did`'s.

    `fetcher` asks as anybody would. Raises HostRefused if the host does not speak spaces, or not
    with this session; SignedOut, Unreachable.
    """
    spaces(client)
    return Capabilities(
        _generation(client), _delegates(client, did), _leaks_blobs(client, did, fetcher)
    )


def spaces(client: Client) -> list[str]:
    """The URIs of the spaces of our type that an account writes in or governs, of the host's
    first 100, without the one that `probe` made.

    Raises HostRefused if the host does not speak spaces, or not with this session.
    """
    try:
        return _spaces(client, "spaceType")
    except HostRefused as error:
        if error.status in (401, 429):
            raise
    try:
        return _spaces(client, "type")  # as August called it
    except HostRefused as error:
        name = error.error or f"status {error.status}"
        if error.status == 403:
            said = f"{client.origin} does not let this session at spaces ({name})"
        else:
            said = f"{client.origin} does not speak spaces: it has no {_LIST} ({name})"
        raise HostRefused(said, status=error.status, error=error.error) from None


def _spaces(client: Client, parameter: str) -> list[str]:
    answer = client.query(_LIST, {parameter: records.SPACE_TYPE, "limit": 100})
    # A host that knows another name for the parameter may list all types.
    found = [parse_space_ref(each["uri"]) for each in answer["spaces"]]
    return [str(s) for s in found if s.type == records.SPACE_TYPE and s.skey != SCRATCH]


def _generation(client: Client) -> Generation | None:
    """Which generation's names the host knows: it is asked for a space with a policy that no
    host has, and can say so only if it understands the rest."""
    policy = {"$type": f"{records.NAMESPACE}.probe#policy"}
    rest = {"skey": SCRATCH, "appAccess": {"$type": "com.atproto.simplespace.defs#open"}}
    bodies: dict[Generation, dict[str, Any]] = {
        "signature": {"spaceType": records.SPACE_TYPE, "readPolicy": policy, "writePolicy": policy},
        "dpop": {"type": records.SPACE_TYPE, "policy": policy},
    }
    for generation, body in bodies.items():
        try:
            client.procedure(_CREATE, body | rest)
            return generation  # the policy notwithstanding
        except HostRefused as error:
            if error.error in ("UnsupportedPolicy", "SpaceAlreadyExists"):
                return generation
            if error.error != "InvalidRequest":
                return None
    return None


def _delegates(client: Client, did: str) -> bool:
    try:
        client.query(_DELEGATION, {"space": str(records.default_space(did))})
    except HostRefused:
        return False
    return True


def _leaks_blobs(client: Client, did: str, fetcher: Fetcher) -> bool | None:
    """Whether a blob that one private record refers to is given to anybody."""
    from lettaspace.conversation.leaves import BLOB_BYTES, OCTETS, make_leaf
    from lettaspace.remote.hostrepo import HostRepo
    from lettaspace.space.writes import Create, Delete

    space = SpaceRef(did, records.SPACE_TYPE, SCRATCH)
    rkey, head = f"probe-{secrets.token_hex(8)}", secrets.token_hex(20)
    leaf, blobs = make_leaf(BLOB_BYTES, secrets.token_bytes(_BLOB), OCTETS)
    ((cid, blob),) = blobs.items()
    record = {
        "agent": records.Address(space, did).uri(records.AGENT, rkey),
        "head": head,
        "branch": "probe",
        "updatedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "bundles": [{"head": head, "content": leaf}],
    }
    repo = HostRepo(client, str(space), did)
    try:
        repo.upload_blob(blob, cid)
        repo.apply([Create(records.MEMORY, rkey, record)])
    except HostRefused:
        return None
    try:
        return _given(client.origin, did, str(cid), fetcher) == blob
    except FetchError:
        return None
    finally:
        with suppress(HostRefused, Unreachable):
            repo.apply([Delete(records.MEMORY, rkey)])


def _given(origin: str, did: str, cid: str, fetcher: Fetcher) -> bytes:
    """What the public method for blobs answers to a stranger."""
    query = urlencode({"did": did, "cid": cid})
    url = f"{origin}/xrpc/com.atproto.sync.getBlob?{query}"
    return fetcher.get(url, redirects=2).body
