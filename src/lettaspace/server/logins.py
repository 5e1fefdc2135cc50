"""com.atproto.server: signing in and out, app passwords, what this server is."""

from datetime import UTC, datetime
from typing import Any

from lettaspace.errors import Conflict
from lettaspace.server.accounts import Account
from lettaspace.server.calls import Answer, Call
from lettaspace.server.errors import XrpcError
from lettaspace.server.host import Host
from lettaspace.server.sessions import Session, Tokens, bearer

_SERVER = "com.atproto.server."


def register(host: Host) -> None:
    host.add(_SERVER + "createSession", create_session)
    host.add(_SERVER + "refreshSession", refresh_session)
    host.add(_SERVER + "getSession", get_session, gate=session)
    host.add(_SERVER + "deleteSession", delete_session)
    host.add(_SERVER + "describeServer", describe_server)
    host.add(_SERVER + "createAppPassword", create_app_password, gate=own_session)
    host.add(_SERVER + "listAppPasswords", list_app_passwords, gate=own_session)
    host.add(_SERVER + "revokeAppPassword", revoke_app_password, gate=own_session)


def session(host: Host, call: Call) -> Session:
    """A gate: whoever is signed in, whatever the state of the account."""
    return host.sessions.read(bearer(call.headers))


def own_session(host: Host, call: Call) -> Session:
    """A gate: whoever is signed in with the password of an account that is not taken down."""
    caller = session(host, call)
    caller.require_own_password()
    caller.require_in_service()
    return caller


def create_session(host: Host, call: Call) -> Answer:
    name: str = call.input["identifier"]
    host.limits.spend("signInAs", name.removeprefix("@").lower())
    proven = host.accounts.prove(name, call.input["password"])
    if proven is None:
        raise XrpcError("AuthenticationRequired", "wrong name or password")
    account = proven.account
    if account.state == "takendown" and not call.input.get("allowTakendown"):
        raise XrpcError("AccountTakedown", "this account has been taken down")
    tokens = host.sessions.open(account, proven.app_password)
    return Answer(_tokens(tokens) | _about(host, account))


def refresh_session(host: Host, call: Call) -> Answer:
    refreshed, tokens = host.sessions.refresh(bearer(call.headers))
    return Answer(_tokens(tokens) | _about(host, refreshed.account))


def get_session(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    return Answer(_about(host, caller.account))


def delete_session(host: Host, call: Call) -> Answer:
    host.sessions.end(bearer(call.headers))
    return Answer()


def describe_server(host: Host, call: Call) -> Answer:  # noqa: ARG001
    # Accounts are made on the command line, so there are no domains to choose from.
    return Answer({"did": host.config.did, "availableUserDomains": [], "inviteCodeRequired": True})


def create_app_password(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    name: str = call.input["name"]
    privileged = bool(call.input.get("privileged"))
    try:
        password = host.accounts.add_app_password(caller.account, name, privileged=privileged)
    except Conflict as error:
        raise XrpcError("InvalidRequest", str(error)) from None
    (made,) = (each for each in host.accounts.app_passwords(caller.account) if each.name == name)
    return Answer(
        {
            "name": name,
            "password": password,
            "createdAt": _datetime(made.created_at),
            "privileged": privileged,
        }
    )


def list_app_passwords(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    return Answer(
        {
            "passwords": [
                {
                    "name": each.name,
                    "createdAt": _datetime(each.created_at),
                    "privileged": each.privileged,
                }
                for each in host.accounts.app_passwords(caller.account)
            ]
        }
    )


def revoke_app_password(host: Host, call: Call) -> Answer:
    caller: Session = call.caller
    host.accounts.remove_app_password(caller.account, call.input["name"])
    return Answer()


def _tokens(tokens: Tokens) -> dict[str, Any]:
    return {"accessJwt": tokens.access, "refreshJwt": tokens.refresh}


def _about(host: Host, account: Account) -> dict[str, Any]:
    about: dict[str, Any] = {
        "handle": account.handle,
        "did": account.did,
        "active": account.is_active,
    }
    if not account.is_active:
        about["status"] = account.state
    if account.did.startswith("did:web:"):
        about["didDoc"] = host.document(account)
    return about


def _datetime(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
