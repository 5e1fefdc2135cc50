"""The checks, each named after its id in the conformance package, where it is for the alpha's
generation; here they are for the current one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lettaspace.atproto import car, cbor
from lettaspace.atproto.commit import Commit
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.space.sethash import SetHash, element
from tests.server.blackbox.client import (
    DEFS,
    MEMBERS,
    NOTE,
    OPEN,
    PUBLIC,
    SIMPLE,
    SPACE,
    Holder,
    Host,
    Party,
    error,
    good,
    place,
)

CHECKS = (
    "discovery.space-host-service",
    "discovery.verification-key",
    "auth.getrecord-unauthenticated-refused",
    "auth.getspacecredential-untoken-refused",
    "request.invalid-space-uri-rejected",
    "writes.create-and-read",
    "auth.existing-record-unauth-refused",
    "writes.duplicate-rejected",
    "writes.delete-idempotent",
    "writes.applywrites-atomic",
    "credential.self-round-trip",
    "sync.getrepo-two-roots",
    "sync.listrecords-descending-default",
    "host.listrepos-requires-credential",
    "simplespace.unsupported-policy-rejected",
    "simplespace.getspace-reflects-config",
    "blobs.space-blob-not-public",
    "credential.round-trip",
    "credential.cross-space-refused",
    "delegation.replay-refused",
    "delegation.wrong-audience-refused",
    "sync.oplog-folds-to-commit",
    "host.member-list-gates",
    "host.delete-space-tombstone",
)

REFUSED = (401, 403)


def test_every_check_is_here() -> None:
    names = {"test_" + check.replace(".", "_").replace("-", "_") for check in CHECKS}
    assert len(names) == 24
    assert names <= globals().keys()


# Without an account


def test_discovery_space_host_service(host: Host) -> None:
    services = {_fragment(each): each for each in host.document()["service"]}
    assert services["atproto_space_host"]["type"] == "AtprotoSpaceHost"
    assert services["atproto_space_host"]["serviceEndpoint"].startswith(("https://", "http://"))


def test_discovery_verification_key(host: Host) -> None:
    methods = {_fragment(each): each for each in host.document()["verificationMethod"]}
    VerifyingKey.from_did("did:key:" + methods["atproto"]["publicKeyMultibase"])


def test_auth_getrecord_unauthenticated_refused(host: Host) -> None:
    did = "did:web:nobody.example.com"
    where = {"space": f"at://{did}/space/org.example.room/none", "repo": did} | place("none")
    assert host.get(SPACE + "getRecord", **where).status_code in REFUSED


def test_auth_getspacecredential_untoken_refused(host: Host, space: str) -> None:
    answer = host.post(SPACE + "getSpaceCredential", space=space)
    assert answer.status_code in (400, *REFUSED)


def test_auth_existing_record_unauth_refused(host: Host, owner: Party, space: str) -> None:
    good(owner.write(space, "a"))
    answer = host.get(SPACE + "getRecord", **owner.repo(space), **place("a"))
    assert answer.status_code in REFUSED


def test_host_listrepos_requires_credential(host: Host, owner: Party, space: str) -> None:
    assert host.get(SPACE + "listRepos", space=space).status_code in REFUSED
    assert owner.get(SPACE + "listRepos", space=space).status_code in (400, *REFUSED)


# Writing and reading one's own


@pytest.mark.parametrize(
    "uri", ["nonsense", "at://", "at://handle.example.com/space/a.b.c/d", "at://{did}/space/a.b.c"]
)
def test_request_invalid_space_uri_rejected(owner: Party, uri: str) -> None:
    where = owner.repo(uri.format(did=owner.did)) | place("a")
    error(owner.get(SPACE + "getRecord", **where))
    error(owner.post(SPACE + "createRecord", **where, record={"text": "a"}))


def test_writes_create_and_read(owner: Party, space: str) -> None:
    value = {"$type": NOTE, "text": "Zażółć 🏺", "numbers": [0, -1, 2**53 - 1], "none": None}
    written = good(owner.write(space, "a", value))
    assert written["uri"] == f"{space}/{owner.did}/{NOTE}/a"
    read = good(owner.get(SPACE + "getRecord", **owner.repo(space), **place("a")))
    assert (read["uri"], read["cid"], read["value"]) == (written["uri"], written["cid"], value)


def test_writes_duplicate_rejected(owner: Party, space: str) -> None:
    good(owner.write(space, "a", {"text": "first"}))
    assert error(owner.write(space, "a", {"text": "second"})) == "RecordAlreadyExists"
    assert _texts(owner, space) == {"a": "first"}


def test_writes_delete_idempotent(owner: Party, space: str) -> None:
    good(owner.write(space, "a"))
    for rkey in ("a", "a", "never"):
        good(owner.post(SPACE + "deleteRecord", **owner.repo(space), **place(rkey)))
    answer = owner.get(SPACE + "getRecord", **owner.repo(space), **place("a"))
    assert error(answer) == "RecordNotFound"


def test_writes_applywrites_atomic(owner: Party, space: str) -> None:
    def apply(*rkeys: str) -> httpx.Response:
        kind = f"{SPACE}applyWrites#create"
        writes = [{"$type": kind, **place(rkey), "value": {"text": rkey}} for rkey in rkeys]
        return owner.post(SPACE + "applyWrites", **owner.repo(space), writes=writes)

    results = good(apply("a", "b"))["results"]
    assert [each["uri"].rpartition("/")[2] for each in results] == ["a", "b"]
    before = good(owner.get(SPACE + "getLatestCommit", **owner.repo(space)))["commit"]
    assert error(apply("c", "b", "d")) == "RecordAlreadyExists"
    assert _texts(owner, space) == {"a": "a", "b": "b"}
    after = good(owner.get(SPACE + "getLatestCommit", **owner.repo(space)))["commit"]
    assert (before["rev"], before["hash"]) == (after["rev"], after["hash"])


def test_sync_listrecords_descending_default(owner: Party, space: str) -> None:
    rkeys = ["a", "c", "b", "d", "aa"]
    for rkey in rkeys:
        good(owner.write(space, rkey))
    listed = good(owner.get(SPACE + "listRecords", **owner.repo(space)))["records"]
    assert [each["rkey"] for each in listed] == sorted(rkeys, reverse=True)
    page = good(owner.get(SPACE + "listRecords", **owner.repo(space), limit=2))
    rest = good(owner.get(SPACE + "listRecords", **owner.repo(space), cursor=page["cursor"]))
    found = [each["rkey"] for each in page["records"] + rest["records"]]
    assert found == sorted(rkeys, reverse=True)


def test_sync_getrepo_two_roots(owner: Party, space: str) -> None:
    cids = {rkey: good(owner.write(space, rkey))["cid"] for rkey in ("b", "a", "long")}
    answer = owner.get(SPACE + "getRepo", **owner.repo(space))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.ipld.car"
    reader = car.Reader([answer.content])
    assert len(reader.roots) == 2
    first, second, *records = list(reader)
    assert (first.cid, second.cid) == reader.roots
    commit = Commit.from_value(cbor.decode(first.data))
    assert commit.is_valid(space, owner.did, owner.key())
    index = {path: str(cid) for path, cid in cbor.decode(second.data).items()}
    assert index == {f"{NOTE}/{rkey}": cid for rkey, cid in cids.items()}
    assert [str(block.cid) for block in records] == list(index.values())
    folded = SetHash()
    for path, cid in index.items():
        folded.add(element(*path.split("/"), cid))
    assert folded.digest() == commit.hash


def test_sync_oplog_folds_to_commit(owner: Party, space: str) -> None:
    for rkey in ("a", "b", "c"):
        good(owner.write(space, rkey))
    good(owner.write(space, "a", {"text": "again"}, nsid="putRecord"))
    good(owner.post(SPACE + "deleteRecord", **owner.repo(space), **place("b")))
    folded = SetHash()
    params: dict[str, Any] = owner.repo(space) | {"limit": 2}
    revs: list[str] = []
    while True:
        page = good(owner.get(SPACE + "listRepoOps", **params))
        for op in page["ops"]:
            revs.append(op["rev"])
            for cid, change in ((op["prev"], folded.remove), (op["cid"], folded.add)):
                if cid is not None:
                    change(element(op["collection"], op["rkey"], str(cid)))
        assert ("commit" in page) != ("cursor" in page)
        if "commit" in page:
            break
        params["cursor"] = page["cursor"]
    commit = Commit.from_value(page["commit"])
    assert commit.is_valid(space, owner.did, owner.key())
    assert len(revs) == 5
    assert (commit.rev, commit.hash) == (max(revs), folded.digest())


def test_blobs_space_blob_not_public(host: Host, owner: Party, space: str) -> None:
    headers = owner.bearer | {"content-type": "text/plain"}
    url = f"{host.url}/xrpc/com.atproto.repo.uploadBlob"
    uploaded = host.client.post(url, content=space.encode(), headers=headers)
    blob = good(uploaded)["blob"]
    cid = str(blob["ref"])

    def public() -> int:
        return host.get("com.atproto.sync.getBlob", did=owner.did, cid=cid).status_code

    assert public() >= 400
    record = {"text": "with a file", "file": uploaded.json()["blob"]}
    good(owner.write(space, "a", record))
    assert public() >= 400
    mine = owner.get(SPACE + "getBlob", **owner.repo(space), cid=cid)
    assert (mine.status_code, mine.content) == (200, space.encode())
    assert host.get(SPACE + "getBlob", **owner.repo(space), cid=cid).status_code in REFUSED


# Managing


def test_simplespace_unsupported_policy_rejected(owner: Party, space: str) -> None:
    unknown = {"$type": "org.example.somePolicy"}
    assert error(owner.create_space(read=unknown)) == "UnsupportedPolicy"
    assert error(owner.create_space(write=unknown)) == "UnsupportedPolicy"
    answer = owner.post(SIMPLE + "updateSpace", space=space, readPolicy=unknown)
    assert error(answer) == "UnsupportedPolicy"
    assert good(owner.get(SIMPLE + "getSpace", space=space))["readPolicy"] == MEMBERS


def test_simplespace_getspace_reflects_config(owner: Party, new_space: Callable[..., str]) -> None:
    apps = {"$type": DEFS + "allowList", "allowed": ["https://app.example.com/client.json"]}
    space = new_space(read=PUBLIC, write=MEMBERS, appAccess=apps)
    found = good(owner.get(SIMPLE + "getSpace", space=space))
    assert found == {"uri": space, "readPolicy": PUBLIC, "writePolicy": MEMBERS, "appAccess": apps}
    good(owner.post(SIMPLE + "updateSpace", space=space, readPolicy=MEMBERS, appAccess=OPEN))
    found = good(owner.get(SIMPLE + "getSpace", space=space))
    assert found == {"uri": space, "readPolicy": MEMBERS, "writePolicy": MEMBERS, "appAccess": OPEN}


def test_host_delete_space_tombstone(
    host: Host, owner: Party, new_space: Callable[..., str]
) -> None:
    space = new_space(read=PUBLIC)
    good(owner.write(space, "a"))
    good(Holder(host).exchange(owner.delegate(space), space))
    good(owner.post(SIMPLE + "deleteSpace", space=space))
    assert error(Holder(host).exchange(owner.delegate(space), space)) == "SpaceDeleted"


# Credentials


def test_credential_self_round_trip(host: Host, owner: Party, space: str) -> None:
    good(owner.write(space, "a", {"text": "mine"}))
    holder = Holder(host)
    good(holder.exchange(owner.delegate(space), space))
    where = owner.repo(space) | place("a")
    read = good(holder.get(host, SPACE + "getRecord", owner.did, **where))
    assert read["value"]["text"] == "mine"


def test_credential_round_trip(host: Host, owner: Party, member: Party, space: str) -> None:
    """A member whose account is on another host reads the owner's repo here and is read there."""
    good(owner.write(space, "a", {"text": "from the owner"}))
    _admit(owner, space, member)
    good(member.write(space, "b", {"text": "from the member"}))
    holder = Holder(host)
    good(holder.exchange(member.delegate(space), space))
    for party, rkey, text in ((owner, "a", "from the owner"), (member, "b", "from the member")):
        where = party.repo(space) | place(rkey)
        read = good(holder.get(party.host, SPACE + "getRecord", party.did, **where))
        assert read["value"]["text"] == text
    listed = good(holder.get(host, SPACE + "listRepos", owner.did, space=space))["repos"]
    assert {each["did"] for each in listed} == {owner.did, member.did}


def test_credential_cross_space_refused(
    host: Host, owner: Party, new_space: Callable[..., str]
) -> None:
    mine, other = new_space(), new_space()
    for space in (mine, other):
        good(owner.write(space, "a"))
    holder = Holder(host)
    good(holder.exchange(owner.delegate(mine), mine))
    where = owner.repo(other)
    for nsid, more in (("getRecord", place("a")), ("listRecords", {}), ("getRepo", {})):
        answer = holder.get(host, SPACE + nsid, owner.did, **where, **more)
        assert error(answer) == "InvalidCredential"
    error(holder.get(host, SPACE + "listRepos", owner.did, space=other))


def test_delegation_replay_refused(host: Host, owner: Party, space: str) -> None:
    token = owner.delegate(space)
    holder = Holder(host)
    good(holder.exchange(token, space))
    assert error(holder.exchange(token, space)) == "JwtReplayed"
    assert error(Holder(host).exchange(token, space)) == "JwtReplayed"


def test_delegation_wrong_audience_refused(
    host: Host, owner: Party, member: Party, new_space: Callable[..., str]
) -> None:
    space = new_space(read=PUBLIC)
    elsewhere = space.replace(owner.did, "did:web:nobody.example.com")
    for asked in (elsewhere, space):
        error(Holder(host).exchange(member.delegate(elsewhere), asked))
    good(Holder(host).exchange(member.delegate(space), space))


def test_host_member_list_gates(host: Host, owner: Party, member: Party, space: str) -> None:
    refusals = ("UserNotAuthorized", "NotAuthorized")
    assert error(Holder(host).exchange(member.delegate(space), space)) in refusals
    _admit(owner, space, member, read=False)
    assert error(Holder(host).exchange(member.delegate(space), space)) in refusals
    _admit(owner, space, member)
    good(Holder(host).exchange(member.delegate(space), space))
    good(owner.post(SIMPLE + "removeMember", space=space, did=member.did))
    assert error(Holder(host).exchange(member.delegate(space), space)) in refusals


def _admit(owner: Party, space: str, member: Party, *, read: bool = True) -> None:
    body = {"space": space, "did": member.did, "read": read, "write": True}
    good(owner.post(SIMPLE + "putMember", **body))


def _texts(party: Party, space: str) -> dict[str, str]:
    listed = good(party.get(SPACE + "listRecords", **party.repo(space)))["records"]
    return {each["rkey"]: each["value"]["text"] for each in listed}


def _fragment(entry: dict[str, Any]) -> str:
    return str(entry["id"]).rpartition("#")[2]
