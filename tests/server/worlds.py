"""A host with a small society on it, and every way to call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import insert

from lettaspace.atproto import jwt, tokens
from lettaspace.atproto.jwt import Time
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.methods import method
from lettaspace.atproto.proof import DpopProver, Prover, SignatureProver
from lettaspace.atproto.uri import SpaceRef
from lettaspace.server import tables
from lettaspace.server.rates import Rates
from tests.server.hosts import Clock, Server, serving

KIND = "com.example.kind"
NOTE = "com.example.note"
AWAY = "did:web:away.example"

Headers = list[tuple[str, str]]


class World(Server):
    """`ada` governs the spaces; `mira` and `yuki` are members and have written, `eve` has
    written and is none. `noa` has never written, `gone` is taken down, `still` deactivated,
    `away` has no account here."""

    NAMES = ("ada", "mira", "yuki", "eve", "noa", "gone", "still")
    WRITERS = ("ada", "mira", "yuki", "eve", "gone", "still")
    MEMBERS = ("mira", "yuki")

    def __init__(self, running: Server) -> None:
        super().__init__(running.host, running.clock)
        self.accounts = {name: self.add_account(name) for name in self.NAMES}
        self.dids = {name: account.did for name, account in self.accounts.items()}
        self.dids["away"] = AWAY
        self.keys = {name: self.host.accounts.signing_key(self.dids[name]) for name in self.NAMES}
        self.sessions = {name: self.sign_in(f"{name}.localhost") for name in self.NAMES}
        self.spaces = {name: self._space(name) for name in ("open", "other", "deleted", "unmade")}
        self.blobs: dict[str, str] = {}
        self._once: dict[str, Headers] = {}
        self._add_spaces()
        for name in self.WRITERS:
            self._write(name)
        self.host.accounts.set_state(self.accounts["gone"], "takendown")
        self.host.accounts.set_state(self.accounts["still"], "deactivated")

    def _space(self, name: str) -> str:
        return str(SpaceRef(self.dids["ada"], KIND, name))

    def _add_spaces(self) -> None:
        policy = '{"$type":"com.atproto.simplespace.defs#memberListPolicy"}'
        access = '{"$type":"com.atproto.simplespace.defs#open"}'
        now = int(self.clock())
        with self.host.database.write() as connection:
            for name in ("open", "other", "deleted"):
                connection.execute(
                    insert(tables.spaces).values(
                        uri=self.spaces[name],
                        authority=self.dids["ada"],
                        type=KIND,
                        skey=name,
                        read_policy=policy,
                        write_policy=policy,
                        app_access=access,
                        created_at=now,
                        deleted_at=now if name == "deleted" else None,
                    )
                )
            for name in self.MEMBERS:
                for space in ("open", "other"):
                    connection.execute(
                        insert(tables.members).values(
                            space=self.spaces[space], did=self.dids[name], read=True, write=True
                        )
                    )

    def _write(self, name: str) -> None:
        data = f"{name}'s picture".encode()
        session = self.session(name)
        answer = self.client.post(
            "/xrpc/com.atproto.repo.uploadBlob",
            content=data,
            headers=[*session, ("content-type", "image/png")],
        )
        blob = answer.json()["blob"]
        self.blobs[name] = blob["ref"]["$link"]
        for space in self.spaces.values():
            self.call(
                "com.atproto.space.createRecord",
                session,
                space=space,
                repo=self.dids[name],
                collection=NOTE,
                rkey="first",
                record={"text": name, "picture": blob},
            ).raise_for_status()

    def session(self, name: str) -> Headers:
        return bearer(self.sessions[name]["accessJwt"])

    def call(self, nsid: str, headers: Headers, /, **values: Any) -> httpx.Response:
        """Calls a method of any lexicon: `values` are the query or the JSON body."""
        url = f"/xrpc/{nsid}"
        if method(nsid).kind == "query":
            texts = {k: str(v).lower() if v is True or v is False else v for k, v in values.items()}
            return self.client.get(url, params=texts, headers=headers)
        return self.client.post(url, json=values, headers=headers)

    def once(self, name: str, make: Callable[[], Headers]) -> Headers:
        """What `make` made when it was first asked for under this name."""
        if name not in self._once:
            self._once[name] = make()
        return self._once[name]

    def mint(
        self,
        prover: Prover,
        space: str = "open",
        *,
        lifetime: int = 600,
        now: Time | None = None,
        jti: str | None = None,
    ) -> str:
        """A credential of ada's for whoever has the prover's key."""
        ref = SpaceRef(self.dids["ada"], KIND, space)
        return tokens.mint_credential(
            self.keys["ada"],
            ref,
            prover.holder,
            self.clock() if now is None else now,
            lifetime=lifetime,
            jti=jti,
        )

    def present(self, prover: Prover, credential: str, nsid: str, audience: str) -> Headers:
        """The headers of a request that presents the credential."""
        verb = "GET" if method(nsid).kind == "query" else "POST"
        url = f"{self.host.config.origin}/xrpc/{nsid}"
        return prover.use(verb, url, credential, audience, self.clock())

    def with_credential(
        self, nsid: str, audience: str, *, space: str = "open", alpha: bool = False
    ) -> Headers:
        """A good credential for this space and audience, presented."""
        prover = new_prover(alpha=alpha)
        return self.present(prover, self.mint(prover, space), nsid, audience)


@contextmanager
def world(target: Path | str, clock: Clock | None = None) -> Iterator[World]:
    with serving(target, clock, rates=Rates.none()) as running:
        populated = World(running)
        try:
            yield populated
        finally:
            populated.client.close()


def new_prover(*, alpha: bool = False) -> Prover:
    key = SigningKey.generate("p256")
    return DpopProver(key) if alpha else SignatureProver(key)


def bearer(token: str) -> Headers:
    return [("authorization", f"Bearer {token}")]


Build = Callable[[World, str, str, str], Headers]
"""The headers of a call: of the world, for a method, with this audience, about this space."""


def _session(name: str) -> Build:
    return lambda world, *_: world.session(name)


def _app_password(world: World, *_: str) -> Headers:
    def make() -> Headers:
        password = world.host.accounts.add_app_password(world.accounts["mira"], "app")
        return bearer(world.sign_in("mira.localhost", password)["accessJwt"])

    return world.once("app password", make)


def _expired_session(world: World, *_: str) -> Headers:
    def make() -> Headers:
        world.clock.pass_(-3 * 3600)
        token = world.sign_in()["accessJwt"]
        world.clock.pass_(3 * 3600)
        return bearer(token)

    return world.once("expired session", make)


def _ended_session(world: World, *_: str) -> Headers:
    def make() -> Headers:
        session = world.sign_in()
        assert world.post("deleteSession", token=session["refreshJwt"]).status_code == 200
        return bearer(session["accessJwt"])

    return world.once("ended session", make)


def _credential(**options: Any) -> Build:
    """A credential that is as it should be but for the options."""
    alpha = options.pop("alpha", False)
    audience_of = options.pop("audience", None)
    elsewhere = options.pop("elsewhere", None)

    def build(world: World, nsid: str, audience: str, space: str) -> Headers:
        prover = new_prover(alpha=alpha)
        credential = world.mint(prover, elsewhere or space, **options)
        return world.present(prover, credential, nsid, world.dids.get(audience_of, audience))

    return build


def _revoked(*, elsewhere: bool = False) -> Build:
    def build(world: World, nsid: str, audience: str, space: str) -> Headers:
        prover = new_prover()
        jti = "taken back"
        where = ("open" if space == "other" else "other") if elsewhere else space
        if elsewhere:
            jti = "taken back elsewhere"
        world.host.revocations.add(world.spaces[where], [jti])
        return world.present(prover, world.mint(prover, space, jti=jti), nsid, audience)

    return build


def _as_bearer(world: World, nsid: str, audience: str, space: str) -> Headers:
    return bearer(world.mint(new_prover(), space))


def _unsigned(alpha: bool) -> Build:
    def build(world: World, nsid: str, audience: str, space: str) -> Headers:
        headers = _credential(alpha=alpha)(world, nsid, audience, space)
        return [pair for pair in headers if pair[0] in ("Authorization", "Atproto-Space-Audience")]

    return build


def _repeated(world: World, nsid: str, audience: str, space: str) -> Headers:
    headers = _credential()(world, nsid, audience, space)
    return [headers[0], *headers]


def _stolen(world: World, nsid: str, audience: str, space: str) -> Headers:
    return world.present(new_prover(), world.mint(new_prover(), space), nsid, audience)


def _signed_by(name: str) -> Build:
    def build(world: World, nsid: str, audience: str, space: str) -> Headers:
        prover = new_prover()
        ref = SpaceRef(world.dids["ada"], KIND, space)
        now = world.clock()
        credential = tokens.mint_credential(world.keys[name], ref, prover.holder, now)
        return world.present(prover, credential, nsid, audience)

    return build


def _claims(**changed: Any) -> Build:
    """A credential of ada's whose claims are as given: times are relative to now."""

    def build(world: World, nsid: str, audience: str, space: str) -> Headers:
        prover = new_prover()
        now = int(world.clock())
        claims: dict[str, Any] = {
            "iss": world.dids["ada"],
            "sub": world.spaces[space],
            "cnf": {"kid": prover.holder.did},  # type: ignore[union-attr]
            "iat": now,
            "exp": now + 600,
            "jti": "some",
        }
        for name, value in changed.items():
            if value is None:
                del claims[name]
            else:
                claims[name] = now + value if name in ("iat", "exp") else value
        text = jwt.sign(world.keys["ada"], tokens.CREDENTIAL, claims, kid=tokens.ACCOUNT_KEY)
        return world.present(prover, text, nsid, audience)

    return build


def _foreign_issuer(world: World, nsid: str, audience: str, space: str) -> Headers:
    return _claims(iss=world.dids["eve"])(world, nsid, audience, space)


def _delegation(world: World, nsid: str, audience: str, space: str) -> Headers:
    prover = new_prover()
    ref = SpaceRef(world.dids["ada"], KIND, space)
    text = tokens.mint_delegation(world.keys["mira"], world.dids["mira"], ref, world.clock())
    return world.present(prover, text, nsid, audience)


def _service(world: World, nsid: str, audience: str, space: str) -> Headers:
    text = tokens.mint_service_auth(
        world.keys["mira"], world.dids["mira"], audience, nsid, world.clock()
    )
    return bearer(text)


CALLERS: dict[str, Build] = {
    "nobody": lambda *_: [],
    "garbage": lambda *_: bearer("gar.ba.ge"),
    "basic": lambda *_: [("authorization", "Basic bWlyYTpodW50ZXI=")],
    "ada": _session("ada"),
    "mira": _session("mira"),
    "mira's app": _app_password,
    "yuki": _session("yuki"),
    "eve": _session("eve"),
    "noa": _session("noa"),
    "gone": _session("gone"),
    "still": _session("still"),
    "expired session": _expired_session,
    "ended session": _ended_session,
    "refresh token": lambda world, *_: bearer(world.sessions["mira"]["refreshJwt"]),
    "service": _service,
    "delegation": _delegation,
    "credential": _credential(),
    "alpha credential": _credential(alpha=True),
    "other space": _credential(elsewhere="other"),
    "other audience": _credential(audience="noa"),
    "other space and audience": _credential(elsewhere="other", audience="noa"),
    "alpha, other space": _credential(alpha=True, elsewhere="other"),
    "revoked": _revoked(),
    "revoked elsewhere": _revoked(elsewhere=True),
    "as bearer": _as_bearer,
    "unsigned": _unsigned(alpha=False),
    "alpha, unsigned": _unsigned(alpha=True),
    "repeated": _repeated,
    "stolen": _stolen,
    "forged": _signed_by("eve"),
    "foreign issuer": _foreign_issuer,
    "expired": _claims(iat=-700, exp=-100),
    "too long": _claims(exp=3601),
    "issued ahead": _claims(iat=60, exp=120),
    "never issued": _claims(iat=None),
    "without jti": _claims(jti=None),
    "bound to nothing": _claims(cnf=None),
    "for no space": _claims(sub="at://did:web:ada.example/com.example.note/x"),
}
"""Whoever may call, and how."""
