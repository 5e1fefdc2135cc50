"""The client at a host of the August 2026 alpha: what is made of what was recorded of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lettaspace.atproto import cbor, dpop
from lettaspace.atproto.cid import CID
from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import HostRefused, InvalidInput, Unreachable
from lettaspace.remote.credentials import SpaceCredentials
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.limits import Limits
from lettaspace.remote.xrpc import Client
from lettaspace.space.car import read_repo
from lettaspace.space.sethash import SetHash, element
from lettaspace.space.writes import Create, Delete, Update
from tests.remote.august import August, august
from tests.remote.augustauth import Account
from tests.remote.auths import Bearer, Proving
from tests.server.parties import MEMBERS, OPEN, TYPE

NOTE = "org.example.note"
SIMPLE = "com.atproto.simplespace."


@pytest.fixture
def host(tmp_path: Path) -> Iterator[August]:
    with august(tmp_path / "august.db") as host:
        yield host


class Signed:
    """An account, signed in with a password, and its repo in a space of its own."""

    def __init__(self, host: August, name: str = "mira", password: str | None = None) -> None:
        found = [
            each for each in host.doors.accounts.values() if each.handle == f"{name}.localhost"
        ]
        self.account: Account = found[0] if found else host.add_account(name)
        self.client = Client(host.origin, clock=host.clock, sleep=no_sleep)
        asked = {"identifier": self.account.did, "password": password or self.account.password}
        session = self.client.procedure("com.atproto.server.createSession", asked)
        self.client.auth = Bearer(session["accessJwt"])
        self.space = f"at://{self.account.did}/space/{TYPE}/self"
        self.repo = HostRepo(self.client, self.space, self.account.did)

    def create_space(self) -> None:
        body = {"type": TYPE, "skey": "self", "policy": MEMBERS, "appAccess": OPEN}
        self.client.procedure(SIMPLE + "createSpace", body)


def no_sleep(_: float) -> None:
    raise AssertionError("nothing is to be waited for")


@pytest.fixture
def mira(host: August) -> Iterator[Signed]:
    signed = Signed(host)
    with signed.client:
        yield signed


def note(text: str, **more: Any) -> dict[str, Any]:
    return {"$type": NOTE, "text": text, **more}


def keys(count: int) -> list[str]:
    return [f"k{number:04}" for number in range(count)]


def fill(repo: HostRepo, count: int) -> None:
    for start in range(0, count, 200):
        repo.apply([Create(NOTE, key, note(key)) for key in keys(count)[start : start + 200]])


def fold(repo: HostRepo, since: str | None = None, page: int = 1000) -> tuple[bytes, Any]:
    """The hash that the log leads to, and the last page's commit."""
    folded, commit = SetHash(), None
    for each in repo.ops(since, page=page):
        commit = each.commit
        for op in each.ops:
            if op.prev is not None:
                folded.remove(element(op.collection, op.rkey, str(op.prev)))
            if op.cid is not None:
                folded.add(element(op.collection, op.rkey, str(op.cid)))
    return folded.digest(), commit


def test_a_repo_that_was_never_written(mira: Signed) -> None:
    repo = mira.repo
    assert repo.latest_commit() is None
    assert list(repo.ops(None)) == [([], None)]
    assert list(repo.list()) == []
    assert list(repo.blobs()) == []
    assert repo.get(NOTE, "a") is None
    with pytest.raises(HostRefused) as error, repo.car():
        pass
    assert (error.value.status, error.value.error) == (400, "RepoNotFound")
    assert repo.apply([]) == []
    assert repo.latest_commit() is None, "an empty batch makes no repo"


def test_what_is_written_comes_back_each_way(host: August, mira: Signed) -> None:
    repo = mira.repo
    written = repo.apply([Create(NOTE, "a", note("one")), Create(NOTE, None, note("two"))])
    assert written[0] == (written[0].__class__)(NOTE, "a", CID.for_cbor(cbor.encode(note("one"))))
    update, delete = Update(NOTE, "a", note("uno")), Delete(NOTE, written[1].rkey)
    assert repo.apply([update, delete])[1].cid is None
    (record,) = repo.list(values=True)
    assert record == (NOTE, "a", CID.for_cbor(cbor.encode(note("uno"))), note("uno"))
    assert repo.get(NOTE, "a") == record
    assert repo.get(NOTE, written[1].rkey) is None

    ops = [op for page in repo.ops(None) for op in page.ops]
    assert [(op.rkey, op.prev is None, op.cid is None, op.value) for op in ops] == [
        ("a", True, False, None),
        (written[1].rkey, True, False, None),
        ("a", False, False, note("uno")),
        (written[1].rkey, False, True, None),
    ]
    digest, commit = fold(repo)
    assert digest == commit.hash
    key = mira.account.key.verifying_key
    assert commit.is_valid(mira.space, mira.account.did, key)
    with repo.car() as pieces:
        whole, _, blocks = read_repo(pieces, space=mira.space, author=mira.account.did, key=key)
        assert [block.value for block in blocks] == [note("uno")]
    assert whole.hash == digest
    latest = repo.latest_commit()
    assert latest is not None
    assert (latest.rev, latest.hash) == (commit.rev, digest)


@pytest.mark.parametrize("count", [399, 400, 401])
def test_a_log_that_ends_with_its_page(host: August, mira: Signed, count: int) -> None:
    """A full page has a cursor and no commit, also where it ends with the log."""
    fill(mira.repo, count)
    host.requests.clear()
    digest, commit = fold(mira.repo, page=200)
    assert commit is not None
    assert digest == commit.hash
    assert len(host.requests) == count // 200 + 1


def test_a_revision_that_nobody_knows(mira: Signed) -> None:
    fill(mira.repo, 3)
    everything = [op for page in mira.repo.ops("2222222222222") for op in page.ops]
    assert len(everything) == 3
    (page,) = mira.repo.ops("7zzzzzzzzzzzz")
    assert page.ops == []
    assert page.commit is not None


def test_records_come_backwards_and_in_full_pages(host: August, mira: Signed) -> None:
    fill(mira.repo, 400)
    params = {"space": mira.space, "repo": mira.account.did, "limit": 200}
    answers = list(mira.client.pages("com.atproto.space.listRecords", params, "records"))
    assert [len(answer["records"]) for answer in answers] == [200, 200, 0]
    assert answers[0]["cursor"] == f"{mira.space}/{mira.account.did}/{NOTE}/k0200"
    assert [record.rkey for record in mira.repo.list()] == keys(400)[::-1]


def test_batches_keep_to_the_limits(host: August, mira: Signed) -> None:
    repo = mira.repo
    writes = [Create(NOTE, f"s{n:03}", note("é" * 4000)) for n in range(300)]
    batches = list(repo.batches(writes))
    assert [each for batch in batches for each in batch] == writes
    assert len(batches) == 3
    for batch in batches:
        repo.apply(batch)
    assert len(list(repo.list())) == 300
    assert [len(batch) for batch in repo.batches(Create(NOTE, k, note(k)) for k in keys(401))] == [
        200,
        200,
        1,
    ]


def test_what_is_too_large_is_never_sent(host: August, mira: Signed) -> None:
    host.requests.clear()
    large = [Create(NOTE, "large", note("x" * 1_000_000))]
    assert list(mira.repo.batches(large)) == [large]
    with pytest.raises(InvalidInput, match=r"a batch of 1000\d{3} bytes, more than the 1000000"):
        mira.repo.apply(large)
    with pytest.raises(InvalidInput, match="201 writes in one batch"):
        mira.repo.apply([Create(NOTE, key, note(key)) for key in keys(201)])
    blob = b"x" * (5 * 1024 * 1024 + 1)
    with pytest.raises(InvalidInput, match="a blob of 5242881 bytes"):
        mira.repo.upload_blob(blob, CID.for_raw(blob))
    assert host.requests == []


def test_lower_limits_are_learnt(host: August, mira: Signed) -> None:
    repo = HostRepo(
        mira.client, mira.space, mira.account.did, limits=Limits(300, 2_000_000, 6 * 1024 * 1024)
    )
    large = [Create(NOTE, f"s{n}", note("x" * 210_000)) for n in range(5)]
    (batch,) = repo.batches(large)
    with pytest.raises(HostRefused) as error:
        repo.apply(batch)
    assert (error.value.status, error.value.error) == (413, "PayloadTooLargeError")
    batches = list(repo.batches(large))
    assert len(batches) == 3
    for batch in batches:
        repo.apply(batch)
    blob = b"x" * (5 * 1024 * 1024 + 1)
    with pytest.raises(HostRefused):
        repo.upload_blob(blob, CID.for_raw(blob))
    assert repo.limits.blob == len(blob) - 1
    with pytest.raises(HostRefused, match="Too many writes"):
        repo.apply([Create(NOTE, key, note(key)) for key in keys(201)])


def test_a_write_that_is_there_and_one_that_is_not(mira: Signed) -> None:
    repo = mira.repo
    repo.apply([Create(NOTE, "a", note("one"))])
    before = repo.latest_commit()
    for write, name in (
        (Create(NOTE, "a", note("other")), "RecordAlreadyExists"),
        (Update(NOTE, "b", note("other")), "RecordNotFound"),
        (Delete(NOTE, "b"), "RecordNotFound"),
    ):
        with pytest.raises(HostRefused) as error:
            repo.apply([Create(NOTE, "fresh", note("never")), write])
        assert (error.value.status, error.value.error) == (400, name)
    after = repo.latest_commit()
    assert before is not None
    assert after is not None
    assert (after.rev, after.hash) == (before.rev, before.hash)


def test_an_equal_write_makes_a_revision(mira: Signed) -> None:
    repo = mira.repo
    repo.apply([Create(NOTE, "a", note("one"))])
    first = repo.latest_commit()
    repo.apply([Update(NOTE, "a", note("one"))])
    second = repo.latest_commit()
    assert first is not None
    assert second is not None
    assert second.rev > first.rev
    assert second.hash == first.hash


def test_blobs_last_as_long_as_their_records(mira: Signed) -> None:
    repo, content = mira.repo, b"sealed" * 100
    cid = CID.for_raw(content)
    blob = {"$type": "blob", "ref": cid, "mimeType": "application/octet-stream", "size": 600}
    with pytest.raises(HostRefused) as error:
        repo.apply([Create(NOTE, "a", note("one", leaf=blob))])
    assert error.value.error == "BlobNotFound"
    assert repo.get_blob(cid) is None
    repo.upload_blob(content, cid)
    assert repo.get_blob(cid) is None, "an upload that nothing refers to is not given out"
    repo.apply([Create(NOTE, "a", note("one", leaf=blob)), Create(NOTE, "b", note("2", leaf=blob))])
    assert list(repo.blobs()) == [cid]
    assert repo.get_blob(cid) == content
    repo.apply([Delete(NOTE, "a")])
    assert repo.get_blob(cid) == content
    repo.apply([Delete(NOTE, "b")])
    assert repo.get_blob(cid) is None
    assert list(repo.blobs()) == []


def test_values_that_come_back_changed(mira: Signed) -> None:
    """A mark at the start of a text is lost on the way back: the value is not its CID's."""
    repo, value = mira.repo, note("\ufeffmarked")
    (written,) = repo.apply([Create(NOTE, "a", value)])
    record = repo.get(NOTE, "a")
    assert record is not None
    assert record.value == note("marked")
    assert record.cid == written.cid == CID.for_cbor(cbor.encode(value))
    assert CID.for_cbor(cbor.encode(record.value)) != record.cid


@pytest.mark.parametrize(
    ("number", "error"), [("0.5", HostRefused), ("9007199254740992", Unreachable)]
)
def test_numbers_that_it_does_not_take(mira: Signed, number: str, error: type[Exception]) -> None:
    write = f'{{"$type":"com.atproto.space.applyWrites#create","collection":"{NOTE}","rkey":"a",'
    body = f'{{"space":"{mira.space}","repo":"{mira.account.did}","writes":[{write}"value":'
    with pytest.raises(error):
        mira.client.procedure(
            "com.atproto.space.applyWrites", f'{body}{{"n":{number}}}}}]}}'.encode()
        )
    assert mira.repo.latest_commit() is None


def test_other_peoples_repos(host: August, mira: Signed) -> None:
    other = Signed(host, "ada")
    with other.client:
        fill(mira.repo, 1)
        theirs = HostRepo(other.client, mira.space, mira.account.did)
        assert theirs.latest_commit() is None, "as if it were not there"
        with pytest.raises(HostRefused) as error:
            theirs.apply([Create(NOTE, "b", note("no"))])
        assert error.value.status == 403
        # Into a space that nobody made, or that has other members, everybody writes at home.
        own = HostRepo(other.client, mira.space, other.account.did)
        assert len(own.apply([Create(NOTE, "b", note("yes"))])) == 1


def test_an_app_password_keeps_a_repo_but_may_not_delegate(host: August, mira: Signed) -> None:
    mira.create_space()
    app = Signed(host, password=mira.account.add_app_password())
    with app.client, Client(host.origin) as there:
        app.repo.apply([Create(NOTE, "a", note("one"))])
        assert len(list(app.repo.list())) == 1
        credentials = SpaceCredentials(app.client, there, mira.space, clock=host.clock)
        reading = Client(host.origin, auth=credentials.auth_for(mira.account.did))
        with reading, pytest.raises(HostRefused) as error:
            HostRepo(reading, mira.space, mira.account.did).latest_commit()
        assert (error.value.status, error.value.error) == (400, "InvalidToken")


def test_an_oauth_session(host: August, mira: Signed) -> None:
    key = SigningKey.generate("p256")
    space = mira.space
    auth = Proving(key, host.doors.grant(mira.account, key.verifying_key), host.clock)
    with Client(host.origin, auth=auth, clock=host.clock) as client:
        repo = HostRepo(client, space, mira.account.did)
        with pytest.raises(HostRefused) as error:
            repo.latest_commit()
        assert (error.value.status, error.value.error) == (403, "ScopeMissingError")
        auth.token = host.doors.grant(
            mira.account, key.verifying_key, f"atproto space:{TYPE}?authority=self"
        )
        host.doors.rotating = True
        host.requests.clear()
        for number in range(10):
            repo.apply([Create(NOTE, f"k{number}", note("one"))])
        assert len(host.requests) == 10, "the nonce of the answer before is taken each time"


def test_reading_as_a_member(host: August, mira: Signed) -> None:
    """Over DPoP, which the first answer of the host tells."""
    mira.create_space()
    ada = Signed(host, "ada")
    fill(mira.repo, 3)
    body = {"space": mira.space, "did": ada.account.did}
    with ada.client, Client(host.origin) as there:
        credentials = SpaceCredentials(ada.client, there, mira.space, clock=host.clock)
        auth = credentials.auth_for(mira.account.did)
        with Client(host.origin, auth=auth) as reading:
            repo = HostRepo(reading, mira.space, mira.account.did)
            with pytest.raises(HostRefused) as error:
                repo.latest_commit()
            assert error.value.error == "UserNotAuthorized"
            # `addMember` has another name today, so there is no lexicon of it to go by.
            host.doors._spaces[mira.space].members.append(body["did"])
            digest, commit = fold(repo)
            assert digest == commit.hash
            assert commit.is_valid(mira.space, mira.account.did, mira.account.key.verifying_key)
            with repo.car() as pieces:
                assert b"".join(pieces)
            with pytest.raises(HostRefused) as error:
                HostRepo(reading, mira.space + "x", mira.account.did).latest_commit()
            assert error.value.error == "InvalidCredential"
            # It outlives the removal of its member, and ends with its time.
            host.doors._spaces[mira.space].members.clear()
            assert repo.latest_commit() is not None
            host.clock.pass_(7200)
            with pytest.raises(HostRefused) as error:
                repo.latest_commit()
            assert error.value.error == "UserNotAuthorized"
            mira.client.procedure(SIMPLE + "deleteSpace", {"space": mira.space})
            with pytest.raises(HostRefused) as error:
                repo.latest_commit()
            assert error.value.error == "SpaceDeleted"


def test_a_space_is_described_in_the_older_way(host: August, mira: Signed) -> None:
    mira.create_space()
    found = mira.client.query(SIMPLE + "getSpace", {"space": mira.space})
    assert found == {"uri": mira.space, "policy": MEMBERS, "appAccess": OPEN}
    with pytest.raises(HostRefused, match='Input must have the property "type"'):
        mira.client.procedure(
            SIMPLE + "createSpace",
            {"spaceType": TYPE, "readPolicy": MEMBERS, "writePolicy": MEMBERS, "appAccess": OPEN},
        )


def test_it_gives_blobs_of_spaces_to_anybody(host: August, mira: Signed) -> None:
    """Why blobs are sealed."""
    content = b"sealed"
    cid = CID.for_raw(content)
    mira.repo.upload_blob(content, cid, "text/plain")
    blob = {"$type": "blob", "ref": cid, "mimeType": "image/png", "size": 1}
    mira.repo.apply([Create(NOTE, "a", note("one", leaf=blob))])
    path = "/xrpc/com.atproto.sync.getBlob"
    asked = {"did": mira.account.did, "cid": str(cid)}
    with Client(host.origin) as anybody:
        found = anybody._http.get(host.origin + path, params=asked)
        assert found.content == content


def test_proofs_are_checked(host: August, mira: Signed) -> None:
    key = SigningKey.generate("p256")
    token = host.doors.grant(mira.account, key.verifying_key, "atproto space:*")

    def attempt(proof: str | None) -> tuple[int, str]:
        fields = [("authorization", f"DPoP {token}")]
        fields += [] if proof is None else [("dpop", proof)]
        params = {"space": mira.space, "repo": mira.account.did}
        status, _, body, _ = host.answer(
            "com.atproto.space.listRecords", "GET", params, fields, b""
        )
        return status, body.decode().partition('"error": "')[2].partition('"')[0]

    url = f"{host.origin}/xrpc/com.atproto.space.listRecords"
    now, nonce = host.clock(), host.doors.nonce
    other = SigningKey.generate("p256")

    def proof(key: SigningKey = key, url: str = url, **more: Any) -> str:
        return dpop.mint_proof(key, "GET", url, now, **{"credential": token, "nonce": nonce} | more)

    assert attempt(None) == (401, "MissingDpopProof")
    assert attempt(proof(nonce=None)) == (401, "use_dpop_nonce")
    assert attempt(proof(url=url + "x")) == (401, "BadDpopProof")
    assert attempt(proof(credential=None)) == (401, "BadDpopProof")
    assert attempt(proof(other)) == (401, "DpopKeyMismatch")
    assert attempt(proof()) == (200, "")
