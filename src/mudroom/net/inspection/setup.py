"""All that inspection needs, in one call: what the gate is given, and what the sandbox is given.

Rules of this file: it is called only where a rule inspects or a credential is wanted (``wants_inspection``); all else
costs nothing and trusts nobody new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mudroom.core.confinement.spec import Bind
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.core.network.placeholder import CredentialRule
from mudroom.net.inspection.authority import load_authority
from mudroom.net.inspection.reveal import reveal, variables
from mudroom.net.inspection.roots import own_roots, prepare


class Equipment(NamedTuple):
    inspection: Inspection
    """For ``Gate.open``. It holds secrets."""
    environment: tuple[tuple[bytes, bytes], ...]
    """For the command, in place of what it has under these names: roots, and placeholders of credentials."""
    binds: tuple[Bind, ...]
    """For its sandbox, read-only."""


def equip(
    directory: bytes,
    project: bytes,
    environ: Mapping[bytes, bytes],
    home: bytes,
    *,
    never: Sequence[HostRule] = (),
    credentials: Sequence[CredentialRule] = (),
    mounts: bool = True,
) -> Equipment:
    """``directory``: one of the vault's own, for the authority and the roots; made at the first need. ``environ`` and
    ``home``: the user's. ``never``: of ``parse_never``. ``mounts``: False where a sandbox can be shown nothing at
    another place than its own.

    Placeholders are new at each call. Raises Unsupported (without the libraries, or a system without roots), UsageError
    (a credential that is not there) and MudroomError (files)."""
    authority = load_authority(directory, project)
    known = reveal(credentials, environ, home)
    trust = prepare(directory, authority, environ, mounts=mounts)
    inspection = Inspection(authority, tuple(never), known, own_roots(environ))
    return Equipment(inspection, (*trust.environment, *variables(known)), trust.binds)
