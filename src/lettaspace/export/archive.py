"""The archive of a whole space: one CAR file with every record and every blob.

    the CAR of the repo, as `space.car` has it and a host gives it
    a block that says what this is: the manifest
    the blobs that the records refer to, each once, ascending by CID

So whoever reads CARs can read it, and it is complete: nothing in it leads to something outside.
The signing key and what only concerns a machine stay out. docs/archive.md has the format.
"""

import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from lettaspace.atproto import car, cbor
from lettaspace.atproto.cid import CID, DAG_CBOR, RAW
from lettaspace.atproto.data import blob_refs
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.syntax import is_did
from lettaspace.atproto.uri import is_space_ref, parse_space_ref
from lettaspace.conversation.records import Address
from lettaspace.conversation.space import Space, validate
from lettaspace.errors import Damaged, InvalidInput, InvalidRecord, LettaspaceError, NotFound
from lettaspace.export.files import replaced
from lettaspace.space.car import RepoBlock, RepoReader, blob_cids, repo_car
from lettaspace.space.verify import Progress
from lettaspace.space.view import View
from lettaspace.space.writes import Value

FORMAT: Final = "lettaspace.archive"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What was written."""

    path: Path
    space: str
    author: str
    rev: str
    """The revision that the archive holds, a TID."""
    records: dict[str, int]
    """How many of each collection, by name."""
    blobs: int
    size: int
    """Bytes of the file."""

    def to_json(self) -> dict[str, Any]:
        return {
            "archive": str(self.path),
            "space": self.space,
            "author": self.author,
            "rev": self.rev,
            "records": self.records,
            "blobs": self.blobs,
            "bytes": self.size,
        }


def write_archive(
    space: Space, path: Path, progress: Progress = lambda _what, _done, _total: None
) -> ArchiveReport:
    """Writes the archive of a space to a file (mode 0600), which is there whole or not at all.

    All of it is from one snapshot, while others write. Before the file gets its name it is read
    back and checked as an import would.

    Raises NotFound for a space that was never written to, Damaged for one that is not as it
    should be, InvalidInput and StoreUnavailable for a path where no archive can be.
    """
    with replaced(path, home=space.home) as file:
        try:
            with space.repo.snapshot() as view:
                for part in _parts(space, view, progress):
                    file.write(part)
            file.flush()
            # What made the file opened it for reading too.
            with os.fdopen(os.dup(file.fileno()), "rb") as written:
                written.seek(0)
                archive = Archive(written, progress)
                return archive.report(path, written.tell())
        except (InvalidInput, InvalidRecord, Damaged) as error:
            raise Damaged(
                f"this space is damaged, `lettaspace verify` tells more: {error}"
            ) from None


@contextmanager
def open_archive(
    path: Path, progress: Progress = lambda _what, _done, _total: None
) -> Iterator["Archive"]:
    """An archive, read through once and checked whole before anything is given of it.

    Raises NotFound where there is no file; InvalidInput, InvalidRecord or Damaged, in a line that
    names the file, for what is no archive, cut short or altered.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    with file:
        if not file.seekable():
            raise InvalidInput(f"cannot read {path}: it is read twice, so it has to be a file")
        try:
            archive = Archive(file, progress)
        except LettaspaceError as error:
            raise type(error)(f"{path} is not a whole archive of a space: {error}") from None
        yield archive


class Archive:
    """An archive that was found whole. Records and blobs are read when they are asked for."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        """Reads all of it. Raises InvalidInput, InvalidRecord or Damaged."""
        self._file = file
        self._starts, self._sizes = array("Q"), array("Q")
        self.blobs: dict[CID, tuple[int, int] | None] = {}
        """Where the blobs are that records refer to: offset and size. None only while checking."""
        self.counts: dict[str, int] = {}
        """How many records of each collection."""
        reader = car.Reader(car.chunks(file))
        repo = RepoReader(reader)
        self.index = repo.index
        self.rev = repo.commit.rev
        for done, record in enumerate(repo.records(), 1):
            self._check_record(record)
            progress("checking records", done, len(self.index))
        manifest = _manifest(reader.next())
        repo.check_commit(manifest["space"], manifest["author"], _key(manifest))
        self.address = Address(parse_space_ref(manifest["space"]), manifest["author"])
        """Where the records stood."""
        for done, block in enumerate(reader, 1):
            self._check_blob(block)
            progress("checking blobs", done, len(self.blobs))
        missing = sum(place is None for place in self.blobs.values())
        if missing:
            raise Damaged(f"{missing} of {len(self.blobs)} blobs are missing")

    def __len__(self) -> int:
        """How many records it holds."""
        return len(self.index)

    def records(self, wanted: Callable[[str, str], bool]) -> Iterator[RepoBlock]:
        """The records whose collection and key are wanted, in the order of the index."""
        for number, (collection, rkey, cid) in enumerate(self.index):
            if wanted(collection, rkey):
                start, size = self._starts[number], self._sizes[number]
                value: Value = cbor.decode(self._read(cid, start, size))
                yield RepoBlock(collection, rkey, cid, value, start, size)

    def blob(self, cid: CID) -> bytes:
        """A blob that a record refers to."""
        return self._read(cid, *self._place(cid))

    def blob_size(self, cid: CID) -> int:
        """Bytes of a blob that a record refers to."""
        return self._place(cid)[1]

    def report(self, path: Path, size: int) -> ArchiveReport:
        counts = dict(sorted(self.counts.items()))
        space, author = str(self.address.space), self.address.author
        return ArchiveReport(path, space, author, self.rev, counts, len(self.blobs), size)

    def _check_record(self, record: RepoBlock) -> None:
        where = f"{record.collection}/{record.rkey}"
        if record.value.get("$type") != record.collection:
            raise InvalidRecord(f"{where}: its $type is not its collection")
        try:
            validate(record.collection, record.rkey, record.value)
        except InvalidRecord as error:
            raise InvalidRecord(f"{where}: {error}") from None
        for cid in blob_refs(record.value):
            self.blobs.setdefault(cid, None)
        self._starts.append(record.offset)
        self._sizes.append(record.size)
        self.counts[record.collection] = self.counts.get(record.collection, 0) + 1

    def _check_blob(self, block: car.Block) -> None:
        if block.cid.codec != RAW or self.blobs.get(block.cid, ()) is not None:
            raise Damaged(f"a block that is no blob of a record, or one too many: {block.cid}")
        self.blobs[block.cid] = block.offset, len(block.data)

    def _place(self, cid: CID) -> tuple[int, int]:
        place = self.blobs.get(cid)
        if place is None:
            raise NotFound(f"no blob {cid} in the archive")
        return place

    def _read(self, cid: CID, start: int, size: int) -> bytes:
        self._file.seek(start)
        data = self._file.read(size)
        found = CID.for_cbor(data) if cid.codec == DAG_CBOR else CID.for_raw(data)
        if found != cid:
            raise Damaged("the archive was changed while it was read")
        return data


def _parts(space: Space, view: View, progress: Progress) -> Iterator[bytes]:
    key = space.identity.signing_key()
    yield from repo_car(view, key)
    blobs = blob_cids(view)
    manifest = cbor.encode(
        {
            "format": FORMAT,
            "version": VERSION,
            "space": space.repo.space,
            "author": space.repo.author,
            "key": key.did,
            "blobs": len(blobs),
        }
    )
    yield car.section(CID.for_cbor(manifest), manifest)
    for done, cid in enumerate(blobs, 1):
        try:
            yield car.section(cid, view.get_blob(cid))
        except NotFound as error:
            raise Damaged(str(error)) from None
        progress("writing blobs", done, len(blobs))


def _manifest(block: car.Block | None) -> dict[str, Any]:
    if block is None:
        raise Damaged("it ends where its manifest should follow; or it is a plain CAR of a repo")
    fields: Any = cbor.decode(block.data) if block.cid.codec == DAG_CBOR else None
    if type(fields) is not dict or fields.get("format") != FORMAT:
        raise Damaged("another block stands where its manifest should")
    if fields.get("version") != VERSION:
        raise InvalidInput("it was written by another version of lettaspace")
    if not (is_space_ref(fields.get("space")) and is_did(fields.get("author"))):
        raise Damaged("its manifest names no space or no author")
    return fields


def _key(manifest: dict[str, Any]) -> VerifyingKey:
    """The key that the commit was signed with. A did:key is that key; what another DID's key is
    only its document can tell, so there the manifest has to be believed."""
    if type(manifest.get("key")) is not str:
        raise Damaged("its manifest names no key")
    key = VerifyingKey.from_did(manifest["key"])
    author: str = manifest["author"]
    if author.startswith("did:key:") and author != key.did:
        raise Damaged("its manifest names a key that is not the author's")
    return key
