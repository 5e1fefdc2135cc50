"""`lettaspace up`."""

import contextlib
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import DEMO, App, cataloged, json_option, letta_option
from lettaspace.cli.commands.sync import bring_in, letta_directory, summarise
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.letta.report import Report

PORT = 7430
"""As `viewer.server.PORT`, which would take long to import."""

LETTA = "letta"
"""The directory inside the demo's home that stands for Letta's own."""


@dataclass(frozen=True, slots=True)
class _Target:
    home: Path
    directory: Path
    demo: bool


@cataloged("up")
@letta_option
@click.option("--once", is_flag=True, help="Only bring in what is new; serve nothing.")
@click.option("--watch/--no-watch", default=True, help="Follow Letta's directory. Default: yes.")
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
    port: int | None,
    host: str,
    names: tuple[str, ...],
    no_redact: bool,
    browser: bool,
) -> None:
    """Bring Letta Code's directory in, then follow it and serve the viewer until stopped.

    The viewer is served on this machine alone. Its address holds a random token; who opens it
    once may look on in that browser. On any other --host, secrets in the messages are redacted.

    Where there is no Letta directory, a small demo space is made beside your own: in the
    directory `demo` of the home. Your own space is left alone.
    """
    from lettaspace.conversation.space import Space

    target = _target(app, letta)
    with contextlib.ExitStack() as stack:
        if not once:
            from lettaspace.cli.serving import Serving

            # Before the import, so that an address that cannot be had is said at once.
            serving = Serving(host, port, names, redact=not no_redact)
            stack.callback(serving.close)
        space = stack.enter_context(Space.open(target.home))
        report = bring_in(space, target.directory)
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
                "sync": {"directory": str(target.directory), **report.to_json()},
            }
            app.out.json(form if once else {**form, "url": serving.url})
        else:
            _tell(app, target, report, held)
            if once:
                _say_what_next(app, target, first)
            else:
                serving.announce(app.out, watched=target.directory if watch else None)
        sys.stdout.flush()
        if not once:
            serving.run(space, target.directory, watch=watch, browser=browser)


def _target(app: App, letta: Path | None) -> _Target:
    from lettaspace.letta.directory import list_directory

    directory = letta_directory(letta)
    if letta is not None or directory.exists():
        list_directory(directory)
        return _Target(app.home, directory, demo=False)
    from lettaspace.demo import write_directory
    from lettaspace.errors import StoreUnavailable

    home = app.home / DEMO
    try:
        write_directory(home / LETTA)
    except OSError as error:
        raise StoreUnavailable(f"cannot write to {home}: {error.strerror or error}") from None
    return _Target(home, home / LETTA, demo=True)


def _tell(app: App, target: _Target, report: "Report", held: dict[str, Any]) -> None:
    out = app.out
    if target.demo:
        out.line(f"There is no Letta Code directory at {field(str(letta_directory(None)))}.")
        out.line("This is a demo space with invented content; your own space was not touched.")
        out.line()
    summarise(report, target.directory, out)
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
