"""Tokens and cost over time: of everything, of an agent, of a conversation."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lettaspace.page.plot import cost_plot, tokens_plot
from lettaspace.page.usage import usage_table
from lettaspace.viewer.site import path, site

ROWS = 400
"""Lines of the table on a page; the totals count all."""


def usage(request: Request) -> Response:
    here = site(request)
    query = request.query_params
    conversation = agent = None
    about: dict[str, Any] = {"title": None, "link": None}
    if rkey := query.get("conversation"):
        info = here.conversation(rkey)
        conversation = info.uri
        about = {"title": info.title or "Untitled", "link": path("c", info.rkey)}
    elif key := query.get("agent"):
        found = here.agent(key)
        agent = found.uri
        about = {"title": found.name or found.rkey, "link": path("agents", found.rkey)}
    report = here.usage.report(conversation=conversation, agent=agent)
    table = usage_table(report)
    return here.page(
        "usage.html",
        section="usage",
        about=about,
        tokens=tokens_plot(report) if report.rows else None,
        cost=cost_plot(report) if report.rows else None,
        lines=table.lines[:ROWS],
        more=max(0, len(table.lines) - ROWS),
        total=table.total,
        notes=table.notes,
    )
