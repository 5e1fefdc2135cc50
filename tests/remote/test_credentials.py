"""Delegation, credential, use: each with the proof that it needs and nothing more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lettaspace.atproto.commit import Commit
from lettaspace.atproto.proof import Generation
from lettaspace.atproto.uri import parse_space_ref
from lettaspace.errors import Damaged, HostRefused, InvalidInput, Unreachable
from lettaspace.remote.credentials import SpaceCredentials
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.transport import Checked
from lettaspace.remote.xrpc import Client
from tests.remote.auths import Bearer
from tests.remote.stricthost import MEMBER, SPACE, StrictHost, elsewhere
from tests.server.hosts import Clock, serving
from tests.server.parties import NOTE, User

LIST = "com.atproto.space.listRecords"
PARAMS = {"space": SPACE, "repo": MEMBER}
BOTH = pytest.mark.parametrize("generation", ["signature", "dpop"])


class Reading:
    """A reader's own client, and what reads a member's repo with a credential."""

    def __init__(self, host: StrictHost, stack: ExitStack, first: Generation = "signature") -> None:
        def client(**more: Any) -> Client:
            origin = more.pop("origin", "https://member.example")
            more |= {"transport": host.transport, "clock": host.clock, "sleep": self.slept.append}
            return stack.enter_context(Client(origin, **more))

        self.slept: list[float] = []

        own = client(origin="https://own.example", auth=Bearer("session"))
        authority = client(origin="https://lab.example")
        self.credentials = SpaceCredentials(
            own, authority, SPACE, generation=first, clock=host.clock
        )
        self.client = client(auth=self.credentials.auth_for(MEMBER))

    def read(self) -> None:
        assert self.client.query(LIST, PARAMS) == {"records": []}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@BOTH
def test_o54_which_proof_where(generation: Generation, stack: ExitStack) -> None:
    host = StrictHost(generation, Clock())
    reading = Reading(host, stack, generation)
    for _ in range(3):
        reading.read()
    assert [nsid.rpartition(".")[2] for nsid, _ in host.proofs] == [
        "getDelegationToken",
        "getSpaceCredential",
        "listRecords",
        "listRecords",
        "listRecords",
    ]
    uses = host.asked("listRecords")
    if generation == "signature":
        assert uses[0] == uses[1] == uses[2], "the fields for one audience can be sent again"
        assert uses[0]["atproto-space-audience"] == MEMBER
    else:
        assert len({use["dpop"] for use in uses}) == 3


@BOTH
def test_o54_a_new_key_for_each_credential(generation: Generation, stack: ExitStack) -> None:
    host = StrictHost(generation, Clock())
    reading = Reading(host, stack, generation)
    for _ in range(3):
        reading.read()
        host.clock.pass_(600)
    assert len(set(host.bound)) == 3
    assert len({fields["authorization"] for fields in host.asked("getSpaceCredential")}) == 3


@BOTH
def test_o54_the_other_generation_is_tried_with_a_new_delegation(
    generation: Generation, stack: ExitStack
) -> None:
    host = StrictHost(generation, Clock())
    reading = Reading(host, stack, "dpop" if generation == "signature" else "signature")
    reading.read()
    first, second = host.asked("getSpaceCredential")
    assert first["authorization"] != second["authorization"]
    host.clock.pass_(600)
    reading.read()
    assert len(host.asked("getSpaceCredential")) == 3, "which one it is was kept"


@BOTH
def test_a_credential_is_used_until_shortly_before_it_ends(
    generation: Generation, stack: ExitStack
) -> None:
    host = StrictHost(generation, Clock())
    reading = Reading(host, stack, generation)
    reading.read()
    host.clock.pass_(569)
    reading.read()
    assert len(host.bound) == 1
    host.clock.pass_(1)
    reading.read()
    assert len(host.bound) == 2


def test_a_clock_that_is_off_does_not_shorten_a_credential(stack: ExitStack) -> None:
    """How long it lives is the difference of what its host says."""
    host = StrictHost("signature", Clock())
    ours = Clock(host.clock() + 1200)
    reading = Reading(host, stack)
    reading.credentials._clock = ours
    reading.read()
    reading.read()
    assert len(host.bound) == 1


def test_a_credential_that_lives_for_moments_is_used_all_the_same(stack: ExitStack) -> None:
    host = StrictHost("signature", Clock())
    host.lifetime = 20
    reading = Reading(host, stack)
    reading.read()
    reading.read()
    assert len(host.bound) == 1


@BOTH
@pytest.mark.parametrize("error", ["CredentialRevoked", "JwtExpired"])
def test_a_credential_that_is_over(generation: Generation, error: str, stack: ExitStack) -> None:
    host = StrictHost(generation, Clock())
    reading = Reading(host, stack, generation)
    reading.read()
    host.refuse["listRecords"] = [(401, error)]
    reading.read()
    assert len(set(host.bound)) == 2
    host.refuse["listRecords"] = [(401, error)] * 2
    with pytest.raises(HostRefused) as refused:
        reading.read()
    assert refused.value.error == error
    assert len(host.bound) == 3, "one new credential for one refused request"


@pytest.mark.parametrize(
    "error",
    ["UserNotAuthorized", "AppNotAuthorized", "NotAuthorized", "SpaceDeleted", "SpaceNotFound"],
)
def test_why_there_is_no_credential(error: str, stack: ExitStack) -> None:
    host = StrictHost("signature", Clock())
    host.refuse["getSpaceCredential"] = [(400, error)]
    reading = Reading(host, stack)
    with pytest.raises(HostRefused) as refused:
        reading.read()
    assert (refused.value.status, refused.value.error) == (400, error)
    assert len(host.proofs) == 2
    reading.read()


def test_a_refused_proof_is_not_made_up_for(stack: ExitStack) -> None:
    host = StrictHost("signature", Clock())
    reading = Reading(host, stack)
    host.refuse["listRecords"] = [(401, "BadSpaceSignature")]
    with pytest.raises(HostRefused):
        reading.read()
    assert len(host.bound) == 1


def test_an_authority_that_cannot_be_reached(stack: ExitStack) -> None:
    host = StrictHost("signature", Clock())
    host.refuse["getSpaceCredential"] = [(503, "NotEnoughResources")]
    reading = Reading(host, stack)
    with pytest.raises(Unreachable) as error:
        reading.read()
    assert not error.value.sent, "the read, that is, of the member's host"
    assert (len(host.asked("getSpaceCredential")), reading.slept) == (1, [])


@BOTH
def test_a_credential_that_is_for_something_else(generation: Generation, stack: ExitStack) -> None:
    host = StrictHost(generation, Clock())
    reading = Reading(host, stack, generation)
    ref = parse_space_ref(SPACE)
    other = elsewhere(generation, host.clock, ref)
    for token in (other, "a.b.c", "", "x" * 20_000):
        host.credential = token
        with pytest.raises(Damaged):
            reading.read()
    assert not host.asked("listRecords")
    host.credential = None
    reading.read()


def test_a_space_that_is_none(stack: ExitStack) -> None:
    host = StrictHost("signature", Clock())
    reading = Reading(host, stack)
    with pytest.raises(InvalidInput):
        SpaceCredentials(reading.client, reading.client, SPACE + "/x", clock=host.clock)


def test_threads_share_one_credential(stack: ExitStack) -> None:
    host = StrictHost("signature", Clock())
    reading = Reading(host, stack)
    barrier = threading.Barrier(6)

    def read() -> None:
        barrier.wait()
        reading.read()

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(host.bound) == 1
    assert len(host.asked("listRecords")) == 6


@BOTH
def test_a_members_repo_on_a_host_of_its_own(generation: Generation, tmp_path: Path) -> None:
    """The authority on one host of ours, the member on another, the reader at home on both."""
    clock = Clock()
    with (
        serving(tmp_path / "a.db", clock) as a,
        serving(tmp_path / "b.db", clock) as b,
        ExitStack() as stack,
    ):
        alice, bob = User(a, "alice"), User(b, "bob")
        space = alice.create()
        bob.write(space, "thank you", "reply")
        alice.write(space, "welcome", "first")

        def client(origin: str, auth: Any = None) -> Client:
            transport = Checked(development=True)
            return stack.enter_context(Client(origin, auth=auth, transport=transport, clock=clock))

        credentials = SpaceCredentials(
            client(b.host.config.origin, Bearer(bob.token)),
            client(a.host.config.origin),
            space,
            generation=generation,
            clock=clock,
        )
        theirs = client(a.host.config.origin, credentials.auth_for(alice.did))
        repo = HostRepo(theirs, space, alice.did)
        with pytest.raises(HostRefused) as refused:
            repo.latest_commit()
        assert refused.value.error == "UserNotAuthorized"
        alice.admit(space, bob.did)
        key = a.host.identity.key(alice.did, "#atproto")
        pages = list(repo.ops(None))
        (op,) = [op for page in pages for op in page.ops]
        assert (op.collection, op.rkey) == (NOTE, "first")
        assert op.value == {"$type": NOTE, "text": "welcome"}
        commit = pages[-1].commit
        assert isinstance(commit, Commit)
        assert commit.is_valid(space, alice.did, key)
        own = client(b.host.config.origin, credentials.auth_for(bob.did))
        assert [record.rkey for record in HostRepo(own, space, bob.did).list()] == ["reply"]
