"""Linux certification rows: how they are tried, and the protections that ``doctor`` reads from them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from mudroom.cli.doctor.probe import PERMIT, Finding, State
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.ext.certify.ground import TrialGround
from mudroom.ext.certify.killed_apply import volume_here
from mudroom.ext.certify.limit import LIMITS
from mudroom.ext.certify.row import Certificate, RowResult, TrialRow, opens
from mudroom.ext.certify.table import KNOWN, LINUX
from mudroom.ext.certify.trial import Progress, Trial, certify, start_by
from mudroom.ext.certify.verdict import NOTHING_THERE
from mudroom.ext.certify.volume import Volume
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.host.host import survey, without
from mudroom.sandbox.linux.plan import compile_plan
from mudroom.typing import NamedTuple


def try_rows(
    table: Sequence[TrialRow],
    directory: bytes,
    *,
    home: bytes,
    environ: Mapping[bytes, bytes],
    progress: Progress = lambda _number, _count, _name: None,
) -> Certificate:
    """Try rows in ``directory``, which is empty, and return the certificate: with namespaces where they are permitted,
    else by Landlock, as a session does."""
    search = [entry for entry in environ.get(b"PATH", b"").split(b":") if entry.startswith(b"/")]
    top, kernel, volume = os.path.realpath(os.fsdecode(directory)), os.uname(), volume_here()
    facts = Certificate("linux", f"{kernel.sysname} {kernel.release}", kernel.machine, int(time.time()))
    client = LauncherClient(SpawnedLauncher())
    client.start()
    try:
        trial = linux_trial(client, home=home, search=search, namespaces=True, volume=volume)
        first = [row for row in LINUX if row.name == "shell"]
        if not opens(first, certify(first, trial, top + "/first", facts)):
            facts = facts._replace(system=facts.system + WITHOUT)
            trial = linux_trial(client, home=home, search=search, namespaces=False, volume=volume)
        return certify(table, trial, top, facts, progress=progress)
    finally:
        client.close()


WITHOUT = " without namespaces"
"""Suffix to the system's name in a certificate from a machine that permits no namespaces."""


class RowProtection(NamedTuple):
    """A protection that holds if its rows do."""

    protection: str
    rows: tuple[str, ...]
    strict: str
    degraded: str
    """For a machine without namespaces."""


PROTECTIONS = (
    RowProtection(
        "nothing of the host in sight",
        ("plain_read", "listing", "project_read", "unix", "terminal", "arguments", "kill"),
        "no file, socket, terminal or process of the host can be reached",
        "the host's processes and names can be seen; Landlock decides what may be opened",
    ),
    RowProtection(
        "no network",
        ("tcp", "udp", "ipv6", "lan", "multicast"),
        "a loopback of its own: no address of the host can be reached",
        "sockets refused by a filter",
    ),
)
ROWS: Sequence[TrialRow] = tuple(row for row in LINUX if any(row.name in one.rows for one in PROTECTIONS))
"""Rows that ``doctor`` tries."""


def protections(certificate: Certificate) -> list[Finding]:
    """Return the protections that rows show."""
    found = [(one.protection, *state_of(one, certificate)) for one in PROTECTIONS]
    return [Finding(name, state, why, PERMIT if state == "degraded" else "") for name, state, why in found]


def state_of(one: RowProtection, certificate: Certificate) -> tuple[State, str]:
    """Return the state of a protection, and what was found."""
    made = {result.name: result for result in certificate.rows}
    results = [made.get(name, RowResult(name, "not shown", "it was not tried")) for name in one.rows]
    with_namespaces = not certificate.system.endswith(WITHOUT)
    failed = [result for result in results if result.verdict != "held" and result.found != NOTHING_THERE]
    if not with_namespaces:
        failed = [result for result in failed if result.name not in KNOWN]
    fell = [result.name for result in failed if result.verdict == "fell"]
    if fell:
        return "missing", f"done inside: {', '.join(fell)} (mudroom doctor --certify)"
    if failed:
        return "not probed", f"{failed[0].name}: {failed[0].found}"
    return ("strict", one.strict) if with_namespaces else ("degraded", one.degraded)


# --- linux ---


def linux_trial(client: Client, *, home: bytes, search: Sequence[bytes], namespaces: bool, volume: Volume) -> Trial:
    """Return the level 1 trial by ``client``: with namespaces, or by Landlock and a mediator alone. ``home`` and
    ``search`` are as for ``host.survey``."""
    host = survey(home, search)
    python = os.path.realpath(os.fsencode(sys.base_prefix))
    binds = (*host.system, *host.home, *(() if python == b"/usr" else (Bind(python, python),)))

    def prepare(ground: TrialGround, _port: int) -> Plan:
        top, work, private = (os.fsencode(path) for path in (ground.top, ground.work, ground.private))
        policy, tools = work + b"/.mudroom", top + b"/tools"
        more = [Bind(policy, policy)] if ground.row.where == "policy" else []
        masks = host.masks
        if ground.row.where == "mask":
            more, masks = [Bind(tools, tools)], (*masks, tools + b"/mask/secret")
        shown = (*binds, *more)
        spec = SandboxSpec(
            project=work,  # the copy is at its own path, as without namespaces, and the real project is nowhere
            view=Copy(work),
            cwd=work,
            home=home,
            scratch=private,
            namespaces=namespaces,
            links=host.links,
            binds=shown if namespaces else without(shown, masks),
            masks=masks if namespaces else (),
            devices=host.devices,
            landlock_abi=host.landlock_abi,
            as_root=host.as_root,
            uid_map=host.uid_map,
            gid_map=host.gid_map,
            deny_setgroups=host.deny_setgroups,
            rlimits=LIMITS.get(ground.row.name, ()),
        )
        return compile_plan(spec, host.machine)

    return Trial(prepare, start_by(client), volume)
