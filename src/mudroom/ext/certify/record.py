"""A certificate's record: ``certificates/KEY.json`` in the state directory, signed.

Rules of this file:
1. A record is invalid if it is incomplete, not this user's alone, not signed by this state's key, made for another
   machine, build or mudroom, or has other rows than the table: ``load`` returns the reason in one line. No part opens.
2. A record is replaced whole (rename(2)). If two processes certify at once, the last record stands, and both use the
   same key: the first that was linked to its name.
3. The signature protects against damage, copies and commands, which cannot write here. It does not protect against the
   user, who could sign anything.
"""

from __future__ import annotations

import hmac
import json
import os
import time
from collections.abc import Sequence

from mudroom.ext.certify.identity import Identity
from mudroom.ext.certify.row import VERDICTS, Certificate, RowResult, TrialRow
from mudroom.stage import disk, private_file
from mudroom.typing import Any, NamedTuple

FORMAT = 1
SCHEMA = "mudroom.certificate/1"
"""Of a certificate that is sent (``mudroom doctor --certify --json``), and of those that are part of mudroom."""
_LIMIT = 1 << 20
_KEY_SIZE = 32
_TRIES, _PAUSE = 100, 0.01
"""Attempts to rename, and seconds between two."""


class LoadedCertificate(NamedTuple):
    certificate: Certificate | None
    why: str
    """Why there is no certificate, in one line."""


def directory_of(state: bytes) -> bytes:
    return state + b"/certificates"


def load(state: bytes, identity: Identity, table: Sequence[TrialRow]) -> LoadedCertificate:
    """Return this machine's certificate, or the reason why there is none."""
    directory = directory_of(state)
    path = path_of(state, identity)
    try:
        if not os.path.lexists(path):
            others = any(name.endswith(b".json") for name in os.listdir(directory))
            return LoadedCertificate(
                None, "it was certified with another system, mudroom or Python" if others else NEVER
            )
        if not private_file.is_own_directory(directory):
            return LoadedCertificate(None, "others may write in the directory of its certificate")
    except FileNotFoundError:
        return LoadedCertificate(None, NEVER)
    except OSError as error:
        return LoadedCertificate(None, f"its certificate cannot be read: {error.strerror}")
    data = private_file.read(path, _LIMIT)
    if data is None:
        return LoadedCertificate(None, "its certificate is a link, or others may read or write it")
    key = _key(directory)
    if key is None:
        return LoadedCertificate(None, "the key of its certificate is missing, or others may read it")
    signature, _newline, body = data.partition(b"\n")
    if not hmac.compare_digest(signature, _sign(key, body)):
        return LoadedCertificate(None, "its certificate is damaged, or of another machine")
    return _read(body, identity, table)


NEVER = "it is not certified yet"


def _key(directory: bytes) -> bytes | None:
    key = private_file.read(directory + b"/key", _KEY_SIZE + 1)
    return key if key is not None and len(key) == _KEY_SIZE else None


def _sign(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, "sha256").hexdigest().encode()


def _read(body: bytes, identity: Identity, table: Sequence[TrialRow]) -> LoadedCertificate:
    try:
        record = json.loads(body)
        if record["format"] != FORMAT or record["key"] != identity.key:
            return LoadedCertificate(None, "its certificate is of another machine, system or mudroom")
        certificate = decode(record["certificate"])
    except (ValueError, KeyError, TypeError):
        return LoadedCertificate(None, "its certificate cannot be read")
    if not has_rows_of(certificate, table):
        return LoadedCertificate(None, "its certificate has other rows than this mudroom tries")
    return LoadedCertificate(certificate, "")


def has_rows_of(certificate: Certificate, table: Sequence[TrialRow]) -> bool:
    return sorted(row.name for row in certificate.rows) == sorted(row.name for row in table)


def exists(state: bytes, identity: Identity) -> bool:
    """Return whether there is a record for these facts, readable or not."""
    return os.path.lexists(path_of(state, identity))


def path_of(state: bytes, identity: Identity) -> bytes:
    return directory_of(state) + b"/" + identity.key.encode() + b".json"


def encode(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as JSON: without paths, and without user and machine names."""
    rows = [row._asdict() for row in certificate.rows]
    return {**certificate._asdict(), "rows": rows}


def decode(values: Any) -> Certificate:
    """Return the certificate. Raise ValueError, KeyError or TypeError for anything that ``encode`` does not return."""
    rows = tuple(RowResult(**row) for row in values["rows"])
    if any(row.verdict not in VERDICTS or not isinstance(row.name, str) for row in rows):
        raise ValueError("no such verdict")
    certificate = Certificate(**{**values, "rows": rows})
    if not isinstance(certificate.made, int):
        raise ValueError("no time")
    return certificate


def save(state: bytes, identity: Identity, certificate: Certificate) -> None:
    """Store a certificate, in place of an earlier one. Raise OSError."""
    directory = directory_of(state)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if not private_file.is_own_directory(directory):
        raise PermissionError(1, "others may write in it, or it is a link", directory)
    record = {"format": FORMAT, "key": identity.key, "certificate": encode(certificate)}
    body = json.dumps(record).encode()
    key = _key(directory) or _new_key(directory)
    new = _written(directory, _sign(key, body) + b"\n" + body)
    _replace(new, path_of(state, identity))


def _replace(new: bytes, path: bytes) -> None:
    """Rename a file over another. Raise OSError."""
    for left in reversed(range(_TRIES if os.name == "nt" else 1)):
        try:
            disk.rename_path(new, path)
            return
        # Windows refuses it while a process has the old file open. That is soon over: readers read it whole at once.
        except PermissionError:
            if not left:
                os.unlink(new)
                raise
            time.sleep(_PAUSE)


def _new_key(directory: bytes) -> bytes:
    """Return the key, which this or another process has just made. An unusable key is replaced: no readable record is
    signed with it."""
    path, new = directory + b"/key", _written(directory, os.urandom(_KEY_SIZE))
    try:
        os.link(new, path)
    except FileExistsError:
        if _key(directory) is None:
            os.replace(new, path)
            return _known(directory)
    os.unlink(new)
    return _known(directory)


def _known(directory: bytes) -> bytes:
    key = _key(directory)
    if key is None:
        raise PermissionError(1, "a key that others may read", directory + b"/key")
    return key


def _written(directory: bytes, data: bytes) -> bytes:
    """Write a file with a new name, readable by this user alone. Return its path."""
    path = directory + b"/new-" + os.urandom(6).hex().encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
    with open(disk.open_path(path, flags, 0o600), "wb") as stream:
        stream.write(data)
    return path
