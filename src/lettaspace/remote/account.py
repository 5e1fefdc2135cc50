"""Who is signed in at a home: the account, its host, and what that host can do.

    account = Account.load(home)
    if account is not None:
        with account.client() as client:
            …

Kept in `account.json` of the home, which holds nothing secret; the tokens are where `keeping`
puts them.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from lettaspace.atproto.syntax import is_did, is_handle
from lettaspace.errors import Damaged, HostRefused, SignedOut, Unreachable
from lettaspace.remote.capabilities import Capabilities
from lettaspace.remote.keeping import Keeping, read_private, remove_private, write_private

if TYPE_CHECKING:
    from lettaspace.network.fetching import Fetcher
    from lettaspace.network.identity import Resolver
    from lettaspace.remote.sessions import Session
    from lettaspace.remote.xrpc import Client

ACCOUNT_FILE: Final = "account.json"

How: TypeAlias = Literal["oauth", "password"]


@dataclass(frozen=True, slots=True)
class Account:
    """An account that is signed in."""

    home: Path
    did: str
    handle: str | None
    """The one that its document names and that leads back to it; None if there is none."""
    host: str
    """The origin of the host that keeps its repos, such as `https://host.example`."""
    how: How
    """By OAuth, or with a password, its own or an app password."""
    loopback: bool
    """Whether the host is this machine, so that others' addresses may be, too."""
    capabilities: Capabilities
    trusted: bool = False
    """Whether the host, whose address was typed here, is inside a private network: then it and
    its accounts are found there."""

    @classmethod
    def load(cls, home: Path) -> "Account | None":
        """Who is signed in at a home, None if nobody is. Raises StoreUnavailable, Damaged."""
        path = home / ACCOUNT_FILE
        if not path.exists():
            return None
        form = read_private(path)
        did, handle, host = (form.get(name) for name in ("did", "handle", "host"))
        how: Any = form.get("auth")
        if (
            type(did) is not str
            or not is_did(did)
            or (handle is not None and (type(handle) is not str or not is_handle(handle)))
            or type(host) is not str
            or how not in get_args(How)
            or type(form.get("loopback")) is not bool
            or form.get("trusted") not in (None, host)
        ):
            raise Damaged(f"{path} is not an account file; sign in again")
        capabilities = Capabilities.read(form.get("capabilities"))
        trusted = form.get("trusted") is not None
        return cls(home, did, handle, host, how, form["loopback"], capabilities, trusted)

    def json(self) -> dict[str, Any]:
        """What is kept of it."""
        return {
            "did": self.did,
            "handle": self.handle,
            "host": self.host,
            "auth": self.how,
            "loopback": self.loopback,
            "trusted": self.host if self.trusted else None,
            "capabilities": self.capabilities.json(),
        }

    def save(self) -> None:
        """Raises StoreUnavailable."""
        write_private(self.home / ACCOUNT_FILE, self.json())

    def learnt(self, capabilities: Capabilities) -> "Account":
        """The account with what is known of its host by now, kept unless somebody else has signed
        in or it was signed out meanwhile. Raises StoreUnavailable."""
        newer = replace(self, capabilities=capabilities)
        with self.keeping.locked():
            if newer != self and Account.load(self.home) == self:
                newer.save()
        return newer

    def forget(self) -> None:
        """Keeps neither the account nor its tokens; the space stays. Raises StoreUnavailable."""
        remove_private(self.home / ACCOUNT_FILE)
        self.keeping.forget()

    def sign_out(self) -> str | None:
        """Ends the session at the host, as far as that can be told, and forgets all of it here.

        Gives the reason why the host could not be told, None if it was, or knew already. Raises
        StoreUnavailable.
        """
        why = None
        with self.keeping.locked():  # so that no process that refreshes comes later
            try:
                self.session().end()
            except SignedOut:
                pass
            except (HostRefused, Unreachable, Damaged) as error:
                why = str(error)
            self.forget()
        return why

    @property
    def keeping(self) -> Keeping:
        return Keeping(self.home, self.did)

    @property
    def name(self) -> str:
        """What people call it."""
        return self.handle or self.did

    def client(self, **options: Any) -> "Client":
        """Its host, asked in its name. `options` are further ones of `Client`."""
        from lettaspace.remote.xrpc import Client

        return Client(self.host, auth=self.session(), **options)

    def session(self) -> "Session":
        from lettaspace.remote.sessions import Session

        return Session(self.keeping, self.host, self.fetcher())

    def fetcher(self) -> "Fetcher":
        """What is asked for addresses that others name."""
        from lettaspace.network.fetching import Fetcher

        return Fetcher(**self.beside)

    @property
    def beside(self) -> dict[str, Any]:
        """What addresses that others name may lead to beside the public: `development` and
        `trusted`, as `network.fetching.Fetcher` takes them."""
        return {"development": self.loopback, "trusted": self.host if self.trusted else None}

    def resolver(self) -> "Resolver":
        """What is asked who a DID is."""
        from lettaspace.network.identity import Resolver

        return Resolver(self.fetcher())
