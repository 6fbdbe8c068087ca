"""Set up inspection in one call: the gate's part and the sandbox's part.

Rules of this file: it is called only where a rule inspects or a credential is used (``wants_inspection``); other
commands cost nothing and trust no further authority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.confinement.spec import Bind
from mudroom.core.network.host_rules import HostRule
from mudroom.ext.inspection.core.inspection import Inspection
from mudroom.ext.inspection.core.placeholder import CredentialRule
from mudroom.ext.inspection.net.authority import load_authority
from mudroom.ext.inspection.net.credential_value import read_credentials, variables
from mudroom.ext.inspection.net.roots import own_roots, prepare
from mudroom.typing import NamedTuple


class InspectionSetup(NamedTuple):
    inspection: Inspection
    """For ``Gate.open``. It holds secrets."""
    environment: tuple[tuple[bytes, bytes], ...]
    """For the command, replacing its variables of these names: roots, and placeholders of credentials."""
    binds: tuple[Bind, ...]
    """For its sandbox, read-only."""


def set_up_inspection(
    directory: bytes,
    project: bytes,
    environ: Mapping[bytes, bytes],
    home: bytes,
    *,
    never: Sequence[HostRule] = (),
    credentials: Sequence[CredentialRule] = (),
    mounts: bool = True,
) -> InspectionSetup:
    """Return the setup. ``directory``: a directory of the vault for the authority and the roots, created when needed.
    ``environ`` and ``home``: the user's. ``never``: of ``parse_never``. ``mounts``: False where a sandbox can show a
    file only at its own path.

    Placeholders are new at each call. Raise Unsupported (without the libraries, or on a system without roots),
    UsageError (for a missing credential) and MudroomError (for files).
    """
    authority = load_authority(directory, project)
    revealed = read_credentials(credentials, environ, home)
    trust = prepare(directory, authority, environ, mounts=mounts)
    inspection = Inspection(authority, tuple(never), revealed, own_roots(environ))
    return InspectionSetup(inspection, (*trust.environment, *variables(revealed)), trust.binds)
