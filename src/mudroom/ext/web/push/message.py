"""A Web Push message: encrypted for one browser (RFC 8291, in one record of RFC 8188), and signed for its push service
(VAPID, RFC 8292). Pure but for randomness. ``cryptography`` is imported when needed.

The push service sees a message's time, size and urgency, and that it is from this server. All messages have one size.
"""

from __future__ import annotations

import hmac
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

INSTALL = "pip install 'cryptography>=45'"
SIZE = 1024
"""Bytes of a text with its padding. A service takes 4,096 bytes at least (RFC 8030, 7.2)."""
_RECORD = 4096
_LIFE = 12 * 3600
"""Seconds that a signature is valid: at most a day (RFC 8292, 2)."""
POINT, SECRET = 65, 16
"""Bytes of a public key, and of the secret that a browser gives with it (RFC 8291, 2 and 3.2)."""


@cache
def why_not() -> str:
    """Return why nothing can be encrypted here; empty if it can. A library of another system or a damaged one is found,
    and cannot be loaded."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ec as _ec  # noqa: F401
    except ImportError:
        return f"this needs cryptography: {INSTALL}"
    return ""


def new_key() -> str:
    """Return a new private key."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    return to_base64(generate_private_key(SECP256R1()).private_numbers().private_value.to_bytes(32, "big"))


def public_of(key: str) -> bytes:
    """Return a private key's public one, as an uncompressed point."""
    return _point(_private(key))


def encrypted(text: bytes, theirs: bytes, secret: bytes, *, key: str = "", salt: bytes = b"") -> bytes:
    """Return the body for a browser with this public key and secret. Raise ValueError if the key is no point of the
    curve. ``key`` and ``salt``: for tests; else new for each message."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDH, SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    own, salt = _private(key or new_key()), salt or os.urandom(16)
    shared = own.exchange(ECDH(), EllipticCurvePublicKey.from_encoded_point(SECP256R1(), theirs))
    point = _point(own)
    material = _derived(secret, shared, b"WebPush: info\0" + theirs + point)
    content_key = _derived(salt, material, b"Content-Encoding: aes128gcm\0")[:16]
    nonce = _derived(salt, material, b"Content-Encoding: nonce\0")[:12]
    header = salt + _RECORD.to_bytes(4, "big") + bytes([len(point)]) + point
    return header + AESGCM(content_key).encrypt(nonce, text + b"\x02", None)


def padded(text: bytes) -> bytes:
    """Return JSON with white space after it, in ``SIZE`` bytes."""
    return text.ljust(SIZE)


def authorization(key: str, audience: str, contact: str, now: float) -> str:
    """Return the header that proves the sender. ``audience``: the service's origin. ``contact``: a URL."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    parts = {"typ": "JWT", "alg": "ES256"}, {"aud": audience, "exp": int(now) + _LIFE, "sub": contact}
    signed = ".".join(to_base64(json.dumps(part).encode()) for part in parts)
    pair = decode_dss_signature(_private(key).sign(signed.encode(), ECDSA(SHA256())))
    signature = b"".join(number.to_bytes(32, "big") for number in pair)  # RFC 7518, 3.4
    return f"vapid t={signed}.{to_base64(signature)}, k={to_base64(public_of(key))}"


def to_base64(data: bytes) -> str:
    """Return base64url without padding: RFC 7515, 2."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def from_base64(text: str) -> bytes:
    """Raise ValueError."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _private(key: str) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, derive_private_key

    return derive_private_key(int.from_bytes(from_base64(key), "big"), SECP256R1())


def _point(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derived(salt: bytes, material: bytes, info: bytes) -> bytes:
    """HKDF with SHA-256 (RFC 5869), one block of it."""
    return hmac.digest(hmac.digest(salt, material, "sha256"), info + b"\x01", "sha256")
