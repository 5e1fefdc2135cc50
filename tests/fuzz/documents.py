"""DID documents as others publish them, and what did:web names them."""

from __future__ import annotations

import json

from lettaspace.atproto.syntax import is_handle
from lettaspace.errors import InvalidInput, NotFound
from lettaspace.network.didweb import document_url
from lettaspace.network.documents import PDS, SPACE_HOST, Document
from lettaspace.network.targets import FetchError, parse
from tests.fuzz.texts import outcome, text

WORDS = (
    *(b'"id":"did:web:ada.example"', b'"alsoKnownAs":["at://ada.example"]', b'"service":['),
    *(b'"verificationMethod":[{', b'"id":"#atproto"', b'"type":"Multikey"', b'"controller":'),
    *(b'"publicKeyMultibase":"z', b'"EcdsaSecp256k1VerificationKey2019"', b'"id":"#atproto_pds"'),
    *(b'"serviceEndpoint":"https://host.example"', b'"AtprotoPersonalDataServer"', b'":null'),
)
DID = "did:web:ada.example"


def fuzz_documents(given: bytes) -> None:
    name = text(given)
    for development in (False, True):
        url, _ = outcome(lambda d=development: document_url(name, development=d), InvalidInput)
        if url is not None:
            target, _ = outcome(lambda u=url, d=development: parse(u, development=d), FetchError)
            assert target is None or target.path == "/.well-known/did.json"
    try:
        value = json.loads(given.decode())
    except (ValueError, RecursionError):
        return
    document, _ = outcome(lambda: Document.read(value, DID), InvalidInput)
    if document is None:
        return
    assert all(map(is_handle, document.handles))
    for fragment in ("#atproto", "#atproto_space"):
        key, _ = outcome(lambda f=fragment: document.key(f), InvalidInput, NotFound)
        assert key is None or type(key).from_did(key.did) == key
    for development in (False, True):
        for read in (
            lambda d=development: document.endpoint(PDS, development=d),
            lambda d=development: document.endpoint(SPACE_HOST, "AtprotoSpaceHost", development=d),
            lambda d=development: document.space_host(development=d),
        ):
            origin, _ = outcome(read, InvalidInput, NotFound)
            assert origin is None or parse(origin, development=development).origin == origin
