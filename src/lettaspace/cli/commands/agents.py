"""`lettaspace agents`."""

import click

from lettaspace.cli import jsonform
from lettaspace.cli.app import App, author_option, cataloged, json_option
from lettaspace.cli.text import clip
from lettaspace.page.inert import inert


@cataloged("agents")
@author_option
@json_option
@click.pass_obj
def command(app: App) -> None:
    """List the agents of the space by name, with the counts of their conversations."""
    with app.open() as space:
        agents = space.agents()
    if app.json:
        app.out.json_list(map(jsonform.agent, agents))
        return
    if not agents:
        app.out.line("No agents. `lettaspace sync` brings Letta Code's directory in.")
        return
    app.out.table(
        ["AGENT", "NAME", "CONVERSATIONS", "MESSAGES", "DESCRIPTION"],
        (
            (
                agent.rkey,
                clip(inert(agent.name or "-"), 24),
                agent.conversations,
                agent.messages,
                _about(agent.description, agent.hidden, agent.recorded),
            )
            for agent in agents
        ),
    )


def _about(description: str | None, hidden: bool, recorded: bool) -> str:
    marks = ["[hidden]"] if hidden else []
    if not recorded:
        marks.append("[no record of it]")
    return " ".join([*marks, description or ""])
