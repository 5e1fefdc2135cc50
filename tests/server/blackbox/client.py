"""Whoever uses a host over HTTP: accounts with their sessions, and holders of credentials."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httpx

from lettaspace.atproto import data
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.proof import new_prover

SPACE = "com.atproto.space."
SIMPLE = "com.atproto.simplespace."
DEFS = "com.atproto.simplespace.defs#"
TYPE = "org.example.room"
NOTE = "org.example.note"

PUBLIC = {"$type": DEFS + "publicPolicy"}
MEMBERS = {"$type": DEFS + "memberListPolicy"}
OPEN = {"$type": DEFS + "open"}


@dataclass(frozen=True)
class Host:
    """A host, by its base URL."""

    url: str
    client: httpx.Client

    def get(self, nsid: str, headers: Any = (), **params: Any) -> httpx.Response:
        url = f"{self.url}/xrpc/{nsid}"
        return self.client.get(url, params=params, headers=headers)

    def post(self, nsid: str, headers: Any = (), **body: Any) -> httpx.Response:
        url = f"{self.url}/xrpc/{nsid}"
        return self.client.post(url, json=body, headers=headers)

    def document(self) -> dict[str, Any]:
        """The DID document at its origin."""
        answer = self.client.get(f"{self.url}/.well-known/did.json")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


class Party:
    """An account, signed in with its password."""

    def __init__(self, host: Host, identifier: str, password: str) -> None:
        self.host = host
        body = {"identifier": identifier, "password": password}
        session = good(host.post("com.atproto.server.createSession", **body))
        self.did: str = session["did"]
        self.bearer = {"authorization": f"Bearer {session['accessJwt']}"}

    def get(self, nsid: str, **params: Any) -> httpx.Response:
        return self.host.get(nsid, self.bearer, **params)

    def post(self, nsid: str, **body: Any) -> httpx.Response:
        return self.host.post(nsid, self.bearer, **body)

    def create_space(
        self, read: Any = MEMBERS, write: Any = MEMBERS, **more: Any
    ) -> httpx.Response:
        settings = {"readPolicy": read, "writePolicy": write, "appAccess": OPEN}
        return self.post(SIMPLE + "createSpace", spaceType=TYPE, **settings | more)

    def write(self, space: str, rkey: str, value: Any = None, nsid: str = "createRecord") -> Any:
        """A note; returns the answer."""
        record = {"text": rkey} if value is None else value
        return self.post(SPACE + nsid, **self.repo(space), **place(rkey), record=record)

    def repo(self, space: str) -> dict[str, str]:
        return {"space": space, "repo": self.did}

    def delegate(self, space: str) -> str:
        return str(good(self.get(SPACE + "getDelegationToken", space=space))["token"])

    def key(self) -> VerifyingKey:
        """The key in its DID document."""
        document = self._document()
        (method,) = (m for m in document["verificationMethod"] if m["id"].endswith("#atproto"))
        return VerifyingKey.from_did("did:key:" + method["publicKeyMultibase"])

    def _document(self) -> dict[str, Any]:
        method, _, name = self.did.removeprefix("did:").partition(":")
        if method == "plc":
            return dict(self.host.client.get(f"https://plc.directory/{self.did}").json())
        netloc = unquote(name)
        url, headers = f"https://{netloc}", {}
        if netloc.partition(":")[0].endswith("localhost"):  # which not every resolver knows
            url, headers = f"http://127.0.0.1:{netloc.partition(':')[2]}", {"host": netloc}
        answer = self.host.client.get(f"{url}/.well-known/did.json", headers=headers)
        return dict(answer.json())


class Holder:
    """A client with a key of its own, and with the credential for a space, once it has one."""

    def __init__(self, authority: Host) -> None:
        self.authority = authority
        self._prover = new_prover()
        self._credential = ""

    def exchange(self, delegation: str, space: str) -> httpx.Response:
        """Asks the host of the authority for a credential."""
        nsid = SPACE + "getSpaceCredential"
        url = f"{self.authority.url}/xrpc/{nsid}"
        fields = self._prover.exchange("POST", url, delegation, time.time())
        answer = self.authority.post(nsid, fields, space=space)
        if answer.status_code == 200:
            self._credential = answer.json()["credential"]
        return answer

    def get(self, host: Host, nsid: str, audience: str, **params: Any) -> httpx.Response:
        """Asks with the credential. `audience` is the repo's account, or the authority."""
        url = f"{host.url}/xrpc/{nsid}"
        fields = self._prover.use("GET", url, self._credential, audience, time.time())
        return host.get(nsid, fields, **params)


def place(rkey: str) -> dict[str, str]:
    return {"collection": NOTE, "rkey": rkey}


def good(answer: httpx.Response) -> Any:
    """What a method answered, in the data model; None for nothing."""
    assert answer.status_code == 200, (answer.status_code, answer.text)
    return data.loads(answer.content) if answer.content else None


def error(answer: httpx.Response) -> str:
    """The name of an error, which is one of the client's."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    return str(answer.json()["error"])
