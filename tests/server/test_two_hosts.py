"""A space between two hosts and a syncer, from its creation to its end, over HTTP alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lettaspace.atproto import data, jwt
from lettaspace.atproto.commit import Commit
from lettaspace.atproto.proof import Generation
from lettaspace.space.car import read_repo
from lettaspace.space.sethash import SetHash, element
from tests.server.hosts import Clock, Server, serving
from tests.server.parties import SIMPLE, SPACE, Reader, Service, User, error, service, settle


class World:
    """Alice's host governs the space, bob's keeps a member's repo, and a syncer reads both."""

    def __init__(self, a: Server, b: Server, syncer: Service) -> None:
        self.a, self.b, self.syncer = a, b, syncer
        self.alice, self.bob = User(a, "alice"), User(b, "bob")
        self.space = self.alice.create()

    def home(self, did: str) -> Server:
        return self.a if did == self.alice.did else self.b

    def repos(self, reader: Reader, **params: Any) -> dict[str, Any]:
        answer = reader.get(SPACE + "listRepos", self.alice.did, space=self.space, **params)
        assert answer.status_code == 200, answer.text
        return data.loads(answer.content)

    def read(self, reader: Reader, method: str, repo: str, **params: Any) -> httpx.Response:
        params = {"space": self.space, "repo": repo} | params
        return reader.get(SPACE + method, repo, self.home(repo), **params)

    def check_repo(self, reader: Reader, listed: dict[str, Any]) -> dict[str, Any]:
        """Pulls a repo both ways, as operations and as a whole, and checks all that a syncer
        can: signature, and that the set hash is that of what came."""
        did = listed["did"]
        key = self.a.host.identity.key(did, "#atproto")
        answer = self.read(reader, "listRepoOps", did)
        assert answer.status_code == 200, answer.text
        pulled = data.loads(answer.content)
        commit = Commit.from_value(pulled["commit"])
        assert commit.is_valid(self.space, did, key)
        assert (commit.rev, commit.hash) == (listed["repoRev"], listed["hash"])
        folded = SetHash()
        values = {}
        for op in pulled["ops"]:
            path = op["collection"], op["rkey"]
            for cid, change in ((op["prev"], folded.remove), (op["cid"], folded.add)):
                if cid is not None:
                    change(element(*path, str(cid)))
            values["/".join(path)] = op.get("value")
        assert folded.digest() == commit.hash
        answer = self.read(reader, "getRepo", did)
        assert answer.headers["content-type"] == "application/vnd.ipld.car"
        whole, _, blocks = read_repo([answer.content], space=self.space, author=did, key=key)
        assert (whole.rev, whole.hash) == (commit.rev, commit.hash)
        records = {f"{each.collection}/{each.rkey}": each.value for each in blocks}
        assert records == values
        return records


@pytest.fixture
def world(target: str, tmp_path: Path, clock: Clock) -> Iterator[World]:
    # Alice's host is on either database; two on one server would need two of them.
    with (
        serving(target, clock) as a,
        serving(tmp_path / "other.db", clock) as b,
        service() as syncer,
    ):
        yield World(a, b, syncer)


@pytest.mark.parametrize("generation", ["signature", "dpop"])
def test_the_life_of_a_space(world: World, generation: Generation) -> None:
    alice, bob, space, syncer = world.alice, world.bob, world.space, world.syncer
    alice.write(space, "welcome", "first")
    # Bob may write into his own repo whenever he likes, but is not listed before he is a member.
    bob.write(space, "too early")
    settle(world.b)
    outsider = Reader(world.a, generation)
    assert error(outsider.exchange(bob.delegate(space), space)) == (400, "UserNotAuthorized")

    alice.admit(space, bob.did)
    reader = Reader(world.a, generation).open(bob, space)
    answer = reader.post(SPACE + "registerNotify", alice.did, space=space, service=syncer.id)
    assert answer.status_code == 200, answer.text
    assert [repo["did"] for repo in world.repos(reader)["repos"]] == [alice.did]

    bob.write(space, "thank you", "reply")
    (told,) = syncer.wait(1)
    assert syncer.auth() == (alice.did, syncer.id, SPACE + "notifyWrite")
    listed = world.repos(reader)["repos"]
    assert [repo["did"] for repo in listed] == [alice.did, bob.did]
    assert told == {
        "space": space,
        "repo": bob.did,
        "repoRev": listed[1]["repoRev"],
        "hash": data.to_json(listed[1]["hash"]),
        "spaceRev": listed[1]["spaceRev"],
        "prevSpaceRev": listed[0]["spaceRev"],
    }
    assert len(world.check_repo(reader, listed[0])) == 1
    assert len(world.check_repo(reader, listed[1])) == 2

    # A write of alice's own is told of as well, and a checkpoint is where to go on from.
    checkpoint = world.repos(reader)["cursor"]
    alice.write(space, "see you")
    assert syncer.wait(2)[1]["prevSpaceRev"] == checkpoint
    page = world.repos(reader, cursor=checkpoint)
    assert [repo["did"] for repo in page["repos"]] == [alice.did]
    assert world.repos(reader, cursor=page["cursor"]) == {"repos": []}
    assert len(world.check_repo(reader, page["repos"][0])) == 2

    # Removed: no new credential, no more news of bob's writes; the old one lasts ten minutes.
    answer = alice.post(SIMPLE + "removeMember", space=space, did=bob.did)
    assert answer.status_code == 200, answer.text
    removed = Reader(world.a, generation)
    assert error(removed.exchange(bob.delegate(space), space)) == (400, "UserNotAuthorized")
    bob.write(space, "hello?")
    settle(world.b)
    world.b.clock.pass_(700)
    assert error(world.read(reader, "getLatestCommit", bob.did)) == (401, "JwtExpired")
    assert error(reader.get(SPACE + "listRepos", alice.did, space=space)) == (401, "JwtExpired")
    alice.admit(space, bob.did)
    reader = Reader(world.a, generation).open(bob, space)
    listed = {repo["did"]: repo for repo in world.repos(reader)["repos"]}
    assert listed[bob.did]["repoRev"] == told["repoRev"]

    # The end: the tombstone is told of, and nobody gets in any more.
    syncer.passed = 700
    assert alice.post(SIMPLE + "deleteSpace", space=space).status_code == 200
    assert syncer.wait(3)[2] == {"space": space}
    assert syncer.auth() == (alice.did, syncer.id, SPACE + "notifySpaceDeleted")
    late = Reader(world.a, generation)
    assert error(late.exchange(bob.delegate(space), space)) == (400, "SpaceDeleted")
    for answer in (
        reader.get(SPACE + "listRepos", alice.did, space=space),
        reader.post(SPACE + "registerNotify", alice.did, space=space, service=syncer.id),
    ):
        assert error(answer) == (400, "SpaceNotFound")
    assert error(world.read(reader, "getRepo", alice.did)) == (400, "SpaceNotFound")
    # Bob's repo is his own, and he alone reads it.
    answer = bob.get(SPACE + "listRecords", space=space, repo=bob.did)
    assert len(answer.json()["records"]) == 3


def test_a_revoked_credential_opens_nothing_on_that_host(world: World) -> None:
    alice, bob, space = world.alice, world.bob, world.space
    alice.admit(space, bob.did)
    alice.write(space)
    bob.write(space)
    stolen, good = (Reader(world.a).open(bob, space) for _ in range(2))
    jti = _claims(stolen.credential)["jti"]
    nsid = SPACE + "notifyCredentialRevoked"
    for _ in range(2):
        answer = alice.service_post(world.b, nsid, bob.did, space=space, credentials=[jti])
        assert answer.status_code == 200, answer.text
    assert error(world.read(stolen, "getRepo", bob.did)) == (401, "CredentialRevoked")
    assert world.read(good, "getRepo", bob.did).status_code == 200
    assert world.read(stolen, "getRepo", alice.did).status_code == 200
    assert bob.get(SPACE + "getRepo", space=space, repo=bob.did).status_code == 200


def test_a_credential_of_one_space_opens_no_other(world: World) -> None:
    alice = world.alice
    other = alice.create("other")
    alice.write(other)
    reader = Reader(world.a).open(alice, world.space)
    answer = reader.get(SPACE + "getRepo", alice.did, space=other, repo=alice.did)
    assert error(answer) == (400, "InvalidCredential")
    assert error(reader.get(SPACE + "listRepos", world.bob.did, space=world.space)) == (
        401,
        "BadSpaceAudience",
    )


def _claims(token: str) -> dict[str, Any]:
    return jwt.parse(token).claims
