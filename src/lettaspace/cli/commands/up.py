"""`lettaspace up`."""

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

LETTA = "letta"
"""The directory inside the demo's home that stands for Letta's own."""


@dataclass(frozen=True, slots=True)
class _Target:
    home: Path
    directory: Path
    demo: bool


@cataloged("up")
@letta_option
@json_option
@click.pass_obj
def command(app: App, letta: Path | None) -> None:
    """Bring Letta Code's directory in, say what is in the space, and what to do next.

    Where there is no such directory, a small demo space is made beside your own: in the
    directory `demo` of the home. Your own space is left alone.
    """
    from lettaspace.conversation.space import Space

    target = _target(app, letta)
    with Space.open(target.home) as space:
        report = bring_in(space, target.directory)
        conversations = space.conversations()
        held = {
            "agents": len(space.agents()),
            "conversations": len(conversations),
            "messages": sum(each.messages for each in conversations),
        }
    first = next((each.rkey for each in conversations if each.messages), None)
    if app.json:
        app.out.json(
            {
                "demo": target.demo,
                "home": str(target.home),
                **held,
                "sync": {"directory": str(target.directory), **report.to_json()},
            }
        )
        return
    _tell(app, target, report, held, first)


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


def _tell(
    app: App, target: _Target, report: "Report", held: dict[str, Any], first: str | None
) -> None:
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
    out.line()
    name = _own_name()
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
        out.line(f"  {reading} up   again, whenever you like: only what is new is read")


def _own_name() -> str:
    """What to type to run this program again."""
    started = Path(sys.argv[0])
    if started.name != "lettaspace":
        return "lettaspace"
    found = shutil.which("lettaspace")
    if found is not None and Path(found).resolve() == started.resolve():
        return "lettaspace"
    return field(shlex.quote(sys.argv[0]))
