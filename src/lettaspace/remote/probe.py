"""What a host can do: found out at sign-in, by asking it.

    capabilities = probe(client, did, fetcher)

It is left as it was. Source: protocol, sections 1 (the two generations), 10 (limits) and 12
(black-box checks).
"""

from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

from lettaspace.atproto.cid import CID
from lettaspace.atproto.proof import Generation
from lettaspace.atproto.uri import parse_space_ref
from lettaspace.conversation import records
from lettaspace.errors import HostRefused, Unreachable
from lettaspace.network.fetching import Fetcher
from lettaspace.network.targets import FetchError
from lettaspace.remote.capabilities import Capabilities
from lettaspace.remote.hostrepo import MAX_BLOB
from lettaspace.remote.xrpc import Client

SCRATCH: Final = "probe"
"""The key of a space that there is none of, but where an older lettaspace has looked around."""

_LIST: Final = "com.atproto.space.listSpaces"
_DELEGATION: Final = "com.atproto.space.getDelegationToken"
_CREATE: Final = "com.atproto.simplespace.createSpace"
_DELETE: Final = "com.atproto.simplespace.deleteSpace"
_BLOBS: Final = "com.atproto.space.listBlobs"


def probe(client: Client, did: str, fetcher: Fetcher) -> Capabilities:
    """What the client's host can do for its session, which is the account `did`'s.

    `fetcher` asks as anybody would. Raises HostRefused if the host does not speak spaces, or not
    with this session; SignedOut, Unreachable.
    """
    spaces(client)
    own = str(records.default_space(did))
    return Capabilities(
        _generation(client), _delegates(client, own), leaks_blobs(client, own, did, fetcher)
    )


def spaces(client: Client) -> list[str]:
    """The URIs of the spaces of our type that an account writes in or governs, of the host's
    first 100, without what an older lettaspace left behind.

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
            made = client.procedure(_CREATE, body | rest)
            with suppress(HostRefused, Unreachable):  # the policy notwithstanding
                client.procedure(_DELETE, {"space": made["uri"]})
            return generation
        except HostRefused as error:
            if error.error in ("UnsupportedPolicy", "SpaceAlreadyExists"):
                return generation
            if error.error != "InvalidRequest":
                return None
    return None


def _delegates(client: Client, space: str) -> bool:
    try:
        client.query(_DELEGATION, {"space": space})
    except HostRefused:
        return False
    return True


def leaks_blobs(client: Client, space: str, did: str, fetcher: Fetcher) -> bool | None:
    """Whether a blob that the account's records in a space refer to is given to anybody who asks
    for it; None where there is no such blob, or it cannot be told."""
    asked = {"space": space, "repo": did, "limit": 1}
    try:
        cids = client.query(_BLOBS, asked)["cids"]
    except HostRefused:
        return None
    if not cids:
        return None
    query = urlencode({"did": did, "cid": cids[0]})
    url = f"{client.origin}/xrpc/com.atproto.sync.getBlob?{query}"
    try:
        given = fetcher.get(url, redirects=2, limit=MAX_BLOB)
    except FetchError:
        return None
    return given.status == 200 and str(CID.for_raw(given.body)) == cids[0]
