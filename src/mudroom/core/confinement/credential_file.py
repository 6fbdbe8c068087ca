"""Git settings that are safe to show, and passwords in URLs. Which files are credentials: ``core/tree/secret.py``."""

from __future__ import annotations

from mudroom.core.text.regex import regex

_PROXIED = regex(rb"://[^/\s:@]+:[^/\s@]+@")
_SECRET = regex(rb"(?i)://(?!git@)[^/\s\"]+@|extraheader|token|passw|smtppass|secret|api[-_]?key")
_NEEDED = (b"://", b"extraheader", b"token", b"pass", b"secret", b"api")
"""Everything that ``_SECRET`` matches contains one of these. If none occurs, ``re`` is not loaded, which saves a cold
command a tenth of its time."""
_SECTION = regex(rb"\s*\[\s*([A-Za-z0-9.-]+)(?:\s+\"[^\"]*\")?\s*\]")
_USER = regex(rb"(?i)\s*(name|email)\s*=\s*(.*?)\s*$")


def has_password(value: bytes) -> bool:
    """Return whether a text contains a URL with user and password."""
    return b"://" in value and _PROXIED.search(value) is not None


def holds_secret(settings: bytes) -> bool:
    """Return whether git settings may contain secrets: tokens in URLs or headers, passwords."""
    lower = settings.lower()
    return any(needed in lower for needed in _NEEDED) and _SECRET.search(settings) is not None


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
