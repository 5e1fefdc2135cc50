"""`lettaspace up`."""

import contextlib
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import DEMO, App, cataloged, exists, json_option, letta_option
from lettaspace.cli.lettadir import (
    Brought,
    bring_in,
    goes_both_ways,
    letta_directory,
    summarise,
)
from lettaspace.cli.remote import happened, open_space
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.remote.account import Account

PORT = 7430
"""As `viewer.server.PORT`, which would take long to import."""

LETTA = "letta"
"""The directory inside the demo's home that stands for Letta's own."""


@dataclass(frozen=True, slots=True)
class _Target:
    home: Path
    directory: Path | None
    """Letta's, or the one that stands for it; None where the space is an account's and Letta
    was never here."""
    demo: bool


@cataloged("up")
@letta_option
@click.option("--once", is_flag=True, help="Only bring in what is new; serve nothing.")
@click.option("--watch/--no-watch", default=True, help="Follow Letta's directory. Default: yes.")
@click.option("--read-only", is_flag=True, help="Write nothing into Letta's directory.")
@click.option("--no-host", is_flag=True, help="Leave the account's host alone.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help=f"Default: {PORT}.")
@click.option(
    "--host", default="127.0.0.1", metavar="ADDRESS", help="Address to serve on. Default: loopback."
)
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="A name that browsers reach it by."
)
@click.option("--no-redact", is_flag=True, help="Show secrets on other machines, too.")
@click.option("--open", "browser", is_flag=True, help="Open the page in a browser.")
@json_option
@click.pass_obj
def command(
    app: App,
    letta: Path | None,
    once: bool,
    watch: bool,
    read_only: bool,
    no_host: bool,
    port: int | None,
    host: str,
    names: tuple[str, ...],
    no_redact: bool,
    browser: bool,
) -> None:
    """Bring Letta Code's directory in, then follow it and serve the viewer until stopped.

    The viewer is served on this machine alone. Its address holds a random token; who opens it
    once may look on in that browser. On any other --host, secrets in the messages are redacted.

    Where somebody is signed in the space is kept in sync with the account's host meanwhile, and
    what comes from there is written into Letta's directory, too.

    Where there is no Letta directory, a small demo space is made beside your own: in the
    directory `demo` of the home. Your own space is left alone. One that is an account's is
    served as it is.
    """
    from lettaspace.remote.account import Account

    target = _target(app, letta)
    with contextlib.ExitStack() as stack:
        if not once:
            from lettaspace.cli.following import complain, followed, mention, pulled
            from lettaspace.cli.serving import Serving

            # Before the import, so that an address that cannot be had is said at once.
            serving = Serving(host, port, names, redact=not no_redact)
            stack.callback(serving.close)
        account = Account.load(target.home)
        space = stack.enter_context(open_space(target.home, account))
        directory = target.directory
        both_ways = not read_only and goes_both_ways(space, account)
        if both_ways and account is not None and not (once or no_host or directory is None):
            done = pulled(space, account)
            for line in () if done is None else happened(done, account.host):
                mention(line)
        brought = None if directory is None else bring_in(space, directory)
        conversations = space.conversations()
        held = {
            "agents": len(space.agents()),
            "conversations": len(conversations),
            "messages": sum(each.messages for each in conversations),
        }
        first = next((each.rkey for each in conversations if each.messages), None)
        if app.json:
            form = {
                "demo": target.demo,
                "home": str(target.home),
                **held,
                "sync": brought and {"directory": str(directory), **brought.imported.to_json()},
            }
            app.out.json(form if once else {**form, "url": serving.url})
        else:
            _tell(app, target, brought, held)
            if once:
                _say_what_next(app, target, first)
        if not once:
            watched = directory if watch else None
            said = [str(watched)] if watched is not None else []
            other = _hosts(space, None if no_host else account)
            if other is not None:
                said.append(other.host)
            beside = followed(
                space, watched, other, both_ways=both_ways, say=mention, complain=complain
            )
            if not app.json:
                serving.announce(app.out, said)
            sys.stdout.flush()
            serving.run(space, directory, [beside], browser=browser)


def _hosts(space: "Space", account: "Account | None") -> "Account | None":
    """The account whose host is followed: none where the space is not its own, which is said."""
    if account is not None and not goes_both_ways(space, account):
        from lettaspace.cli.following import complain
        from lettaspace.errors import Conflict
        from lettaspace.remote.linking import Link

        try:
            Link(space, account).close()
        except Conflict as error:
            complain(str(error))
            return None
    return account


def _target(app: App, letta: Path | None) -> _Target:
    from lettaspace.letta.directory import list_directory

    directory = letta_directory(letta)
    if letta is not None or directory.exists():
        list_directory(directory)
        return _Target(app.home, directory, demo=False)
    if _is_an_accounts(app.home):
        return _Target(app.home, None, demo=False)
    from lettaspace.demo import write_directory
    from lettaspace.errors import StoreUnavailable

    home = app.home / DEMO
    try:
        write_directory(home / LETTA)
    except OSError as error:
        raise StoreUnavailable(f"cannot write to {home}: {error.strerror or error}") from None
    return _Target(home, home / LETTA, demo=True)


def _is_an_accounts(home: Path) -> bool:
    """Whether somebody is signed in at a home, or its space is an account's all the same."""
    from lettaspace.conversation.space import STORE_FILE
    from lettaspace.remote.account import ACCOUNT_FILE

    if exists(home / ACCOUNT_FILE):
        return True
    if not exists(home / STORE_FILE):
        return False
    from lettaspace.remote import replicas
    from lettaspace.space.database import Database

    with Database.open(home / STORE_FILE, create=False) as store, store.read() as connection:
        return replicas.own(connection) is not None


def _tell(app: App, target: _Target, brought: Brought | None, held: dict[str, Any]) -> None:
    out = app.out
    if target.demo:
        out.line(f"There is no Letta Code directory at {field(str(letta_directory(None)))}.")
        out.line("This is a demo space with invented content; your own space was not touched.")
        out.line()
    if brought is not None and target.directory is not None:
        summarise(brought, target.directory, out)
        out.line()
    out.line(
        f"The space at {field(str(target.home))} holds "
        f"{counted(held['conversations'], 'conversation')} "
        f"with {counted(held['messages'], 'message')}, and {counted(held['agents'], 'agent')}."
    )


def _say_what_next(app: App, target: _Target, first: str | None) -> None:
    out, name = app.out, _own_name()
    out.line()
    reading = f"{name} --home {field(shlex.quote(str(target.home)))}" if target.demo else name
    out.line("Next:")
    out.line(f"  {reading} conversations")
    if first is not None:
        out.line(f"  {reading} show {first}")
    if target.demo:
        out.line(f"  {reading} search celadon")
        out.line(f"  {name} up --letta DIR   with a directory of your own")
    else:
        out.line(f"  {reading} search TEXT")
        out.line(f"  {name} up   follows the directory, and shows it all in a browser")


def _own_name() -> str:
    """What to type to run this program again."""
    started = Path(sys.argv[0])
    if started.name != "lettaspace":
        return "lettaspace"
    found = shutil.which("lettaspace")
    if found is not None and Path(found).resolve() == started.resolve():
        return "lettaspace"
    return field(shlex.quote(sys.argv[0]))
