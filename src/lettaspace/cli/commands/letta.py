"""`lettaspace letta`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, exists, json_option, letta_option
from lettaspace.cli.catalog import COMMANDS
from lettaspace.cli.lettadir import letta_directory, memory_lines, restored_lines
from lettaspace.cli.text import field

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

allow_code_option = click.option(
    "--allow-code", is_flag=True, help="Let code into agents' memories, as it comes."
)


@click.group(name="letta", short_help=COMMANDS["letta"])
def command() -> None:
    """Letta Code's directory on this machine: what differs from the space, agents and
    conversations brought there, and a conversation gone on with.
    """


def opened(app: App) -> "Space":
    """The space at the home. Raises StoreUnavailable, with a hint where somebody is signed in."""
    from lettaspace.conversation.space import STORE_FILE
    from lettaspace.errors import StoreUnavailable
    from lettaspace.remote.account import ACCOUNT_FILE

    if not exists(app.home / STORE_FILE) and exists(app.home / ACCOUNT_FILE):
        raise StoreUnavailable(f"no space at {app.home}; `lettaspace clone` brings one there")
    return app.open()


@command.command("status", short_help="Say what differs, and why.")
@letta_option
@json_option
@click.pass_obj
def status(app: App, letta: Path | None) -> None:
    """Say what of Letta's directory is not as the space has it, and why. Nothing is written.

    HERE counts messages that only the directory has, THERE those that only the space has.
    """
    from lettaspace.cli.differing import Differences

    directory = letta_directory(letta)
    with opened(app) as space:
        found = Differences.between(space, directory)
    if app.json:
        app.out.json({"directory": str(directory), **found.to_json()})
    elif found:
        found.tell(app.out)
    else:
        app.out.line(f"{field(str(directory))} and the space say the same.")


@command.command("restore", short_help="Write agents and conversations into the directory.")
@letta_option
@click.option("--agent", "agents", multiple=True, metavar="AGENT", help="Only this one's.")
@click.option("--conversation", "talks", multiple=True, metavar="CONVERSATION", help="Only this.")
@allow_code_option
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written.")
@json_option
@click.pass_obj
def restore(
    app: App,
    letta: Path | None,
    agents: tuple[str, ...],
    talks: tuple[str, ...],
    allow_code: bool,
    dry_run: bool,
) -> None:
    """Write what the space has into Letta's directory, which is made if need be.

    Everything, or the agents and conversations that are named: by key, URI, Letta's id, or a
    name that nothing else has. What Letta wrote stays; what it is at work in is left for later.
    Code in agents' memories stays out of their work trees until it is allowed.
    """
    from lettaspace.cli.naming import agent_key, conversation_key
    from lettaspace.errors import Conflict
    from lettaspace.letta.agentmemories import AgentMemories
    from lettaspace.letta.restoring import restore as restore_into

    directory = letta_directory(letta)
    with opened(app) as space:
        keys = [agent_key(space, name) for name in agents]
        tids = [conversation_key(space, name) for name in talks]
        named = bool(keys or tids)
        memories = AgentMemories(space, directory, allow_code=allow_code, store=False)
        report = restore_into(
            space,
            directory,
            agents=keys if named else None,
            conversations=tids if named else None,
            memory=memories,
            dry_run=dry_run,
        )
    if app.json:
        form: dict[str, Any] = {"directory": str(directory), "dryRun": dry_run}
        form |= report.to_json()
        app.out.json({**form, "memories": [each.to_json() for each in memories.changes]})
    else:
        lines = [
            *restored_lines(report, directory, dry_run=dry_run),
            *(line for each in memories.changes for line in memory_lines(each)),
        ]
        for line in lines or [f"{field(str(directory))} has all of it."]:
            app.out.line(line)
    troubles = [line for each in memories.changes if not each.ok for line in memory_lines(each)]
    if troubles:
        raise Conflict(troubles[0])


@command.command("resume", short_help="Go on with a conversation on this machine.")
@click.argument("conversation")
@letta_option
@click.option(
    "--cwd",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where Letta is to work. Default: where this command runs.",
)
@click.option("--pin", is_flag=True, help="Have `letta` go on with it by itself there.")
@click.option("--run", "run_it", is_flag=True, help="Start Letta, instead of saying how.")
@click.option("--no-host", is_flag=True, help="Leave the account's host alone.")
@allow_code_option
@json_option
@click.pass_obj
def resume(
    app: App,
    conversation: str,
    letta: Path | None,
    cwd: Path | None,
    pin: bool,
    run_it: bool,
    no_host: bool,
    allow_code: bool,
) -> None:
    """Bring a conversation to this machine, with its agent and memory, and say how Letta goes on
    with it.

    CONVERSATION is its TID, URI, Letta id, title, or the beginning of an id. Where somebody is
    signed in, what other machines wrote is fetched first.
    """
    from lettaspace.cli.resuming import Resuming, hosts_news

    if run_it and app.json:
        raise click.UsageError("--run goes without --json")
    directory = letta_directory(letta)
    with opened(app) as space:
        if not no_host:
            hosts_news(app, space)
        resuming = Resuming(space, directory, (cwd or Path.cwd()).absolute())
        resuming.bring(conversation, allow_code=allow_code)
        if pin:
            resuming.pin()
    if run_it:
        for line in resuming.remarks():
            click.echo(line, err=True)
        resuming.run()
    if app.json:
        app.out.json(resuming.to_json())
        return
    for line in resuming.remarks():
        app.out.line(line)
    app.out.line(resuming.shell())


@command.group("hook", short_help="Have a finished turn synced at once.")
def hook() -> None:
    """Letta tells of each turn that it has finished, and it is synced at once. What follows the
    directory (`sync --watch`, `up`) does without.
    """


@hook.command("install", short_help="Put the mod into Letta's mods.")
@letta_option
@json_option
@click.pass_obj
def install(app: App, letta: Path | None) -> None:
    """Put a mod into ~/.letta/mods that starts a sync in the background whenever Letta has
    finished a turn. Letta waits for nothing, and goes on where that fails.
    """
    from lettaspace.cli.hook import command as command_line
    from lettaspace.letta import hooks

    mods = hooks.mods_directory()
    written = hooks.install(mods, command_line(app.home, letta))
    if app.json:
        app.out.json({"mod": str(mods / hooks.NAME), "installed": True, "changed": written})
    else:
        what = "Wrote" if written else "Nothing to do: there is"
        app.out.line(f"{what} {field(str(mods / hooks.NAME))}")


@hook.command("uninstall", short_help="Take the mod away.")
@json_option
@click.pass_obj
def uninstall(app: App) -> None:
    """Take the mod away that `install` put there."""
    from lettaspace.letta import hooks

    mods = hooks.mods_directory()
    removed = hooks.uninstall(mods)
    if app.json:
        app.out.json({"mod": str(mods / hooks.NAME), "installed": False, "changed": removed})
    else:
        app.out.line(f"Removed {field(str(mods / hooks.NAME))}" if removed else "There is none.")


@hook.command("status", short_help="Say whether it is there.")
@json_option
@click.pass_obj
def hook_status(app: App) -> None:
    """Say whether the mod is there."""
    from lettaspace.letta import hooks

    mods = hooks.mods_directory()
    there = hooks.is_installed(mods)
    if app.json:
        app.out.json({"mod": str(mods / hooks.NAME), "installed": there})
    else:
        app.out.line(f"{field(str(mods / hooks.NAME))}: {'there' if there else 'not there'}")


@hook.command("run", hidden=True)
@letta_option
@click.pass_obj
def run(app: App, letta: Path | None) -> None:
    """What the mod starts."""
    from lettaspace.cli import hook as running

    running.run(app.home, [] if letta is None else ["--letta", str(letta)])
