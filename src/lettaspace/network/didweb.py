"""did:web, both ways: where a document is, and the documents of this host and its accounts.

A did:web here is a host name, perhaps with a port, without a path: `did:web:host.example`,
`did:web:localhost%3A2583`. Source: the did:web method, AT Protocol's specification of DIDs.
"""

import re
from typing import Any

from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.tokens import ACCOUNT_KEY, SPACE_KEY
from lettaspace.errors import InvalidInput
from lettaspace.network.documents import PDS, PDS_TYPE, SPACE_HOST, SPACE_HOST_TYPE
from lettaspace.network.targets import loopback

_did_web = re.compile(r"did:web:([A-Za-z0-9.-]{1,253})(?:%3[Aa]([0-9]{1,5}))?").fullmatch

_CONTEXT = ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"]


def document_url(did: str, *, development: bool = False) -> str:
    """Where the document of a did:web is. Raises InvalidInput for any other DID, and for paths.

    In development, this machine is asked without TLS.
    """
    match = _did_web(did)
    if match is None:
        raise InvalidInput("did:web: not a host name, with or without a port")
    host, port = match.groups()
    scheme = "http" if development and loopback(host.lower()) else "https"
    return f"{scheme}://{host}{f':{port}' if port else ''}/.well-known/did.json"


def document(
    did: str,
    origin: str,
    key: VerifyingKey,
    *,
    handle: str | None = None,
    space_key: VerifyingKey | None = None,
) -> dict[str, Any]:
    """The document of an account on the host at `origin`, or of that host itself, as JSON.

    The host keeps the account's repos and its spaces. `key` is the account's; `space_key` only
    where it signs for its spaces with another one.
    """
    keys = {ACCOUNT_KEY: key} | ({SPACE_KEY: space_key} if space_key else {})
    return {
        "@context": list(_CONTEXT),
        "id": did,
        "alsoKnownAs": [f"at://{handle}"] if handle else [],
        "verificationMethod": [
            {
                "id": did + fragment,
                "type": "Multikey",
                "controller": did,
                "publicKeyMultibase": each.multikey,
            }
            for fragment, each in keys.items()
        ],
        "service": [
            {"id": fragment, "type": type_, "serviceEndpoint": origin}
            for fragment, type_ in ((PDS, PDS_TYPE), (SPACE_HOST, SPACE_HOST_TYPE))
        ],
    }
