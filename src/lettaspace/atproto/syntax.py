"""Identifier and string syntax: does a text have the form its name promises?

One predicate per form, each `(value: object) -> bool`. They never raise: anything that is not
a string has no form. All match the whole text, so neither a trailing newline nor a non-ASCII
digit slips through. Sources: the AT Protocol specifications for DIDs, handles, NSIDs, record
keys, TIDs and the Lexicon string formats. AT-URIs are in `lettaspace.atproto.uri`.
"""

import re

# The building blocks are shared with `uri`, which joins them into whole-URI patterns. They are
# possessive: a label never gives back what it took, which is twice as fast and cannot run away.
DID = r"did:[a-z]++:[a-zA-Z0-9._:%-]++(?<![:%])"
_LABEL = r"(?![a-zA-Z0-9-]{64})[a-zA-Z0-9]++(?:-++[a-zA-Z0-9]++)*+"
_ALPHA_LABEL = rf"(?=[a-zA-Z]){_LABEL}"
HANDLE = rf"(?:{_LABEL}\.)+{_ALPHA_LABEL}"
NSID = rf"{_ALPHA_LABEL}(?:\.{_LABEL})+\.[a-zA-Z][a-zA-Z0-9]{{0,62}}"
RECORD_KEY = r"(?!\.\.?(?![a-zA-Z0-9_~.:-]))[a-zA-Z0-9_~.:-]{1,512}"

MAX_DID = 2048
MAX_HANDLE = 253
MAX_NSID = 317
MAX_URI = 8192

_did = re.compile(DID).fullmatch
_handle = re.compile(HANDLE).fullmatch
_nsid = re.compile(NSID).fullmatch
_record_key = re.compile(RECORD_KEY).fullmatch
_tid = re.compile(r"[2-7a-j][2-7a-z]{12}").fullmatch

# CIDv1, DAG-CBOR or raw, SHA-256, base32: 36 fixed-form bytes. The first 32 bits are constant,
# which pins six characters and the top of a seventh; the last character carries two zero bits.
_cid = re.compile(r"baf[ky]rei[a-h][a-z2-7]{50}[aeimquy4]").fullmatch

_datetime = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,20})?"
    r"(?:Z|\+(?:[01][0-9]|2[0-3]):[0-5][0-9]|-(?!00:00)(?:[01][0-9]|2[0-3]):[0-5][0-9])"
).fullmatch

# RFC 5646 section 2.1: what a well-formed tag is, without looking subtags up in a registry.
_language = re.compile(
    r"(?:"
    r"(?:[a-z]{2,3}(?:-[a-z]{3}){0,3}|[a-z]{4}|[a-z]{5,8})"  # language, extended language
    r"(?:-[a-z]{4})?"  # script
    r"(?:-(?:[a-z]{2}|[0-9]{3}))?"  # region
    r"(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*"  # variants
    r"(?:-[a-wyz0-9](?:-[a-z0-9]{2,8})+)*"  # extensions
    r"(?:-x(?:-[a-z0-9]{1,8})+)?"  # private use
    r"|x(?:-[a-z0-9]{1,8})+"
    # Tags registered before the present grammar, which they do not follow.
    r"|en-gb-oed|i-(?:ami|bnn|default|enochian|hak|klingon|lux|mingo|navajo|pwn|tao|tay|tsu)"
    r"|sgn-(?:be-fr|be-nl|ch-de)"
    r")",
    re.IGNORECASE | re.ASCII,
).fullmatch

# RFC 3986 is ASCII. Any scheme; what follows is not parsed further.
_uri = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,80}:[!-~]+").fullmatch

_LONG_MONTHS = frozenset(("01", "03", "05", "07", "08", "10", "12"))


def is_did(value: object) -> bool:
    """A DID of any method, at most 2,048 characters (DID spec)."""
    return type(value) is str and len(value) <= MAX_DID and _did(value) is not None


def is_handle(value: object) -> bool:
    """A handle: a domain name of at least two labels, at most 253 characters (handle spec)."""
    return type(value) is str and len(value) <= MAX_HANDLE and _handle(value) is not None


def is_at_identifier(value: object) -> bool:
    """A DID or a handle (Lexicon format `at-identifier`)."""
    return is_did(value) or is_handle(value)


def is_nsid(value: object) -> bool:
    """A namespaced identifier without fragment or wildcard, at most 317 characters (NSID spec).

    The authority (everything before the last dot) is at most 253 characters.
    """
    return (
        type(value) is str
        and len(value) <= MAX_NSID
        and _nsid(value) is not None
        and value.rindex(".") <= MAX_HANDLE
    )


def is_record_key(value: object) -> bool:
    """A record key: 1 to 512 characters of `A-Z a-z 0-9 _ ~ . : -`, not `.` or `..`."""
    return type(value) is str and _record_key(value) is not None


def is_tid(value: object) -> bool:
    """A TID: 13 characters of sortable base32, the top bit zero (TID spec)."""
    return type(value) is str and _tid(value) is not None


def is_cid_string(value: object) -> bool:
    """A CID as this package accepts it: see `lettaspace.atproto.cid`."""
    return type(value) is str and _cid(value) is not None


def is_datetime(value: object) -> bool:
    """An AT Protocol datetime: what RFC 3339 and ISO 8601 have in common (Lexicon spec).

    Upper-case `T` and `Z`, whole seconds or a fraction of 1 to 20 digits, a timezone but not
    `-00:00`, a day the calendar has, no leap second. Years before 0010 are refused, as the
    reference does: they turn negative under a timezone.
    """
    if type(value) is not str or (match := _datetime(value)) is None:
        return False
    if value.startswith("000"):
        return False
    year, month, day = match.groups()
    if day < "29" or month in _LONG_MONTHS:
        return True
    if month != "02":
        return day < "31"
    leap = int(year) % 4 == 0 and (int(year) % 100 != 0 or int(year) % 400 == 0)
    return day == "29" and leap


def is_language(value: object) -> bool:
    """A well-formed BCP 47 language tag; subtags are not looked up."""
    return type(value) is str and _language(value) is not None


def is_uri(value: object) -> bool:
    """A URI of any scheme, ASCII, at most 8,192 characters (Lexicon format `uri`)."""
    return type(value) is str and len(value) <= MAX_URI and _uri(value) is not None
