"""Set up inspection in one call: the gate's part and the sandbox's part.

Rules of this file: it is called only where a rule inspects or a credential is used (``Machine.equipment``); other
commands cost nothing and trust no further authority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.ext.inspection.authority import load_authority
from mudroom.ext.inspection.credential_value import read_credentials, variables
from mudroom.ext.inspection.credentials import load_credentials
from mudroom.ext.inspection.placeholder import CredentialRule
from mudroom.ext.inspection.roots import own_roots, prepare
from mudroom.session.confinement.gateway import Equipment


def equip(
    vault: bytes,
    project: bytes,
    environ: Mapping[bytes, bytes],
    home: bytes,
    *,
    never: Sequence[HostRule],
    mounts: bool,
) -> Equipment:
    """As ``set_up_inspection``, with the credentials of a vault."""
    return set_up_inspection(
        vault + b"/inspection",
        project,
        environ,
        home,
        never=never,
        credentials=load_credentials(vault),
        mounts=mounts,
    )


def set_up_inspection(
    directory: bytes,
    project: bytes,
    environ: Mapping[bytes, bytes],
    home: bytes,
    *,
    never: Sequence[HostRule] = (),
    credentials: Sequence[CredentialRule] = (),
    mounts: bool = True,
) -> Equipment:
    """Return the setup. ``directory``: a directory of the vault for the authority and the roots, created when needed.
    ``environ`` and ``home``: the user's. ``mounts``: False where a sandbox can show a file only at its own path.

    Placeholders are new at each call. Raise Unsupported (without the libraries, or on a system without roots),
    UsageError (for a missing credential) and MudroomError (for files).
    """
    authority = load_authority(directory, project)
    revealed = read_credentials(credentials, environ, home)
    trust = prepare(directory, authority, environ, mounts=mounts)
    inspection = Inspection(authority, tuple(never), revealed, own_roots(environ))
    return Equipment(inspection, (*trust.environment, *variables(revealed)), trust.binds)
