"""com.atproto.identity: which DID a handle stands for."""

from lettaspace.network.identity import IdentityError
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host


def register(host: Host) -> None:
    host.add("com.atproto.identity.resolveHandle", resolve_handle)


def resolve_handle(host: Host, call: Call) -> Answer:
    handle: str = call.params["handle"]
    account = host.accounts.by_handle(handle)
    if account is not None:
        return Answer({"did": account.did})
    try:
        return Answer({"did": host.identity.resolve_handle(handle)})
    except IdentityError as error:
        raise XrpcError("HandleNotFound", str(error)) from None
