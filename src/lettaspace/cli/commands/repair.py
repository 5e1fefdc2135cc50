"""`lettaspace repair`."""

from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.progress import steps
from lettaspace.cli.text import clip, field
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.conversation.overview import ConversationInfo
    from lettaspace.conversation.space import Space


@cataloged("repair")
@click.argument("conversation", required=False)
@json_option
@click.pass_obj
def command(app: App, conversation: str | None) -> int:
    """Finish compactions that were interrupted: mark what their summaries cover, and put what
    was kept behind them. Nothing is deleted, and a window shows the same before and after.

    All conversations are looked at, unless one is named. Exit code 1 if one could not be.
    """
    results: list[dict[str, Any]] = []
    with app.open() as space, steps() as step:
        wanted = (
            space.conversations()
            if conversation is None
            else [space.conversation_info(conversation)]
        )
        for done, each in enumerate(wanted, 1):
            result = _repair(space, each)
            if result["changed"] or "problem" in result:
                results.append(result)
                if not app.json:
                    app.out.line(_line(each, result))
            step("conversations", done, len(wanted))
    failed = any("problem" in result for result in results)
    if app.json:
        app.out.json_list(results)
    elif not results:
        app.out.line("No compaction was interrupted.")
    return int(failed)


def _repair(space: "Space", item: "ConversationInfo") -> dict[str, Any]:
    from lettaspace.conversation.handle import Conversation
    from lettaspace.errors import Damaged

    result: dict[str, Any] = {"rkey": item.rkey, "uri": item.uri, "changed": 0}
    if item.recorded and item.messages:
        try:
            result["changed"] = Conversation(space, item.rkey, item.uri, item.agent).repair()
        except Damaged as error:
            result["problem"] = str(error)
    return result


def _line(item: "ConversationInfo", result: dict[str, Any]) -> str:
    what = f"changed {result['changed']} message(s)"
    if "problem" in result:
        what = f"not repaired: {inert(result['problem'])}"
    return f"{field(item.rkey)}  {what}  {field(clip(inert(item.title or '-'), 60))}"
