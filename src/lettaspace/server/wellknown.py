"""What is served beside XRPC: documents about this host and its accounts, and signs of life.

A host may stand for many names: its own, and the handles of its accounts. Which one is asked
for, the Host header says.
"""

from sqlalchemy import select
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lettaspace import __version__
from lettaspace.errors import StoreUnavailable
from lettaspace.server.host import Host

_ANYONE = {"access-control-allow-origin": "*"}

_ROBOTS = "User-agent: *\nDisallow: /\n"

_ROOT = """\
This is a lettaspace host: it keeps permissioned repos of the AT Protocol.
There is nothing to look at here; programs ask under /xrpc/.
"""


def routes(host: Host) -> list[Route]:
    """Everything that is not a method."""

    async def did_json(request: Request) -> Response:
        found = await run_in_threadpool(host.document_at, request.headers.get("host", ""))
        if found is None:
            return _nothing()
        return JSONResponse(found, headers=_ANYONE)

    async def atproto_did(request: Request) -> Response:
        name = request.headers.get("host", "").partition(":")[0]
        account = await run_in_threadpool(host.accounts.by_handle, name)
        if account is None:
            return _nothing()
        return PlainTextResponse(account.did, headers=_ANYONE)

    async def health(_: Request) -> Response:
        try:
            await run_in_threadpool(_ask, host)
        except StoreUnavailable:
            return JSONResponse({"error": "the store is not available"}, 503, headers=_ANYONE)
        return JSONResponse({"version": __version__}, headers=_ANYONE)

    async def robots(_: Request) -> Response:
        return PlainTextResponse(_ROBOTS)

    async def root(_: Request) -> Response:
        return PlainTextResponse(_ROOT)

    return [
        Route("/.well-known/did.json", did_json),
        Route("/.well-known/atproto-did", atproto_did),
        Route("/xrpc/_health", health),
        Route("/_health", health),
        Route("/robots.txt", robots),
        Route("/", root),
    ]


def _ask(host: Host) -> None:
    with host.database.read() as connection:
        connection.execute(select(1))


def _nothing() -> Response:
    return PlainTextResponse("nothing here\n", 404, headers=_ANYONE)
