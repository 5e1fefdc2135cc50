"""What the commands share that talk with an account's host: who, with which space, in words."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lettaspace.cli.app import App, exists
from lettaspace.cli.progress import steps
from lettaspace.cli.text import counted, field
from lettaspace.errors import HostRefused, LettaspaceError, SignedOut, StoreUnavailable, Unreachable

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.remote.account import Account
    from lettaspace.remote.exchanging import Exchange
    from lettaspace.remote.linking import Link
    from lettaspace.space.verify import Progress

HELD = {
    "deleted": "deleted at the host, kept here",
    "invalid": "not valid at the host, kept out",
    "blob": "kept out until the host has their blobs",
    "refused": "not taken by the host, kept here",
}
"""Why records stay otherwise here than there."""

PROBLEMS = {
    "unreachable": "offline",
    "signed-out": "signed out",
    "not-a-member": "no longer a member",
    "space-deleted": "the space was deleted at its host",
    "rate-limited": "rate limited",
    "emptied": "the host has nothing of it any more",
    "refused": "refused by the host",
    "damaged": "what the host answers does not belong together",
}
"""What keeps a replica from being in sync: the words of `remote.syncing.problem` for people."""


def signed_in(app: App) -> "Account":
    """Who is signed in at the home. Raises SignedOut."""
    from lettaspace.remote.account import Account

    account = Account.load(app.home)
    if account is None:
        raise SignedOut("nobody is signed in here; `lettaspace login` does it")
    return account


def open_space(home: Path, account: "Account | None") -> "Space":
    """The space at a home, made where there is none: where nobody has written yet, the account's.
    Raises StoreUnavailable, Damaged."""
    from lettaspace.conversation.space import Space

    if account is not None:
        from lettaspace.remote.replicas import attach_empty

        with Space.open(home) as space:
            attach_empty(space.database, account.did, account.host)
    return Space.open(home)


@contextmanager
def linked(app: App, *, create: bool = True) -> Iterator[tuple["Link", "Progress"]]:
    """The home's space and its host, with progress for whoever sits before the terminal; errors
    are `explained`. Raises SignedOut where nobody is signed in, Conflict for a space that is none
    of the account's; StoreUnavailable without `create`, where there is no space."""
    from lettaspace.conversation.space import STORE_FILE

    account = signed_in(app)
    if not create and not exists(app.home / STORE_FILE):
        raise StoreUnavailable(f"no space at {app.home}; `lettaspace clone` brings one there")
    with open_space(app.home, account) as space, link_to(space, account) as both:
        yield both


@contextmanager
def link_to(space: "Space", account: "Account") -> Iterator[tuple["Link", "Progress"]]:
    """`linked`, for a space that is open."""
    from lettaspace.remote.linking import Link

    with ExitStack() as stack:
        link = stack.enter_context(Link(space, account))
        step = stack.enter_context(steps())
        try:
            yield link, step
        except LettaspaceError as error:
            raise explained(error, link.host.space) from None


def explained(error: LettaspaceError, space: str) -> LettaspaceError:
    """An error of a sync in words that say which state it is, and what to do."""
    from lettaspace.remote.syncing import problem

    match error:
        case Unreachable(sent=sent):
            text = f"offline: {error}; what is new here goes with the next sync"
            return Unreachable(text, sent=sent)
        case SignedOut():
            return SignedOut(f"signed out: {error}; `lettaspace login` does, and all is still here")
        case HostRefused():
            text = _refusal(error, space, problem(error))
            return HostRefused(
                text, status=error.status, error=error.error, retry_after=error.retry_after
            )
    return error


def _refusal(error: HostRefused, space: str, name: str) -> str:
    if name == "not-a-member":
        return (
            f"no longer a member: the host of {space} does not let this account read it "
            f"({error.error}); what is here stays"
        )
    if name == "space-deleted":
        return (
            f"space deleted: {space} is no more; what others wrote in it is removed here, "
            "what this account wrote stays"
        )
    if name == "rate-limited":
        wait = "a while" if error.retry_after is None else f"{error.retry_after:.0f} s"
        return f"rate limited: the host asks to be left alone for {wait} ({error})"
    if error.error == "SpaceNotFound":
        return f"no shared space: its host does not know {space}, so no one else writes in it"
    return str(error)


def words(done: "Exchange", host: str) -> Iterator[str]:
    """What a sync did, a line each."""
    yield from happened(done, host) if done.did_something else [f"In sync with {field(host)}"]
    yield from (f"! {line}" for line in troubles(done))


def happened(done: "Exchange", host: str) -> Iterator[str]:
    """What came and went."""
    own = done.own
    if own.created or own.updated:
        yield f"From {field(host)}: {_came(own.created, own.updated)}"
    if own.pushed:
        blobs = f", {counted(own.blobs, 'blob')}" if own.blobs else ""
        yield f"To {field(host)}: {counted(own.pushed, 'record')}{blobs}"
    for fork in own.forks:
        whose = "this machine" if fork.moved == "ours" else "the other one"
        yield (
            f"Two machines went on with {_rkey(fork.conversation)}: what {whose} wrote is in "
            f"{_rkey(fork.fork)} now"
        )
    if done.members is not None:
        for did, report in done.members.synced.items():
            if report.created or report.updated:
                yield f"From {field(did)}: {_came(report.created, report.updated)}"


def troubles(done: "Exchange") -> Iterator[str]:
    """What stays otherwise, and whose repo could not be read."""
    if done.own.held:
        yield (
            f"{counted(done.own.held, 'record')} of the host could not be taken as they are; "
            "`lettaspace status` says why"
        )
    if done.own.refused:
        yield f"{counted(done.own.refused, 'record')} not taken by the host, kept here"
    if done.kept_out:
        yield "what others wrote was not read: the host lets no app password do that"
    if done.members is not None:
        for did, name in done.members.problems.items():
            yield f"{field(did)}: {PROBLEMS[name]}; what is here of it stays"


def _came(created: int, updated: int) -> str:
    parts = [f"{created} new" if created else "", f"{updated} changed" if updated else ""]
    return f"{', '.join(filter(None, parts))} {'record' if created + updated == 1 else 'records'}"


def _rkey(uri: str) -> str:
    return uri.rpartition("/")[2]
