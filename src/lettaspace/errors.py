"""Every error lettaspace raises on purpose.

The set is closed: callers may branch on the class or on `code`, which never changes.
The message is one line that names what is wrong and where; it never holds message
content, tokens or keys.
"""

from typing import Literal, TypeAlias

RefusalCode: TypeAlias = Literal[
    # Tokens
    "MissingJwt",
    "BadJwt",
    "BadJwtType",
    "BadJwtIss",
    "BadJwtSub",
    "BadJwtAudience",
    "BadJwtCnf",
    "BadJwtSignature",
    "JwtExpired",
    "JwtReplayed",
    # Proof of possession: HTTP message signatures, then DPoP
    "BadSpaceSignature",
    "BadSpaceAudience",
    "MissingDpopProof",
    "BadDpopProof",
    "BadDpopProofSignature",
    "DpopProofExpired",
    "DpopKeyMismatch",
    # What a valid token does not give
    "CredentialRevoked",
    "InvalidCredential",
    "InvalidDelegationToken",
    "InvalidClientAttestation",
    "InsufficientScope",
]
"""Why access is refused, in the protocol's own words (section 11, error quick table)."""


class LettaspaceError(Exception):
    """Base of all errors a caller is expected to handle."""

    code = "Error"


class InvalidInput(LettaspaceError):
    """An argument, identifier or encoding is malformed."""

    code = "InvalidInput"


class InvalidRecord(LettaspaceError):
    """A record does not satisfy its lexicon or the data model."""

    code = "InvalidRecord"


class NotFound(LettaspaceError):
    """What was named does not exist."""

    code = "NotFound"


class Ambiguous(LettaspaceError):
    """A name matches more than one thing."""

    code = "Ambiguous"


class Conflict(LettaspaceError):
    """The state a write was based on is no longer the state of the store."""

    code = "Conflict"


class Damaged(LettaspaceError):
    """Stored or source data cannot be read back as what it claims to be."""

    code = "Damaged"


class StoreUnavailable(LettaspaceError):
    """The store cannot be opened, locked or written."""

    code = "StoreUnavailable"


class Refused(LettaspaceError):
    """A request does not prove the right to what it asks for.

    The one class whose `code` differs from one error to the next: it is the name that the
    protocol has for the reason. Which HTTP status goes with it is the server's business.
    """

    code = "Refused"

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[1])


class Unreachable(LettaspaceError):
    """A host gave no usable answer.

    `sent`: whether the request may have landed there all the same. Refused connections and
    unknown names are certain not to have (False); a timeout, a reset, an answer that breaks off
    or is none of the method's, a failure of the host's own may follow a write that did (True).
    """

    code = "Unreachable"

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class SignedOut(LettaspaceError):
    """The host no longer takes this session: one has to sign in again."""

    code = "SignedOut"


class HostRefused(LettaspaceError):
    """A host answered a request with an error, so nothing of it was done.

    `status` is that of HTTP, `error` the name that the host gave, as the method's lexicon or the
    protocol has it ("" where it gave none), `retry_after` how many seconds it asks to be left
    alone (None: it does not say).
    """

    code = "HostRefused"

    def __init__(
        self, message: str, *, status: int, error: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.retry_after = retry_after
