"""The DIDs of accounts that are added: which one a handle has here, what another says of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lettaspace.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from lettaspace.server.config import Config


@dataclass(frozen=True, slots=True)
class Published:
    """What a DID document says."""

    key: str | None
    """Its `#atproto` key as a did:key."""


def default_did(handle: str, origin: str | None) -> str:
    """The did:web of a handle. Where that is a name of this machine, the origin's port is in it."""
    from lettaspace.server.config import web_did

    port = (origin or "").rpartition(":")[2]
    is_local = handle.endswith(".localhost") and port.isdigit()
    return web_did(f"{handle}:{port}" if is_local else handle)


def look_up(did: str, handle: str, config: "Config | None") -> Published:
    """What the document of a DID says, which must name the host and the handle.

    Raises InvalidInput if it does not, or cannot be had.
    """
    from lettaspace.network.documents import PDS, PDS_TYPE
    from lettaspace.network.fetching import Fetcher
    from lettaspace.network.identity import IdentityError, Resolver

    hint = "--no-check adds the account all the same"
    if config is None:
        raise InvalidInput(f"say which host this is: --origin https://NAME; {hint}")
    resolver = Resolver(Fetcher(development=config.development), plc=config.plc_directory)
    try:
        document = resolver.document(did)
        endpoint = document.endpoint(PDS, PDS_TYPE, development=config.development)
    except (IdentityError, InvalidInput, NotFound) as error:
        raise InvalidInput(f"{did}: {error}; {hint}") from None
    if endpoint != config.origin:
        raise InvalidInput(f"{did}: its document names another host, {endpoint}; {hint}")
    if handle not in document.handles:
        raise InvalidInput(f"{did}: its document does not name the handle {handle}; {hint}")
    try:
        return Published(document.key("#atproto").did)
    except (InvalidInput, NotFound):
        return Published(None)
