"""Who may do what, cell by cell: what the protocol says, written down without looking at the code.

A cell is a method, a caller (`worlds.CALLERS`), the account whose repo is named, and a space.
Sections are those of the protocol's digest. To add methods, add a `Group` with a function that
says what is answered in each of its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.server.worlds import CALLERS, World

SPACE = "com.atproto.space."
SIMPLE = "com.atproto.simplespace."

Outcome = tuple[int, str | None]
OK: Outcome = (200, None)

SESSIONS = ("ada", "mira", "mira's app", "yuki", "eve", "noa", "gone", "still")
"""Callers who have signed in to an account of this host."""

GOOD = ("credential", "alpha credential", "revoked elsewhere")
"""Credentials that open the space `open`, or whichever they were made for."""

NO_SESSION: dict[str, Outcome] = {
    "nobody": (401, "AuthMissing"),
    "garbage": (400, "InvalidToken"),
    "basic": (400, "InvalidToken"),
    "expired session": (400, "ExpiredToken"),
    "ended session": (400, "ExpiredToken"),
    "refresh token": (400, "InvalidToken"),
    "service": (400, "InvalidToken"),
    # Sections 1 and 5: presenting a credential as Bearer fails.
    "as bearer": (400, "InvalidToken"),
}
"""Callers without any right, by what they hold instead of a session."""

NO_CREDENTIAL: dict[str, Outcome] = {
    # Section 5: all failures of the signature.
    "unsigned": (401, "BadSpaceSignature"),
    "repeated": (401, "BadSpaceSignature"),
    "stolen": (401, "BadSpaceSignature"),
    # Section 1: the alpha's own.
    "alpha, unsigned": (401, "MissingDpopProof"),
    # Section 4: structure, times, issuer and signature of the token.
    "delegation": (401, "BadJwtType"),
    "forged": (401, "BadJwtSignature"),
    "foreign issuer": (401, "BadJwtIss"),
    "expired": (401, "JwtExpired"),
    "too long": (401, "BadJwt"),
    "issued ahead": (401, "BadJwt"),
    "never issued": (401, "BadJwt"),
    "without jti": (401, "BadJwt"),
    "bound to nothing": (401, "BadJwtCnf"),
    "for no space": (401, "BadJwtSub"),
    # Section 7.
    "revoked": (401, "CredentialRevoked"),
}
"""Callers without any right, by what is wrong with their credential."""

NOT_THIS_ONE: dict[str, Outcome] = {
    # Section 5: the audience comes before the space.
    "other audience": (401, "BadSpaceAudience"),
    "other space and audience": (401, "BadSpaceAudience"),
    "other space": (400, "InvalidCredential"),
    "alpha, other space": (400, "InvalidCredential"),
}
"""Credentials that are good for something else."""

READS: dict[str, Outcome] = {
    "getRecord": (400, "RecordNotFound"),
    "listRecords": OK,
    "listRepoOps": OK,
    "getLatestCommit": (400, "RepoNotFound"),
    "getRepo": (400, "RepoNotFound"),
    "getBlob": (400, "BlobNotFound"),
    "listBlobs": OK,
}
"""Methods that read a repo, and what they answer of one that was never written (section 3)."""

WRITES = ("createRecord", "putRecord", "deleteRecord", "applyWrites")

TARGETS = (*World.NAMES, "away")


class Cell(NamedTuple):
    method: str
    caller: str
    target: str
    """Whose repo is named."""
    space: str
    expected: Outcome

    def __str__(self) -> str:
        return f"{self.method} by {self.caller} of {self.target} in {self.space}"


def cells(*groups: Group) -> Iterator[Cell]:
    """The cells of these groups. Whoever has no right at all is tried on fewer of them."""
    for group in groups:
        for method in group.methods:
            for caller in CALLERS:
                for target in TARGETS:
                    for space in group.spaces:
                        if caller in HOPELESS and (space, target) not in FEW:
                            continue
                        outcome = group.expected(method, caller, target, space)
                        nsid = method if "." in method else SPACE + method
                        yield Cell(nsid, caller, target, space, outcome)


def read(method: str, caller: str, target: str, space: str) -> Outcome:
    """Section 6: a session reads its own repo; a credential every one of its space."""
    refused = NO_SESSION | NO_CREDENTIAL
    if caller in refused:
        return refused[caller]
    if caller in SESSIONS:
        if caller.partition("'")[0] != target:
            return 400, "RepoNotFound"  # whether there is one is not told
        return _available(target) or _content(method, target)
    # "other audience" is noa's, so of noa's own repo it is the right one.
    if caller in NOT_THIS_ONE and (caller, target) != ("other audience", "noa"):
        if caller == "other space and audience" and target == "noa":
            return 400, "InvalidCredential"
        return NOT_THIS_ONE[caller]
    if target == "away":
        return 400, "RepoNotFound"
    if space == "deleted":
        # Section 8: repos of a deleted space are readable only by their owners.
        return 400, "SpaceNotFound"
    return _available(target) or _content(method, target)


def write(method: str, caller: str, target: str, space: str) -> Outcome:
    """Section 6: only a session writes, and its own repo; section 8: whatever the space is."""
    if caller not in SESSIONS:
        # A credential is none, however good it is.
        return NO_SESSION.get(caller, (400, "InvalidToken"))
    if caller == "gone":
        return 401, "AccountTakedown"
    if caller == "still":
        return 400, "RepoDeactivated"
    return OK if caller.partition("'")[0] == target else (403, "Forbidden")


def host(method: str, caller: str, target: str, space: str) -> Outcome:
    """Section 6, host methods: only a credential, made for the authority (section 5, audience),
    which here is ada; whose repo is named, `target`, is whom the request is signed for."""
    del method
    if caller in NO_CREDENTIAL:
        return NO_CREDENTIAL[caller]
    if caller in SESSIONS or caller in NO_SESSION:
        return 401, "MissingJwt"
    return _presented(caller, target) or _made(space)


def govern(method: str, caller: str, target: str, space: str) -> Outcome:
    """Section 6, simplespace: the authority's own session, and for getSpace a credential."""
    reads = method in (SIMPLE + "getSpace", SIMPLE + "listMembers")
    if method == SIMPLE + "getSpace" and caller not in SESSIONS and caller not in NO_SESSION:
        return NO_CREDENTIAL.get(caller) or _presented(caller, target) or _made(space)
    if caller not in SESSIONS:
        return NO_SESSION.get(caller, (400, "InvalidToken"))
    if caller == "gone":
        return 401, "AccountTakedown"
    if caller == "still" and not reads:
        return 400, "RepoDeactivated"
    # Of others' spaces it is not told whether they are there.
    return _made(space) if caller == "ada" else (400, "NotSpaceOwner")


def delegate(method: str, caller: str, target: str, space: str) -> Outcome:
    """Section 6: every session but an app password's (section 9), whatever the space is."""
    del method, target, space
    if caller not in SESSIONS:
        return NO_SESSION.get(caller, (400, "InvalidToken"))
    if caller == "gone":
        return 401, "AccountTakedown"
    if caller == "still":
        return 400, "RepoDeactivated"
    return (400, "InvalidToken") if caller == "mira's app" else OK


def _presented(caller: str, target: str) -> Outcome | None:
    """What is wrong with a credential at the host of ada's spaces."""
    if caller in ("alpha credential", "alpha, other space"):
        return NOT_THIS_ONE.get(caller)  # the alpha names no audience
    if target != "ada":
        return 401, "BadSpaceAudience"
    return NOT_THIS_ONE.get(caller)


def _made(space: str) -> Outcome:
    return OK if space == "open" else (400, "SpaceNotFound")


def _available(target: str) -> Outcome | None:
    """Section 8, account states."""
    if target == "gone":
        return 400, "RepoTakendown"
    if target == "still":
        return 400, "RepoDeactivated"
    return None


def _content(method: str, target: str) -> Outcome:
    return OK if target in World.WRITERS else READS[method]


HOPELESS = NO_SESSION.keys() | NO_CREDENTIAL.keys()
FEW = (("open", "mira"), ("open", "away"))


class Group(NamedTuple):
    """Methods, what is expected of each of them in a cell, and the spaces they are asked in."""

    methods: tuple[str, ...]
    expected: Callable[[str, str, str, str], Outcome]
    spaces: tuple[str, ...]


READING = Group(tuple(READS), read, ("open", "deleted", "unmade"))
WRITING = Group(WRITES, write, ("open", "deleted", "unmade"))
HOSTING = Group(
    ("listRepos", "registerNotify", "unregisterNotify"), host, ("open", "deleted", "unmade")
)
GOVERNING = Group(
    tuple(
        SIMPLE + name
        for name in ("getSpace", "listMembers", "updateSpace", "putMember", "removeMember")
    ),
    govern,
    ("open", "deleted", "unmade"),
)
DELEGATING = Group(("getDelegationToken",), delegate, ("open", "deleted", "unmade"))
