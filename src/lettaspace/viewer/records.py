"""Any record, raw: as stored and decoded, and what its lexicon says of it."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lettaspace.atproto import cbor
from lettaspace.atproto.data import blob_refs, to_json
from lettaspace.conversation import codec
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    rkey_of,
)
from lettaspace.conversation.space import verdict
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.page import jsonview
from lettaspace.space.writes import Record
from lettaspace.viewer.site import Site, path, site

SEALED = ("message", "state")
"""The envelopes that records of ours hold."""


def record(request: Request) -> Response:
    here = site(request)
    uri = request.query_params.get("uri", "")
    found = here.space.record(uri)
    decoded, problem = _decoded(here, found)
    stored = to_json(found.value)
    if here.redaction is not None:
        stored = here.redaction.json(stored)
    return here.page(
        "record.html",
        uri=uri,
        cid=str(found.cid) if here.redaction is None else "not shown where secrets are redacted",
        size=len(cbor.encode(found.value)),
        blobs=len(blob_refs(found.value)),
        verdict=verdict(found),
        links=list(_links(here, found)),
        decoded=None if decoded is None else jsonview.render(decoded),
        problem=problem,
        stored=jsonview.render(stored),
    )


def _decoded(here: Site, found: Record) -> tuple[Any, str | None]:
    """The payload in a record's envelope, and what stood in the way of it."""
    for name in SEALED:
        envelope = found.value.get(name)
        if isinstance(envelope, dict) and isinstance(envelope.get("data"), dict):
            try:
                value = codec.decode(envelope["data"], here.space.repo.get_blob, images=False)
            except (Damaged, InvalidInput, NotFound) as error:
                return None, f"It cannot be decoded: {error}."
            return (value if here.redaction is None else here.redaction.json(value)), None
    return None, None


def _links(here: Site, found: Record) -> Any:
    """The pages about what a record is."""
    if found.collection == MESSAGE:
        rkey = _rkey(found.value.get("conversation"))
        if rkey and here.listing.get(rkey):
            yield "Message", path("c", rkey, "m", found.rkey), f"#{found.value.get('seq')}"
    elif found.collection in (CONVERSATION, CONVERSATION_STATE, COMPILED_PROMPT):
        info = here.listing.get(found.rkey)
        if info is not None:
            title = here.clean(info).title or "Untitled"
            yield "Conversation", path("c", found.rkey), title
    elif found.collection == AGENT:
        agent = here.listing.agent(found.rkey)
        name = here.clean_agent(agent).name if agent is not None else None
        yield "Agent", path("agents", found.rkey), name or found.rkey


def _rkey(uri: Any) -> str | None:
    try:
        return rkey_of(uri) if isinstance(uri, str) else None
    except InvalidInput:
        return None
