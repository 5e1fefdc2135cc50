"""What a host's answers mean: refusals, failures, and texts that are safe to repeat.

A host's own words are shown where they help, but they are anybody's: one line, clipped, no
character that does anything, and nothing in them that we had sent.
"""

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from json import loads
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from lettaspace.errors import HostRefused, InvalidInput, Unreachable

if TYPE_CHECKING:
    import httpx

Parameter: TypeAlias = str | int | float | bool | None
"""What httpx writes as XRPC has it."""

MAX_SKEW: Final = 60.0
"""Seconds that clocks may differ before one is suspected."""

_TRANSIENT = frozenset((408, 425, 500, 502, 503, 504, 522, 524))
"""Statuses after which asking again may help (protocol, section 8); 429 is a refusal here."""
_MAX_ERROR = 64 * 1024
_MAX_TEXT = 200
_WINDOW = 12
_WORD = 4
"""So many characters in a row that we had sent are no coincidence; in a short text, so many."""

_origin = re.compile(
    r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?"
).fullmatch
_name = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}").fullmatch
_challenge = re.compile(r'\berror="([A-Za-z0-9_.-]{1,64})"').search
_about_time = re.compile(r"expire|clock|\biat\b|\bnbf\b|\bexp\b|future|too old|ahead", re.I).search
_TIMELY = frozenset(
    (
        "JwtExpired",
        "ExpiredToken",
        "DpopProofExpired",
        "BadDpopProof",
        "BadDpopProofSignature",
        "InvalidDpopProof",
        "invalid_dpop_proof",
    )
)
"""What hosts call tokens and proofs that are too old, or not of this time yet."""
_IDENTIFIERS = frozenset(("space", "repo", "collection", "rkey", "$type", "identifier"))
"""Members of a body that say what a request is about, and may be repeated."""


class Failed(Unreachable):
    """`again`: the same may work a moment later. `wait`: the seconds the host asks for."""

    def __init__(
        self, message: str, *, sent: bool = True, again: bool = True, wait: float | None = None
    ) -> None:
        super().__init__(message, sent=sent)
        self.again = again
        self.wait = wait


class TooLarge(Failed):
    """An answer is larger than it may be; one page of fewer items may not be."""


def check_origin(text: str) -> str:
    """An origin in its one form, without a slash at its end. Raises InvalidInput."""
    import httpx

    origin = text.removesuffix("/").lower()
    try:
        if not _origin(origin) or urlsplit(origin).port == 0:  # one out of range is a ValueError
            raise ValueError
        httpx.URL(origin)
    except (ValueError, httpx.InvalidURL):
        raise InvalidInput("not the address of a host, such as https://host.example") from None
    return origin


def query_pairs(params: Mapping[str, Any]) -> list[tuple[str, Parameter]]:
    """Parameters as a query has them: None is left out, a list is repeated."""
    pairs: list[tuple[str, Parameter]] = []
    for name, value in params.items():
        values = value if isinstance(value, list | tuple) else [value]
        pairs += ((name, one) for one in values if one is not None)
    return pairs


def no_cookies() -> CookieJar:
    """A jar that nothing gets into."""
    return CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))


def media_type(response: "httpx.Response") -> str:
    """The type of an answer without parameters, in lower case; empty if there is none."""
    value: str = response.headers.get("content-type", "")
    return value.partition(";")[0].strip().lower()


def date(response: "httpx.Response") -> float | None:
    """When a host says that it answered, in seconds since 1970."""
    try:
        return parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None


def pieces(
    response: "httpx.Response", origin: str, limit: int, deadline: float | None = None
) -> Iterator[bytes]:
    """An answer's body, unpacked. Raises Failed where it breaks off, is more than `limit`
    bytes, or not there at `deadline` (monotonic)."""
    import httpx

    if response.headers.get("content-encoding", "identity").lower() not in ("identity", "gzip"):
        raise Failed(f"{origin} packs its answer in a way that was not asked for", again=False)
    left = limit
    try:
        for piece in response.iter_bytes():
            left -= len(piece)
            if left < 0:
                raise TooLarge(f"{origin} answers with more than {limit} bytes", again=False)
            if deadline is not None and time.monotonic() > deadline:
                raise Failed(f"{origin} took too long to answer", again=False)
            yield piece
    except httpx.RequestError as error:
        raise failure(error, origin) from None


def failure(error: "httpx.RequestError", origin: str) -> Failed:
    """What became of a request that has no answer, or only a part of one."""
    import httpx

    unsent = (
        httpx.ConnectError,
        httpx.ConnectTimeout,
        httpx.PoolTimeout,
        httpx.ProxyError,
        httpx.UnsupportedProtocol,
    )
    sent = not isinstance(error, unsent)
    if isinstance(error, httpx.TimeoutException):
        return Failed(f"{origin} took too long to answer", sent=sent, again=False)
    if isinstance(error, httpx.UnsupportedProtocol):
        return Failed(f"{origin}: {plain(str(error))}", sent=False, again=False)
    if _has_cause(error, ssl.SSLCertVerificationError):
        return Failed(f"{origin}: its certificate is not valid", sent=False, again=False)
    if sent:
        return Failed(f"{origin}: the connection broke")
    return Failed(f"{origin} cannot be reached", sent=False)


def plain(text: str) -> str:
    """One short line of a text, in which no character does anything."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is an error. `name` and `text` are the host's; empty where it gave none."""

    origin: str
    status: int
    name: str
    text: str
    challenge: str
    """The error in its WWW-Authenticate."""
    wait: float | None
    """The seconds it asks for."""

    @classmethod
    def read(cls, response: "httpx.Response", origin: str) -> "Refusal":
        """Reads and closes an answer."""
        body: Any = None
        try:
            if media_type(response) == "application/json":
                body = loads(b"".join(pieces(response, origin, _MAX_ERROR)))
        except (Unreachable, ValueError, RecursionError):  # cut short, or no JSON
            body = None
        finally:
            response.close()
        found = _challenge(response.headers.get("www-authenticate", ""))
        challenge = found[1] if found else ""
        fields = body if isinstance(body, dict) else {}
        name = fields.get("error")
        text = fields.get("message", fields.get("error_description"))
        return cls(
            origin,
            response.status_code,
            name if isinstance(name, str) and _name(name) else challenge,
            text if isinstance(text, str) else "",
            challenge,
            _seconds(response),
        )

    @property
    def wants_nonce(self) -> bool:
        return self.status in (400, 401) and "use_dpop_nonce" in (self.name, self.challenge)

    @property
    def is_about_token(self) -> bool:
        """Whether another token may be taken: some hosts say 400 for one that expired."""
        return self.status == 401 or (self.status == 400 and self.name == "ExpiredToken")

    def error(
        self, nsid: str, *, text: str | None = None, hidden: Any = None, skew: float | None = None
    ) -> HostRefused | Failed:
        """The error to raise: Failed where the host could not, HostRefused where it would not.

        `text` stands for the host's own, which is left out if it repeats something of `hidden`.
        """
        if self.status in _TRANSIENT or (self.status >= 500 and self.status != 501):
            reason = f"{self.origin} answered {nsid} with status {self.status}"
            return Failed(reason, again=self.status in _TRANSIENT, wait=self.wait)
        said = text
        if said is None and self.text and not _repeats(self.text, hidden):
            said = plain(self.text)
        reason = f"{self.origin} refused {nsid}: "
        reason += ": ".join(filter(None, (self.name, said))) or f"status {self.status}"
        if skew is not None and self._is_about_time and abs(skew) > MAX_SKEW:
            reason += f" (likely because this machine's clock is {_span(skew)} the host's)"
        return HostRefused(reason, status=self.status, error=self.name, retry_after=self.wait)

    @property
    def _is_about_time(self) -> bool:
        return self.status in (400, 401) and bool(
            {self.name, self.challenge} & _TIMELY or _about_time(self.text)
        )


def _span(skew: float) -> str:
    """How far our clock is from one that is `skew` seconds ahead of it."""
    minutes = max(1, round(abs(skew) / 60))
    unit = "minute" if minutes == 1 else "minutes"
    return f"{minutes} {unit} {'behind' if skew > 0 else 'ahead of'}"


def _seconds(response: "httpx.Response") -> float | None:
    """Retry-After, as seconds from now by the host's own clock."""
    value: str = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        until = parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    now = date(response)
    return None if now is None else max(0.0, until - now)


def _has_cause(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def _repeats(text: str, hidden: Any) -> bool:
    """Whether a text has something in it that stands in the strings of `hidden`, which is what
    was sent: a value, fields, or JSON."""
    windows = [text[i : i + _WINDOW] for i in range(max(1, len(text) - _WINDOW + 1))]
    stack: list[Any] = [hidden]
    while stack:
        node = stack.pop()
        if isinstance(node, bytes):
            node = loads(node)
        if isinstance(node, str):
            if len(node) >= _WINDOW:
                found = any(window in node for window in windows)
            else:
                found = len(node) >= _WORD and node in text
            if found:
                return True
        elif isinstance(node, dict):
            stack += (value for key, value in node.items() if key not in _IDENTIFIERS)
        elif isinstance(node, list | tuple):
            stack += node
    return False
