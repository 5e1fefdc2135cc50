"""One repo of one space, on its host.

What the methods of the protocol say of it, as this package's own types. What came is in the data
model and fits the lexicons; whether values are those of their CIDs, and commits the author's, is
for who uses it to check. Hosts of both generations are read alike.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from lettaspace.atproto import data
from lettaspace.atproto.cid import CID
from lettaspace.atproto.commit import Commit
from lettaspace.atproto.uri import RecordUri, parse_at_uri
from lettaspace.errors import Damaged, HostRefused, InvalidInput, Unreachable
from lettaspace.remote.limits import Limits
from lettaspace.remote.xrpc import Client
from lettaspace.space.writes import Create, Update, Value, Write, Written

SPACE: Final = "com.atproto.space."
UPLOAD: Final = "com.atproto.repo.uploadBlob"

PAGE: Final = 1000
"""The most items of one page (the lexicons')."""
MAX_BLOB: Final = 64 * 1024 * 1024
"""Bytes of a blob that is read; hosts may take larger ones than we write."""

_TOO_LARGE = 413


class RemoteOp(NamedTuple):
    """One entry of the log. `cid` None: deleted. `prev` None: created. `value` only of what is
    still the record, and None where values were not asked for."""

    rev: str
    collection: str
    rkey: str
    cid: CID | None
    prev: CID | None
    value: Value | None


class OpsPage(NamedTuple):
    """Some of the log. The last page has the commit that the ops lead to; there is none where
    nothing was ever written, and some hosts leave it out."""

    ops: list[RemoteOp]
    commit: Commit | None


class RemoteRecord(NamedTuple):
    collection: str
    rkey: str
    cid: CID
    value: Value | None


class HostRepo:
    """The repo of `author` in `space`, asked of a host whose client proves the right to.

    All methods raise what `Client`'s do, and Damaged for an answer that contradicts itself.
    `limits` are lowered when the host refuses something as too large.
    """

    def __init__(
        self, client: Client, space: str, author: str, *, limits: Limits | None = None
    ) -> None:
        self.client: Final = client
        self.origin: Final = client.origin
        self.space: Final = space
        self.author: Final = author
        self.limits = limits or Limits()

    def latest_commit(self) -> Commit | None:
        """The commit of its newest state; None where nothing was ever written."""
        try:
            answer = self.client.query(SPACE + "getLatestCommit", self._params())
        except HostRefused as error:
            if error.error == "RepoNotFound":
                return None
            raise
        return self._commit(answer["commit"])

    def ops(self, since: str | None, *, values: bool = True, page: int = PAGE) -> Iterator[OpsPage]:
        """The log in order, strictly after the revision `since`, each op once.

        A host that forgot where it was is asked once more from the last revision that came
        whole; one that never knew `since` sends what it likes, which the commit's hash tells.
        """
        # `whole`: the revision up to which all ops came; `count` of `rev`, the next, came as well.
        whole = rev = since
        count = 0
        again = False
        while True:
            asked = self._params(since=whole, limit=page, excludeValues=not values)
            skip = count
            try:
                for answer in self.client.pages(SPACE + "listRepoOps", asked, "ops"):
                    ops = [self._op(each) for each in answer["ops"][skip:]]
                    skip = max(0, skip - len(answer["ops"]))
                    for op in ops:
                        if op.rev != rev:
                            whole, rev, count = rev, op.rev, 0
                        count += 1
                    last = "cursor" not in answer and "commit" in answer
                    yield OpsPage(ops, self._commit(answer["commit"]) if last else None)
                return
            except HostRefused as error:
                if error.error != "MalformedCursor" or again:
                    raise
                again = True

    def wait(self, since: str, seconds: int) -> tuple[bool, bool]:
        """Whether there is anything newer than the revision `since` ("": than nothing), and
        whether the host is one that holds its answer, for so many seconds at most, until there
        is. Others answer at once."""
        asked = self._params(since=since or None, limit=1, excludeValues=True)
        answer, waits = self.client.wait(SPACE + "listRepoOps", asked, seconds)
        if answer["ops"] or not waits:
            return bool(answer["ops"]), waits
        rev = self._commit(answer["commit"]).rev if "commit" in answer else ""
        return rev != since, waits

    def car(self, *, values: bool = True) -> AbstractContextManager[Iterator[bytes]]:
        """The whole repo as a CAR, in pieces (`space.car.read_repo` reads it). HostRefused with
        the error RepoNotFound where nothing was ever written."""
        return self.client.download(SPACE + "getRepo", self._params(excludeValues=not values))

    def get(self, collection: str, rkey: str) -> RemoteRecord | None:
        """A record, or None."""
        asked = self._params(collection=collection, rkey=rkey)
        try:
            answer = self.client.query(SPACE + "getRecord", asked)
        except HostRefused as error:
            if error.error in ("RecordNotFound", "RepoNotFound"):
                return None
            raise
        return RemoteRecord(collection, rkey, self._cid(answer["cid"]), answer["value"])

    def apply(
        self, writes: Sequence[Write], *, encoded: Iterable[str] | None = None
    ) -> list[Written]:
        """All of `writes`, in order, or none. `encoded`: what `encode` makes of each, where that
        is known.

        No host compares before it swaps: `expected` is not sent. HostRefused has the errors
        RecordAlreadyExists and RecordNotFound. Raises InvalidInput, having sent nothing, for
        more than `limits`; the host may refuse what its own are below (status 413).
        """
        if len(writes) > self.limits.writes:
            raise InvalidInput(f"{len(writes)} writes in one batch, not {self.limits.writes}")
        body = self._body(map(encode, writes) if encoded is None else encoded)
        if len(body) > self.limits.body:
            raise InvalidInput(
                f"a batch of {len(body)} bytes, more than the {self.limits.body} that "
                f"{self.origin} takes"
            )
        try:
            answer = self.client.procedure(SPACE + "applyWrites", body)
        except HostRefused as error:
            if error.status == _TOO_LARGE:
                self.limits = self.limits.after_body(len(body))
            raise
        results = answer.get("results", [])
        if len(results) != len(writes):
            raise Unreachable(f"{self.origin} does not say what it wrote", sent=True)
        return [self._written(*pair) for pair in zip(writes, results, strict=True)]

    def batches(self, writes: Iterable[Write]) -> Iterator[list[Write]]:
        """Writes in batches that `apply` takes, in order, as few as there can be by filling
        each. A write that is too large by itself is a batch, which `apply` refuses."""
        batch: list[Write] = []
        fixed = len(self._body(())) - 1  # each write comes with a comma, but the first
        size = fixed
        for write in writes:
            more = len(encode(write).encode()) + 1
            if batch and (size + more > self.limits.body or len(batch) >= self.limits.writes):
                yield batch
                batch, size = [], fixed
            batch.append(write)
            size += more
        if batch:
            yield batch

    def upload_blob(
        self, content: bytes, cid: CID, media_type: str = "application/octet-stream"
    ) -> None:
        """Gives the host a blob, which it keeps once a record refers to it.

        `media_type` is to be the one that the record gives. Raises InvalidInput, having sent
        nothing, for more than `limits`, and Damaged where the host has something else afterwards.
        """
        if len(content) > self.limits.blob:
            raise InvalidInput(
                f"a blob of {len(content)} bytes, more than the {self.limits.blob} that "
                f"{self.origin} takes"
            )
        try:
            answer = self.client.upload(UPLOAD, content, media_type)
        except HostRefused as error:
            if error.status == _TOO_LARGE:
                self.limits = self.limits.after_blob(len(content))
            raise
        if answer["blob"]["ref"] != cid:
            raise Damaged(f"{self.origin} got another blob than {cid}")

    def get_blob(self, cid: CID) -> bytes | None:
        """A blob's bytes, checked against its CID; None where the host has it not. Raises
        Damaged for other bytes."""
        asked = self._params(cid=str(cid))
        try:
            with self.client.download(SPACE + "getBlob", asked, limit=MAX_BLOB) as pieces:
                content = b"".join(pieces)
        except HostRefused as error:
            if error.error in ("BlobNotFound", "RepoNotFound"):
                return None
            raise
        if CID.for_raw(content) != cid:
            raise Damaged(f"{self.origin} has other bytes for the blob {cid}")
        return content

    def blobs(self) -> Iterator[CID]:
        """The blobs that records refer to; none where nothing was ever written."""
        asked = self._params(limit=PAGE)
        seen: set[CID] = set()
        try:
            for answer in self.client.pages(SPACE + "listBlobs", asked, "cids"):
                for cid in map(self._cid, answer["cids"]):
                    if cid not in seen:
                        seen.add(cid)
                        yield cid
        except HostRefused as error:
            if error.error != "RepoNotFound":
                raise

    def list(
        self, collection: str | None = None, *, values: bool = False
    ) -> Iterator[RemoteRecord]:
        """The records, each once; one that is written meanwhile may be missing or older."""
        asked = self._params(collection=collection, limit=PAGE, excludeValues=not values)
        seen: set[tuple[str, str]] = set()
        stale = 0
        for answer in self.client.pages(SPACE + "listRecords", asked, "records"):
            before = len(seen)
            for each in answer["records"]:
                key = each["collection"], each["rkey"]
                if key not in seen:
                    seen.add(key)
                    yield RemoteRecord(*key, self._cid(each["cid"]), each.get("value"))
            stale = stale + 1 if len(seen) == before else 0
            if stale > 1:
                raise Damaged(f"{self.origin} lists the same records again and again")

    def _params(self, **more: Any) -> dict[str, Any]:
        return {"space": self.space, "repo": self.author, **more}

    def _body(self, writes: Iterable[str]) -> bytes:
        """What applyWrites is sent; `validate` is left out, so that hosts check what they know."""
        head = data.dumps(self._params()).removesuffix("}")
        return f'{head},"writes":[{",".join(writes)}]}}'.encode()

    def _written(self, write: Write, result: dict[str, Any]) -> Written:
        if not isinstance(write, Create | Update):
            return Written(write.collection, write.rkey, None)
        rkey = write.rkey
        if rkey is None:
            try:
                uri = parse_at_uri(result.get("uri", ""))
            except InvalidInput:
                uri = None
            if not isinstance(uri, RecordUri):
                raise Unreachable(f"{self.origin} does not say where it wrote", sent=True)
            rkey = uri.rkey
        return Written(write.collection, rkey, self._cid(result.get("cid", "")))

    def _op(self, op: dict[str, Any]) -> RemoteOp:
        cid, prev = (None if op[k] is None else self._cid(op[k]) for k in ("cid", "prev"))
        return RemoteOp(op["rev"], op["collection"], op["rkey"], cid, prev, op.get("value"))

    def _cid(self, text: str) -> CID:
        try:
            return CID.parse(text)
        except InvalidInput:
            raise Damaged(f"{self.origin} names content in no way that is known") from None

    def _commit(self, value: Any) -> Commit:
        try:
            return Commit.from_value(value)
        except InvalidInput as error:
            raise Damaged(f"{self.origin}: {error}") from None


def encode(write: Write, *, checked: bool = False) -> str:
    """A write as applyWrites has it, in JSON. Raises InvalidRecord for a value that has none.
    `checked`: its value is known to be one of the data model."""
    kind = type(write).__name__.lower()
    fields: dict[str, Any] = {
        "$type": f"{SPACE}applyWrites#{kind}",
        "collection": write.collection,
    }
    if write.rkey is not None:
        fields["rkey"] = write.rkey
    if isinstance(write, Create | Update):
        fields["value"] = write.value
    return data.dumps(fields, checked=checked)
