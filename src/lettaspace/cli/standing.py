"""How a home stands to its account's host, as `status` says it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.cli.remote import HELD, PROBLEMS
from lettaspace.cli.render import local_time
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.remote.account import Account
    from lettaspace.remote.replicas import Replica
    from lettaspace.remote.standing import Standing

PATIENCE = 5.0
"""Seconds that the host has for an answer."""

HINTS = {
    "unreachable": "all is here, and goes there with the next sync",
    "signed-out": "`lettaspace login` signs in again; all is still here",
    "not-a-member": "what is here of the others stays",
    "space-deleted": "what this account wrote is still here",
    "emptied": "`lettaspace push --again` gives it all back",
    "refused": "`lettaspace sync` says how",
    "damaged": "`lettaspace sync` says how",
}
"""What a problem means, and what to do about it."""

STATES = {
    "empty": "nothing is here yet: `lettaspace clone` brings it, or `lettaspace sync` begins",
    "not-adopted": "the space is not the account's yet: `lettaspace adopt` moves it there",
    "another-account": "the space is another account's than the one that is signed in",
    "never-synced": "not synced yet: `lettaspace sync` does it",
    "in-sync": "in sync",
    "waiting": "in sync, but for what is named here",
}
"""What there is to say beside problems, and counts."""


def remote_form(home: Path, space: "Space | None", *, offline: bool) -> dict[str, Any] | None:
    """The state in JSON; None where nobody is signed in and the space is no account's. Raises
    Damaged for an account that cannot be read."""
    from lettaspace.remote.account import Account

    account = Account.load(home)
    replica, members = _replicas(space)
    if account is None and replica is None:
        return None
    standing = None
    if space is None or replica is None:
        state = "empty" if space is None or _is_empty(space) else "not-adopted"
    else:
        mine = account if account is not None and account.did == replica.author else None
        standing = _standing(space, replica, mine, offline=offline)
        state = "another-account" if account is not None and mine is None else _state(standing)
    return {
        "did": replica.author if replica is not None else account and account.did,
        "handle": account and account.handle,
        "host": replica.host if replica is not None else account and account.host,
        "signedIn": account is not None,
        "state": state,
        "ahead": standing and standing.ahead,
        "behind": standing and standing.behind,
        "lastSynced": standing and _time(standing.synced_at),
        "problem": standing and standing.problem,
        "since": standing and _time(standing.problem_since),
        "until": standing and _time(standing.until),
        "held": standing.held if standing is not None else {},
        "diverged": _diverged(space, standing),
        "members": [
            {
                "did": each.author,
                "host": each.host,
                "lastSynced": _time(each.synced_at),
                "problem": each.problem,
                "since": _time(each.problem_since),
            }
            for each in members
        ],
    }


def remote_lines(form: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """The same for people: names and what is to stand beside them."""
    if form is None:
        yield "host", "none: nobody is signed in"
        return
    name = f"{field(form['handle'])}, " if form["handle"] else ""
    yield "account", f"{name}{form['did']}"
    first, *more = _sentences(form)
    yield "host", f"{field(form['host'])}: {first}"
    for line in more:
        yield "", line


def _sentences(form: dict[str, Any]) -> Iterator[str]:
    problem = form["problem"]
    ahead, behind = form["ahead"] or 0, form["behind"] or 0
    if problem is not None:
        since = f" since {local_time(form['since'])}" if form["since"] else ""
        until = f", until {local_time(form['until'], seconds=True)}" if form["until"] else ""
        hint = f"; {HINTS[problem]}" if problem in HINTS else ""
        yield f"{PROBLEMS[problem]}{since}{until}{hint}"
    elif form["state"] in STATES:
        yield STATES[form["state"]]
    if ahead:
        yield f"ahead by {counted(ahead, 'record')}, which the host has not yet"
    if behind:
        more = " or more" if behind >= _look() else ""
        yield f"behind by {counted(behind, 'record')}{more}, which are not here yet"
    if form["lastSynced"]:
        asked = "" if form["behind"] is not None or problem else "; the host was not asked"
        yield f"last synced {local_time(form['lastSynced'], seconds=True)}{asked}"
    for reason, count in form["held"].items():
        yield f"waiting: {counted(count, 'record')} {HELD[reason]}"
    for each in form["diverged"]:
        title = field(each["title"] or "-", 60)
        yield f"diverged: {each['conversation']}  {title}"
    for each in form["members"]:
        said = f"last synced {local_time(each['lastSynced'])}" if each["lastSynced"] else "not read"
        if each["problem"]:
            since = f" since {local_time(each['since'])}" if each["since"] else ""
            said = f"{PROBLEMS[each['problem']]}{since}; what is here stays"
        yield f"member {field(each['did'])}: {said}"


def _replicas(space: "Space | None") -> "tuple[Replica | None, list[Replica]]":
    if space is None:
        return None, []
    from lettaspace.remote import replicas

    with space.database.read() as connection:
        return replicas.own(connection), replicas.members(connection)


def _is_empty(space: "Space") -> bool:
    from lettaspace.remote import replicas

    with space.database.read() as connection:
        return not replicas.has_local_records(connection)


def _standing(
    space: "Space", replica: "Replica", account: "Account | None", *, offline: bool
) -> "Standing | None":
    from lettaspace.remote.hostrepo import HostRepo
    from lettaspace.remote.standing import standing

    is_kept = account is not None and account.session().state() == "kept"
    if account is None or not is_kept or offline:
        found = standing(space)
        if found is not None and not is_kept and found.problem != "signed-out":
            found.problem, found.problem_since = "signed-out", None
        return found
    with account.client(timeout=PATIENCE, patience=PATIENCE, tries=1) as client:
        return standing(space, HostRepo(client, replica.space, replica.author))


def _state(standing: "Standing | None") -> str:
    if standing is not None and standing.problem is not None:
        return standing.problem
    if standing is None or standing.synced_at is None:
        return "never-synced"
    if standing.ahead and standing.behind:
        return "apart"
    if standing.ahead or standing.behind:
        return "ahead" if standing.ahead else "behind"
    return "waiting" if standing.held else "in-sync"


def _diverged(space: "Space | None", standing: "Standing | None") -> list[dict[str, Any]]:
    if space is None or standing is None or not standing.diverged:
        return []
    titles = {each.rkey: each.title for each in space.conversations()}
    return [{"conversation": rkey, "title": titles.get(rkey)} for rkey in standing.diverged]


def _look() -> int:
    from lettaspace.remote.standing import LOOK

    return LOOK


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
