"""Whether a user has a right in a space: by its policies, or by asking its managing app.

The authority always has. Source: protocol, sections 4 (exchange) and 6 (checkUserAccess).
"""

import logging
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from lettaspace.network.identity import IdentityError
from lettaspace.server import calling
from lettaspace.server.calling import CallError
from lettaspace.server.policies import ManagingApp, MemberList, Policy, Right
from lettaspace.server.spaces import Space, has_right

if TYPE_CHECKING:
    from lettaspace.server.host import Host

_CHECK = "com.atproto.simplespace.checkUserAccess"

_log = logging.getLogger("lettaspace.server")


def may(host: "Host", space: Space, did: str, right: Right, client_id: str | None = None) -> bool:
    """Whether the user has the right. Waits for the network where an app decides.

    `client_id` is the app that the user came with, if it proved which one it is.
    """
    policy = space.settings.read if right == "read" else space.settings.write
    if isinstance(policy, ManagingApp) and did != space.ref.authority:
        return _ask(host, policy.service, space, did, right, client_id)
    with host.database.read() as connection:
        return may_at_once(connection, space.uri, space.ref.authority, policy, did, right)


def may_at_once(
    connection: Connection, uri: str, authority: str, policy: Policy, did: str, right: Right
) -> bool:
    """The same where no app is to be asked; False where one is."""
    if did == authority:
        return True
    if isinstance(policy, MemberList):
        return has_right(connection, uri, did, right)
    return not isinstance(policy, ManagingApp)


def _ask(
    host: "Host", service: str, space: Space, did: str, right: Right, client_id: str | None
) -> bool:
    """What the app says; whatever goes wrong counts as no."""
    params = {"space": space.uri, "user": did, "access": right}
    if client_id is not None and right == "read":
        params["clientId"] = client_id
    try:
        origin = calling.service_origin(host.identity, service)
        answer = calling.get(
            host, origin, _CHECK, params, issuer=space.ref.authority, audience=service
        )
    except (CallError, IdentityError) as error:
        _log.warning("a managing app could not be asked: %s", error)
        return False
    return type(answer) is dict and answer.get("authorized") is True
