"""DID documents as others publish them: what of one is used, and what is wrong with it.

An entry that is missing may have a substitute, one that is there but malformed never has.
Source: protocol, section 2; the AT Protocol's specification of DIDs.
"""

import re
from dataclasses import dataclass
from typing import Any

import base58

from lettaspace.atproto.keys import Curve, VerifyingKey
from lettaspace.atproto.syntax import is_handle
from lettaspace.errors import InvalidInput, NotFound
from lettaspace.network.targets import FetchError, parse

MAX_DOCUMENT = 32 * 1024
MAX_ENTRIES = 100
"""Verification methods, services, or names that a document may list of each."""

PDS = "#atproto_pds"
PDS_TYPE = "AtprotoPersonalDataServer"
SPACE_HOST = "#atproto_space_host"
SPACE_HOST_TYPE = "AtprotoSpaceHost"

# The two types before Multikey: the key's curve is in the type, its bytes are the bare point.
_LEGACY: dict[str, tuple[Curve, bytes]] = {
    "EcdsaSecp256k1VerificationKey2019": ("secp256k1", b"\xe7\x01"),
    "EcdsaSecp256r1VerificationKey2019": ("p256", b"\x80\x24"),
}
_base58 = re.compile(r"z[1-9A-HJ-NP-Za-km-z]{40,100}").fullmatch


@dataclass(frozen=True, slots=True)
class Document:
    """What a DID says of itself. Entries are looked at when they are asked for."""

    did: str
    handles: tuple[str, ...]
    """The handles it claims, the one it goes by first. Only what they resolve to proves them."""
    _methods: tuple[dict[str, Any], ...]
    _services: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, value: Any, did: str) -> "Document":
        """The document of a DID from its JSON. Raises InvalidInput where it is not one."""
        if type(value) is not dict or value.get("id") != did:
            raise InvalidInput("DID document: not the one of this DID")
        methods, services = (_entries(value, name) for name in ("verificationMethod", "service"))
        return cls(did, _handles(value), methods, services)

    def key(self, fragment: str) -> VerifyingKey:
        """The key with this id, such as `#atproto`; no other one stands in for it.

        Raises NotFound if there is none, and InvalidInput for a malformed one.
        """
        entry = self._find(self._methods, fragment)
        if entry is None:
            raise NotFound(f"DID document: no key {fragment}")
        if entry.get("controller", self.did) != self.did:
            raise InvalidInput(f"DID document: key {fragment} is another's")
        multibase = entry.get("publicKeyMultibase")
        if type(multibase) is not str or _base58(multibase) is None:
            raise InvalidInput(f"DID document: key {fragment} is not in base58")
        type_ = entry.get("type")
        if type_ == "Multikey":
            return VerifyingKey.from_multikey(multibase)
        if type(type_) is str and type_ in _LEGACY:
            return _legacy(*_LEGACY[type_], base58.b58decode(multibase[1:]))
        raise InvalidInput(f"DID document: key {fragment} is of an unknown type")

    def endpoint(
        self,
        fragment: str,
        type_: str | None = None,
        *,
        development: bool = False,
        trusted: str | None = None,
    ) -> str:
        """The origin where a service is, such as `https://host.example`, without a slash.

        `type_` is what the service has to be. Raises NotFound if there is none with this id,
        and InvalidInput for another type, or an endpoint that is more than an origin or may
        not be fetched from; `development` and `trusted` as in `targets.parse`.
        """
        entry = self._find(self._services, fragment)
        if entry is None:
            raise NotFound(f"DID document: no service {fragment}")
        if type_ is not None and entry.get("type") != type_:
            raise InvalidInput(f"DID document: service {fragment} is not of type {type_}")
        url = entry.get("serviceEndpoint")
        if type(url) is not str:
            raise InvalidInput(f"DID document: service {fragment} has no endpoint")
        try:
            target = parse(url, development=development, trusted=trusted)
        except FetchError as error:
            raise InvalidInput(f"DID document: service {fragment}: {error}") from None
        if target.path != "/":
            raise InvalidInput(f"DID document: service {fragment} has a path")
        return target.origin

    def space_host(self, *, development: bool = False, trusted: str | None = None) -> str:
        """The origin of the host of this authority's spaces: its own entry, else the PDS.

        Raises NotFound and InvalidInput as `endpoint` does.
        """
        try:
            return self.endpoint(
                SPACE_HOST, SPACE_HOST_TYPE, development=development, trusted=trusted
            )
        except NotFound:
            return self.endpoint(PDS, PDS_TYPE, development=development, trusted=trusted)

    def _find(self, entries: tuple[dict[str, Any], ...], fragment: str) -> dict[str, Any] | None:
        names = (fragment, self.did + fragment)
        found = [entry for entry in entries if entry.get("id") in names]
        if len(found) > 1:
            raise InvalidInput(f"DID document: more than one {fragment}")
        return found[0] if found else None


def _entries(value: dict[str, Any], name: str) -> tuple[dict[str, Any], ...]:
    entries = value.get(name, [])
    if type(entries) is not list or len(entries) > MAX_ENTRIES:
        raise InvalidInput(f"DID document: {name} is not a list, or too long")
    # Others' entries may have forms that are of no use here, such as bare references.
    return tuple(entry for entry in entries if type(entry) is dict)


def _handles(value: dict[str, Any]) -> tuple[str, ...]:
    names = value.get("alsoKnownAs", [])
    if type(names) is not list or len(names) > MAX_ENTRIES:
        raise InvalidInput("DID document: alsoKnownAs is not a list, or too long")
    texts = (name for name in names if type(name) is str and name.startswith("at://"))
    return tuple(text[5:].lower() for text in texts if is_handle(text[5:]))


def _legacy(curve: Curve, codec: bytes, point: bytes) -> VerifyingKey:
    if len(point) == 65 and point[0] == 4:
        return VerifyingKey.from_point(curve, point[1:33], point[33:])
    return VerifyingKey.from_multikey("z" + base58.b58encode(codec + point).decode())
