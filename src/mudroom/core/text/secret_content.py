"""Whether a settings file holds a credential, and whether a key file holds only public keys. Pure.

Stricter than a redaction (``redaction.py``), which is asked last: a file that a program reads for its password is full
of places for one, so any literal value there counts, also a short or guessable one. An unclear value is a secret.
References to variables, templates and empty values are not.
"""

from __future__ import annotations

from mudroom.core.text.regex import regex
from mudroom.core.text.secret_place import NAMES

_HINTS = (b"pass", b"pw", b"psk", b"pswd", b"token", b"secret", b"key", b"auth", b"credential", b"connection")
"""In lower case: a file without any, and without "://", matches no pattern here, so ``re`` is not loaded for it."""
_PUBLIC = (
    b"CERTIFICATE", b"PUBLIC KEY", b"PARAMETERS", b"REQUEST", b"CRL", b"PKCS7", b"CMS", b"PUBLIC KEY BLOCK",
    b"SIGNATURE",
)  # fmt: skip
_BEGIN, _END = b"-----BEGIN ", b"-----END "
_KEY_BLOCK = regex(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")
_REFERENCE = (
    r"(?:\$|<|\{\{|\{%|%[({A-Z]|@@|__|!vault\b|(?:process\.)?env\b|os\.environ|getenv|ENV\[|vault:"
    r"|repopwd|optional; leave"  # Maven's own settings.xml, in a comment
    r"|(?:null|none|nil|true|false|yes|no|on|off|undefined|\d{1,6})(?![^\s'\",;)}\]])"
    r"|(?:~|\.{0,2})/[\w./ -]{1,200}\.(?:pem|key|crt|json|p12|pfx|jks|keystore|txt|ya?ml)\b"
    r"|[a-z]{2,9}://[^\s@]*(?:['\"\s]|\Z))"
)
"""The beginnings of values that are no secrets themselves."""
_NAME = (
    rf"(?:{NAMES}|(?<![a-z])auth|credentials?|(?:client|master|consumer|app)[_-]?key(?:[_-]data)?"
    r"|connection[_-]?string)"
)
_SIGN = r"[\"'\])]{0,3}[ \t]{0,9}(?:=>|:=|[:=,]|\"[ \t]{1,9}value=)[ \t]{0,9}(?:[bru]?[\"'(]{1,2})?"
_LITERAL = regex(rf"(?im){_NAME}{_SIGN}(?!{_REFERENCE})[^\s\"'<,;#(){{}}\[\]|>&\\]".encode())
"""``NAME = value`` in the languages of settings: INI, properties, JSON, YAML, PHP, XML attributes."""
_ELEMENT = regex(rf"(?i)<[\w.:-]{{0,60}}?{_NAME}>\s{{0,200}}(?!{_REFERENCE})[^\s<]".encode())
_WORDS = regex(
    rb"(?im)^[ \t]{0,20}(?:set[ \t]{1,9})?(?:password|passwd|passphrase|token|requirepass|masterauth)[ \t]{1,9}(?![=:])"
    rb"[\"']?[^\s\"'<$={]"
)
_LOGIN = regex(rb"://(?!git@|\$|\{|<)[^\s/?#@\"'<>$]{1,200}@")
_HEADER = regex(rb"(?i)extraheader|authorization[\"']?\s{0,9}[:=]\s{0,9}[\"']?(?:basic|bearer|token)\s{1,9}[^\s$<{\"']")
_VALUE = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.+/~-"
_SHORTEST = 6
"""Characters in a file that has a single word, which is a secret then."""


def holds_credential(data: bytes) -> bool:
    """Return whether a settings file holds a password, a token or a private key, or cannot be understood."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    if b"\0" in data or b"\xef\xbf\xbd" in data:  # not text, or U+FFFD
        return True
    if is_public_key(data):
        first, *blocks = data.split(_BEGIN)
        data = b"\n".join((first, *(block.partition(_END)[2].partition(b"-----")[2] for block in blocks)))
    value = data.strip()
    if len(value) >= _SHORTEST and not value.rstrip(b"=").translate(None, _VALUE):
        return True
    lower = data.lower()
    patterns = (_KEY_BLOCK, _LITERAL, _ELEMENT, _WORDS, _HEADER) if any(hint in lower for hint in _HINTS) else ()
    if any(pattern.search(data) for pattern in patterns) or (b"://" in lower and _LOGIN.search(data)):
        return True
    from mudroom.core.text.redaction import redact

    text = b"\n".join(line for line in data.splitlines() if b"${" not in line).decode("utf-8", "replace")
    return redact(text) != text


def is_public_key(data: bytes) -> bool:
    """Return whether the file is text with certificates and public keys, and nothing else between their marks."""
    blocks = data.split(_BEGIN)[1:]
    kinds = [block.partition(b"-----")[0] for block in blocks]
    is_public = all(kind.endswith(_PUBLIC) and b"PRIVATE" not in kind for kind in kinds)
    return bool(blocks) and is_public and all(_END in block for block in blocks) and b"\0" not in data
