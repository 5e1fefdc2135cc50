"""HTTP message signatures that prove who holds a credential's key.

    exchange   Authorization: Bearer DELEGATION
               Signature-Input: atproto-space=("authorization");keyid="did:key:…"
               Signature: atproto-space=:BASE64:

    use        Authorization: Atproto-Space CREDENTIAL
               Atproto-Space-Audience: DID
               Signature-Input: atproto-space=("authorization" "atproto-space-audience")
               Signature: atproto-space=:BASE64:

Signed is one line for each covered field, and a last line with the member of Signature-Input,
as a canonical structured field. What a verifier reads it reads from the list of fields as it
was received: of a field sent twice nobody can say which one was meant, so it is refused where
there may be one only. Source: RFC 9421, RFC 9651, protocol section 5 (HTTP message signatures).
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, cast

import http_sf

from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.atproto.syntax import is_did
from lettaspace.errors import InvalidInput, Refused

Field: TypeAlias = tuple[str, str]
Fields: TypeAlias = Sequence[Field]
"""The fields of a request, name and value, each as often as it was sent. Names in any case."""

SCHEME: Final = "Atproto-Space"
LABEL: Final = "atproto-space"
ALGORITHM: Final = "ecdsa-p256-sha256"

MAX_SIGNATURE: Final = 8192
"""Characters that all lines of one signature field may have together."""

_EXCHANGE = ("authorization",)
_USE = ("authorization", "atproto-space-audience")

# A field's value is one line of ASCII; two lines could be read as another field.
_line = re.compile(r"[\t -~]+").fullmatch


def sign_exchange(key: SigningKey, authorization: str) -> list[Field]:
    """The fields to send beside `Authorization` when a delegation is exchanged.

    `authorization` is the whole value of that field. Raises InvalidInput for a key that is
    not P-256, and for a value that no field can have.
    """
    return _sign(key, {"authorization": authorization}, f';keyid="{key.did}"')


def sign_use(key: SigningKey, authorization: str, audience: str) -> list[Field]:
    """The fields to send beside `Authorization` when a credential is used.

    `audience` is the DID of the repo's account, or of the space's authority. The fields are
    good for every request to it with this credential. Raises InvalidInput as `sign_exchange`.
    """
    if not is_did(audience):
        raise InvalidInput("space audience: not a DID")
    values = {"authorization": authorization, "atproto-space-audience": audience}
    return [("Atproto-Space-Audience", audience), *_sign(key, values)]


def verify_exchange(fields: Fields) -> VerifyingKey:
    """The key that signed the exchange, which is the one that its `keyid` names.

    Raises Refused (BadSpaceSignature).
    """
    message = _Message(fields, _EXCHANGE)
    if message.keyid is None:
        raise _bad("names no key")
    try:
        key = VerifyingKey.from_did(message.keyid)
    except InvalidInput:
        raise _bad("keyid is not a did:key") from None
    message.verify(key)
    return key


def verify_use(fields: Fields, key: VerifyingKey) -> str:
    """The audience that the holder of `key`, the credential's, signed the request for.

    Raises Refused (BadSpaceSignature).
    """
    message = _Message(fields, _USE)
    if message.keyid not in (None, key.did):
        raise _bad("keyid is not the credential's key")
    message.verify(key, again=True)
    return message.values["atproto-space-audience"]


def single(fields: Fields, name: str) -> str | None:
    """The value of a field, trimmed; None if it was not sent.

    Raises Refused (BadSpaceSignature) if it was sent twice, and for what is not printable ASCII.
    """
    values = _lines(fields, name)
    if not values:
        return None
    if len(values) > 1:
        raise _bad(f"{name} was sent more than once")
    value = values[0].strip(" \t")
    if _line(value) is None:
        raise _bad(f"{name} is not a line of printable ASCII")
    return value


class _Message:
    """The signature of a request and what it covers, taken apart and not yet verified."""

    def __init__(self, fields: Fields, covered: tuple[str, ...]) -> None:
        self.values = {name: _required(fields, name) for name in covered}
        member = _dictionary(fields, "signature-input").get(LABEL)
        if member is None:
            raise _bad(f"signature-input has no {LABEL}")
        items, params = member
        # Compared as text, for a token or an item with parameters would be equal to a string.
        if http_sf.ser([(items, {})]) != _list(covered):
            raise _bad(f"does not cover exactly {' and '.join(covered)}")
        for name in ("alg", "keyid"):
            if type(params.get(name, "")) is not str:
                raise _bad(f"{name} is not a string")
        if params.get("alg", ALGORITHM) != ALGORITHM:
            raise _bad("algorithm is unknown")
        self.keyid: str | None = params.get("keyid")
        self._base = _base(self.values, http_sf.ser([member]))
        self._sig, params = _dictionary(fields, "signature").get(LABEL, (None, {}))
        if type(self._sig) is not bytes or params:
            raise _bad(f"signature has no bytes for {LABEL}")

    def verify(self, key: VerifyingKey, *, again: bool = False) -> None:
        if key.curve != "p256":
            raise _bad("key is not on P-256")
        verify = key.verify_again if again else key.verify
        if not verify(self._sig, self._base, high_s=True):
            raise _bad("does not verify")


def _sign(key: SigningKey, values: dict[str, str], params: str = "") -> list[Field]:
    if key.curve != "p256":
        raise InvalidInput("HTTP signature: key is not on P-256")
    for name, value in values.items():
        if _line(value) is None or value != value.strip(" \t"):
            raise InvalidInput(f"HTTP signature: {name} is not a field value")
    member = _list(values) + params
    sig = b64encode(key.sign(_base(values, member))).decode()
    return [("Signature-Input", f"{LABEL}={member}"), ("Signature", f"{LABEL}=:{sig}:")]


def _list(names: Iterable[str]) -> str:
    """Names as a canonical inner list."""
    return "(" + " ".join(f'"{name}"' for name in names) + ")"


def _base(values: dict[str, str], member: str) -> bytes:
    """The bytes that are signed."""
    lines = [f'"{name}": {value}' for name, value in values.items()]
    return "\n".join((*lines, f'"@signature-params": {member}')).encode()


def _required(fields: Fields, name: str) -> str:
    value = single(fields, name)
    if value is None:
        raise _bad(f"{name} is missing")
    return value


def _dictionary(fields: Fields, name: str) -> dict[str, Any]:
    """A dictionary of structured fields: members and their parameters by label."""
    text = ", ".join(_lines(fields, name))
    if not text:
        raise _bad(f"{name} is missing")
    if len(text) > MAX_SIGNATURE:
        raise _bad(f"{name} has more than {MAX_SIGNATURE} characters")
    try:
        data = text.encode("latin-1")
        parsed = http_sf.parse(data, tltype="dictionary", on_duplicate_key=_refuse_duplicate)
    except ValueError:  # the parser's own error among them
        raise _bad(f"{name} is not a structured field") from None
    return cast(dict[str, Any], parsed)


def _refuse_duplicate(*_: str) -> None:
    """RFC 9651 takes the last of two, so nobody would see that there was another."""
    raise ValueError


def _lines(fields: Fields, name: str) -> list[str]:
    return [value for field, value in fields if field.lower() == name]


def _bad(reason: str) -> Refused:
    return Refused("BadSpaceSignature", f"HTTP signature: {reason}")
