"""XRPC, as a client speaks it: typed by the lexicons, to one host, never twice where once counts.

    with Client("https://host.example", auth=session) as client:
        answer = client.query("com.atproto.space.getRecord", {"space": "at://…", …})

A query may be asked again, and is, a few times, with pauses. A procedure is sent again only if
the first request provably did nothing: it did not get there, or its proof or token was refused.
Redirects are not followed, so no credential follows one. Source: XRPC spec; RFC 9449 (nonces).
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from socket import SHUT_RDWR, socket
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias, TypeVar
from weakref import WeakSet

from lettaspace import __version__
from lettaspace.atproto import data, methods
from lettaspace.atproto.methods import Method
from lettaspace.errors import Damaged, HostRefused, InvalidInput, InvalidRecord, Unreachable
from lettaspace.remote import answers
from lettaspace.remote.answers import Failed, TooLarge

if TYPE_CHECKING:
    import ssl

    import httpx

AGENT: Final = f"lettaspace/{__version__}"
CONNECT: Final = 10.0
READ: Final = 60.0
"""Seconds until a connection stands, and until the next bytes of an answer are there."""
PATIENCE: Final = 600.0
"""Seconds until an answer in JSON is there as a whole."""
MAX_JSON: Final = 64 * 1024 * 1024
MAX_DOWNLOAD: Final = 16 * 1024 * 1024 * 1024
"""Bytes of an answer, unpacked."""
TRIES: Final = 3
MAX_WAIT: Final = 30.0
"""Seconds to wait when a host says how long; longer than that is left to the caller."""

TWO_SHAPES: Final = frozenset(
    (
        "com.atproto.simplespace.getSpace",
        "com.atproto.simplespace.listMembers",
        "com.atproto.space.listRepos",
    )
)
"""Queries that hosts of the two generations answer differently: who asks has to look."""

_IDLE = 4.0  # less than the five seconds after which servers commonly close a connection

Field: TypeAlias = tuple[str, str]
Params: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


class Auth(Protocol):
    """Who asks, and how that is proved. Threads may share one."""

    def fields(self, method: str, url: str, nonce: str | None) -> list[Field]:
        """The fields of one request. `url` is the request's without its query, `nonce` the
        newest that its origin gave for DPoP proofs.

        Raises SignedOut, and what asking another host for a token may raise.
        """
        ...

    def renew(self, used: Sequence[Field], error: str) -> bool:
        """A host refused `used` with status 401 (or an expired token) and this error name.

        True: `fields` gives others now, and the request is sent once more. False: asking again
        would not help, the refusal stands. If somebody else renewed meanwhile, `used` shows it:
        it has not the token that is current. Raises SignedOut and what renewing may raise.
        """
        ...


@dataclass(slots=True)
class _Request:
    method: Method
    url: str
    params: list[tuple[str, answers.Parameter]] = field(default_factory=list)
    content: bytes | None = None
    media_type: str | None = None
    auth: Auth | None = None
    secrets: Any = None
    """What of ours an error must not repeat."""
    wait: int = 0
    """Seconds for which the answer may be held."""
    waited: bool = False
    """Whether the host has taken note of that."""

    @property
    def verb(self) -> str:
        return "GET" if self.method.kind == "query" else "POST"


class Client:
    """Speaks to one host. Threads may share one.

    `origin` is scheme, host and port. `transport` is one of httpx, where connections are not to
    be made in the usual way (`transport.Checked`); without one the environment's proxies are
    used. `timeout` is `READ`, `patience` is `PATIENCE`, `tries` is `TRIES`. Raises InvalidInput
    for no origin.

    All calls raise HostRefused, SignedOut (by way of `auth`), and Unreachable; its `sent` is
    False only where the host certainly did nothing. InvalidInput: no such method ships here.
    """

    def __init__(
        self,
        origin: str,
        *,
        auth: Auth | None = None,
        transport: "httpx.BaseTransport | None" = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        timeout: float = READ,
        patience: float = PATIENCE,
        tries: int = TRIES,
    ) -> None:
        import httpx

        self.origin: Final = answers.check_origin(origin)
        self.auth = auth
        self.skew: float | None = None
        """Seconds by which the host's clock was ahead of ours in its last answer."""
        self._clock = clock
        self._sleep = sleep
        self._patience = patience
        self._tries = tries
        self._nonce: str | None = None
        self._waiting: WeakSet[socket] = WeakSet()
        self._interrupted = False
        self._http = httpx.Client(
            transport=transport,
            verify=_trusted(),
            timeout=httpx.Timeout(timeout, connect=min(CONNECT, timeout)),
            limits=httpx.Limits(keepalive_expiry=_IDLE),
            headers={"user-agent": AGENT, "accept-encoding": "gzip"},
            cookies=answers.no_cookies(),
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def url(self, nsid: str) -> str:
        """Where a method of this host is."""
        return f"{self.origin}/xrpc/{nsid}"

    def query(self, nsid: str, params: Params | None = None, *, auth: Auth | None = None) -> Any:
        """What a query answers, in the data model. `auth` stands for the client's own."""
        request = self._request(nsid, "query", params, auth)
        return self._patiently(request, lambda: self._json(request))

    def wait(self, nsid: str, params: Params, seconds: int) -> tuple[Any, bool]:
        """What a query answers, which the host may hold for so many seconds until there is news,
        and whether it is one that does so (RFC 7240, `wait`)."""
        request = self._request(nsid, "query", params, None)
        request.wait = seconds
        answer = self._patiently(request, lambda: self._json(request))
        return answer, request.waited

    def interrupt(self) -> None:
        """Breaks off what waits in another thread, and whatever is to wait from now on."""
        self._interrupted = True
        for each in list(self._waiting):
            _break_off(each)

    def procedure(self, nsid: str, body: Any = None, *, auth: Auth | None = None) -> Any:
        """What a procedure answers, in the data model; None if it answers with no body.

        `body` is a value of the data model, or its JSON as bytes. Raises InvalidRecord for a
        value that has none.
        """
        request = self._request(nsid, "procedure", None, auth)
        if body is not None:
            request.content = body if isinstance(body, bytes) else data.dumps(body).encode()
            request.media_type = methods.JSON
            request.secrets = body
        return self._patiently(request, lambda: self._json(request))

    def upload(self, nsid: str, content: bytes, media_type: str) -> Any:
        """What a procedure answers that takes bytes."""
        request = self._request(nsid, "procedure", None, None)
        request.content, request.media_type = content, media_type
        return self._patiently(request, lambda: self._json(request))

    @contextmanager
    def download(
        self, nsid: str, params: Params | None = None, *, limit: int = MAX_DOWNLOAD
    ) -> Iterator[Iterator[bytes]]:
        """The bytes that a query answers with, in pieces as they come, at most `limit`.

        Reading them raises Unreachable where they break off, or are more.
        """
        request = self._request(nsid, "query", params, None)
        response = self._patiently(request, lambda: self._open(request))
        try:
            gives = request.method.gives
            if gives != "*/*" and answers.media_type(response) != gives:
                raise Failed(f"{self.origin} answered {nsid} with something else", again=False)
            yield answers.pieces(response, self.origin, limit)
        finally:
            response.close()

    def pages(self, nsid: str, params: Params, items: str) -> Iterator[dict[str, Any]]:
        """The answers of a query page by page, for as long as they have a cursor.

        `items` names the list in them. Pages that are too large are asked for with a lower
        `limit`, if there is one. Raises Damaged for a cursor that was given before, and for
        empty pages that promise more.
        """
        asked = dict(params)
        seen: set[bytes] = set()
        empty = 0
        while True:
            try:
                answer = self.query(nsid, asked)
            except TooLarge:
                if asked.get("limit", 1) <= 1:
                    raise
                asked["limit"] //= 2
                continue
            yield answer
            cursor = asked["cursor"] = answer.get("cursor")
            if cursor is None:
                return
            digest = sha256(cursor.encode()).digest()
            empty += not answer[items]
            if digest in seen or empty > 1:
                fault = "the same page again" if digest in seen else "empty pages without end"
                raise Damaged(f"{self.origin} answers {nsid} with {fault}")
            seen.add(digest)

    def _request(self, nsid: str, kind: str, params: Params | None, auth: Auth | None) -> _Request:
        method = methods.method(nsid)
        if method.kind != kind:
            raise InvalidInput(f"{nsid} is a {method.kind}")
        pairs = answers.query_pairs(params or {})
        return _Request(method, self.url(nsid), pairs, auth=auth or self.auth)

    def _patiently(self, request: _Request, attempt: Callable[[], T]) -> T:
        """The outcome of an attempt, or of a later one where another may be made."""
        safe = request.method.kind == "query"
        for number in range(1, self._tries):
            try:
                return attempt()
            except Failed as error:
                if not error.again or (error.sent and not safe) or (error.wait or 0) > MAX_WAIT:
                    raise
                wait = error.wait
            except HostRefused as error:
                wait = error.retry_after
                if error.status != 429 or not safe or (wait or 0) > MAX_WAIT:
                    raise
            pause = 0.5 * 2 ** (number - 1) * random.uniform(0.5, 1.0)  # noqa: S311
            self._sleep(max(wait or 0.0, pause))
        return attempt()

    def _json(self, request: _Request) -> Any:
        """One attempt, with the value that is in the answer's body."""
        deadline = time.monotonic() + self._patience
        response = self._open(request)
        request.waited = "wait" in response.headers.get("preference-applied", "").lower()
        try:
            if request.method.gives is None:
                return None
            reason = f"{self.origin} answered {request.method.nsid} with something else"
            if answers.media_type(response) != methods.JSON:
                raise Failed(reason, again=False)
            body = b"".join(answers.pieces(response, self.origin, MAX_JSON, deadline))
            # The errors' texts are not repeated, which may hold what the answer does.
            try:
                value = data.loads(body)
            except InvalidRecord:  # cut short, perhaps
                raise Failed(reason) from None
            try:
                if request.method.nsid not in TWO_SHAPES:
                    request.method.output(value)
            except InvalidRecord:
                raise Failed(reason, again=False) from None
            return value
        finally:
            response.close()

    def _open(self, request: _Request) -> "httpx.Response":
        """One attempt, up to the head of an answer that is none of an error.

        It is made once more, each at most once, with the nonce or the token that a host wants.
        """
        renonced = renewed = False
        while True:
            auth, used = request.auth, []
            if auth is not None:
                with _not_sent():
                    used = auth.fields(request.verb, request.url, self._nonce)
            response = self._send(request, used)
            self._note(response)
            if response.is_success:
                return response
            refusal = answers.Refusal.read(response, self.origin)
            nsid = request.method.nsid
            if auth is not None and refusal.wants_nonce:
                if renonced:
                    raise refusal.error(nsid, text="asks for a new nonce each time it is given one")
                renonced = True
                continue
            if auth is not None and refusal.is_about_token and not renewed:
                with _not_sent():
                    renewed = auth.renew(used, refusal.name)
                if renewed:
                    continue
            raise refusal.error(nsid, hidden=(used, request.secrets), skew=self.skew)

    def _send(self, request: _Request, used: Sequence[Field]) -> "httpx.Response":
        import httpx

        headers = list(used)
        if request.media_type is not None:
            headers.append(("content-type", request.media_type))
        extensions = None
        if request.wait:
            headers.append(("prefer", f"wait={request.wait}"))
            extensions = {"trace": self._trace}
        sending = self._http.build_request(
            request.verb,
            request.url,
            params=request.params,
            content=b"" if request.content is None and request.verb == "POST" else request.content,
            headers=headers,
            extensions=extensions,
        )
        try:
            return self._http.send(sending, stream=True)
        except httpx.RequestError as error:
            raise answers.failure(error, self.origin) from None

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Keeps the sockets of requests that wait: closing a client wakes no thread that reads."""
        # Breaking one off before TLS is there would leave it to nobody to close.
        there = "start_tls" if self.origin.startswith("https:") else "connect_tcp"
        if event.endswith(f".{there}.complete"):
            found = info["return_value"].get_extra_info("socket")
            self._waiting.add(found)
            if self._interrupted:
                _break_off(found)

    def _note(self, response: "httpx.Response") -> None:
        """Keeps what an answer of any kind says of the next request."""
        self._nonce = response.headers.get("dpop-nonce", self._nonce)
        date = answers.date(response)
        if date is not None:
            self.skew = date - self._clock()


def _break_off(connection: socket) -> None:
    with suppress(OSError):
        # Not what TLS makes of it, which is nothing for a second thread.
        socket.shutdown(connection, SHUT_RDWR)


@cache
def _trusted() -> "ssl.SSLContext":
    """Whose certificates are taken. Reading them takes longer than most requests."""
    import httpx

    return httpx.create_ssl_context()


@contextmanager
def _not_sent() -> Iterator[None]:
    """Where somebody else could not be reached, who was needed first, this host did nothing."""
    try:
        yield
    except Unreachable as error:
        raise Unreachable(str(error), sent=False) from None
