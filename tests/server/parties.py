"""Who takes part in a space: users with accounts, readers with credentials, services, apps."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
from sqlalchemy import select

from lettaspace.atproto import data
from lettaspace.atproto.keys import SigningKey
from lettaspace.atproto.proof import Generation, new_prover
from lettaspace.atproto.tokens import mint_service_auth, read_service_auth
from lettaspace.network.didweb import document
from lettaspace.server import tables
from lettaspace.server.host import Host
from tests.server.hosts import PASSWORD, Server
from tests.server.peers import Peer, peer
from tests.waiting import SECONDS, until

SPACE = "com.atproto.space."
SIMPLE = "com.atproto.simplespace."
DEFS = "com.atproto.simplespace.defs#"
TYPE = "org.example.room"
NOTE = "org.example.note"

PUBLIC = {"$type": DEFS + "publicPolicy"}
MEMBERS = {"$type": DEFS + "memberListPolicy"}
OPEN = {"$type": DEFS + "open"}


def managed_by(app: str) -> dict[str, Any]:
    return {"$type": DEFS + "managingAppPolicy", "managingApp": app}


def only(*allowed: str) -> dict[str, Any]:
    return {"$type": DEFS + "allowList", "allowed": list(allowed)}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


def settle(server: Server) -> None:
    """Waits until a host that is being served has nothing more to tell others."""
    until(lambda: not pending(server.host), about="an empty outbox")


def pending(host: Host) -> list[Any]:
    """The rows of a host's outbox."""
    with host.database.read() as connection:
        return list(connection.execute(select(tables.outbox).order_by(tables.outbox.c.repo)))


class User:
    """An account of a host, signed in."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.account = server.add_account(name)
        self.did = self.account.did
        self.sign_in()

    def sign_in(self, password: str = PASSWORD) -> None:
        self.token: str = self.server.sign_in(self.account.handle, password)["accessJwt"]

    @property
    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def get(self, nsid: str, **params: Any) -> httpx.Response:
        return self.server.client.get(f"/xrpc/{nsid}", params=params, headers=self.bearer)

    def post(self, nsid: str, **body: Any) -> httpx.Response:
        return self.server.client.post(f"/xrpc/{nsid}", json=body, headers=self.bearer)

    def create(
        self,
        skey: str = "self",
        read: dict[str, Any] = MEMBERS,
        write: dict[str, Any] = MEMBERS,
        apps: dict[str, Any] = OPEN,
    ) -> str:
        """A new space."""
        settings = {"readPolicy": read, "writePolicy": write, "appAccess": apps}
        answer = self.post(SIMPLE + "createSpace", spaceType=TYPE, skey=skey, **settings)
        assert answer.status_code == 200, answer.text
        return answer.json()["uri"]

    def admit(self, space: str, did: str, read: bool = True, write: bool = True) -> None:
        member = {"space": space, "did": did, "read": read, "write": write}
        answer = self.post(SIMPLE + "putMember", **member)
        assert answer.status_code == 200, answer.text

    def write(self, space: str, text: str = "hello", rkey: str | None = None) -> str:
        """A note; returns its URI."""
        body = {"space": space, "repo": self.did, "collection": NOTE, "record": {"text": text}}
        answer = self.post(
            SPACE + "createRecord", **body | ({} if rkey is None else {"rkey": rkey})
        )
        assert answer.status_code == 200, answer.text
        return answer.json()["uri"]

    def delegate(self, space: str) -> str:
        answer = self.get(SPACE + "getDelegationToken", space=space)
        assert answer.status_code == 200, answer.text
        return answer.json()["token"]

    def service_post(self, to: Server, nsid: str, audience: str, **body: Any) -> httpx.Response:
        """Calls another host as this account's own host does."""
        key = self.server.host.accounts.signing_key(self.did)
        token = mint_service_auth(key, self.did, audience, nsid, self.server.clock())
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        return to.client.post(f"/xrpc/{nsid}", content=data.dumps(body), headers=headers)


class Reader:
    """A client that holds a key, and the credential that is bound to it once it has one."""

    def __init__(self, server: Server, generation: Generation = "signature") -> None:
        """`server` is the host of the space's authority."""
        self.server = server
        self.prover = new_prover(generation)
        self.credential = ""

    def exchange(self, delegation: str, space: Any, /, **body: Any) -> httpx.Response:
        nsid = SPACE + "getSpaceCredential"
        now = self.server.clock()
        fields = self.prover.exchange("POST", self._url(self.server, nsid), delegation, now)
        body = {"space": space} | body
        return self.server.client.post(f"/xrpc/{nsid}", json=body, headers=fields)

    def open(self, user: User, space: str) -> Reader:
        """Gets a credential for a user's client."""
        answer = self.exchange(user.delegate(space), space)
        assert answer.status_code == 200, answer.text
        self.credential = answer.json()["credential"]
        return self

    def get(
        self, nsid: str, audience: str, to: Server | None = None, **params: Any
    ) -> httpx.Response:
        to = to or self.server
        fields = self._use("GET", to, nsid, audience)
        return to.client.get(f"/xrpc/{nsid}", params=params, headers=fields)

    def post(
        self, nsid: str, audience: str, to: Server | None = None, **body: Any
    ) -> httpx.Response:
        to = to or self.server
        fields = self._use("POST", to, nsid, audience)
        return to.client.post(f"/xrpc/{nsid}", json=body, headers=fields)

    def _use(self, verb: str, to: Server, nsid: str, audience: str) -> list[tuple[str, str]]:
        url = self._url(to, nsid)
        return self.prover.use(verb, url, self.credential, audience, self.server.clock())

    def _url(self, server: Server, nsid: str) -> str:
        return f"{server.host.config.origin}/xrpc/{nsid}"


class Service:
    """Something else with a DID of its own, on a port of this machine: it notes what it is
    sent, and answers what it is told to."""

    def __init__(self, peer: Peer) -> None:
        self.port = peer.port
        self.did = f"did:web:localhost%3A{peer.port}"
        self.key = SigningKey.generate()
        self.fragment = "#notify"
        self.received: list[dict[str, Any]] = []
        self.queries: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.paths: list[str] = []
        self.status = 200
        self.answer: Any = {}
        self.documents: dict[str, Any] = {}
        """What else it serves, by path."""
        self.is_open = threading.Event()
        """Cleared: it holds its answers back."""
        self.is_open.set()
        self.news = threading.Condition()
        self.arrived = threading.Semaphore(0)
        """Released for each request that comes in, before it is answered."""

    @property
    def id(self) -> str:
        return self.did + self.fragment

    def document(self) -> dict[str, Any]:
        origin = f"http://localhost:{self.port}"
        form = document(self.did, origin, self.key.verifying_key)
        form["service"].append({"id": self.fragment, "type": "Notify", "serviceEndpoint": origin})
        return form

    def wait(self, count: int) -> list[dict[str, Any]]:
        """What it was sent, once that is so many."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.received) >= count, SECONDS), self.received
            return list(self.received)

    def auth(self, number: int = -1) -> tuple[str, str, str]:
        """Issuer, audience and method of a token that it was sent, signature unchecked."""
        nsid = self.paths[number].removeprefix("/xrpc/")
        # The clock of the tests stands somewhere else than the one of this machine.
        token = read_service_auth(self.tokens[number], 1_790_000_000 + self.passed, nsid)
        return token._claims.issuer, token._claims.audience, token._claims.lxm

    passed = 0.0
    """Seconds that the tests' clock was moved."""

    def serve(self, connection: socket.socket, request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        verb, target, _ = line.split(" ")
        url = urlsplit(target)
        if url.path == "/.well-known/did.json":
            return _send(connection, 200, self.document())
        if url.path in self.documents:
            return _send(connection, 200, self.documents[url.path])
        headers = {k.lower(): v.strip() for k, _, v in (field.partition(":") for field in fields)}
        self.arrived.release()
        self.is_open.wait(SECONDS)
        with self.news:
            self.paths.append(url.path)
            self.tokens.append(headers.get("authorization", "").removeprefix("Bearer "))
            if verb == "POST":
                self.received.append(json.loads(body))
            else:
                self.queries.append(dict(parse_qsl(url.query)))
            self.news.notify_all()
            status, answer = self.status, self.answer
        return _send(connection, status, answer)


def _send(connection: socket.socket, status: int, value: Any) -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    connection.sendall(head.encode() + b"\r\n\r\n" + body)


@contextmanager
def service() -> Iterator[Service]:
    """A service while the block runs."""
    holder: list[Service] = []
    with peer(lambda connection, request: holder[0].serve(connection, request)) as listening:
        holder.append(Service(listening))
        yield holder[0]
