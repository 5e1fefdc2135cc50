"""What carries the OAuth library's requests: `network.fetching`, and no sockets of its own.

Imported only when there is something to send: the library takes a quarter of a second.
"""

from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import BaseAdapter
from requests_oauth2client import DPoPKey

from lettaspace.errors import Unreachable
from lettaspace.network.fetching import Fetched, Fetcher
from lettaspace.network.targets import FetchError

_FORM = "application/x-www-form-urlencoded"


def session(fetcher: Fetcher, proof: DPoPKey, patience: float) -> requests.Session:
    """A session of the library for requests that are proved with one key."""
    made = requests.Session()
    made.trust_env = False
    carrier = _Carrier(fetcher, proof, patience)
    for scheme in ("https://", "http://"):
        made.mount(scheme, carrier)
    return made


class _Carrier(BaseAdapter):
    """Raises Unreachable for what is no usable answer: redirects and failures of the host too."""

    def __init__(self, fetcher: Fetcher, proof: DPoPKey, patience: float) -> None:
        super().__init__()
        self._fetcher = fetcher
        self._proof = proof
        self._patience = patience

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        del stream, timeout, verify, cert, proxies  # the fetcher has rules of its own
        url, body = str(request.url), request.body
        sent = {n: str(request.headers[n]) for n in ("Accept", "DPoP") if n in request.headers}
        content = body if isinstance(body, bytes) else str(body or "").encode()
        try:
            fetched = self._fetcher.post(url, content, _FORM, headers=sent, patience=self._patience)
        except FetchError as error:
            raise Unreachable(f"{url}: {error}", sent=error.sent) from None
        if fetched.status >= 500 or 300 <= fetched.status < 400:
            raise Unreachable(f"{url} answered with status {fetched.status}", sent=True)
        nonce = fetched.headers.get("dpop-nonce")
        if nonce and fetched.status < 300:  # the library keeps those of refusals alone
            self._proof.as_nonce = nonce
        return _response(request, fetched)

    def close(self) -> None:
        """Nothing stays open."""


def _response(request: requests.PreparedRequest, fetched: Fetched) -> requests.Response:
    response = requests.Response()
    response.request = request
    response.url = fetched.url
    response.status_code = fetched.status
    response.headers.update(fetched.headers)
    response._content = fetched.body
    return response
