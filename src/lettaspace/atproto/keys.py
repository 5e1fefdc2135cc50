"""Signing keys of accounts and spaces: ECDSA over SHA-256 on secp256k1 or P-256.

A signature is 64 bytes, r then s, with s in the lower half of the group order, so that nobody
can make a second valid signature from a first. A public key travels as a `did:key`: base58 of
a multicodec prefix and the 33-byte compressed point. Source: AT Protocol cryptography spec.

The only module of this package that loads `cryptography`.
"""

import re
from functools import lru_cache
from typing import Literal, TypeAlias

import base58
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lettaspace.errors import InvalidInput

Curve: TypeAlias = Literal["secp256k1", "p256"]

_CURVES: dict[Curve, ec.EllipticCurve] = {"secp256k1": ec.SECP256K1(), "p256": ec.SECP256R1()}
_ORDERS: dict[Curve, int] = {
    "secp256k1": 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
    "p256": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
}
_CODECS: dict[Curve, bytes] = {"secp256k1": b"\xe7\x01", "p256": b"\x80\x24"}  # 0xe7, 0x1200

# base58 itself would ignore white space at the end.
_multikey = re.compile(r"z[1-9A-HJ-NP-Za-km-z]{40,60}").fullmatch

# RFC 6979: the same message gives the same signature, and no nonce depends on luck.
_SIGN = ec.ECDSA(SHA256(), deterministic_signing=True)
_VERIFY = ec.ECDSA(SHA256())

_REMEMBERED = 1024
"""Public keys that were read, and signatures that were verified."""


class VerifyingKey:
    """A public key. Immutable, hashable, equal by curve and point."""

    __slots__ = ("_curve", "_key", "_multikey")

    def __init__(self, key: ec.EllipticCurvePublicKey) -> None:
        self._curve: Curve = _curve_of(key.curve)
        self._key = key
        point = key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        self._multikey = "z" + base58.b58encode(_CODECS[self._curve] + point).decode()

    @classmethod
    def from_did(cls, did: str) -> "VerifyingKey":
        """The key of a `did:key`. Raises InvalidInput for other DIDs, key types and encodings."""
        if not did.startswith("did:key:"):
            raise InvalidInput("not a did:key")
        return cls.from_multikey(did[8:])

    @classmethod
    def from_multikey(cls, text: str) -> "VerifyingKey":
        """The key of a `publicKeyMultibase`, as DID documents hold it. Raises InvalidInput."""
        if _multikey(text) is None:
            raise InvalidInput("public key is not multibase base58")
        return _from_multikey(text)

    @classmethod
    def from_point(cls, curve: Curve, x: bytes, y: bytes) -> "VerifyingKey":
        """The key with these coordinates, 32 big-endian bytes each. Raises InvalidInput."""
        parameters = _parameters(curve)
        if len(x) != 32 or len(y) != 32:
            raise InvalidInput("coordinates of a public key are not 32 bytes each")
        try:
            key = ec.EllipticCurvePublicKey.from_encoded_point(parameters, b"\x04" + x + y)
        except ValueError:
            raise InvalidInput("public key is not a point of its curve") from None
        return cls(key)

    @property
    def curve(self) -> Curve:
        """The name of the curve."""
        return self._curve

    @property
    def point(self) -> tuple[bytes, bytes]:
        """The coordinates x and y, 32 big-endian bytes each."""
        data = self._key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return data[1:33], data[33:]

    @property
    def did(self) -> str:
        """The key as a `did:key`."""
        return f"did:key:{self._multikey}"

    @property
    def multikey(self) -> str:
        """The key as a `publicKeyMultibase`."""
        return self._multikey

    def verify(self, sig: bytes, data: bytes, *, high_s: bool = False) -> bool:
        """Whether `sig`, 64 bytes, is this key's signature of `data`. Never raises.

        `high_s` also takes the second form every signature has, which other protocols' signers
        write half of the time. Only where nobody tells requests apart by their signatures.
        """
        if len(sig) != 64:
            return False
        r = int.from_bytes(sig[:32], "big")
        s = int.from_bytes(sig[32:], "big")
        if s > _ORDERS[self._curve] // 2 and not high_s:
            return False
        try:
            self._key.verify(encode_dss_signature(r, s), data, _VERIFY)
        except InvalidSignature:
            return False
        return True

    def verify_again(self, sig: bytes, data: bytes, *, high_s: bool = False) -> bool:
        """The same for what is shown many times, such as credentials: what it came to is
        remembered for a while."""
        return _verify(self, sig, data, high_s)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifyingKey) and self._multikey == other._multikey

    def __hash__(self) -> int:
        return hash(self._multikey)

    def __repr__(self) -> str:
        return f"VerifyingKey({self.did!r})"


@lru_cache(maxsize=_REMEMBERED)
def _from_multikey(text: str) -> VerifyingKey:
    data = base58.b58decode(text[1:])
    for curve, codec in _CODECS.items():
        if data.startswith(codec) and len(data) == 35:
            try:
                key = ec.EllipticCurvePublicKey.from_encoded_point(_CURVES[curve], data[2:])
            except ValueError:
                raise InvalidInput("public key is not a point of its curve") from None
            return VerifyingKey(key)
    raise InvalidInput("public key is neither compressed secp256k1 nor compressed P-256")


@lru_cache(maxsize=_REMEMBERED)
def _verify(key: VerifyingKey, sig: bytes, data: bytes, high_s: bool) -> bool:
    return key.verify(sig, data, high_s=high_s)


class SigningKey:
    """A private key. Its representation shows only the public half; it cannot be pickled."""

    __slots__ = ("_key", "_public")

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = VerifyingKey(key.public_key())

    @classmethod
    def generate(cls, curve: Curve = "secp256k1") -> "SigningKey":
        """A new random key. Raises InvalidInput for an unknown curve."""
        return cls(ec.generate_private_key(_parameters(curve)))

    @classmethod
    def from_bytes(cls, curve: Curve, data: bytes) -> "SigningKey":
        """The key whose secret is 32 big-endian bytes.

        Raises InvalidInput for another length, zero, or a number not below the group order.
        """
        parameters = _parameters(curve)
        secret = int.from_bytes(data, "big")
        if len(data) != 32 or not 0 < secret < _ORDERS[curve]:
            raise InvalidInput(f"not the 32 bytes of a {curve} private key")
        return cls(ec.derive_private_key(secret, parameters))

    def to_bytes(self) -> bytes:
        """The secret, 32 bytes."""
        return self._key.private_numbers().private_value.to_bytes(32, "big")

    @property
    def curve(self) -> Curve:
        """The name of the curve."""
        return self._public.curve

    @property
    def did(self) -> str:
        """The public half as a `did:key`."""
        return self._public.did

    @property
    def verifying_key(self) -> VerifyingKey:
        """The public half."""
        return self._public

    def sign(self, data: bytes) -> bytes:
        """The signature of `data`: 64 bytes, low s, the same every time."""
        r, s = decode_dss_signature(self._key.sign(data, _SIGN))
        return r.to_bytes(32, "big") + min(s, _ORDERS[self.curve] - s).to_bytes(32, "big")

    def __repr__(self) -> str:
        return f"SigningKey(public={self.did!r})"

    def __reduce__(self) -> str:
        raise TypeError("a SigningKey is not pickled: it would leave the secret behind")


def _parameters(curve: str) -> ec.EllipticCurve:
    for name, parameters in _CURVES.items():
        if name == curve:
            return parameters
    raise InvalidInput("curve is neither secp256k1 nor p256")


def _curve_of(parameters: ec.EllipticCurve) -> Curve:
    for name, known in _CURVES.items():
        if known.name == parameters.name:
            return name
    raise InvalidInput("curve is neither secp256k1 nor p256")
