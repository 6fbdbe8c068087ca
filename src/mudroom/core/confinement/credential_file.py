"""Which files of a home hold credentials, by their names, and what may be shown of git's settings instead of them.

A toolchain is shown to commands, the credentials that some of them keep inside of it are not. Most lie elsewhere in the
home (``~/.ssh``, ``~/.aws``, ``~/.npmrc``, ``~/.m2/settings.xml``) and are not there in the first place.
"""

from __future__ import annotations

import re

from mudroom.core.tree.secret import is_secret

NAMES = frozenset(
    b""".npmrc .yarnrc.yml .pypirc .condarc .netrc _netrc .git-credentials credentials credentials.toml auth.json
    auth.toml hosts.yml settings.xml gradle.properties nuget.config pip.conf token tokens.json .docker""".split()
)
_PROXIED = re.compile(rb"://[^/\s:@]+:[^/\s@]+@")
_SECRET = re.compile(rb"(?i)://(?!git@)[^/\s\"]+@|extraheader|token|passw|smtppass|secret|api[-_]?key")
_SECTION = re.compile(rb"\s*\[\s*([A-Za-z0-9.-]+)(?:\s+\"[^\"]*\")?\s*\]")
_USER = re.compile(rb"\s*(name|email)\s*=\s*(.*?)\s*$", re.IGNORECASE)


def is_credential(name: bytes) -> bool:
    """By the last part of a path."""
    return name.lower() in NAMES or is_secret(name)


def has_password(value: bytes) -> bool:
    """Whether a text holds a URL with a user and a password."""
    return _PROXIED.search(value) is not None


def holds_secret(settings: bytes) -> bool:
    """Whether a file of git's settings might hold more than settings: tokens in URLs or headers, passwords."""
    return _SECRET.search(settings) is not None


def identity(settings: bytes) -> bytes:
    """Only who the user is: ``user.name`` and ``user.email``, as a file of settings; empty if it has neither."""
    found: dict[bytes, bytes] = {}
    section = b""
    for line in settings.splitlines():
        header = _SECTION.match(line)
        if header is not None:
            section = header[1].lower()
        pair = _USER.match(line)
        if section == b"user" and pair is not None:
            found[pair[1].lower()] = pair[2]
    if not found:
        return b""
    return b"[user]\n" + b"".join(b"\t%s = %s\n" % (key, value) for key, value in sorted(found.items()))
