"""`lettaspace conversations`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lettaspace.cli import jsonform
from lettaspace.cli.app import App, author_option, cataloged, json_option
from lettaspace.cli.render import local_time
from lettaspace.cli.text import clip, counted, field
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.conversation.overview import ConversationInfo


@cataloged("conversations")
@click.option("--agent", metavar="ID", help="Only those of the agent with this id or URI.")
@click.option("--project", metavar="DIR", help="Only those that were held in this directory.")
@click.option("--by-project", is_flag=True, help="Grouped by the directory they were held in.")
@author_option
@json_option
@click.pass_obj
def command(app: App, agent: str | None, project: str | None, by_project: bool) -> None:
    """List all conversations, the most recently used first.

    MESSAGES counts what is kept, WINDOW what the model sees. Archived and hidden conversations
    are listed, and marked. A directory of Windows is one whatever its slashes and letter case.
    """
    from lettaspace.conversation.projects import by_project as grouped

    with app.open() as space:
        conversations = space.conversations(agent=agent)
        agents = {each.uri: each for each in space.agents()}
    if agent is not None and not conversations:
        from lettaspace.errors import NotFound

        if not any(agent in (each.uri, each.rkey) for each in agents.values()):
            raise NotFound(f"no agent is called {agent!r}")
    if project is not None:
        conversations = _held_in(project, conversations)
    if app.json:
        if by_project:
            app.out.json_list(map(jsonform.project, grouped(conversations)))
        else:
            app.out.json_list(map(jsonform.conversation, conversations))
        return
    if not conversations:
        app.out.line("No conversations. `lettaspace sync` brings Letta Code's directory in.")
        return
    names = {uri: each.name for uri, each in agents.items()}
    if not by_project:
        _table(app, conversations, names)
        return
    for number, each in enumerate(grouped(conversations)):
        if number:
            app.out.line()
        where = field(each.directory) if each.directory else "no directory is known"
        app.out.line(f"{where}: {counted(len(each.conversations), 'conversation')}")
        _table(app, each.conversations, names)


def _held_in(project: str, conversations: "Iterable[ConversationInfo]") -> "list[ConversationInfo]":
    """Those that were held in a directory, which need not be on this machine. Raises NotFound
    where there is none."""
    from lettaspace.conversation.projects import same
    from lettaspace.errors import NotFound

    wanted = {same(project), same(str(Path(project).expanduser().absolute()))}
    found = [each for each in conversations if each.cwd and same(each.cwd) in wanted]
    if not found:
        raise NotFound(f"no conversation was held in {project!r}")
    return found


def _table(
    app: App, conversations: "Iterable[ConversationInfo]", names: Mapping[str, str | None]
) -> None:
    app.out.table(
        ["CONVERSATION", "UPDATED", "MESSAGES", "WINDOW", "AGENT", "TITLE"],
        (
            (
                each.rkey,
                local_time(each.updated_at),
                each.messages,
                each.active,
                clip(inert(names.get(each.agent) or each.agent.rpartition("/")[2] or "-"), 24),
                _title(each),
            )
            for each in conversations
        ),
    )


def marks(conversation: "ConversationInfo") -> list[str]:
    """What is special about a conversation, in a word each."""
    given = {
        "archived": conversation.archived,
        "hidden": conversation.hidden,
        "fork": conversation.forked_from is not None,
        "diverged": conversation.diverged,
        "incomplete": conversation.incomplete,
        "no record of it": not conversation.recorded,
    }
    return [mark for mark, present in given.items() if present]


def _title(conversation: "ConversationInfo") -> str:
    prefix = "".join(f"[{mark}] " for mark in marks(conversation))
    return prefix + (conversation.title or "-")
