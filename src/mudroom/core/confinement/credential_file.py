"""Git settings that are safe to show, and passwords in URLs. What a secret is: ``core/text/secret_content.py``."""

from __future__ import annotations

from mudroom.core.text.regex import regex

_PROXIED = regex(rb"://[^/\s:@]+:[^/\s@]+@")
_PUBLIC = (b"signingkey", b"askpass", b"sslkey", b"helper")
"""Settings that name a key or a program, with words that mean a secret elsewhere. A helper that is a line of a shell
may have one in it."""
_SECTION = regex(rb"\s*\[\s*([A-Za-z0-9.-]+)(?:\s+\"[^\"]*\")?\s*\]")
_USER = regex(rb"(?i)\s*(name|email)\s*=\s*(.*?)\s*$")


def has_password(value: bytes) -> bool:
    """Return whether a text contains a URL with user and password."""
    return b"://" in value and _PROXIED.search(value) is not None


def holds_secret(settings: bytes) -> bool:
    """Return whether git settings may contain secrets: tokens in URLs or headers, passwords."""
    from mudroom.core.text.secret_content import holds_credential

    lines = settings.splitlines()
    named = (line for line in lines if line.count(b"=") > 1 or not line.strip().lower().startswith(_PUBLIC))
    return holds_credential(b"[]\n" + b"\n".join(named))


def git_identity(settings: bytes) -> bytes:
    """Return git settings that contain only ``user.name`` and ``user.email``; empty if neither is set."""
    values: dict[bytes, bytes] = {}
    section = b""
    for line in settings.splitlines():
        header = _SECTION.match(line)
        if header is not None:
            section = header[1].lower()
        pair = _USER.match(line)
        if section == b"user" and pair is not None:
            values[pair[1].lower()] = pair[2]
    if not values:
        return b""
    return b"[user]\n" + b"".join(b"\t%s = %s\n" % (key, value) for key, value in sorted(values.items()))
