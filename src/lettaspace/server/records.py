"""com.atproto.space: writing and reading records.

A write is one transaction: the records, their log, the set hash, and whatever `Host.written`
does with it. It is answered when it is committed. Source: protocol, sections 6 and 10.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from lettaspace.atproto import cbor, lexicon
from lettaspace.atproto.cid import CID
from lettaspace.errors import Conflict, InvalidRecord, NotFound
from lettaspace.server import access, callers, repos, uploads
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.pages import Position, read_page
from lettaspace.server.sessions import Session
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Delete, Update, Value, Write

_SPACE = "com.atproto.space."

CREATE_POINTS: Final = 3
UPDATE_POINTS: Final = 2
DELETE_POINTS: Final = 1
"""What a write costs of an account's rate limit (protocol, section 10)."""


MAX_DEPTH: Final = cbor.MAX_DEPTH - 8
"""How deep a record may be: answers that hold it are deeper, and must be values as well."""


def register(host: Host) -> None:
    for name, handler in (
        ("createRecord", create_record),
        ("putRecord", put_record),
        ("deleteRecord", delete_record),
        ("applyWrites", apply_writes),
    ):
        host.add(_SPACE + name, handler, gate=callers.writer)
    host.add(_SPACE + "getRecord", get_record, gate=callers.reader)
    host.add(_SPACE + "listRecords", list_records, gate=callers.reader)


def create_record(host: Host, call: Call) -> Answer:
    batch = _Batch(host, call)
    batch.create(call.input["collection"], call.input.get("rkey"), call.input["record"])
    return Answer(batch.commit()[0])


def put_record(host: Host, call: Call) -> Answer:
    batch = _Batch(host, call)
    batch.put(call.input["collection"], call.input["rkey"], call.input["record"])
    return Answer(batch.commit()[0])


def delete_record(host: Host, call: Call) -> Answer:
    batch = _Batch(host, call)
    batch.delete(call.input["collection"], call.input["rkey"], may_lack=True)
    batch.commit()
    return Answer({})


def apply_writes(host: Host, call: Call) -> Answer:
    batch = _Batch(host, call)
    writes: list[dict[str, Any]] = call.input["writes"]
    if len(writes) > MAX_WRITES:
        raise XrpcError("InvalidRequest", f"Too many writes: {len(writes)}, not {MAX_WRITES}")
    kinds = [write["$type"].rpartition("#")[2] for write in writes]
    for number, (kind, write) in enumerate(zip(kinds, writes, strict=True)):
        try:
            if kind == "create":
                batch.create(write["collection"], write.get("rkey"), write["value"])
            elif kind == "update":
                batch.update(write["collection"], write["rkey"], write["value"])
            else:
                batch.delete(write["collection"], write["rkey"])
        except InvalidRecord as error:
            raise InvalidRecord(f"writes[{number}]: {error}") from None
    results = [
        {"$type": f"{_SPACE}applyWrites#{kind}Result", **result}
        for kind, result in zip(kinds, batch.commit(), strict=True)
    ]
    return Answer({"results": results})


def get_record(host: Host, call: Call) -> Answer:
    names = ("space", "repo", "collection", "rkey")
    space, did, collection, rkey = (call.params[name] for name in names)
    access.read(host, call.caller, space, did)
    with host.database.read() as connection:
        head = repos.head(connection, space, did)
        record = None if head is None else View(connection, head.id).get(collection, rkey)
    if record is None:
        raise XrpcError("RecordNotFound", f"there is no record {collection}/{rkey}")
    uri = f"{space}/{did}/{collection}/{rkey}"
    return Answer({"uri": uri, "cid": str(record.cid), "value": record.value})


def list_records(host: Host, call: Call) -> Answer:
    params = call.params
    space, did = params["space"], params["repo"]
    access.read(host, call.caller, space, did)
    prefix = f"{space}/{did}/"
    after = Position.parse(params["cursor"], prefix) if "cursor" in params else None
    with host.database.read() as connection:
        head = repos.head(connection, space, did)
        if head is None:
            return Answer({"records": []})
        page = read_page(
            connection,
            head.id,
            collection=params.get("collection"),
            after=after,
            limit=params["limit"],
            ascending=params.get("reverse", False),
            values=not params["excludeValues"],
        )
    records: list[dict[str, Any]] = []
    for row in page.rows:
        record: dict[str, Any] = {
            "collection": row.collection,
            "rkey": row.rkey,
            "cid": str(CID.from_bytes(row.cid)),
        }
        if row.value:
            record["value"] = cbor.decode(row.value)
        records.append(record)
    answer: dict[str, Any] = {"records": records}
    if page.is_full:
        answer["cursor"] = f"{prefix}{page.rows[-1].collection}/{page.rows[-1].rkey}"
    return Answer(answer)


_Plan = Callable[[View], Write | None]


class _Batch:
    """The writes of one call: checked one by one, then committed together."""

    def __init__(self, host: Host, call: Call) -> None:
        caller: Session = call.caller
        self._host = host
        self._account = caller.account
        self._space: str = call.input["space"]
        self._validate: bool | None = call.input.get("validate")
        self._plans: list[_Plan] = []
        self._statuses: list[str | None] = []
        self._blobs: list[dict[str, Any]] = []
        self._points = 0
        access.write(caller, self._space, call.input["repo"])

    def create(self, collection: str, rkey: str | None, value: Value) -> None:
        key = self._host.repos.new_key() if rkey is None else rkey
        data, status = self._check(collection, key, value)
        write = Create(collection, key, value, data)
        self._add(lambda _: write, CREATE_POINTS, status)

    def update(self, collection: str, rkey: str, value: Value) -> None:
        data, status = self._check(collection, rkey, value)
        write = Update(collection, rkey, value, data=data)
        self._add(lambda _: write, UPDATE_POINTS, status)

    def put(self, collection: str, rkey: str, value: Value) -> None:
        """Creates the record, or replaces it."""
        data, status = self._check(collection, rkey, value)

        def plan(view: View) -> Write:
            kind = Update if view.has(collection, rkey) else Create
            return kind(collection, rkey, value, data=data)

        self._add(plan, UPDATE_POINTS, status)

    def delete(self, collection: str, rkey: str, *, may_lack: bool = False) -> None:
        """With `may_lack` it is no error if the record is not there."""

        def plan(view: View) -> Write | None:
            there = not may_lack or view.has(collection, rkey)
            return Delete(collection, rkey) if there else None

        self._add(plan, DELETE_POINTS, None)

    def commit(self) -> list[dict[str, Any]]:
        """Writes it all, and gives what is answered of each write."""
        if not self._plans:
            return []
        host, did, space = self._host, self._account.did, self._space
        host.limits.spend("write", did, self._points)
        afterwards: Callable[[], None] | None = None

        def plan(view: View) -> Sequence[Write]:
            uploads.require(view.connection, self._account, self._blobs)
            return [write for each in self._plans if (write := each(view)) is not None]

        def committing(connection: Connection, rev: str, digest: bytes) -> None:
            nonlocal afterwards
            afterwards = host.written(connection, space, did, rev, digest)

        try:
            written = host.repos.write(space, did, plan, committing)
        except Conflict as error:
            raise XrpcError("RecordAlreadyExists", str(error)) from None
        except NotFound as error:
            raise XrpcError("RecordNotFound", str(error)) from None
        if afterwards is not None:
            afterwards()
        results: list[dict[str, Any]] = []
        for one, status in zip(written, self._statuses, strict=False):
            result: dict[str, Any] = {}
            if one.cid is not None:
                result["uri"] = f"{space}/{did}/{one.collection}/{one.rkey}"
                result["cid"] = str(one.cid)
            if status is not None:
                result["validationStatus"] = status
            results.append(result)
        return results

    def _add(self, plan: _Plan, points: int, status: str | None) -> None:
        self._plans.append(plan)
        self._points += points
        self._statuses.append(status)

    def _check(self, collection: str, rkey: str, value: Value) -> tuple[bytes, str | None]:
        """The record's encoding and the status of its validation; adds the type to the value.

        Raises InvalidRecord for what may not be stored.
        """
        if value.setdefault("$type", collection) != collection:
            raise InvalidRecord(f"$type is not {collection}")
        status = validated(collection, rkey, value, self._validate)
        data = cbor.encode(value, checked=True)
        if cbor.is_deeper(value, data, MAX_DEPTH):
            raise InvalidRecord(f"record: nested deeper than {MAX_DEPTH}")
        if uploads.may_have_blobs(data):
            self._blobs += uploads.blobs_in(value)
        return data, status


def validated(collection: str, rkey: str, value: Value, validate: bool | None) -> str | None:
    """The status of a record's validation; None if there shall be none.

    Raises InvalidRecord for a record that does not fit its lexicon, and where there shall be a
    validation but the lexicon is not known here.
    """
    if validate is False:
        return None
    known = lexicon.shipped()
    definition = known.definition(collection)
    if definition is None or definition["type"] != "record":
        if validate:
            raise InvalidRecord(f"no lexicon is known for {collection}")
        return "unknown"
    known.check_key(collection, rkey)
    known.validate_record(collection, value)
    return "valid"
