"""`lettaspace adopt`."""

from typing import TYPE_CHECKING

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.progress import steps
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lettaspace.remote.adopting import Adoption


@cataloged("adopt")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would happen.")
@click.option("--no-backup", is_flag=True, help="Make no copy of the store before.")
@json_option
@click.pass_obj
def command(app: App, dry_run: bool, no_backup: bool) -> None:
    """Move what this home has written into the account that is signed in, once.

    Every conversation, message and prompt stays, under its own key; what they refer to each other
    by begins with the account's DID from then on. Nothing goes to the host yet. All of it
    happens or nothing does, and a copy of the store is made before.
    """
    from lettaspace.errors import SignedOut
    from lettaspace.remote.account import Account
    from lettaspace.remote.adopting import adopt

    account = Account.load(app.home)
    if account is None:
        raise SignedOut("nobody is signed in here; `lettaspace login` does that")
    with app.open() as space, steps() as step:
        result = adopt(
            space,
            account.did,
            account.host,
            dry_run=dry_run,
            backup=not no_backup,
            progress=step,
        )
    if app.json:
        app.out.json(result.to_json())
        return
    name = account.did if account.handle is None else f"{account.handle} ({account.did})"
    if result.already:
        app.out.line(f"Everything here is {field(name)}'s already.")
        return
    app.out.line(f"{'Would move' if dry_run else 'Moved'} {_held(result)}")
    app.out.line(f"  from  {field(result.old)}")
    app.out.line(f"  to    {field(result.new)}")
    if result.known:
        app.out.line(f"{counted(result.known, 'record')} of these were there already.")
    if result.backup is not None:
        app.out.line(f"The store as it was is in {field(str(result.backup))}")


def _held(result: "Adoption") -> str:
    *most, last = _counts(result.records)
    return f"{', '.join(most)} and {last}"


def _counts(records: "Mapping[str, int]") -> "Iterator[str]":
    from lettaspace.conversation.records import AGENT, COMPILED_PROMPT, CONVERSATION, MESSAGE

    left = dict(records)
    for collection, thing in (
        (AGENT, "agent"),
        (CONVERSATION, "conversation"),
        (MESSAGE, "message"),
        (COMPILED_PROMPT, "prompt"),
    ):
        yield counted(left.pop(collection, 0), thing)
    yield counted(sum(left.values()), "other record")
