"""Credentials that a sandbox never sees: it gets a placeholder, which the gate replaces by the real value.

Rules of this file: pure. A placeholder is replaced in one header, in requests to one host, over TLS that the gate
inspects, and nowhere else; a request that has it anywhere else is refused. It resembles the real value, so that clients
which check a token's form accept it: the same well-known prefix, the same length if that is long enough, and only
letters and digits in the random part. A stolen placeholder is worthless.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence

from mudroom.core.network.host import parse_authority
from mudroom.core.network.inspection import Credential, Foreign, is_header, is_value
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.typing import NamedTuple

MARK = "mudroom"
"""Part of every placeholder, so that people recognise it."""
SHORTEST = 40
SHORTEST_VALUE = 8
"""Characters in a real value."""
_RANDOM = 20
"""Minimum random bytes in a placeholder."""
_PREFIXES = (
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-", "sk-ant-api03-", "sk-ant-",
    "sk-proj-", "sk-", "xoxb-", "xoxp-", "hf_", "dop_v1_", "AKIA", "rubygems_", "dckr_pat_", "sntrys_", "lin_api_",
)  # fmt: skip
"""Well-known services' public token prefixes; some clients check them."""
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")


class CredentialRule(NamedTuple):
    """A configured credential, without its value."""

    name: str
    """The variable that holds the placeholder."""
    host: str
    """Canonical."""
    port: int
    header: str
    """In lower case."""
    origin: str
    """``env``, ``file``, ``keyring``."""
    where: str
    """The variable outside the sandbox, the file, or ``SERVICE/USER``."""
    foreign: Foreign = "refuse"
    """How requests to the host are treated that have a command's own credentials (``foreign_credential.py``)."""
    user: str = ""
    """The user name that may be beside it in a Basic pair; empty: none but the usual ones."""


def parse_credential(
    name: str,
    host: str,
    header: str = "authorization",
    source: str = "env",
    *,
    foreign: Foreign = "refuse",
    user: str = "",
) -> CredentialRule:
    """Return a credential's rule. ``host``: a name, or name:port; the default port is 443. ``source``: ``env``,
    ``env:OTHER``, ``file:PATH``, ``keyring:SERVICE/USER``. Raise ValueError with a printable reason."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{_shown(name)} is not the name of a variable")
    authority = parse_authority(host.encode("utf-8", "surrogateescape"), 443)
    if not is_header(header):
        raise ValueError(f"{_shown(header)} is not a header that can hold a credential")
    origin, _colon, where = source.partition(":")
    if origin == "env":
        where = where or name
    if origin not in ("env", "file", "keyring") or not where or (origin == "keyring" and "/" not in where):
        raise ValueError(
            f"{_shown(source)} is not a place of a credential: write env, env:NAME, file:PATH or keyring:SERVICE/USER"
        )
    return CredentialRule(name, authority.host.text, authority.port, header.lower(), origin, where, foreign, user)


def with_value(rule: CredentialRule, value: str, randomness: bytes) -> Credential:
    """Return the credential with its real value. ``randomness``: at least 20 bytes. Raise ValueError, without the
    value, if a header cannot hold it."""
    value = value.strip("\r\n\t ")
    if not is_value(value):
        problem = "holds characters that a header cannot hold" if value else "is empty"
        raise ValueError(f"the credential {rule.name} {problem}")
    if len(value) < SHORTEST_VALUE:
        raise ValueError(
            f"the credential {rule.name} is too short to be told from other text in a response: at least"
            f" {SHORTEST_VALUE} characters"
        )
    return Credential(
        rule.name,
        rule.host,
        rule.port,
        rule.header,
        make_placeholder(value, randomness),
        value,
        rule.foreign,
        rule.user,
    )


def make_placeholder(value: str, randomness: bytes) -> str:
    """Return a placeholder that is as long as the value, but at least ``SHORTEST``."""
    if len(randomness) < _RANDOM:
        raise ValueError(f"a placeholder needs at least {_RANDOM} random bytes, not {len(randomness)}")
    beginning = next((prefix for prefix in _PREFIXES if value.startswith(prefix)), "")
    number, digits = int.from_bytes(randomness, "big"), ""
    for _ in range(len(randomness) * 8 // 6):
        number, digit = divmod(number, len(_ALPHABET))
        digits += _ALPHABET[digit]
    length = max(len(value), SHORTEST, len(beginning) + len(MARK) + 24) - len(beginning) - len(MARK)
    return beginning + MARK + (digits * (length // len(digits) + 1))[:length]


# --- in requests ---


class MisusedPlaceholder(ValueError):
    """A placeholder is in a place where its credential does not belong. The text is printable and names the variable,
    never the value."""


def insert_credentials(
    fields: Sequence[tuple[bytes, bytes]], credentials: Sequence[Credential], host: str, port: int, *, secure: bool
) -> list[tuple[bytes, bytes]]:
    """Return the request's fields with the real values. Field names may be in any case. ``secure``: the request goes
    over TLS to that host, which has proved its identity. Raise MisusedPlaceholder."""
    replaced = []
    for name, value in fields:
        for credential in credentials:
            if credential.placeholder.encode() in name:
                raise MisusedPlaceholder(f"the placeholder of {credential.name} is in the name of a header")
            if holds_placeholder(value, credential):
                if not secure or (credential.host, credential.port) != (host, port):
                    raise MisusedPlaceholder(
                        f"the credential {credential.name} is for {_where(credential)} only,"
                        " and over inspected TLS only"
                    )
                if name.decode("latin-1").lower() != credential.header:
                    raise MisusedPlaceholder(
                        f"the credential {credential.name} is for the header {credential.header},"
                        f" not {show(name.lower())}"
                    )
                value = _replaced(value, credential)
        replaced.append((name, value))
    return replaced


def check_path(path: bytes, credentials: Sequence[Credential]) -> None:
    """Raise MisusedPlaceholder if a placeholder is in the path. ``path``: with its query."""
    for credential in credentials:
        if credential.placeholder.encode() in path:
            raise MisusedPlaceholder(
                f"the placeholder of {credential.name} is in the path; the credential is for a header"
            )


def _where(credential: Credential) -> str:
    return credential.host if credential.port == 443 else f"{credential.host}:{credential.port}"


def holds_placeholder(value: bytes, credential: Credential) -> bool:
    """Return whether a header has the placeholder, also in a Basic pair."""
    raw = credential.placeholder.encode()
    return raw in value or raw in in_basic(value)


def in_basic(value: bytes) -> bytes:
    """Return the decoded ``user:password`` in HTTP's Basic authentication, or an empty value."""
    return _decoded(value)[1]


def _decoded(value: bytes) -> tuple[bytes, bytes]:
    """Return the scheme and the decoded ``user:password`` in HTTP's Basic authentication (RFC 7617); otherwise two
    empty values."""
    scheme, space, rest = value.partition(b" ")
    if not space or scheme.lower() != b"basic":
        return b"", b""
    try:
        return scheme, binascii.a2b_base64(rest.strip(), strict_mode=True)
    except binascii.Error:
        return b"", b""


def _replaced(value: bytes, credential: Credential) -> bytes:
    raw, real = credential.placeholder.encode(), credential.value.encode()
    if raw in value:
        return value.replace(raw, real)
    scheme, pair = _decoded(value)
    return scheme + b" " + binascii.b2a_base64(pair.replace(raw, real), newline=False)


def check_trailers(fields: Sequence[tuple[bytes, bytes]], credentials: Sequence[Credential]) -> None:
    """Raise MisusedPlaceholder if a placeholder is in a trailer."""
    for credential in credentials:
        if any(
            holds_placeholder(value, credential) or credential.placeholder.encode() in name for name, value in fields
        ):
            raise MisusedPlaceholder(
                f"the placeholder of {credential.name} is in a trailer; the credential is for a header"
            )


class PlaceholderScan:
    """Searches for placeholders in a body that arrives in pieces."""

    def __init__(self, credentials: Sequence[Credential]) -> None:
        self._raw = [(credential.placeholder.encode(), credential.name) for credential in credentials]
        self._keep = max((len(raw) for raw, _name in self._raw), default=1) - 1
        self._tail = b""

    def see(self, piece: bytes) -> None:
        """Raise MisusedPlaceholder if a placeholder is complete with this piece, which must then not be forwarded."""
        if not self._raw:
            return
        text = self._tail + piece
        for raw, name in self._raw:
            if raw in text:
                raise MisusedPlaceholder(f"the placeholder of {name} is in the body; the credential is for a header")
        self._tail = text[-self._keep :]


def _shown(text: str) -> str:
    return show(text.encode("utf-8", "surrogateescape"))
