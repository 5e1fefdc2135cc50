"""What `login` and `whoami` say of an account that is signed in."""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lettaspace.cli.text import field

if TYPE_CHECKING:
    from lettaspace.remote.account import Account

State: TypeAlias = Literal["good", "kept", "unreachable", "refused", "ended", "missing"]

STATES: dict[State, str] = {
    "good": "The host knows this session.",
    "kept": "The host was not asked about this session.",
    "unreachable": "The host cannot be reached now.",
    "refused": "The host refuses this session at the moment.",
    "ended": "The host has ended this session: sign in again.",
    "missing": "Its tokens are not here: sign in again.",
}


def form(account: "Account", state: State) -> dict[str, Any]:
    """The account in JSON."""
    return {
        "did": account.did,
        "handle": account.handle,
        "host": account.host,
        "auth": account.how,
        "session": state,
        "tokens": account.keeping.place,
        "capabilities": account.capabilities.json(),
    }


def sentences(account: "Account") -> list[str]:
    """What the host can do, and where the tokens are."""
    where = (
        "in the keyring of this machine"
        if account.keeping.place == "keyring"
        else f"in {account.home}/session.json, which nobody else may read"
    )
    return [*account.capabilities.words(), f"The tokens are kept {field(where)}."]
