"""Who may see the pages, and what a browser may do with them.

The first address holds a random token; whoever opens it gets a cookie in its place. Without
the cookie there is one answer to everything, and it is the answer for what does not exist, so
that it tells nothing. Other web pages cannot read these: they lack the cookie (SameSite), a
name that was made to lead here (DNS rebinding) is no name of ours, and a foreign Origin is
refused. The content policy lets no message run or fetch anything, whatever is in it.
"""

import ipaddress
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"  # noqa: S105 - its name
"""The parameter of the first address."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types lettaspace",
    )
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}

_NOTHING = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Nothing here</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/static/style.css">
<main><h1>Nothing here</h1>
<p>There is no such page, or this browser may not see it.</p>
<p>The address that <code>lettaspace up</code> printed opens the viewer.
<a href="/">To the start</a></p>
</main></html>
"""


def nothing() -> Response:
    """The one answer for what does not exist and for what may not be seen."""
    return Response(_NOTHING, status_code=404, media_type="text/html")


class Hosts:
    """The names by which this server may be called.

    An address, and on loopback `localhost`; a server on every address also answers to any
    address by number, since no name can be made to lead here by one.
    """

    def __init__(self, address: str, port: int, names: Iterable[str] = ()) -> None:
        self.port = port
        self.any_number = is_wildcard(address)
        self.names = {name.lower() for name in names}
        if not self.any_number:
            self.names.add(address.lower())
        if self.any_number or is_loopback(address):
            self.names |= {"localhost", "127.0.0.1", "::1"}

    def allows(self, host: str) -> bool:
        """Whether a Host header's value names this server."""
        name, port = _split(host)
        if port != self.port:
            return False
        return name in self.names or (self.any_number and _is_number(name))

    def allows_origin(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and self.allows(host)


def is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    return _is_number(address) and ipaddress.ip_address(address).is_loopback


def is_wildcard(address: str) -> bool:
    return address == "" or (_is_number(address) and ipaddress.ip_address(address).is_unspecified)


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _split(host: str) -> tuple[str, int]:
    name, colon, port = host.lower().rpartition(":")
    if not colon or "]" in port:
        name, port = host.lower(), "80"
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        return "", -1
    return name.removeprefix("[").removesuffix("]"), int(port)


class Guard:
    """ASGI middleware. `cookie` is the name of the cookie, which tells servers apart that one
    browser knows by the same host name."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: Hosts) -> None:
        self.app = app
        self.token = token
        self.hosts = hosts
        self.cookie = f"lettaspace-{hosts.port}"
        self.secret = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._answer(scope)(scope, receive, guarded)

    def _answer(self, scope: Scope) -> ASGIApp:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD") or not self._is_addressed(headers):
            return nothing()
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == TOKEN]
        if given:
            if not secrets.compare_digest(given[0].encode(), self.token.encode()):
                return nothing()
            rest = urlencode([pair for pair in query if pair[0] != TOKEN])
            # A path may begin with two slashes, which would name another server.
            path = "/" + scope["path"].lstrip("/\\")
            return self._welcome(path + ("?" + rest if rest else ""))
        return self.app if self._is_known(headers) else nothing()

    def _is_addressed(self, headers: Headers) -> bool:
        """Whether a request is meant for this server, by one of our own pages or by a person."""
        if not self.hosts.allows(headers.get("host", "")):
            return False
        origin = headers.get("origin")
        if origin is not None and not self.hosts.allows_origin(origin):
            return False
        site = headers.get("sec-fetch-site", "none")
        return site in ("none", "same-origin") or headers.get("sec-fetch-mode") == "navigate"

    def _is_known(self, headers: Headers) -> bool:
        try:
            cookies = SimpleCookie("; ".join(headers.getlist("cookie")))
        except CookieError:
            return False
        found = cookies.get(self.cookie)
        return found is not None and secrets.compare_digest(
            found.value.encode(), self.secret.encode()
        )

    def _welcome(self, target: str) -> Response:
        response = RedirectResponse(target, status_code=303)
        response.set_cookie(self.cookie, self.secret, httponly=True, samesite="strict", path="/")
        return response
