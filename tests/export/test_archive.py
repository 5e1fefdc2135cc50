"""The archive of a whole space: written whole, read back whole, or refused."""

from __future__ import annotations

import io
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from lettaspace import Space
from lettaspace.atproto import car, cbor
from lettaspace.atproto.cid import CID, RAW
from lettaspace.atproto.data import blob_refs
from lettaspace.atproto.keys import SigningKey
from lettaspace.conversation.records import AGENT
from lettaspace.errors import (
    Damaged,
    InvalidInput,
    InvalidRecord,
    LettaspaceError,
    NotFound,
    StoreUnavailable,
)
from lettaspace.export.archive import Archive, open_archive, write_archive
from lettaspace.space.car import RepoReader, read_repo, repo_car
from lettaspace.space.writes import Create
from tests.conformance.kit import user
from tests.export.spaces import fill, image, records
from tests.waiting import SECONDS


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    with Space.open(tmp_path_factory.mktemp("full") / "home") as space:
        fill(space)
        yield space


@pytest.fixture(scope="module")
def whole(full: Space, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "space.car"
    write_archive(full, path)
    return path


@pytest.fixture
def small(home: Path) -> Iterator[Space]:
    with Space.open(home) as space:
        yield space


def check(data: bytes) -> Archive:
    return Archive(io.BytesIO(data), lambda _what, _done, _total: None)


def sections(data: bytes) -> list[tuple[CID, bytes]]:
    return [(block.cid, block.data) for block in car.Reader([data])]


def rewritten(data: bytes, blocks: list[tuple[CID, bytes]]) -> bytes:
    return b"".join(car.write(car.Reader([data]).roots, blocks))


def test_it_holds_every_record_and_blob(full: Space, whole: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    with open_archive(whole, lambda *step: steps.append(step)) as archive:
        found = {
            (each.collection, each.rkey): each for each in archive.records(lambda _c, _r: True)
        }
        assert {key: each.cid for key, each in found.items()} == records(full)
        assert len(archive) == len(found)
        cids = {cid for each in found.values() for cid in blob_refs(each.value)}
        assert len(cids) == 2
        for cid in cids:
            assert archive.blob(cid) == full.repo.get_blob(cid)
            assert archive.blob_size(cid) == len(full.repo.get_blob(cid))
        assert archive.address == full.address
        assert archive.rev == full.repo.rev()
        with pytest.raises(NotFound):
            archive.blob(CID.for_raw(b"none"))
    assert steps[-1] == ("checking blobs", 2, 2)
    assert ("checking records", len(found), len(found)) in steps


def test_the_report(full: Space, tmp_path: Path) -> None:
    path = tmp_path / "space.car"
    report = write_archive(full, path).to_json()
    counts = report.pop("records")
    assert counts == dict(sorted(counts.items()))
    assert sum(counts.values()) == len(records(full))
    assert counts[AGENT] == 1
    assert report == {
        "archive": str(path),
        "space": str(full.ref),
        "author": full.identity.did,
        "rev": full.repo.rev(),
        "blobs": 2,
        "bytes": path.stat().st_size,
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_it_begins_with_what_a_host_gives(full: Space, whole: Path) -> None:
    data = whole.read_bytes()
    with full.repo.snapshot() as view:
        repo = b"".join(repo_car(view, full.identity.signing_key()))
    ours, theirs = sections(data), sections(repo)
    count = len(theirs)
    assert ours[1:count] == theirs[1:]  # commits differ: each has an ikm of its own
    manifest, *blobs = ours[count:]
    assert cbor.decode(manifest[1]) == {
        "format": "lettaspace.archive",
        "version": 1,
        "space": str(full.ref),
        "author": full.identity.did,
        "key": full.identity.did,
        "blobs": 2,
    }
    assert [cid for cid, _ in blobs] == sorted(cid for cid, _ in blobs)
    assert {cid.codec for cid, _ in blobs} == {RAW}
    reader = car.Reader([rewritten(data, ours[:count])])
    found = RepoReader(reader)
    found.check_commit(str(full.ref), full.identity.did, full.identity.signing_key().verifying_key)
    assert len(list(found.records())) == count - 2
    assert reader.next() is None


def test_a_reader_of_repos_refuses_it(full: Space, whole: Path) -> None:
    key = full.identity.signing_key().verifying_key
    space, author = str(full.ref), full.identity.did
    _, _, found = read_repo([whole.read_bytes()], space=space, author=author, key=key)
    with pytest.raises(Damaged, match="in no index"):
        list(found)


def test_a_plain_repo_is_not_taken_for_an_archive(full: Space) -> None:
    with full.repo.snapshot() as view:
        data = b"".join(repo_car(view, full.identity.signing_key()))
    with pytest.raises(Damaged, match="where its manifest should"):
        check(data)


def test_nothing_secret_or_local_is_in_it(small: Space, tmp_path: Path) -> None:
    agent = small.create_agent("Otter")
    talk = small.create_conversation(agent)
    talk.append(user("hello"), key="a retry key of mine")
    write_archive(small, tmp_path / "space.car")
    data = (tmp_path / "space.car").read_bytes()
    secret = small.identity.signing_key().to_bytes()
    for each in (secret, secret.hex().encode(), b"a retry key of mine", bytes(small.home)):
        assert each not in data
    assert b"hello" in data


def test_cut_short_or_with_a_bit_flipped_anywhere_it_is_refused(
    small: Space, tmp_path: Path
) -> None:
    agent = small.create_agent("Otter", key="a")
    talk = small.create_conversation(agent)
    talk.append({"role": "user", "content": [image(40)]})
    write_archive(small, tmp_path / "space.car")
    data = (tmp_path / "space.car").read_bytes()
    assert len(check(data)) == 4
    assert len(check(data).blobs) == 1
    for end in range(len(data)):
        with pytest.raises((InvalidInput, Damaged)):
            check(data[:end])
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << at % 8
        with pytest.raises((InvalidInput, Damaged)):
            check(bytes(bad))


def manifest_with(**fields: Any) -> Any:
    def change(blocks: list[tuple[CID, bytes]], at: int) -> None:
        value = cbor.encode({**cbor.decode(blocks[at][1]), **fields})
        blocks[at] = CID.for_cbor(value), value

    return change


def drop(which: int) -> Any:
    return lambda blocks, at: blocks.pop(at + which)


def put(cid: CID, data: bytes) -> Any:
    return lambda blocks, _at: blocks.append((cid, data))


def repeat_the_last(blocks: list[tuple[CID, bytes]], _at: int) -> None:
    blocks.append(blocks[-1])


OTHER = SigningKey.generate().did


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop(0), "where its manifest should"),
        (drop(1), "1 of 2 blobs are missing"),
        (drop(-1), "another block stands where the record"),
        (put(CID.for_raw(b"x"), b"x"), "no blob of a record"),
        (put(CID.for_cbor(b"\xa0"), b"\xa0"), "no blob of a record"),
        (repeat_the_last, "or one too many"),
        (manifest_with(version=2), "another version of lettaspace"),
        (manifest_with(format="x"), "where its manifest should"),
        (manifest_with(space="x"), "no space or no author"),
        (manifest_with(author=1), "no space or no author"),
        (manifest_with(author=OTHER), "not the author's"),
        (manifest_with(author=OTHER, key=OTHER), "not one of this author"),
        (manifest_with(author="did:web:a.example"), "not one of this author"),
        (manifest_with(key=1), "names no key"),
        (manifest_with(key="did:key:z"), "multibase"),
    ],
)
def test_what_does_not_belong_together_is_refused(whole: Path, change: Any, reason: str) -> None:
    data = whole.read_bytes()
    blocks = sections(data)
    (at,) = [n for n, (_, each) in enumerate(blocks) if b"lettaspace.archive" in each]
    change(blocks, at)
    with pytest.raises((InvalidInput, Damaged), match=reason):
        check(rewritten(data, blocks))


def test_a_record_that_its_lexicon_refuses_is_refused(
    small: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(small.repo, "_validate", lambda *_: None)
        small.repo.apply_writes([Create(AGENT, "nameless", {})])
    with pytest.raises(Damaged, match=r"this space is damaged.*agent/nameless"):
        write_archive(small, tmp_path / "space.car")
    assert list(tmp_path.glob("*.car")) == []
    with small.repo.snapshot() as view:
        data = b"".join(repo_car(view, small.identity.signing_key()))
    with pytest.raises(InvalidRecord, match="agent/nameless"):
        check(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("DELETE FROM blobs", "no blob"),
        ("UPDATE blobs SET data = x'00'", "not the content of its CID"),
        ("DELETE FROM blob_refs", "1 of 1 blobs are missing"),
        ("UPDATE records SET value = x'a0' WHERE rkey = 'a'", "not the content of its CID"),
        ("UPDATE repos SET set_hash = zeroblob(2048)", "not what the commit's hash is of"),
        ("DELETE FROM records WHERE rkey = 'a'", "not what the commit's hash is of"),
    ],
)
def test_a_damaged_space_gives_no_archive(
    small: Space, tmp_path: Path, damage: str, reason: str
) -> None:
    talk = small.create_conversation(small.create_agent("Otter", key="a"))
    talk.append({"role": "user", "content": [image(40)]})
    path = tmp_path / "space.car"
    path.write_bytes(b"the old one")
    with small.database.write() as connection:
        connection.execute(text(damage))
    with pytest.raises(Damaged, match=f"this space is damaged.*{reason}"):
        write_archive(small, path)
    assert path.read_bytes() == b"the old one"
    assert {each.name for each in tmp_path.iterdir()} == {"space.car", "home"}


def test_an_empty_space_has_no_archive(small: Space, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing was ever written"):
        write_archive(small, tmp_path / "space.car")
    assert not list(tmp_path.glob("*.car"))


def test_the_spaces_own_files_are_not_overwritten(small: Space, tmp_path: Path) -> None:
    small.create_agent("Otter")
    link = tmp_path / "link"
    link.symlink_to(small.home / "space.db")
    before = (small.home / "identity.json").read_bytes()
    for path in (link, *(small.home / name for name in ("space.db-wal", "identity.json"))):
        with pytest.raises(InvalidInput, match="the space itself is kept there"):
            write_archive(small, path)
    assert (small.home / "identity.json").read_bytes() == before
    write_archive(small, small.home / "backup.car")
    with pytest.raises(StoreUnavailable, match="No such file"):
        write_archive(small, tmp_path / "nowhere" / "space.car")


def test_one_snapshot_while_writers_write(home: Path, tmp_path: Path) -> None:
    with Space.open(home) as space:
        talk = space.create_conversation(space.create_agent("Otter"))
        for number in range(60):
            talk.append({"role": "user", "content": [image(2000, number)]})
        stop, wrote = threading.Event(), threading.Event()

        def write() -> None:
            with Space.open(home) as other:
                mine = other.conversation(talk.rkey)
                while not stop.is_set():
                    message = mine.append(user("more"))
                    mine.rewrite(message.rkey, user("rewritten"))
                    wrote.set()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert wrote.wait(SECONDS)
            for number in range(4):
                path = tmp_path / f"{number}.car"
                rev = write_archive(space, path).rev
                wrote.clear()
                assert wrote.wait(SECONDS)
                with open_archive(path) as archive:
                    assert archive.rev == rev
                    assert len(archive.blobs) == 60
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "there is nothing"),
        (b"# Notes\n\nNot an archive.\n" * 9, "CAR, byte"),
        (b"SQLite format 3\0" + bytes(84), "CAR, byte"),
    ],
)
def test_a_foreign_file(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(content)
    with (
        pytest.raises(
            LettaspaceError, match=f"notes.md is not a whole archive.*{reason}"
        ) as caught,
        open_archive(path),
    ):
        raise AssertionError
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file"), open_archive(tmp_path / "none.car"):
        raise AssertionError
    with pytest.raises(InvalidInput, match="Is a directory"), open_archive(tmp_path):
        raise AssertionError


def test_a_file_that_changes_while_it_is_read(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "space.car"
    data = whole.read_bytes()
    path.write_bytes(data)
    with open_archive(path) as archive:
        path.write_bytes(data[:2000] + bytes(len(data) - 2000))
        with pytest.raises(Damaged, match="changed while it was read"):
            list(archive.records(lambda _c, _r: True))
