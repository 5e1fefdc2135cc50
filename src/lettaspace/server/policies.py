"""Who a space is open to: its policies for users, and its access for apps.

A setting is an object of an open union. One that this host does not know is refused, since
nobody could say what it allows. Source: protocol, section 6 (simplespace).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from lettaspace.atproto.syntax import is_did
from lettaspace.server.errors import XrpcError

DEFS: Final = "com.atproto.simplespace.defs"

MAX_SERVICE: Final = 2048
MAX_ALLOWED: Final = 1000
"""Apps that a list may name."""

MAX_CLIENT: Final = 2048
"""Characters of an app's id, which is a URL."""

Right: TypeAlias = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Public:
    """Anybody."""

    @property
    def form(self) -> dict[str, Any]:
        return {"$type": f"{DEFS}#publicPolicy"}


@dataclass(frozen=True, slots=True)
class MemberList:
    """Members who have the right."""

    @property
    def form(self) -> dict[str, Any]:
        return {"$type": f"{DEFS}#memberListPolicy"}


@dataclass(frozen=True, slots=True)
class ManagingApp:
    """Whoever this service says: a DID, perhaps with a fragment."""

    service: str

    @property
    def form(self) -> dict[str, Any]:
        return {"$type": f"{DEFS}#managingAppPolicy", "managingApp": self.service}


Policy: TypeAlias = Public | MemberList | ManagingApp


@dataclass(frozen=True, slots=True)
class AppAccess:
    """The apps that may ask, by client id; None: any, also one that does not say who it is."""

    allowed: tuple[str, ...] | None = None

    def admits(self, client_id: str | None) -> bool:
        return self.allowed is None or client_id in self.allowed

    @property
    def form(self) -> dict[str, Any]:
        if self.allowed is None:
            return {"$type": f"{DEFS}#open"}
        return {"$type": f"{DEFS}#allowList", "allowed": list(self.allowed)}


@dataclass(frozen=True, slots=True)
class Settings:
    """A space's settings."""

    read: Policy
    write: Policy
    apps: AppAccess

    @property
    def form(self) -> dict[str, Any]:
        """As the lexicons have them."""
        return {
            "readPolicy": self.read.form,
            "writePolicy": self.write.form,
            "appAccess": self.apps.form,
        }

    @property
    def columns(self) -> dict[str, str]:
        """As the table `spaces` has them."""
        return {
            "read_policy": json.dumps(self.read.form),
            "write_policy": json.dumps(self.write.form),
            "app_access": json.dumps(self.apps.form),
        }

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(read_policy: str, write_policy: str, app_access: str) -> "Settings":
        """Those of a row."""
        return Settings(
            policy(json.loads(read_policy)),
            policy(json.loads(write_policy)),
            access(json.loads(app_access)),
        )

    def changed(self, form: Mapping[str, Any]) -> "Settings":
        """The same with those that an input gives instead. Raises XrpcError as `policy`."""
        read, write, apps = (form.get(key) for key in ("readPolicy", "writePolicy", "appAccess"))
        return Settings(
            self.read if read is None else policy(read),
            self.write if write is None else policy(write),
            self.apps if apps is None else access(apps),
        )


def policy(form: Mapping[str, Any]) -> Policy:
    """The policy that an object of the lexicon means. Raises XrpcError, UnsupportedPolicy."""
    match _kind(form):
        case "publicPolicy":
            return Public()
        case "memberListPolicy":
            return MemberList()
        case "managingAppPolicy":
            if not is_service(app := form["managingApp"]):
                raise XrpcError("UnsupportedPolicy", "the managing app is not a service of a DID")
            return ManagingApp(app)
    raise XrpcError("UnsupportedPolicy", "this host does not know such a policy")


def access(form: Mapping[str, Any]) -> AppAccess:
    """The same for apps. Raises XrpcError, UnsupportedAppAccess."""
    match _kind(form):
        case "open":
            return AppAccess()
        case "allowList":
            allowed = tuple(dict.fromkeys(form["allowed"]))
            if len(allowed) > MAX_ALLOWED or any(len(each) > MAX_CLIENT for each in allowed):
                raise XrpcError("UnsupportedAppAccess", f"a list has at most {MAX_ALLOWED} apps")
            return AppAccess(allowed)
    raise XrpcError("UnsupportedAppAccess", "this host does not know such access")


def is_service(text: object) -> bool:
    """Whether it names a service: a DID, or a DID and a fragment."""
    if type(text) is not str or len(text) > MAX_SERVICE:
        return False
    did, mark, fragment = text.partition("#")
    plain = fragment.isascii() and fragment.isprintable() and not set(fragment) & set("# ")
    return is_did(did) and bool(fragment) == bool(mark) and plain


def _kind(form: Mapping[str, Any]) -> str:
    """The name within the lexicon; empty for an object of another one."""
    lexicon, _, name = form["$type"].removesuffix("#main").partition("#")
    return name if lexicon == DEFS else ""
