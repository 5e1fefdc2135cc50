"""com.atproto.simplespace: accounts govern their spaces; and which spaces an account is in.

Source: protocol, section 6.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from sqlalchemy import exists, select, union

from lettaspace.atproto import tid
from lettaspace.atproto.tid import MAX_CLOCK_ID
from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from lettaspace.errors import Conflict, NotFound
from lettaspace.server import access, callers, logins, policies, tables
from lettaspace.server.callers import Caller
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.policies import Settings
from lettaspace.server.sessions import Session
from lettaspace.server.spaces import Member
from lettaspace.space import schema

_SIMPLESPACE = "com.atproto.simplespace."


def register(host: Host) -> None:
    host.add(_SIMPLESPACE + "createSpace", create_space, gate=callers.writer)
    host.add(_SIMPLESPACE + "updateSpace", update_space, gate=callers.writer)
    host.add(_SIMPLESPACE + "deleteSpace", delete_space, gate=callers.writer)
    host.add(_SIMPLESPACE + "putMember", put_member, gate=callers.writer)
    host.add(_SIMPLESPACE + "removeMember", remove_member, gate=callers.writer)
    host.add(_SIMPLESPACE + "getSpace", get_space, gate=callers.reader, slow=True)
    host.add(_SIMPLESPACE + "listMembers", list_members, gate=logins.session)
    host.add("com.atproto.space.listSpaces", list_spaces, gate=logins.session)


def create_space(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    form = call.input
    settings = Settings(
        policies.policy(form["readPolicy"]),
        policies.policy(form["writePolicy"]),
        policies.access(form["appAccess"]),
    )
    skey = form.get("skey")
    if skey is None:
        skey = tid.encode(int(host.clock() * 1_000_000), secrets.randbelow(MAX_CLOCK_ID + 1))
    try:
        space = host.spaces.create(SpaceRef(caller.did, form["spaceType"], skey), settings)
    except Conflict as error:
        raise XrpcError("SpaceAlreadyExists", str(error)) from None
    host.writers.note_own(space.uri)
    return Answer({"uri": space.uri})


def update_space(host: Host, call: Call) -> Answer:
    with _own(call, call.input["space"]) as uri:
        host.spaces.change(uri, lambda settings: settings.changed(call.input))
    return Answer()


def delete_space(host: Host, call: Call) -> Answer:
    with _own(call, call.input["space"]) as uri:
        services = host.spaces.delete(uri)
    host.forwards.tell_deleted(uri, services)
    return Answer()


def put_member(host: Host, call: Call) -> Answer:
    form = call.input
    with _own(call, form["space"]) as uri:
        host.spaces.put_member(uri, Member(form["did"], form["read"], form["write"]))
    return Answer()


def remove_member(host: Host, call: Call) -> Answer:
    with _own(call, call.input["space"]) as uri:
        host.spaces.remove_member(uri, call.input["did"])
    return Answer()


def get_space(host: Host, call: Call) -> Answer:
    caller: Caller = call.caller
    uri: str = call.params["space"]
    if isinstance(caller, Session):
        caller.require_in_service()
        access.govern(caller, uri)
    else:
        access.open_space(caller, uri)
    with _declared():
        space = host.spaces.get(uri)
    return Answer({"uri": space.uri, **space.settings.form})


def list_members(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    caller.require_in_service()
    limit: int = call.params["limit"]
    with _own(call, call.params["space"]) as uri:
        host.spaces.get(uri)
        found = host.spaces.members(uri, after=call.params.get("cursor", ""), limit=limit + 1)
    page = found[:limit]
    members = [{"did": each.did, "read": each.read, "write": each.write} for each in page]
    more = {"cursor": page[-1].did} if len(found) > limit else {}
    return Answer({"members": members, **more})


def list_spaces(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    caller.require_in_service()
    limit: int = call.params["limit"]
    type_, authority = call.params.get("spaceType"), call.params.get("did")

    def wanted(uri: str) -> bool:
        ref = parse_space_ref(uri)
        return type_ in (None, ref.type) and authority in (None, ref.authority)

    with _spaces_of(host, caller.did, call.params.get("cursor", "")) as uris:
        found = list(islice(filter(wanted, uris), limit + 1))
    page = found[:limit]
    answer: dict[str, Any] = {"spaces": [{"uri": uri} for uri in page]}
    return Answer(answer | ({"cursor": page[-1]} if len(found) > limit else {}))


@contextmanager
def _spaces_of(host: Host, did: str, after: str) -> Iterator[Iterator[str]]:
    """The spaces that an account governs or writes in, by URI, tombstones left out."""
    spaces, repos = tables.spaces.c, schema.repos.c
    governed = select(spaces.uri).where(
        spaces.authority == did, spaces.deleted_at.is_(None), spaces.uri > after
    )
    buried = exists().where(spaces.uri == repos.space, spaces.deleted_at.is_not(None))
    written = select(repos.space).where(
        repos.author == did, repos.rev.is_not(None), repos.space > after, ~buried
    )
    query = union(governed, written)
    with host.database.read() as connection:
        yield iter(connection.execute(query.order_by(query.selected_columns[0])).scalars())


@contextmanager
def _own(call: Call, uri: str) -> Iterator[str]:
    """The URI of a space that is the caller's own, and the declared errors for what is done."""
    caller: Session = call.caller
    access.govern(caller, uri)
    with _declared():
        yield uri


@contextmanager
def _declared() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise XrpcError("SpaceNotFound", str(error)) from None
