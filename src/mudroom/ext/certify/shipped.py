"""Records that are part of mudroom: ``certified/DIGEST.json``, each from a run on a hosted machine
(``.github/workflows/certify.yml``, ``dev/certified``). They open a platform without a run of the user's own.

Rules of this file:
1. A record counts only for ``Identity.shared``: its platform, build, architecture, confining program, code, version of
   Python, kind of user and file system have to be those of this machine. Else it opens nothing.
2. Its name is the SHA-256 of its content, so a damaged record opens nothing. Who can write here can change the code as
   well, so there is no signature: the runner's attestation is verified before a record gets here.
3. Of several records that count, a row holds if it held in all of them.
4. A record of this machine's own, even an unreadable one, comes first (``opening.py``).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence

from mudroom.ext.certify.identity import Identity
from mudroom.ext.certify.record import SCHEMA, decode, has_rows_of
from mudroom.ext.certify.row import Certificate, TrialRow

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "certified")
_LIMIT = 1 << 20


def load(identity: Identity, table: Sequence[TrialRow], directory: str = "") -> Certificate | None:
    """Return the rows that held on machines like this one, or None if no record is of such a machine."""
    counting = [
        certificate
        for content in (contents(directory) if identity.kind else ())
        if (certificate := read(content, identity.shared)) is not None and has_rows_of(certificate, table)
    ]
    if not counting:
        return None
    newest = max(counting, key=lambda certificate: certificate.made)
    by = [{result.name: result for result in certificate.rows} for certificate in (newest, *counting)]
    worst = (
        next((rows[row.name] for rows in by if rows[row.name].verdict != "held"), by[0][row.name]) for row in table
    )
    return newest._replace(rows=tuple(worst))


def contents(directory: str = "") -> Iterator[bytes]:
    """Yield the content of each record whose name is its digest."""
    directory = directory or DIRECTORY
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(directory, name), "rb") as stream:
                content = stream.read(_LIMIT)
        except OSError:
            continue
        if name == f"{hashlib.sha256(content).hexdigest()}.json":
            yield content


def read(content: bytes, shared: dict[str, str] | None = None) -> Certificate | None:
    """Return a record's certificate, or None if it is none, or not of the facts ``shared``."""
    try:
        values = json.loads(content)
        if values.pop("schema") != SCHEMA:
            return None
        facts = values.pop("facts")
        certificate = decode(values)
        told = [facts[name] for name in ("platform", "system", "machine")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if told != [certificate.platform, certificate.system, certificate.machine]:
        return None
    return certificate if shared is None or facts == shared else None
