"""The repos of the August host: what it takes, what it changes, and what it answers of them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

from lettaspace.atproto import commit
from lettaspace.atproto.cid import CID
from lettaspace.atproto.data import blob_refs
from lettaspace.errors import Conflict, InvalidInput, NotFound
from lettaspace.space import schema
from lettaspace.space.car import blob_cids, repo_car
from lettaspace.space.database import Database
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.sethash import SetHash
from lettaspace.space.view import View
from lettaspace.space.writes import Create, Delete, Update, Write
from tests.remote.augustauth import Caller, Doors, Failure

MAX_BLOB = 5 * 1024 * 1024
MAX_WRITES = 200

SPACE = "com.atproto.space."

_cursor = re.compile(r"([2-7a-j][2-7a-z]{12})/([0-9]+)").fullmatch


class Repos:
    """One for each account and space, in one database. `doors` say who may read."""

    def __init__(self, path: Path, doors: Doors) -> None:
        self.database = Database.open(path)
        self.doors = doors
        self._lock = threading.RLock()
        self._repos: dict[tuple[str, str], EmbeddedRepo] = {}
        self._uploads: dict[str, dict[CID, bytes]] = {}
        self.methods: dict[str, Callable[[Caller, Any], Any]] = {
            SPACE + "createRecord": self._create_record,
            SPACE + "putRecord": self._put_record,
            SPACE + "deleteRecord": self._delete_record,
            SPACE + "applyWrites": self._apply_writes,
            SPACE + "getRecord": self._get_record,
            SPACE + "listRecords": self._list_records,
            SPACE + "listRepoOps": self._list_repo_ops,
            SPACE + "getLatestCommit": self._get_latest_commit,
            SPACE + "getRepo": self._get_repo,
            SPACE + "getBlob": self._get_blob,
            SPACE + "listBlobs": self._list_blobs,
            "com.atproto.repo.uploadBlob": self._upload_blob,
            "com.atproto.sync.getBlob": self._leak_blob,
        }

    # Writing

    def _create_record(self, caller: Caller, body: Any) -> Any:
        write = self._create(body["collection"], body.get("rkey"), body["record"], body)
        return self._write(caller, body, [write])[0]

    def _put_record(self, caller: Caller, body: Any) -> Any:
        collection, rkey, value = body["collection"], body["rkey"], body["record"]
        with self._lock:
            repo = self._repo(body)
            there = repo is not None and repo.get(collection, rkey) is not None
            make = self._update if there else self._create
            return self._write(caller, body, [make(collection, rkey, value, body)])[0]

    def _delete_record(self, caller: Caller, body: Any) -> Any:
        with self._lock:
            repo = self._repo(body)
            if repo is not None and repo.get(body["collection"], body["rkey"]) is not None:
                self._write(caller, body, [Delete(body["collection"], body["rkey"])])
        return {}

    def _apply_writes(self, caller: Caller, body: Any) -> Any:
        if len(body["writes"]) > MAX_WRITES:
            raise Failure(400, "InvalidRequest", f"Too many writes. Max: {MAX_WRITES}")
        writes: list[Write] = []
        for each in body["writes"]:
            kind = each["$type"].rpartition("#")[2]
            if kind == "delete":
                writes.append(Delete(each["collection"], each["rkey"]))
            else:
                make = self._create if kind == "create" else self._update
                writes.append(make(each["collection"], each.get("rkey"), each["value"], body))
        results = self._write(caller, body, writes)
        kinds = [each["$type"] + "Result" for each in body["writes"]]
        return {
            "results": [{"$type": kind, **one} for kind, one in zip(kinds, results, strict=True)]
        }

    def _create(self, collection: str, rkey: Any, value: Any, body: Any) -> Write:
        return Create(collection, rkey, self._checked(collection, value, body))

    def _update(self, collection: str, rkey: Any, value: Any, body: Any) -> Write:
        return Update(collection, rkey, self._checked(collection, value, body))

    def _checked(self, collection: str, value: Any, body: Any) -> Any:
        if value.get("$type", collection) != collection:
            raise Failure(400, "InvalidRequest", "Invalid $type")
        if body.get("validate"):
            raise Failure(400, "InvalidRequest", f"Unknown lexicon type: {collection}")
        return value

    def _write(self, caller: Caller, body: Any, writes: list[Write]) -> list[dict[str, Any]]:
        """Into a space that exists or not, by a member or not: only whose repo it is counts."""
        if caller.did is None or body["repo"] != caller.did:
            raise Failure(403, "Forbidden", "not your repo")
        if not writes:
            return []
        with self._lock:
            uploads = self._uploads.setdefault(caller.did, {})
            wanted = {
                cid
                for write in writes
                if not isinstance(write, Delete)
                for cid in blob_refs(write.value)
            }
            missing = wanted - uploads.keys() - self._kept(caller.did)
            if missing:
                raise Failure(400, "BlobNotFound", f"Could not find blob: {min(missing)}")
            blobs = {cid: uploads[cid] for cid in wanted & uploads.keys()}
            repo = self._repo(body, create=True)
            assert repo is not None
            try:
                written = repo.apply_writes(writes, blobs=blobs)
            except Conflict as error:
                raise Failure(400, "RecordAlreadyExists", str(error)) from None
            except NotFound as error:
                raise Failure(400, "RecordNotFound", str(error)) from None
            except InvalidInput as error:
                raise Failure(400, "InvalidRequest", str(error)) from None
            for cid in blobs:
                del uploads[cid]
        prefix = f"{body['space']}/{caller.did}"
        return [
            {}
            if one.cid is None
            else {
                "uri": f"{prefix}/{one.collection}/{one.rkey}",
                "cid": str(one.cid),
                "validationStatus": "unknown",
            }
            for one in written
        ]

    # Reading

    def _get_record(self, caller: Caller, params: dict[str, str]) -> Any:
        collection, rkey = params["collection"], params["rkey"]
        repo = self._readable(caller, params)
        record = None if repo is None else repo.get(collection, rkey)
        if record is None:
            raise Failure(400, "RecordNotFound", "Could not locate record")
        uri = f"{params['space']}/{params['repo']}/{collection}/{rkey}"
        return {"uri": uri, "cid": str(record.cid), "value": record.value}

    def _list_records(self, caller: Caller, params: dict[str, str]) -> Any:
        repo = self._readable(caller, params)
        if repo is None:
            return {"records": []}
        ascending = params.get("reverse") == "true"
        values = params.get("excludeValues") != "true"
        limit = int(params.get("limit", 50))
        prefix = f"{params['space']}/{params['repo']}/"
        found = {}
        with repo.snapshot() as view:
            for collection in _collections(view):
                if params.get("collection", collection) == collection:
                    for each in view.records(collection):
                        found[f"{prefix}{collection}/{each.rkey}"] = each
        uris = sorted(found, reverse=not ascending)
        if (cursor := params.get("cursor")) is not None:
            uris = [uri for uri in uris if (uri > cursor if ascending else uri < cursor)]
        page = [(uri, found[uri]) for uri in uris[:limit]]
        records = [
            {"collection": one.collection, "rkey": one.rkey, "cid": str(one.cid)}
            | ({"value": one.value} if values else {})
            for _, one in page
        ]
        # A full page may be the last one and says all the same where it ends.
        return {"records": records} | ({"cursor": page[-1][0]} if len(page) == limit else {})

    def _list_repo_ops(self, caller: Caller, params: dict[str, str]) -> Any:
        repo = self._readable(caller, params)
        if repo is None:
            return {"ops": []}
        after = (params.get("since", ""), 1 << 30)
        if (cursor := params.get("cursor")) is not None:
            match = _cursor(cursor)
            if match is None:
                raise Failure(400, "MalformedCursor", "Malformed cursor")
            after = max(after, (match[1], int(match[2])))
        limit = int(params.get("limit", 100))
        with repo.snapshot() as view:
            ops = list(view.ops(after, limit))
            head = self._commit(repo, view)
            answer: dict[str, Any] = {"ops": []}
            for op in ops:
                one: dict[str, Any] = {
                    "rev": op.rev,
                    "collection": op.collection,
                    "rkey": op.rkey,
                    "cid": None if op.cid is None else str(op.cid),
                    "prev": None if op.prev is None else str(op.prev),
                }
                record = view.get(op.collection, op.rkey)
                if record is not None and record.cid == op.cid:
                    one |= {} if params.get("excludeValues") == "true" else {"value": record.value}
                answer["ops"].append(one)
        if len(ops) == limit:
            return answer | {"cursor": f"{ops[-1].rev}/{ops[-1].index}"}
        return answer | {"commit": head}

    def _get_latest_commit(self, caller: Caller, params: dict[str, str]) -> Any:
        repo = self._whole(caller, params)
        with repo.snapshot() as view:
            return {"commit": self._commit(repo, view)}

    def _get_repo(self, caller: Caller, params: dict[str, str]) -> Any:
        repo = self._whole(caller, params)
        values = params.get("excludeValues") != "true"
        key = self.doors.accounts[repo.author].key
        with repo.snapshot() as view:
            return "application/vnd.ipld.car", b"".join(repo_car(view, key, values=values))

    # Blobs

    def _upload_blob(self, caller: Caller, body: tuple[str, bytes]) -> Any:
        media, content = body
        if caller.did is None:
            raise Failure(401, "AuthMissing", "Authentication Required")
        if len(content) > MAX_BLOB:
            raise Failure(413, "PayloadTooLargeError", "request entity too large")
        cid = CID.for_raw(content)
        with self._lock:
            self._uploads.setdefault(caller.did, {})[cid] = content
        size = len(content)
        return {"blob": {"$type": "blob", "ref": cid, "mimeType": media, "size": size}}

    def _get_blob(self, caller: Caller, params: dict[str, str]) -> Any:
        repo = self._readable(caller, params)
        cid = CID.parse(params["cid"])
        if repo is not None:
            with repo.snapshot() as view:
                if cid in blob_cids(view):
                    return "application/octet-stream", view.get_blob(cid)
        raise Failure(400, "BlobNotFound", "Blob not found")

    def _list_blobs(self, caller: Caller, params: dict[str, str]) -> Any:
        repo = self._readable(caller, params)
        if repo is None:
            return {"cids": []}
        with repo.snapshot() as view:
            cids = sorted(map(str, blob_cids(view)))
        cids = [cid for cid in cids if cid > params.get("cursor", "")]
        page = cids[: int(params.get("limit", 500))]
        return {"cids": page} | ({"cursor": page[-1]} if page else {})

    def _leak_blob(self, _caller: Caller, params: dict[str, str]) -> Any:
        """To anybody, without a question: blobs that only records of spaces refer to as well."""
        for (_, author), repo in list(self._repos.items()):
            if author == params["did"]:
                with repo.snapshot() as view:
                    if CID.parse(params["cid"]) in blob_cids(view):
                        return "application/octet-stream", view.get_blob(CID.parse(params["cid"]))
        raise Failure(400, "InvalidRequest", "Blob not found")

    def _kept(self, did: str) -> set[CID]:
        """The blobs that an account's records refer to."""
        kept: set[CID] = set()
        for (_, author), repo in self._repos.items():
            if author == did:
                with repo.snapshot() as view:
                    kept.update(blob_cids(view))
        return kept

    # Repos

    def _repo(self, names: Any, *, create: bool = False) -> EmbeddedRepo | None:
        """The repo of an author in a space, if something was ever written to it."""
        space, author = names["space"], names["repo"]
        with self._lock:
            repo = self._repos.get((space, author))
            if repo is None and create:
                repo = EmbeddedRepo(self.database, space, author, validate=_anything)
                self._repos[space, author] = repo
        return repo if create or (repo is not None and repo.rev() is not None) else None

    def _readable(self, caller: Caller, params: dict[str, str]) -> EmbeddedRepo | None:
        self.doors.check_read(caller, params)
        return self._repo(params)

    def _whole(self, caller: Caller, params: dict[str, str]) -> EmbeddedRepo:
        if caller.did is not None and caller.did != params["repo"]:
            raise Failure(400, "RepoNotFound", "Could not find repo")
        repo = self._readable(caller, params)
        if repo is None:
            raise Failure(400, "RepoNotFound", "Could not find repo")
        return repo

    def _commit(self, repo: EmbeddedRepo, view: View) -> dict[str, Any]:
        rev, state = view.connection.execute(
            select(schema.repos.c.rev, schema.repos.c.set_hash).where(schema.repos.c.id == repo.id)
        ).one()
        key = self.doors.accounts[repo.author].key
        return commit.sign(key, repo.space, repo.author, rev, SetHash(state).digest()).to_value()


def _anything(_collection: str, _rkey: str, _value: dict[str, Any]) -> None:
    """No lexicon of a record is known to this host."""


def _collections(view: View) -> list[str]:
    records = schema.records.c
    rows = select(records.collection).distinct().where(records.repo == view.repo)
    return list(view.connection.execute(rows).scalars())
