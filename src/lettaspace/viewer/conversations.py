"""Lists: conversations, agents, one agent's conversations."""

from starlette.requests import Request
from starlette.responses import Response

from lettaspace.viewer.site import numbered, site

SIZE = 50
"""Conversations on a page."""


def conversations(request: Request) -> Response:
    here = site(request)
    version = here.version
    listing = here.listing
    start, address = numbered(request, listing.conversations(limit=0)[1], SIZE)
    items, _ = listing.conversations(start=start, limit=SIZE)
    return here.page(
        "conversations.html",
        section="conversations",
        version=version,
        items=[here.clean(each) for each in items],
        pager=address.pager(items),
        names=here.agent_names(),
    )


def agents(request: Request) -> Response:
    here = site(request)
    version = here.version
    return here.page("agents.html", section="agents", version=version, agents=here.agents())


def agent(request: Request) -> Response:
    here = site(request)
    version = here.version
    found = here.agent(request.path_params["agent"])
    listing = here.listing
    start, address = numbered(request, listing.conversations(found.uri, limit=0)[1], SIZE)
    items, _ = listing.conversations(found.uri, start=start, limit=SIZE)
    return here.page(
        "agent.html",
        section="agents",
        version=version,
        agent=found,
        items=[here.clean(each) for each in items],
        pager=address.pager(items),
    )
