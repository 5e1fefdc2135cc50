"""The click application: global options, and commands that are imported when they run."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lettaspace.cli.catalog import COMMANDS, HELP
from lettaspace.cli.output import Output

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

DEMO = "demo"
"""The directory inside the home that holds the demo space."""


@dataclass
class App:
    """What every command is given."""

    home: Path
    json: bool = False
    """Whether the answer, errors included, is to be JSON."""
    author: str | None = None
    """The DID of the member whose records are to be read; None: our own."""
    out: Output = field(default_factory=lambda: Output(sys.stdout))

    def open(self) -> "Space":
        """The space at home, which must exist; a member's part of it, to be read, where one was
        named. Raises StoreUnavailable, or NotFound where nothing of the member is here."""
        from lettaspace.conversation.space import STORE_FILE, Space
        from lettaspace.errors import StoreUnavailable

        if not exists(self.home / STORE_FILE):
            raise StoreUnavailable(f"no space at {self.home}; `lettaspace up` makes one")
        space = Space.open(self.home, create=False)
        if self.author is None:
            return space
        try:
            return space.member(self.author)
        except BaseException:
            space.close()
            raise


class Commands(click.Group):
    """Finds a command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        # `import` is a word of Python's, so its module is `import_`.
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        module = import_module(f"lettaspace.cli.commands.{name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            # Click's own suggestion would import every command.
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"no command is called {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:  # noqa: ARG002
        return HELP


def _version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from lettaspace import __version__

        click.echo(f"lettaspace {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["--help", "-h"]})
@click.option("--home", type=click.Path(path_type=Path), envvar="LETTASPACE_HOME", metavar="DIR")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version)
@click.pass_context
def app(ctx: click.Context, home: Path | None) -> None:
    """The command line."""
    if home is None:
        import platformdirs

        home = platformdirs.user_data_path("lettaspace", appauthor=False)
    ctx.obj = App(home.expanduser())


def _json(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.find_object(App).json = True  # type: ignore[union-attr]


json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_json,
    help="Answer in JSON; errors too.",
)


def _author(ctx: click.Context, _option: click.Parameter, did: str | None) -> None:
    ctx.find_object(App).author = did  # type: ignore[union-attr]


author_option = click.option(
    "--author",
    metavar="DID",
    expose_value=False,
    callback=_author,
    help="What this member of the space wrote. Default: what you wrote.",
)

letta_option = click.option(
    "--letta",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Letta Code's storage directory. Default: Letta's own.",
)


def cataloged(name: str) -> Callable[[Callable[..., object]], click.Command]:
    """Makes a function the command of that name in the catalog."""
    return click.command(name=name, short_help=COMMANDS[name])


def exists(path: Path) -> bool:
    """Whether there is such a file. Raises StoreUnavailable where one may not even look."""
    from lettaspace.errors import StoreUnavailable

    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise StoreUnavailable(f"cannot open {path}: {reason}") from None
    return True
