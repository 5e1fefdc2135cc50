"""`lettaspace conversations`."""

from typing import TYPE_CHECKING

import click

from lettaspace.cli import jsonform
from lettaspace.cli.app import App, author_option, cataloged, json_option
from lettaspace.cli.render import local_time
from lettaspace.cli.text import clip
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.conversation.overview import ConversationInfo


@cataloged("conversations")
@click.option("--agent", metavar="ID", help="Only those of the agent with this id or URI.")
@author_option
@json_option
@click.pass_obj
def command(app: App, agent: str | None) -> None:
    """List all conversations, the most recently used first.

    MESSAGES counts what is kept, WINDOW what the model sees. Archived and hidden conversations
    are listed, and marked.
    """
    with app.open() as space:
        conversations = space.conversations(agent=agent)
        agents = {each.uri: each for each in space.agents()}
    if agent is not None and not conversations:
        from lettaspace.errors import NotFound

        if not any(agent in (each.uri, each.rkey) for each in agents.values()):
            raise NotFound(f"no agent is called {agent!r}")
    if app.json:
        app.out.json_list(map(jsonform.conversation, conversations))
        return
    if not conversations:
        app.out.line("No conversations. `lettaspace sync` brings Letta Code's directory in.")
        return
    names = {uri: each.name for uri, each in agents.items()}
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
