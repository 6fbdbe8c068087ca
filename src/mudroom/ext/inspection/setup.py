"""Set up inspection in one call: the gate's part and the sandbox's part.

Rules of this file: it is called only where a rule inspects or a credential is used (``Machine.equipment``); other
commands pay nothing and trust no further authority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.network.host_rules import USUAL, HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.core.registry import part_or_none
from mudroom.ext.inspection.authority import load_authority
from mudroom.ext.inspection.authority import missing_libraries as missing_libraries
from mudroom.ext.inspection.credentials import load_credentials, read_credentials, variables
from mudroom.ext.inspection.roots import own_roots, prepare
from mudroom.session.confinement.command_gate import Equipment

DIRECTORY = b"/inspection"
"""The vault's directory with the authority and the roots; it is created when needed."""


def equip(
    vault: bytes,
    project: bytes,
    environ: Mapping[bytes, bytes],
    home: bytes,
    *,
    never: Sequence[HostRule] = (),
    mounts: bool = True,
    rules: Sequence[HostRule] = (),
) -> Equipment:
    """Return the equipment for a command. ``environ`` and ``home``: the user's. ``mounts``: False where a sandbox can
    show a file only at its own path. ``rules``: the command's host rules.

    Placeholders are new at each call. Raise Unsupported (without the libraries, or on a system without roots),
    UsageError (for a missing credential) and MudroomError (for files).
    """
    authority = load_authority(vault + DIRECTORY, project)
    revealed = read_credentials(load_credentials(vault), environ, home)
    trust = prepare(vault + DIRECTORY, authority, environ, mounts=mounts)
    inspection = Inspection(authority, tuple(never), revealed, own_roots(environ))
    has_ssh = mounts and any(rule.hold and set(rule.ports) - set(USUAL) for rule in rules)
    effects = part_or_none("effects", "ssh") if has_ssh else None
    binds = trust.binds if effects is None else (*trust.binds, *effects.trust_ssh(vault + DIRECTORY, authority, rules))
    return Equipment(inspection, (*trust.environment, *variables(revealed)), binds)
