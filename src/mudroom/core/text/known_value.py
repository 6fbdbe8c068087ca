"""Values that are known to be secret: those in a secret file, and the forms in which a value may be written. Pure."""

from __future__ import annotations

import itertools
from binascii import b2a_base64
from collections.abc import Iterator

from mudroom.core.text.redaction import SHORTEST, names_secret

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_LONGEST = 4096
"""Characters. Longer values are not searched for."""
_KEY_LINE = 32
"""Shortest line in a PEM key, in characters."""
MOST = 200
"""Most values taken from one file."""


def forms_of(value: str) -> set[str]:
    """Return the value as it may be written: itself, in JSON, in a URL, in hexadecimal, and in base64 at any offset in
    a text, as in ``user:password``. Short forms are left out."""
    if len(value) < SHORTEST:
        return set()
    raw = value.encode("utf-8", "surrogateescape")
    quoted = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    forms = {
        value,
        value.replace("\\", "\\\\").replace('"', '\\"'),
        value.replace("'", "'\\''"),
        quoted,
        quoted.lower() if quoted != value else value,
        quoted.replace("%20", "+"),
        quoted.replace("%", "%25"),
        raw.hex(),
        *_base64_forms(raw),
    }
    return {form for form in forms if len(form) >= SHORTEST}


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the base64 characters that the value alone decides, for each of its three places in a group."""
    for offset in range(3):
        encoded = b2a_base64(b"\0" * offset + raw, newline=False).decode().rstrip("=")
        start = (0, 2, 3)[offset]
        end = len(encoded) - ((offset + len(raw)) % 3 != 0)  # the last character holds bits from the next byte, too
        form = encoded[start:end]
        yield form
        yield form.replace("+", "-").replace("/", "_")


def values_in(text: str) -> set[str]:
    """Return the values in a secret file (``.env``, ``.netrc``, JSON, YAML, INI, a key): those whose name says so, and
    random ones."""
    values: set[str] = set()
    in_key = False
    for line in text.splitlines():
        if len(values) >= MOST:
            break
        if line.startswith("-----"):
            in_key = "PRIVATE KEY" in line and "BEGIN" in line
        elif in_key and len(line) >= _KEY_LINE:
            values.add(line.strip())
        else:
            values.update(_values_of(line.strip().rstrip(",")))
    return {value for value in values if SHORTEST <= len(value) <= _LONGEST}


def _values_of(line: str) -> Iterator[str]:
    if line.startswith(("#", "//#", ";")):
        return
    words = line.split()
    for before, word in itertools.pairwise(words):
        if before in ("password", "passwd"):  # netrc
            yield word
    _scheme, separator, rest = line.partition("://")
    if separator and "@" in rest:
        yield rest.partition("@")[0].partition(":")[2]
    from mudroom.core.text.secret_word import is_random

    name, value = _assignment(line)
    if names_secret(name.lower().encode("utf-8", "replace")) or is_random(value):
        yield value


def _assignment(line: str) -> tuple[str, str]:
    """Return a line's name and value, without quotes; empty if it is not an assignment."""
    signs = [place for place in (line.find("="), line.find(":")) if place > 0]
    if line.startswith("//"):  # //registry.npmjs.org/:_authToken=...
        signs = [line.find("=")]
    place = min(signs, default=-1)
    if place < 0:
        return "", ""
    name = line[:place].removeprefix("export ").strip().strip("\"'")
    value = line[place + 1 :].strip()
    quote = value[:1]
    if quote in ("'", '"') and quote and quote in value[1:]:
        value = value[1:].partition(quote)[0]
    else:
        value = value.partition(" #")[0].strip()
    is_harmless = value.startswith(("/", "~", "./", "$")) or value.isdecimal() or not value.isprintable()
    return name, "" if is_harmless or "://" in value else value
