"""`lettaspace usage`."""

from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, author_option, cataloged, json_option

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.conversation.usage import Totals, UsageReport

DAY, MODEL = "day", "model"


@cataloged("usage")
@click.option("--conversation", metavar="NAME", help="Only that of one conversation.")
@click.option("--agent", metavar="ID", help="Only that of the agent with this id or URI.")
@click.option("--by", type=click.Choice([DAY, MODEL]), help="Sums by one of these, not by both.")
@author_option
@json_option
@click.pass_obj
def command(app: App, conversation: str | None, agent: str | None, by: str | None) -> None:
    """Add up tokens and cost, by day (in UTC) and model.

    Each response of a provider counts once, however many messages and forks hold it. Costs are
    those that were noted with the responses, in US dollars.
    """
    with app.open() as space:
        report = _report(space, conversation, agent)
    rows = _rows(report, by)
    if app.json:
        app.out.json_object(
            {
                "total": _json(report.total),
                "rows": (place | _json(totals) for place, totals in rows),
                "copies": report.copies,
                "unreadable": report.unreadable,
            }
        )
        return
    _print(app, report, rows)


def _report(space: "Space", conversation: str | None, agent: str | None) -> "UsageReport":
    if agent is not None and not any(agent in (each.uri, each.rkey) for each in space.agents()):
        from lettaspace.errors import NotFound

        raise NotFound(f"no agent is called {agent!r}")
    uri = None if conversation is None else space.conversation(conversation).uri
    return space.usage(conversation=uri, agent=agent)


def _rows(report: "UsageReport", by: str | None) -> list[tuple[dict[str, Any], "Totals"]]:
    if by == DAY:
        return [({"day": day}, totals) for day, totals in report.by_day().items()]
    if by == MODEL:
        return [
            ({"provider": provider, "model": model}, totals)
            for (provider, model), totals in report.by_model().items()
        ]
    return [
        ({"day": row.day, "provider": row.provider, "model": row.model}, row.totals)
        for row in report.rows
    ]


def _json(totals: "Totals") -> dict[str, Any]:
    from lettaspace.conversation.jsontext import loads

    return {
        "responses": totals.responses,
        "input": totals.input,
        "output": totals.output,
        "cacheRead": totals.cache_read,
        "cacheWrite": totals.cache_write,
        "reasoning": totals.reasoning,
        "totalTokens": totals.total,
        "cost": loads(f"{totals.cost:f}"),
        "unpriced": totals.unpriced,
    }


def _print(app: App, report: "UsageReport", rows: list[tuple[dict[str, Any], "Totals"]]) -> None:
    from lettaspace.page.usage import model_name, usage_cost, usage_notes

    if not rows:
        app.out.line("No usage is known.")
    else:
        places = [
            ([place["day"]] if "day" in place else [])
            + ([model_name(place["provider"], place["model"])] if "model" in place else [])
            for place, _ in rows
        ]
        heads = [head for head in (DAY, MODEL) if head in rows[0][0]]
        total = ["total", *[""] * (len(heads) - 1)]
        app.out.table(
            [*map(str.upper, heads), "RESPONSES", "INPUT", "OUTPUT", "CACHED", "TOKENS", "COST"],
            (
                (
                    *place,
                    totals.responses,
                    totals.input,
                    totals.output,
                    totals.cache_read,
                    totals.total,
                    usage_cost(totals),
                )
                for place, totals in zip(
                    [*places, total], [*(each for _, each in rows), report.total], strict=True
                )
            ),
        )
    for note in usage_notes(report):
        app.out.line(note)
