"""A host in a process of its own, as `lettaspace serve` runs it, with an account and a space."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.client import Connection, encode
from bench.measure import Cost
from lettaspace.atproto.keys import VerifyingKey
from lettaspace.atproto.proof import Generation, Prover, new_prover

DID = "did:web:bench.example"
KIND = "com.example.bench.kind"
NOTE = "com.example.bench.note"

_HANDLE = "bench.localhost"
_PASSWORD = "only for this benchmark"  # noqa: S105
_UNLIMITED = ("writes-per-hour", "writes-per-day", "sign-ins", "anonymous", "delegations-per-hour")
_COMMAND = [sys.executable, "-m", "lettaspace"]


class Served:
    """Use it in `with`. `database` is a path or a URL, and nothing is there yet."""

    def __init__(self, database: Path | str) -> None:
        self._add_account(str(database))
        command = [*_COMMAND, "serve", "--json", "--development", "--port", "0"]
        command += ["--database", str(database)]
        for name in _UNLIMITED:
            command += ["--limit", f"{name}=0"]
        # A line for each request is written, as by default, and read by nobody.
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        told = json.loads(self._process.stdout.readline() if self._process.stdout else "")
        self.port: int = told["port"]
        self.origin: str = told["origin"]
        self.connection = Connection(self.port)
        self.session = self._sign_in()
        self.space = self._create_space()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def timed(self, run: Callable[[], object]) -> Cost:
        """What a call costs here by the clock, and the host in processor time."""
        cpu, wall = self._cpu(), time.perf_counter()
        run()
        return Cost(time.perf_counter() - wall, self._cpu() - cpu)

    def no_op(self) -> bytes:
        """A request whose answer needs nothing."""
        return encode("GET", "/xrpc/com.atproto.server.describeServer")

    @property
    def key(self) -> VerifyingKey:
        """The key that signs the account's commits."""
        netloc = DID.removeprefix("did:web:")
        document = self._asked(encode("GET", "/.well-known/did.json", host=netloc))
        return VerifyingKey.from_multikey(document["verificationMethod"][0]["publicKeyMultibase"])

    def post(self, method: str, body: Mapping[str, Any]) -> bytes:
        """A call of a procedure of com.atproto.space in the account's session."""
        headers = [*self.session, ("Content-Type", "application/json")]
        return encode("POST", f"/xrpc/com.atproto.space.{method}", headers, _json(body))

    def get(self, method: str, *, space: str | None = None, **params: str | int) -> bytes:
        """The same of a query, about the account's repo in its space, or another."""
        of = {} if space is None else {"space": space}
        return encode("GET", self._query(method, {**params, **of}), self.session)

    def create(self, value: Mapping[str, Any]) -> bytes:
        body = {"space": self.space, "repo": DID, "collection": NOTE, "record": value}
        return self.post("createRecord", body)

    def apply(self, values: list[dict[str, Any]]) -> bytes:
        kind = "com.atproto.space.applyWrites#create"
        writes = [{"$type": kind, "collection": NOTE, "value": value} for value in values]
        return self.post("applyWrites", {"space": self.space, "repo": DID, "writes": writes})

    def holder(self, generation: Generation) -> "Holder":
        """A client that has got a credential for the space."""
        prover = new_prover(generation)
        query = urlencode({"space": self.space})
        target = f"/xrpc/com.atproto.space.getDelegationToken?{query}"
        delegation = self._asked(encode("GET", target, self.session))["token"]
        target = "/xrpc/com.atproto.space.getSpaceCredential"
        proof = prover.exchange("POST", self.origin + target, delegation, time.time())
        headers = [*proof, ("Content-Type", "application/json")]
        body = _json({"space": self.space})
        credential = self._asked(encode("POST", target, headers, body))["credential"]
        return Holder(self, prover, credential)

    def _query(self, method: str, params: Mapping[str, str | int]) -> str:
        query = urlencode({"space": self.space, "repo": DID, **params})
        return f"/xrpc/com.atproto.space.{method}?{query}"

    def reconnect(self) -> None:
        """A new connection: a host closes one on which nothing was asked for a while."""
        self.connection.close()
        self.connection = Connection(self.port)

    def _asked(self, request: bytes) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.connection.ask(request).body)
        return answer

    def _add_account(self, database: str) -> None:
        command = [*_COMMAND, "account", "add", _HANDLE, "--did", DID, "--no-check", "--json"]
        command += ["--development", "--origin", "http://localhost:1", "--password-stdin"]
        subprocess.run(
            [*command, "--database", database],
            input=_PASSWORD + "\n", text=True, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def _sign_in(self) -> list[tuple[str, str]]:
        target = "/xrpc/com.atproto.server.createSession"
        body = _json({"identifier": _HANDLE, "password": _PASSWORD})
        headers = [("Content-Type", "application/json")]
        given = self._asked(encode("POST", target, headers, body))
        self.tokens: tuple[str, str] = given["accessJwt"], given["refreshJwt"]
        return [("Authorization", f"Bearer {self.tokens[0]}")]

    def _create_space(self) -> str:
        defs = "com.atproto.simplespace.defs#"
        body = {
            "spaceType": KIND,
            "skey": "bench",
            "readPolicy": {"$type": f"{defs}memberListPolicy"},
            "writePolicy": {"$type": f"{defs}memberListPolicy"},
            "appAccess": {"$type": f"{defs}open"},
        }
        headers = [*self.session, ("Content-Type", "application/json")]
        target = "/xrpc/com.atproto.simplespace.createSpace"
        space: str = self._asked(encode("POST", target, headers, _json(body)))["uri"]
        return space

    def _cpu(self) -> float:
        """Seconds of processor time the host has used; 0 where there is no /proc."""
        with suppress(OSError):
            stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0


class Holder:
    """A client with a credential."""

    def __init__(self, served: Served, prover: Prover, credential: str) -> None:
        self._served = served
        self._prover = prover
        self._credential = credential

    def get(self, method: str, **params: str) -> bytes:
        """A query about the account's repo, with the credential and a proof of its own."""
        served = self._served
        url = f"{served.origin}/xrpc/com.atproto.space.{method}"
        proof = self._prover.use("GET", url, self._credential, DID, time.time())
        return encode("GET", served._query(method, params), proof)


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
