"""Lexicons: the schemas of records and methods, and checking values against them."""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from lettaspace.atproto.lexicondoc import VALUELESS
from lettaspace.atproto.lexicondoc import check_lexicon as check_lexicon
from lettaspace.atproto.syntax import is_nsid, is_record_key, is_tid
from lettaspace.atproto.validate import Check, Mismatch, Schema, compile_schema, full_reference
from lettaspace.errors import InvalidInput, InvalidRecord

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

RECORDS = "xyz.quasigod.lab.letta"
"""What the NSIDs of our own records begin with."""

METHODS = "com.atproto"
"""What the NSIDs of the methods begin with; see `lettaspace.atproto.methods`."""


class Lexicons:
    """A set of Lexicon documents. Immutable; its checks are compiled as they are first needed.

    Raises InvalidRecord for a document that is not sound or not the only one of its NSID.
    """

    def __init__(self, docs: Iterable[dict[str, Any]]) -> None:
        self._docs: dict[str, dict[str, Any]] = {}
        self._checks: dict[str, Check] = {}
        self._records: dict[str, Check] = {}
        for doc in docs:
            check_lexicon(doc)
            if doc["id"] in self._docs:
                raise InvalidRecord(f"two lexicons for {doc['id']}")
            self._docs[doc["id"]] = doc

    @classmethod
    def load(cls, under: str = RECORDS) -> "Lexicons":
        """The lexicons that ship with the package whose NSIDs begin with `under`, read anew.

        Those of our records, unless others are asked for; `shipped` keeps those.
        """
        from importlib.resources import files  # slow to import, and not needed to validate

        return cls(_read(files("lettaspace").joinpath("lexicons", *under.split("."))))

    def __iter__(self) -> Iterator[str]:
        """The NSIDs there are documents for."""
        return iter(self._docs)

    def has(self, nsid: str) -> bool:
        """Whether there is a document for an NSID, of a record or anything else."""
        return nsid in self._docs

    def definition(self, ref: str) -> Schema | None:
        """The definition a full reference (`nsid` or `nsid#name`) names, None if there is none."""
        nsid, _, name = ref.partition("#")
        doc = self._docs.get(nsid)
        return None if doc is None else doc["defs"].get(name or "main")

    def record_key_type(self, nsid: str) -> str:
        """The key type of a record: `tid`, `nsid`, `any` or `literal:…`.

        Raises InvalidRecord unless the NSID is known as a record's.
        """
        return str(self._record(nsid)["key"])

    def check_key(self, collection: str, rkey: str) -> None:
        """Raise unless a record of the collection may have this key.

        InvalidInput if it is no record key at all; InvalidRecord if it is not of the
        collection's key type, or the collection is not known as a record's.
        """
        if not is_record_key(rkey):
            raise InvalidInput("record key is malformed")
        kind = self.record_key_type(collection)
        if kind == "any":
            return
        if kind == "tid":
            fits = is_tid(rkey)
        elif kind == "nsid":
            fits = is_nsid(rkey)
        else:
            fits = rkey == kind.removeprefix("literal:")
        if not fits:
            raise InvalidRecord(f"{collection}: record key is not of type {kind}")

    def validate_record(self, collection: str, value: dict[str, Any]) -> None:
        """Raise InvalidRecord, naming path and rule, unless the value is a record of this type.

        The value is one of the data model (CIDs and bytes as such, not their JSON form), and
        its `$type` is the collection. Limits on strings count UTF-8 bytes. Fields that the
        schema does not mention are allowed; whether they can be encoded is not looked at.
        """
        check = self._records.get(collection)
        if check is None:
            self._record(collection)
            check = self._records[collection] = self._check(collection)
        _run(check, value)

    def validate(self, ref: str, value: Any) -> None:
        """Raise InvalidRecord unless the value fits the definition a full reference names."""
        _run(self._check(full_reference(ref, "")), value)

    def checker(self, schema: Schema, base: str) -> Check:
        """What raises InvalidRecord unless a value fits a schema that is no definition itself,
        such as a method's input; `base` is the NSID of the document it stands in."""
        check = compile_schema(schema, base, self._compile)
        return lambda value: _run(check, value)

    def _check(self, ref: str) -> Check:
        check = self._compile(ref)
        if check is None:
            raise InvalidRecord(f"no schema of values is known for {ref}")
        return check

    def _record(self, nsid: str) -> Schema:
        schema = self.definition(nsid)
        if schema is None or schema["type"] != "record" or "#" in nsid:
            raise InvalidRecord(f"no record schema is known for {nsid}")
        return schema

    def _compile(self, ref: str) -> Check | None:
        check = self._checks.get(ref)
        if check is None:
            schema = self.definition(ref)
            if schema is None or schema["type"] in VALUELESS:
                return None
            check = compile_schema(schema, ref.partition("#")[0], self._compile)
            self._checks[ref] = check
        return check


def _run(check: Check, value: Any) -> None:
    try:
        check(value)
    except Mismatch as mismatch:
        raise InvalidRecord(str(mismatch)) from None
    except RecursionError:
        raise InvalidRecord("value: nested too deep for its schema") from None


@cache
def shipped() -> Lexicons:
    """The lexicons of our own records, one object for all callers."""
    return Lexicons.load()


def _read(folder: "Traversable") -> Iterator[dict[str, Any]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _read(entry)
        elif entry.name.endswith(".json"):
            yield json.loads(entry.read_bytes())
