"""SHA-256 for short texts, without importing ``hashlib``: that loads OpenSSL, a fifth of the interpreter's start.

The interpreter's own implementation has another name in each version; a build may lack it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256 as _sha256
else:
    import sys

    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256 as _sha256
        else:
            from _sha256 import sha256 as _sha256
    except ImportError:
        from hashlib import sha256 as _sha256


def sha256_hex(data: bytes) -> str:
    """Return the digest in hexadecimal digits."""
    return _sha256(data).hexdigest()
