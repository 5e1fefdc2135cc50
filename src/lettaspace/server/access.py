"""Who may do what: the one place that compares a caller with what is asked.

A session reads and writes its own account's repos. A credential reads every repo of its space
that is here. Whoever asks with a session for another's repo is not told whether there is one.
Source: protocol, sections 5 (audience), 6, 8 (account states) and 11.
"""

from typing import Final

from sqlalchemy import bindparam, select

from lettaspace.atproto.admission import Access
from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from lettaspace.server.accounts import State
from lettaspace.server.callers import Caller
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.sessions import Session
from lettaspace.server.tables import accounts, spaces
from lettaspace.space.statement import Statement

MAX_SPACE: Final = 1500
"""Characters of a space reference that is written to: databases limit what they index."""

_target = Statement(
    lambda: select(
        accounts.c.state,
        select(spaces.c.deleted_at).where(spaces.c.uri == bindparam("space")).scalar_subquery(),
    ).where(accounts.c.did == bindparam("did"))
)


def read(host: Host, caller: Caller, space: str, did: str) -> None:
    """Raises unless the caller may read the repo of the account `did` in the space.

    BadSpaceAudience, InvalidCredential, RepoNotFound, SpaceNotFound (deleted, for others than
    the repo's account), RepoTakendown, RepoDeactivated. The repo may never have been written.
    """
    if isinstance(caller, Session):
        if caller.did != did:
            raise XrpcError("RepoNotFound", "no such repo")
        _require_available(caller.account.state)
        return
    caller.check(space, did)
    with host.database.read() as connection:
        row = _target.one(connection, space=space, did=did)
    if row is None:
        raise XrpcError("RepoNotFound", "no such repo")
    state, deleted_at = row
    if deleted_at is not None:
        raise XrpcError("SpaceNotFound", "this space was deleted")
    _require_available(state)


def write(caller: Session, space: str, did: str) -> None:
    """Raises unless the caller, who has passed `callers.writer`, may write the repo: Forbidden
    for another's. Whether the space is there does not matter (protocol, section 8)."""
    if caller.did != did:
        raise XrpcError("Forbidden", "this is another account's repo")
    if len(space) > MAX_SPACE:
        raise XrpcError("InvalidSpaceUri", f"a space's URI has at most {MAX_SPACE} characters")


def open_space(caller: Access, space: str) -> SpaceRef:
    """The space, if the credential opens it at its host: its audience is the bare authority.

    Raises BadSpaceAudience, InvalidCredential. Whether there is such a space is not looked at.
    """
    ref = parse_space_ref(space)
    caller.check(space, ref.authority)
    return ref


def govern(caller: Session, space: str) -> SpaceRef:
    """The space, if it is the caller's own. Raises NotSpaceOwner."""
    ref = parse_space_ref(space)
    if ref.authority != caller.did:
        raise XrpcError("NotSpaceOwner", "this space has another authority")
    return ref


def _require_available(state: State) -> None:
    if state == "takendown":
        raise XrpcError("RepoTakendown", "this repo has been taken down")
    if state != "active":
        raise XrpcError("RepoDeactivated", "this account is deactivated")
