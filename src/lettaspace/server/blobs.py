"""Blobs: uploaded for an account, then read by whoever may read a record that refers to them.

There is no other way to one: `com.atproto.sync.getBlob` is not served here. Source: protocol,
section 6.
"""

from heapq import nsmallest

from sqlalchemy import bindparam, select

from lettaspace.atproto.cid import CID
from lettaspace.errors import InvalidInput
from lettaspace.server import access, callers, repos, uploads
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.sessions import Session
from lettaspace.server.tables import accounts
from lettaspace.server.tables import uploads as uploads_table
from lettaspace.space import schema
from lettaspace.space.statement import Statement

ANY_TYPE = "application/octet-stream"

# Whatever it says it is, a browser may only save it: not run it, not show it as this host's.
_INERT = (
    ("x-content-type-options", "nosniff"),
    ("content-disposition", "attachment"),
    ("content-security-policy", "default-src 'none'; sandbox"),
)

_blobs = schema.blobs.c
_refs = schema.blob_refs.c
_records = schema.records.c

_get = Statement(
    lambda: select(_blobs.data).where(
        _blobs.cid == bindparam("cid"),
        select(_refs.record)
        .join(schema.records, _records.id == _refs.record)
        .where(_refs.cid == _blobs.cid, _records.repo == bindparam("repo"))
        .exists(),
    )
)
_type = Statement(
    lambda: (
        select(uploads_table.c.mime)
        .join(accounts, accounts.c.id == uploads_table.c.account)
        .where(accounts.c.did == bindparam("did"), uploads_table.c.cid == bindparam("cid"))
    )
)
_list = Statement(
    lambda: (
        select(_refs.cid)
        .distinct()
        .join(schema.records, _records.id == _refs.record)
        .where(_records.repo == bindparam("repo"), _records.rev > bindparam("since"))
    )
)


def register(host: Host) -> None:
    host.add(
        "com.atproto.repo.uploadBlob",
        upload_blob,
        gate=callers.writer,
        limit=host.config.blob_limit,
    )
    host.add("com.atproto.space.getBlob", get_blob, gate=callers.reader)
    host.add("com.atproto.space.listBlobs", list_blobs, gate=callers.reader)


def upload_blob(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    host.limits.spend("upload", caller.did)
    cid = uploads.add(host.database, caller.account, call.body, call.media_type, host.clock())
    return Answer(
        {
            "blob": {
                "$type": "blob",
                "ref": cid,
                "mimeType": call.media_type,
                "size": len(call.body),
            }
        }
    )


def get_blob(host: Host, call: Call) -> Answer:
    space, did = call.params["space"], call.params["repo"]
    access.read(host, call.caller, space, did)
    key = bytes(_cid(call.params["cid"]))
    with host.database.read() as connection:
        head = repos.head(connection, space, did)
        blob = None if head is None else _get.one(connection, repo=head.id, cid=key)
        if blob is None:
            raise XrpcError("BlobNotFound", "no record here refers to such a blob")
        found = _type.one(connection, did=did, cid=key)
    return Answer.raw(bytes(blob[0]), ANY_TYPE if found is None else found[0], _INERT)


def list_blobs(host: Host, call: Call) -> Answer:
    params = call.params
    space, did, limit = params["space"], params["repo"], params["limit"]
    access.read(host, call.caller, space, did)
    after = str(_cid(params["cursor"], "MalformedCursor")) if "cursor" in params else ""
    with host.database.read() as connection:
        head = repos.head(connection, space, did)
        if head is None:
            return Answer({"cids": []})
        rows = _list.all(connection, repo=head.id, since=params.get("since", ""))
    # In the order of their texts, which is not that of their bytes: no database can sort so.
    texts = (str(CID.from_bytes(raw)) for (raw,) in rows)
    cids = nsmallest(limit, (text for text in texts if text > after))
    answer: dict[str, object] = {"cids": cids}
    if len(cids) == limit:
        answer["cursor"] = cids[-1]
    return Answer(answer)


def _cid(text: str, error: str = "InvalidRequest") -> CID:
    try:
        return CID.parse(text)
    except InvalidInput:
        raise XrpcError(error, "not a CID") from None
