"""The viewer as an ASGI application: its pages, and the guard around them.

from lettaspace.viewer.app import viewer

app = viewer(space, token=token, hosts=Hosts("127.0.0.1", 7430))
"""

import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lettaspace.conversation.redaction import Redacting
from lettaspace.conversation.space import Space
from lettaspace.errors import Ambiguous, InvalidInput, LettaspaceError, NotFound
from lettaspace.viewer import templates
from lettaspace.viewer.context import memory, memory_commit, memory_file, prompt
from lettaspace.viewer.conversation import conversation, covered, image, message
from lettaspace.viewer.conversations import agent, agents, conversations
from lettaspace.viewer.downloads import download
from lettaspace.viewer.guard import Guard, Hosts, nothing
from lettaspace.viewer.live import Live, live
from lettaspace.viewer.records import record
from lettaspace.viewer.searching import search
from lettaspace.viewer.site import Site
from lettaspace.viewer.usage import usage

STATIC: list[str | tuple[str, str]] = [
    ("lettaspace.viewer", "static"),
    ("lettaspace.page", "static"),
]
"""Where the files of pages lie: the script here, the styles beside what they are for."""

_log = logging.getLogger("lettaspace.viewer")

_BROKEN = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Something went wrong</title>
<link rel="stylesheet" href="/static/style.css">
<main><h1>Something went wrong</h1>
<p>This page could not be made. <a href="/">To the start</a></p></main></html>
"""


def viewer(
    space: Space,
    *,
    token: str,
    hosts: Hosts,
    letta: Path | None = None,
    redaction: Redacting | None = None,
) -> Starlette:
    """The pages over a space; see `Site` and `Guard`. It never writes to the space."""

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await app.state.live.close()
            app.state.site.close()

    routes = [
        Route("/", conversations),
        Route("/agents", agents),
        Route("/agents/{agent}", agent),
        Route("/agents/{agent}/memory", memory),
        Route("/agents/{agent}/memory/file", memory_file),
        Route("/agents/{agent}/memory/commit/{revision}", memory_commit),
        Route("/c/{rkey}", conversation),
        Route("/c/{rkey}/prompt", prompt),
        Route("/c/{rkey}/export.{form}", download),
        Route("/c/{rkey}/covered/{tid}", covered),
        Route("/c/{rkey}/m/{tid}", message),
        Route("/c/{rkey}/m/{tid}/image/{part:int}", image),
        Route("/record", record),
        Route("/search", search),
        Route("/usage", usage),
        Route("/live", live),
        Mount("/static", StaticFiles(packages=STATIC)),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, hosts=hosts)],
        exception_handlers={
            404: _not_found,
            405: _not_found,
            LettaspaceError: _refused,
            Exception: _broken,
        },
        lifespan=running,
    )
    app.router.redirect_slashes = False
    app.state.site = Site(space, letta=letta, redaction=redaction)
    app.state.live = Live(app.state.site)
    return app


async def _not_found(_request: Request, _error: Exception) -> Response:
    return nothing()


async def _refused(_request: Request, error: Exception) -> Response:
    if isinstance(error, NotFound | InvalidInput | Ambiguous):
        return nothing()
    page = templates.render("problem.html", problem=str(error))
    return HTMLResponse(page, status_code=503)


async def _broken(_request: Request, error: Exception) -> Response:
    # Its text may hold anything, so only what it is and where it happened is said.
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    _log.error("a page could not be made: %s at %s", type(error).__name__, place)
    return HTMLResponse(_BROKEN, status_code=500)
