"""AT-URIs: the public form, the reference to a space, and the record in a space.

    at://AUTHORITY[/COLLECTION[/RKEY[#FRAGMENT]]]               PublicUri
    at://AUTHORITY/space/TYPE/SKEY                              SpaceRef
    at://AUTHORITY/space/TYPE/SKEY/AUTHOR/COLLECTION/RKEY       RecordUri, may have #FRAGMENT

The segment `space` tells the forms apart: a collection has dots in it. A space's authority and
an author are DIDs; a public authority may be a handle. Every part is checked when an object is
made, so whatever exists prints as a valid URI, and parsing and printing give back the same text.
Nothing is normalised: the protocol compares these as strings. Sources: AT-URI spec, proposal
0016. Stricter than the reference, which lets a space reference carry a fragment.
"""

import re
from dataclasses import dataclass

from lettaspace.atproto.syntax import (
    DID,
    HANDLE,
    MAX_URI,
    NSID,
    RECORD_KEY,
    is_at_identifier,
    is_did,
    is_nsid,
    is_record_key,
)
from lettaspace.errors import InvalidInput

MARKER = "space"

# RFC 3986 characters of a path; a fragment is a JSON pointer into the record.
_FRAGMENT = r"/[a-zA-Z0-9._~:@!$&'()*+,;=%/-]*"
_fragment = re.compile(_FRAGMENT).fullmatch


@dataclass(frozen=True, slots=True)
class SpaceRef:
    """A space: authority DID, space type NSID and space key. Raises InvalidInput if not so."""

    authority: str
    type: str
    skey: str

    def __post_init__(self) -> None:
        if not is_did(self.authority):
            raise InvalidInput("space reference: authority is not a DID")
        if not is_nsid(self.type):
            raise InvalidInput("space reference: type is not an NSID")
        if not is_record_key(self.skey):
            raise InvalidInput("space reference: key of the space is not a record key")

    def __str__(self) -> str:
        return f"at://{self.authority}/{MARKER}/{self.type}/{self.skey}"

    def record(self, author: str, collection: str, rkey: str) -> "RecordUri":
        """The record of an author in this space. Raises InvalidInput for a malformed part."""
        return RecordUri(self, author, collection, rkey)


@dataclass(frozen=True, slots=True)
class RecordUri:
    """A record in a space; with a fragment, a part of it. Raises InvalidInput if malformed."""

    space: SpaceRef
    author: str
    collection: str
    rkey: str
    fragment: str | None = None

    def __post_init__(self) -> None:
        if not is_did(self.author):
            raise InvalidInput("record URI: author is not a DID")
        _check_record("record URI", self.collection, self.rkey, self.fragment)

    def __str__(self) -> str:
        return _tail(f"{self.space}/{self.author}/{self.collection}/{self.rkey}", self.fragment)


@dataclass(frozen=True, slots=True)
class PublicUri:
    """A public repo, collection or record. Raises InvalidInput for a malformed part."""

    authority: str
    collection: str | None = None
    rkey: str | None = None
    fragment: str | None = None

    def __post_init__(self) -> None:
        if not is_at_identifier(self.authority):
            raise InvalidInput("public AT-URI: authority is neither a DID nor a handle")
        if self.rkey is not None:
            _check_record("public AT-URI", self.collection, self.rkey, self.fragment)
        elif self.fragment is not None:
            raise InvalidInput("public AT-URI: fragment without a record")
        elif self.collection is not None and not is_nsid(self.collection):
            raise InvalidInput("public AT-URI: collection is not an NSID")

    def __str__(self) -> str:
        parts = (p for p in (self.authority, self.collection, self.rkey) if p is not None)
        return _tail("at://" + "/".join(parts), self.fragment)


def parse_space_ref(text: str) -> SpaceRef:
    """The space a text refers to. Raises InvalidInput, with the reason, for anything else."""
    uri = parse_at_uri(text)
    if not isinstance(uri, SpaceRef):
        kind = "a public URI" if isinstance(uri, PublicUri) else "the URI of a record"
        raise InvalidInput(f"space reference: this is {kind}")
    return uri


def parse_record_uri(text: str) -> RecordUri:
    """The whole record in a space that a text names, so something that can be written to.

    Raises InvalidInput, with the reason, for anything else: a public URI, a space, a fragment.
    """
    uri = parse_at_uri(text)
    if isinstance(uri, PublicUri):
        raise InvalidInput("record URI: this is a public URI, not a record in a space")
    if isinstance(uri, SpaceRef):
        raise InvalidInput("record URI: author, collection and record key are missing")
    if uri.fragment is not None:
        raise InvalidInput("record URI: a fragment names only part of a record")
    return uri


def parse_at_uri(text: str) -> SpaceRef | RecordUri | PublicUri:
    """What an AT-URI of any form names. Raises InvalidInput, with the reason."""
    if len(text) > MAX_URI:
        raise InvalidInput(f"AT-URI: longer than {MAX_URI} characters")
    if not text.startswith("at://"):
        raise InvalidInput("AT-URI: does not begin with at://")
    path, mark, rest = text[5:].partition("#")
    fragment = rest if mark else None
    parts = path.split("/")
    if not parts[-1]:
        raise InvalidInput("AT-URI: ends with a slash" if path else "AT-URI: authority is missing")
    if len(parts) < 2 or parts[1] != MARKER:
        if len(parts) > 3:
            raise InvalidInput("public AT-URI: more than authority, collection and record key")
        authority, collection, rkey = (*parts, None, None)[:3]
        return PublicUri(authority or "", collection, rkey, fragment)
    if len(parts) < 4:
        raise InvalidInput("space reference: type or key of the space is missing")
    space = SpaceRef(parts[0], parts[2], parts[3])
    if len(parts) == 4:
        if fragment is not None:
            raise InvalidInput("space reference: a space has no fragment")
        return space
    if len(parts) < 7:
        missing = "record key is" if len(parts) == 6 else "collection and record key are"
        raise InvalidInput(f"record URI: {missing} missing")
    if len(parts) > 7:
        raise InvalidInput("record URI: more than space, author, collection and record key")
    return RecordUri(space, parts[4], parts[5], parts[6], fragment)


# The same grammar once more as patterns, for validating without building anything. What a
# pattern cannot say is the length of DIDs and NSIDs, so the rare long text is parsed instead.
_SPACE = rf"at://{DID}/{MARKER}/{NSID}/{RECORD_KEY}"
_space_ref = re.compile(_SPACE).fullmatch
_at_uri = re.compile(
    rf"{_SPACE}(?:/{DID}/{NSID}/{RECORD_KEY}(?:#{_FRAGMENT})?)?"
    rf"|at://(?:{DID}|{HANDLE})(?:/{NSID}(?:/{RECORD_KEY}(?:#{_FRAGMENT})?)?)?"
).fullmatch
_SHORT = 253


def is_at_uri(value: object) -> bool:
    """Whether `parse_at_uri` accepts it (Lexicon format `at-uri`)."""
    if type(value) is not str:
        return False
    if len(value) <= _SHORT:
        return _at_uri(value) is not None
    try:
        parse_at_uri(value)
    except InvalidInput:
        return False
    return True


def is_space_ref(value: object) -> bool:
    """Whether `parse_space_ref` accepts it (Lexicon format `space-ref`)."""
    if type(value) is not str:
        return False
    if len(value) <= _SHORT:
        return _space_ref(value) is not None
    try:
        parse_space_ref(value)
    except InvalidInput:
        return False
    return True


def _check_record(kind: str, collection: object, rkey: object, fragment: str | None) -> None:
    if not is_nsid(collection):
        raise InvalidInput(f"{kind}: collection is not an NSID")
    if not is_record_key(rkey):
        raise InvalidInput(f"{kind}: record key is malformed")
    if fragment is not None and not _fragment(fragment):
        raise InvalidInput(f"{kind}: fragment is not a JSON pointer")


def _tail(text: str, fragment: str | None) -> str:
    return text if fragment is None else f"{text}#{fragment}"
