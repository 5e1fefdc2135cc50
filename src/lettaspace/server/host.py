"""The host: what all handlers are given."""

import time
from collections.abc import Callable, Coroutine
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Connection

from lettaspace.atproto.keys import SigningKey
from lettaspace.network import didweb
from lettaspace.network.fetching import Fetcher
from lettaspace.network.identity import Resolver
from lettaspace.server import tables, vault
from lettaspace.server.accounts import Account, Accounts
from lettaspace.server.calling import Network
from lettaspace.server.calls import Answer, Call
from lettaspace.server.clients import Clients
from lettaspace.server.config import Config, web_did
from lettaspace.server.forwards import Forwards
from lettaspace.server.limits import Limits
from lettaspace.server.outbox import Outbox
from lettaspace.server.presented import Presented
from lettaspace.server.replay import Revocations, UsedTokens
from lettaspace.server.repos import Repos
from lettaspace.server.sessions import Sessions
from lettaspace.server.spaces import Spaces
from lettaspace.server.waiting import Wait, Waiting
from lettaspace.server.writers import Writers
from lettaspace.server.xrpc import Xrpc
from lettaspace.space.database import Database

Handler = Callable[["Host", Call], Answer] | Callable[["Host", Call], Coroutine[Any, Any, Answer]]
Gate = Callable[["Host", Call], Any]
Hold = Callable[["Host", Call], Wait | None]

WriteHook: TypeAlias = Callable[[Connection, str, str, str, bytes], Callable[[], None] | None]
"""Is told of each write to a repo, in the write's own transaction: the space, the account's DID,
the new rev, and the hash (32 bytes) that its commit has. What it returns is called once the
write is committed; it must neither raise nor take long."""


class Worker(Protocol):
    """Something that goes on beside the requests while the host serves."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Host:
    """One process's hold on a host. Use `Host.open`; close it when done, or use it in `with`.

    `clock` gives seconds since 1970. `checking` is for tests, see `Xrpc`.
    """

    def __init__(
        self,
        config: Config,
        database: Database,
        *,
        clock: Callable[[], float] = time.time,
        checking: bool = False,
    ) -> None:
        self.config = config
        self.database = database
        self.clock = clock
        self.accounts = Accounts(database, clock)
        self.sessions = Sessions(database, config.did, clock)
        self.fetcher = Fetcher(development=config.development)
        self.identity = self._resolver(self.fetcher)
        in_background = Fetcher(development=config.development, total=8)
        self.background = Network(in_background, self._resolver(in_background))
        self.limits = Limits(config.rates, clock)
        self.delegations = UsedTokens(database, "delegation")
        self.attestations = UsedTokens(database, "attestation")
        self.proofs = UsedTokens(database, "dpop")
        self.presented = Presented()
        self.revocations = Revocations(database, clock)
        self.repos = Repos(database, clock)
        self.spaces = Spaces(database, clock)
        self.writers = Writers(database, clock)
        self.clients = Clients(self.fetcher)
        self.outbox = Outbox(self)
        self.forwards = Forwards(self)
        self.written: WriteHook = _nobody
        self.workers: list[Worker] = []
        self.xrpc = Xrpc(checking=checking)
        self.waiting = Waiting(database, self.xrpc.threads)

    @classmethod
    def open(
        cls, config: Config, *, clock: Callable[[], float] = time.time, checking: bool = False
    ) -> "Host":
        """Opens the database, making or migrating its tables. Raises StoreUnavailable."""
        database = Database.open(config.database)
        try:
            tables.prepare(database)
            return cls(config, database, clock=clock, checking=checking)
        except BaseException:
            database.close()
            raise

    def add(
        self,
        nsid: str,
        handler: Handler,
        *,
        gate: Gate | None = None,
        limit: int | None = None,
        slow: bool = False,
        hold: Hold | None = None,
    ) -> None:
        """Serves a method with functions that take the host and the call; see `Xrpc.add`."""
        self.xrpc.add(
            nsid,
            partial(handler, self),
            gate=None if gate is None else partial(gate, self),
            limit=limit,
            slow=slow,
            hold=None if hold is None else partial(hold, self),
        )

    def document(self, account: Account) -> dict[str, Any]:
        """What this host says of an account: its DID document, as JSON."""
        key = self.accounts.signing_key(account.did).verifying_key
        return didweb.document(account.did, self.config.origin, key, handle=account.handle)

    def document_at(self, netloc: str) -> dict[str, Any] | None:
        """The DID document that belongs at `host[:port]`, None if there is none here.

        Where an account has the host's own name the two are one.
        """
        did = web_did(netloc.lower())
        own = self._local_document(did)
        if own is None and did == self.config.did:
            own = didweb.document(did, self.config.origin, self.key.verifying_key)
        return own

    def _resolver(self, fetcher: Fetcher) -> Resolver:
        return Resolver(fetcher, local=self._local_document, plc=self.config.plc_directory)

    def _local_document(self, did: str) -> dict[str, Any] | None:
        account = self.accounts.by_did(did)
        return None if account is None else self.document(account)

    @cached_property
    def key(self) -> SigningKey:
        """The host's own signing key."""
        return SigningKey.from_bytes("secp256k1", vault.secret(self.database, "host key"))

    def close(self) -> None:
        self.xrpc.close()
        self.database.close()

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _nobody(connection: Connection, space: str, did: str, rev: str, digest: bytes) -> None:
    pass
