"""Who may do what at the August host: passwords, OAuth, spaces with members, credentials."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lettaspace.atproto import dpop, jwt
from lettaspace.atproto.jwk import thumbprint
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.proof import DpopVerifier, Request, bearer, presented
from lettaspace.atproto.tokens import (
    mint_credential,
    mint_delegation,
    read_credential,
    read_delegation,
)
from lettaspace.atproto.uri import SpaceRef, parse_space_ref
from lettaspace.errors import Refused
from tests.server.hosts import Clock

Fields: TypeAlias = list[tuple[str, str]]

SPACE = "com.atproto.space."
SIMPLE = "com.atproto.simplespace."
SERVER = "com.atproto.server."

CREDENTIAL_SECONDS = 7200

_OPEN = (
    SERVER + "describeServer",
    SERVER + "createSession",
    SERVER + "refreshSession",
    SERVER + "deleteSession",
    "com.atproto.identity.resolveHandle",
    "com.atproto.sync.getBlob",
    SPACE + "getSpaceCredential",
)
"""Methods that ask for no session, or see to it themselves."""


class Failure(Exception):
    """An answer with an error."""

    def __init__(
        self, status: int, name: str, message: str = "", fields: Fields | None = None
    ) -> None:
        super().__init__(name)
        self.status = status
        self.name = name
        self.message = message or name
        self.fields = fields or []


@dataclass
class Account:
    did: str
    handle: str
    password: str
    key: SigningKey
    app_passwords: list[str] = field(default_factory=list)

    def add_app_password(self) -> str:
        self.app_passwords.append(secrets.token_hex(8))
        return self.app_passwords[-1]


@dataclass
class Caller:
    """Who asks, how that was shown (`session`, `app`, `oauth`, `credential`, or ``), and of
    which space a credential is."""

    did: str | None
    how: str
    space: str | None
    request: Request


@dataclass
class _Token:
    did: str
    how: str
    jkt: str = ""
    scope: str = ""
    expired: bool = False


@dataclass
class _Space:
    policy: dict[str, Any]
    apps: dict[str, Any]
    members: list[str] = field(default_factory=list)


class Doors:
    """Everything about accounts and spaces but what is in the repos.

    `nonce` is what OAuth's proofs have to hold; with `rotating` every answer gives a new one.
    `others` are the keys of accounts of other hosts.
    """

    def __init__(self, origin: str, clock: Clock) -> None:
        self.origin = origin
        self.clock = clock
        self.did = "did:web:" + origin.partition("//")[2].replace(":", "%3A")
        self.key = SigningKey.generate()
        self.accounts: dict[str, Account] = {}
        self.others: dict[str, VerifyingKey] = {}
        self.nonce = secrets.token_hex(8)
        self.rotating = False
        self._access: dict[str, _Token] = {}
        self._refresh: dict[str, str] = {}
        self._spaces: dict[str, _Space] = {}
        self._deleted: set[str] = set()
        self._seen: set[tuple[str, str]] = set()
        self.methods: dict[str, Callable[[Caller, Any], Any]] = {
            SERVER + "describeServer": self._describe,
            SERVER + "createSession": self._create_session,
            SERVER + "refreshSession": self._refresh_session,
            SERVER + "getSession": self._get_session,
            SERVER + "deleteSession": self._delete_session,
            SERVER + "createAppPassword": self._create_app_password,
            "com.atproto.identity.resolveHandle": self._resolve_handle,
            SPACE + "getDelegationToken": self._get_delegation_token,
            SPACE + "getSpaceCredential": self._get_space_credential,
            SPACE + "listSpaces": self._list_spaces,
            SIMPLE + "createSpace": self._create_space,
            SIMPLE + "getSpace": self._get_space,
            SIMPLE + "addMember": self._add_member,
            SIMPLE + "removeMember": self._remove_member,
            SIMPLE + "listMembers": self._list_members,
            SIMPLE + "deleteSpace": self._delete_space,
        }

    def add(self, account: Account) -> Account:
        self.accounts[account.did] = account
        return account

    def grant(self, account: Account, key: VerifyingKey, scope: str = "atproto") -> str:
        """An access token as OAuth gives it, bound to the key of the app's proofs."""
        token = _new("oauth")
        self._access[token] = _Token(account.did, "oauth", thumbprint(key), scope)
        return token

    def expire(self) -> None:
        """All access tokens that there are have expired."""
        for token in self._access.values():
            token.expired = True

    def seen(self, iss: str, jti: str, exp: Any) -> bool:  # noqa: ARG002 - nothing is forgotten
        before = (iss, jti) in self._seen
        self._seen.add((iss, jti))
        return before

    def admit(self, nsid: str, verb: str, fields: Fields) -> Caller:
        """Who asks. Raises Failure and Refused."""
        request = Request(verb, f"{self.origin}/xrpc/{nsid}", fields)
        if nsid in _OPEN:
            return Caller(None, "", None, request)
        found = presented(fields)
        if found is not None and found[0] == "dpop":
            return self._credential(found[1], request)
        value = next((v for k, v in fields if k.lower() == "authorization"), "")
        scheme, _, text = value.partition(" ")
        if scheme not in ("Bearer", "DPoP"):
            raise Failure(401, "AuthMissing", "Authentication Required")
        token = self._access.get(text)
        if token is None or (token.how == "oauth") != (scheme == "DPoP"):
            raise Failure(400, "InvalidToken", "Token could not be verified")
        if token.how == "oauth":
            self._check_proof(token, text, request)
        elif token.expired:
            raise Failure(400, "ExpiredToken", "Token has expired")
        if (
            token.how == "oauth"
            and nsid.startswith((SPACE, SIMPLE))
            and "space:" not in token.scope
        ):
            raise Failure(403, "ScopeMissingError", "Missing required scope")
        return Caller(token.did, token.how, None, request)

    def more_fields(self, caller: Caller) -> Fields:
        """Fields that every answer to this caller has."""
        return self._nonces() if caller.how == "oauth" else []

    def check_read(self, caller: Caller, params: dict[str, str]) -> None:
        """Whether a caller may read a repo. Raises Failure."""
        if caller.how == "credential":
            if caller.space != params["space"]:
                raise Failure(400, "InvalidCredential", "credential is for another space")
        elif caller.did != params["repo"]:
            raise Failure(400, "RepoNotFound", "Could not find repo")

    def _nonces(self) -> Fields:
        if self.rotating:
            self.nonce = secrets.token_hex(8)
        return [("DPoP-Nonce", self.nonce)]

    def _check_proof(self, token: _Token, text: str, request: Request) -> None:
        proof = next((v for k, v in request.fields if k.lower() == "dpop"), None)
        if proof is None:
            raise Failure(401, "MissingDpopProof", "DPoP proof required", self._nonces())
        dpop.verify_proof(
            proof, request.method, request.url, self.clock(), credential=text, jkt=token.jkt
        )
        if jwt.parse(proof).claims.get("nonce") != self.nonce:
            challenge = 'DPoP error="use_dpop_nonce", error_description="nonce is needed"'
            fields = [("WWW-Authenticate", challenge), *self._nonces()]
            raise Failure(401, "use_dpop_nonce", "Authorization server requires nonce", fields)
        if token.expired:
            challenge = 'DPoP error="invalid_token", error_description="token has expired"'
            fields = [("WWW-Authenticate", challenge), *self._nonces()]
            raise Failure(401, "invalid_token", '"exp" claim timestamp check failed', fields)

    def _credential(self, text: str, request: Request) -> Caller:
        unverified = read_credential(text, self.clock())
        credential = unverified.verify(self._key(unverified.issuer))
        DpopVerifier().use(request, text, credential.holder, self.clock(), self)
        return Caller(None, "credential", str(credential.space), request)

    def _key(self, did: str) -> VerifyingKey:
        account = self.accounts.get(did)
        key = self.others.get(did) if account is None else account.key.verifying_key
        if key is None:
            raise Refused("BadJwtIss", "could not resolve the issuer")
        return key

    # Sessions

    def _describe(self, *_: Any) -> Any:
        return {"did": self.did, "availableUserDomains": [".localhost"]}

    def _create_session(self, _: Caller, body: Any) -> Any:
        for account in self.accounts.values():
            if body["identifier"] in (account.did, account.handle):
                if body["password"] == account.password:
                    return self._session(account, "session")
                if body["password"] in account.app_passwords:
                    return self._session(account, "app")
        raise Failure(401, "AuthenticationRequired", "Invalid identifier or password")

    def _refresh_session(self, caller: Caller, _: Any) -> Any:
        """A refresh token is good once."""
        access = self._refresh.pop(bearer(caller.request.fields), None)
        if access is None or (old := self._access.pop(access, None)) is None:
            raise Failure(400, "ExpiredToken", "Token has been revoked")
        return self._session(self.accounts[old.did], old.how)

    def _session(self, account: Account, how: str) -> Any:
        access, refresh = _new("access"), _new("refresh")
        self._access[access] = _Token(account.did, how)
        self._refresh[refresh] = access
        tokens = {"accessJwt": access, "refreshJwt": refresh}
        return {"did": account.did, "handle": account.handle, "active": True, **tokens}

    def _get_session(self, caller: Caller, _: Any) -> Any:
        account = self._own(caller)
        return {"did": account.did, "handle": account.handle, "active": True}

    def _delete_session(self, caller: Caller, _: Any) -> Any:
        access = self._refresh.pop(bearer(caller.request.fields), None)
        self._access.pop(access or "", None)
        return {}

    def _create_app_password(self, caller: Caller, body: Any) -> Any:
        password = self._own(caller).add_app_password()
        return {"name": body["name"], "password": password, "createdAt": "2026-08-20T00:00:00Z"}

    def _resolve_handle(self, _: Caller, params: dict[str, str]) -> Any:
        for account in self.accounts.values():
            if account.handle == params.get("handle"):
                return {"did": account.did}
        raise Failure(400, "InvalidRequest", "Unable to resolve handle")

    def _own(self, caller: Caller) -> Account:
        if caller.did is None:
            raise Failure(401, "AuthMissing", "Authentication Required")
        return self.accounts[caller.did]

    # Credentials

    def _get_delegation_token(self, caller: Caller, params: dict[str, str]) -> Any:
        if caller.how == "app":
            raise Failure(400, "InvalidToken", "Bad token scope")
        account = self._own(caller)
        space = parse_space_ref(params["space"])
        return {"token": mint_delegation(account.key, account.did, space, self.clock())}

    def _get_space_credential(self, caller: Caller, body: Any) -> Any:
        now = self.clock()
        unverified = read_delegation(bearer(caller.request.fields), now)
        delegation = unverified.verify(self._key(unverified.issuer))
        holder = DpopVerifier().exchange(caller.request, now, self)
        if self.seen(delegation.issuer, delegation.jti, delegation.exp):
            raise Refused("JwtReplayed", "delegation token was used before")
        text = str(delegation.space)
        if body.get("space") != text:
            raise Refused("InvalidDelegationToken", "delegation is for another space")
        authority = self.accounts.get(delegation.space.authority)
        if authority is not None and text in self._deleted:
            raise Failure(400, "SpaceDeleted")
        space = self._spaces.get(text)
        if authority is None or space is None:
            raise Failure(400, "SpaceNotFound")
        public = space.policy["$type"].endswith("#publicPolicy")
        if not (public or delegation.issuer in (authority.did, *space.members)):
            raise Failure(400, "UserNotAuthorized")
        if not space.apps["$type"].endswith("#open"):
            raise Failure(400, "AppNotAuthorized")
        token = mint_credential(
            authority.key, delegation.space, holder, now, lifetime=CREDENTIAL_SECONDS
        )
        return {"credential": token}

    # Spaces

    def _create_space(self, caller: Caller, body: Any) -> Any:
        for name in ("type", "policy", "appAccess"):
            if name not in body:
                raise Failure(400, "InvalidRequest", f'Input must have the property "{name}"')
        ref = str(SpaceRef(self._own(caller).did, body["type"], body.get("skey", "self")))
        if ref in self._spaces:
            raise Failure(400, "SpaceAlreadyExists")
        self._spaces[ref] = _Space(body["policy"], body["appAccess"])
        self._deleted.discard(ref)
        return {"uri": ref}

    def _get_space(self, caller: Caller, params: dict[str, str]) -> Any:
        space = self._owned(caller, params)
        return {"uri": params["space"], "policy": space.policy, "appAccess": space.apps}

    def _add_member(self, caller: Caller, body: Any) -> Any:
        space = self._owned(caller, body)
        if body["did"] not in space.members:
            space.members.append(body["did"])
        return {}

    def _remove_member(self, caller: Caller, body: Any) -> Any:
        space = self._owned(caller, body)
        space.members = [did for did in space.members if did != body["did"]]
        return {}

    def _list_members(self, caller: Caller, params: dict[str, str]) -> Any:
        members = sorted(self._owned(caller, params).members)
        members = [did for did in members if did > params.get("cursor", "")]
        page = [{"did": did} for did in members[: int(params.get("limit", 100))]]
        # There is a cursor on the last page, too.
        return {"members": page} | ({"cursor": page[-1]["did"]} if page else {})

    def _delete_space(self, caller: Caller, body: Any) -> Any:
        self._owned(caller, body)
        del self._spaces[body["space"]]
        self._deleted.add(body["space"])
        return {}

    def _list_spaces(self, caller: Caller, params: dict[str, str]) -> Any:
        did = self._own(caller).did
        uris = [uri for uri in sorted(self._spaces) if parse_space_ref(uri).authority == did]
        wanted = params.get("type")
        found = [uri for uri in uris if wanted in (None, parse_space_ref(uri).type)]
        return {"spaces": [{"uri": uri} for uri in found]}

    def _owned(self, caller: Caller, names: Any) -> _Space:
        space = self._spaces.get(names["space"])
        if space is None:
            raise Failure(400, "SpaceNotFound")
        if parse_space_ref(names["space"]).authority != caller.did:
            raise Failure(400, "NotSpaceOwner")
        return space


def _new(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(16)}"
