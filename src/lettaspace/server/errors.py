"""What goes wrong, in the protocol's words: a name, a status, a message.

Handlers raise `XrpcError` for what the protocol has a name for. What the layers below raise is
translated by `outcome`. Source: protocol, section 11; XRPC spec for the general names.
"""

import logging
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from lettaspace.errors import (
    Ambiguous,
    Conflict,
    InvalidInput,
    InvalidRecord,
    NotFound,
    Refused,
    StoreUnavailable,
)

_log = logging.getLogger("lettaspace.server")

_PACKAGE = str(Path(__file__).parent.parent)

_401 = (
    "AccountTakedown",
    "AuthFactorTokenRequired",
    "AuthenticationRequired",
    "AuthMissing",
    "BadDpopProof",
    "BadDpopProofSignature",
    "BadJwt",
    "BadJwtAudience",
    "BadJwtCnf",
    "BadJwtIss",
    "BadJwtSignature",
    "BadJwtSub",
    "BadJwtType",
    "BadSpaceAudience",
    "BadSpaceSignature",
    "CredentialRevoked",
    "DpopKeyMismatch",
    "DpopProofExpired",
    "JwtExpired",
    "JwtReplayed",
    "MissingDpopProof",
    "MissingJwt",
)

STATUS = MappingProxyType(
    dict.fromkeys(_401, 401)
    | {
        "Forbidden": 403,
        "InsufficientScope": 403,
        "XRPCNotSupported": 404,
        "RequestTimeout": 408,
        "Conflict": 409,
        "PayloadTooLarge": 413,
        "UnsupportedMediaType": 415,
        "RateLimitExceeded": 429,
        "InternalServerError": 500,
        "MethodNotImplemented": 501,
        "NotEnoughResources": 503,
        "UpstreamTimeout": 504,
    }
)
"""The HTTP status of each name that has another one than 400."""

GENERAL = STATUS.keys() | {
    "ExpiredToken",
    "InvalidCredential",
    "InvalidRecord",
    "InvalidRequest",
    "InvalidSpaceUri",
    "InvalidToken",
    "MalformedCursor",
    "NotSpaceOwner",
    "RepoDeactivated",
    "RepoNotFound",
    "RepoSuspended",
    "RepoTakendown",
}
"""The names that any method may answer with; others only where its lexicon declares them."""

_CHALLENGES = {
    "BadSpaceAudience": "Atproto-Space",
    "BadSpaceSignature": "Atproto-Space",
    "CredentialRevoked": "Atproto-Space",
    "InsufficientScope": 'Bearer error="insufficient_scope"',
}


class XrpcError(Exception):
    """A request's answer is this error instead of what it asked for.

    The status is the name's unless another is given. The message is for whoever wrote the
    request and holds nothing that they did not send. Not one of `lettaspace.errors`, because
    it is part of an answer, not of what a caller of this library handles.
    """

    def __init__(
        self,
        name: str,
        message: str = "",
        *,
        status: int | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message
        self.status = status or STATUS.get(name, 400)
        self.headers = list(headers)
        challenge = "Bearer" if self.status == 401 else None
        challenge = _CHALLENGES.get(name, challenge)
        if challenge and not any(key.lower() == "www-authenticate" for key, _ in self.headers):
            self.headers.append(("www-authenticate", challenge))

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


def outcome(error: Exception, nsid: str) -> XrpcError:
    """What a request is answered with when its handler raised this."""
    if isinstance(error, XrpcError):
        return error
    if isinstance(error, Refused):
        return XrpcError(error.code, str(error))
    if isinstance(error, InvalidRecord):
        return XrpcError("InvalidRecord", str(error))
    if isinstance(error, InvalidInput | Ambiguous | NotFound):
        return XrpcError("InvalidRequest", str(error))
    if isinstance(error, Conflict):
        return XrpcError("Conflict", str(error))
    unforeseen = broken(error, nsid)
    if isinstance(error, StoreUnavailable):
        return XrpcError("NotEnoughResources", "the store is not available")
    return unforeseen


def broken(error: Exception, nsid: str) -> XrpcError:
    """The answer where the fault is here. It and the log say nothing of the error's text, which
    may hold anything: the log has its class and place."""
    _log.error("%s failed: %s at %s", nsid, type(error).__name__, _place(error))
    return XrpcError("InternalServerError", "something went wrong here")


def _place(error: Exception) -> str:
    """Where in this package it happened: file and line."""
    frames = list(traceback.extract_tb(error.__traceback__))
    ours = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
    last = (ours or frames)[-1:]
    return f"{Path(last[0].filename).name}:{last[0].lineno}" if last else "an unknown place"
