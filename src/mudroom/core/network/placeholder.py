"""Credentials that a sandbox never sees: it has a placeholder, and the gate puts the real value in its place.

Rules of this file: pure. A placeholder is replaced in one header of requests to one host, over TLS that the gate
inspects, and nowhere else; a request that carries it anywhere else is refused. It looks like the real one, so that
clients which check the form of a token take it: the same well-known beginning, the same length where that is long
enough, letters and digits only in what is random. It is worth nothing to who steals it.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import NamedTuple

from mudroom.core.network.host import parse_authority
from mudroom.core.tree.path import show

MARK = "mudroom"
"""Is in every placeholder, for people who wonder what it is."""
SHORTEST = 40
_RANDOM = 20
"""Bytes of randomness that a placeholder is made of."""
_BEGINNINGS = (
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-", "sk-ant-api03-", "sk-ant-",
    "sk-proj-", "sk-", "xoxb-", "xoxp-", "hf_", "dop_v1_", "AKIA", "rubygems_", "dckr_pat_", "sntrys_", "lin_api_",
)  # fmt: skip
"""What tokens of the well-known services begin with: public, and checked by some clients."""
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_NEVER = frozenset(("host", "connection", "content-length", "transfer-encoding", "te", "upgrade", "trailer", "expect"))
"""Headers of framing and routing."""


class CredentialRule(NamedTuple):
    """An entry of the policy."""

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
    """The variable outside, the file, ``SERVICE/USER``."""


class Credential(NamedTuple):
    name: str
    host: str
    port: int
    header: str
    placeholder: str
    value: str
    """The real one. Not for flows, logs, errors, or what is shown of this tuple."""

    def __repr__(self) -> str:
        return f"Credential({self.name}, {self.host}:{self.port}, {self.header})"

    def __str__(self) -> str:
        return repr(self)


def parse_wanted(name: str, host: str, header: str = "authorization", source: str = "env") -> CredentialRule:
    """``host``: a name, or name:port, 443 else. ``source``: ``env``, ``env:OTHER``, ``file:PATH``,
    ``keyring:SERVICE/USER``. Raises ValueError, printable, that says what is wrong."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{_shown(name)} is no name of a variable")
    authority = parse_authority(host.encode("utf-8", "surrogateescape"), 443)
    if not is_header(header):
        raise ValueError(f"{_shown(header)} is no header that a credential can be in")
    origin, _colon, where = source.partition(":")
    if origin == "env":
        where = where or name
    if origin not in ("env", "file", "keyring") or not where or (origin == "keyring" and "/" not in where):
        raise ValueError(f"{_shown(source)}: write env, env:NAME, file:PATH or keyring:SERVICE/USER")
    return CredentialRule(name, authority.host.text, authority.port, header.lower(), origin, where)


def is_header(name: str) -> bool:
    """Whether that can be the name of a header that is not about framing or routing."""
    return _FIELD.fullmatch(name) is not None and name.lower() not in _NEVER


def is_value(value: str) -> bool:
    """Whether a header can have this value: visible ASCII and, between that, spaces."""
    return _VALUE.fullmatch(value) is not None


def with_value(wanted: CredentialRule, value: str, randomness: bytes) -> Credential:
    """``randomness``: 20 bytes and more. Raises ValueError, without the value, if it cannot be in a header."""
    value = value.strip("\r\n\t ")
    if not is_value(value):
        what = "holds what no header may hold" if value else "is empty"
        raise ValueError(f"the credential {wanted.name} {what}")
    return Credential(wanted.name, wanted.host, wanted.port, wanted.header, make_placeholder(value, randomness), value)


def make_placeholder(value: str, randomness: bytes) -> str:
    """Of the length of the value, but ``SHORTEST`` at least."""
    if len(randomness) < _RANDOM:
        raise ValueError(f"a placeholder is made of {_RANDOM} random bytes and more, not of {len(randomness)}")
    beginning = next((one for one in _BEGINNINGS if value.startswith(one)), "")
    number, digits = int.from_bytes(randomness, "big"), ""
    for _ in range(len(randomness) * 8 // 6):
        number, digit = divmod(number, len(_ALPHABET))
        digits += _ALPHABET[digit]
    length = max(len(value), SHORTEST, len(beginning) + len(MARK) + 24) - len(beginning) - len(MARK)
    return beginning + MARK + (digits * (length // len(digits) + 1))[:length]


# --- in requests ---


class MisusedPlaceholder(ValueError):
    """A placeholder is where its credential does not belong. Printable; names the variable, never the value."""


def put_in(
    fields: Sequence[tuple[bytes, bytes]], credentials: Sequence[Credential], host: str, port: int, *, secure: bool
) -> list[tuple[bytes, bytes]]:
    """The fields of a request to a host, names in any case, with the real values. ``secure``: it goes to the very host,
    which has proved to be it, over TLS. Raises Misused."""
    found = []
    for name, value in fields:
        for one in credentials:
            if one.placeholder.encode() in name:
                raise MisusedPlaceholder(f"the placeholder of {one.name} is in the name of a header")
            if _holds(value, one):
                if not secure or (one.host, one.port) != (host, port):
                    raise MisusedPlaceholder(
                        f"the credential {one.name} is for {_where(one)} only, and over inspected TLS only"
                    )
                if name.decode("latin-1").lower() != one.header:
                    raise MisusedPlaceholder(
                        f"the credential {one.name} is for the header {one.header}, not {show(name.lower())}"
                    )
                value = _replaced(value, one)
        found.append((name, value))
    return found


def check_path(path: bytes, credentials: Sequence[Credential]) -> None:
    """Raises Misused. ``path``: with its query."""
    for one in credentials:
        if one.placeholder.encode() in path:
            raise MisusedPlaceholder(f"the placeholder of {one.name} is in the path; the credential is for a header")


def _where(one: Credential) -> str:
    return one.host if one.port == 443 else f"{one.host}:{one.port}"


def _holds(value: bytes, one: Credential) -> bool:
    raw = one.placeholder.encode()
    return raw in value or raw in _decoded(value)[1]


def _decoded(value: bytes) -> tuple[bytes, bytes]:
    """The scheme, and the user and password, of HTTP's Basic authentication (RFC 7617); two empty texts else."""
    scheme, space, rest = value.partition(b" ")
    if not space or scheme.lower() != b"basic":
        return b"", b""
    try:
        return scheme, binascii.a2b_base64(rest.strip(), strict_mode=True)
    except binascii.Error:
        return b"", b""


def _replaced(value: bytes, one: Credential) -> bytes:
    raw, real = one.placeholder.encode(), one.value.encode()
    if raw in value:
        return value.replace(raw, real)
    scheme, pair = _decoded(value)
    return scheme + b" " + binascii.b2a_base64(pair.replace(raw, real), newline=False)


def check_trailers(fields: Sequence[tuple[bytes, bytes]], credentials: Sequence[Credential]) -> None:
    """Raises Misused."""
    for one in credentials:
        if any(_holds(value, one) or one.placeholder.encode() in name for name, value in fields):
            raise MisusedPlaceholder(f"the placeholder of {one.name} is in a trailer; the credential is for a header")


class PlaceholderScan:
    """Looks for placeholders in a body that comes in pieces."""

    def __init__(self, credentials: Sequence[Credential]) -> None:
        self._raw = [(one.placeholder.encode(), one.name) for one in credentials]
        self._keep = max((len(raw) for raw, _name in self._raw), default=1) - 1
        self._tail = b""

    def see(self, piece: bytes) -> None:
        """Raises Misused if one is complete with this piece: it is not to be passed on then."""
        if not self._raw:
            return
        text = self._tail + piece
        for raw, name in self._raw:
            if raw in text:
                raise MisusedPlaceholder(f"the placeholder of {name} is in the body; the credential is for a header")
        self._tail = text[-self._keep :]


def without(fields: Sequence[tuple[bytes, bytes]], credentials: Sequence[Credential]) -> list[tuple[bytes, bytes]]:
    """Fields of a response with the placeholders again, should a server send a credential back."""
    if not credentials:
        return list(fields)
    found = []
    for name, value in fields:
        for one in credentials:
            value = value.replace(one.value.encode(), one.placeholder.encode())
        found.append((name, value))
    return found


def _shown(text: str) -> str:
    return show(text.encode("utf-8", "surrogateescape"))
