"""`lettaspace status`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, cataloged, exists, json_option, letta_option
from lettaspace.cli.lettadir import letta_directory
from lettaspace.cli.render import local_time
from lettaspace.cli.standing import remote_form, remote_lines
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space


@cataloged("status")
@letta_option
@click.option("--offline", is_flag=True, help="Ask no host.")
@json_option
@click.pass_obj
def command(app: App, letta: Path | None, offline: bool) -> None:
    """Say where the space is, whose it is, what it holds, what is not in it yet, and how it
    stands to the account's host.

    A host that cannot be reached is no error: it is said.
    """
    from lettaspace import __version__
    from lettaspace.conversation.space import STORE_FILE

    directory = letta_directory(letta)
    form: dict[str, Any] = {"version": __version__, "home": str(app.home)}
    if exists(app.home / STORE_FILE):
        with app.open() as space:
            form |= _held(space) | {"letta": _waiting(space, directory)}
            form["remote"] = remote_form(app.home, space, offline=offline)
    else:
        form |= {"exists": False, "letta": _waiting(None, directory)}
        form["remote"] = remote_form(app.home, None, offline=offline)
    if app.json:
        app.out.json(form)
        return
    for name, value in [*_lines(form), *remote_lines(form["remote"])]:
        app.out.line(f"{app.out.style(f'{name:<14}', 'bold')}{value}")


def _held(space: "Space") -> dict[str, Any]:
    conversations = space.conversations()
    rev = space.repo.rev()
    return {
        "exists": True,
        "did": space.address.author,
        "space": str(space.ref),
        "rev": rev,
        "lastWrite": _moment(rev),
        "agents": len(space.agents()),
        "conversations": len(conversations),
        "messages": sum(each.messages for each in conversations),
        "active": sum(each.active for each in conversations),
        "incomplete": sum(each.incomplete for each in conversations),
    }


def _waiting(space: "Space | None", directory: Path) -> dict[str, Any]:
    """What is in Letta's directory, and how much of it is not in the space as it is now."""
    from lettaspace.errors import NotFound
    from lettaspace.letta.directory import list_directory

    try:
        listing = list_directory(directory)
    except NotFound:
        return {"directory": str(directory), "exists": False}
    to_sync = len(listing.conversations)
    if space is not None:
        from lettaspace.letta.tracking import waiting

        to_sync = waiting(space, directory, listing)
    return {
        "directory": str(directory),
        "exists": True,
        "conversations": len(listing.conversations),
        "toSync": to_sync,
    }


def _lines(form: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("home", field(form["home"]))]
    if form["exists"]:
        counts = (
            f"{counted(form['conversations'], 'conversation')}, "
            f"{counted(form['messages'], 'message')} "
            f"({form['active']} in windows), {counted(form['agents'], 'agent')}"
        )
        lines += [
            ("identity", form["did"]),
            ("space", form["space"]),
            ("holds", counts),
            ("last written", local_time(form["lastWrite"], seconds=True)),
        ]
        if form["incomplete"]:
            lines.append(("incomplete", f"{form['incomplete']} conversations"))
    else:
        lines.append(("space", "none yet; `lettaspace up` makes one"))
    letta = form["letta"]
    lines.append(("letta", field(letta["directory"])))
    if not letta["exists"]:
        lines.append(("", "no such directory"))
    elif letta["toSync"]:
        lines.append(("", f"{letta['toSync']} of {letta['conversations']} conversations to sync"))
    else:
        lines.append(("", f"all of its {letta['conversations']} conversations are in the space"))
    return lines


def _moment(rev: str | None) -> str | None:
    """When a revision was made: it is a TID."""
    from datetime import UTC, datetime

    from lettaspace.atproto import tid

    if rev is None:
        return None
    moment = datetime.fromtimestamp(tid.decode(rev)[0] // 1_000_000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
