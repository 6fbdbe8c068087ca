"""Windows: the sandboxes in which the rows are tried."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import Bind, Copy, HostView, SandboxSpec
from mudroom.errors import Unsupported
from mudroom.ext.certify.canary import ANOTHER_PACKAGE
from mudroom.ext.certify.deed import GATE
from mudroom.ext.certify.ground import TrialGround
from mudroom.ext.certify.trial import Prepare, Start, Trial
from mudroom.ext.certify.volume import Volume
from mudroom.ext.certify.windows_witness import native_witness
from mudroom.ext.windows.core.windows_command import join
from mudroom.ext.windows.core.windows_plan import CHANGE, READ
from mudroom.ext.windows.sandbox.calls import FileCalls
from mudroom.ext.windows.sandbox.plan import text
from mudroom.ext.windows.sandbox.platform import streams
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.sandbox.client.invocation import Invocation
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Client

_LIMIT = 1 << 16
LIMITS: Mapping[str, Limits] = {
    "memory": Limits(memory=1 << 28, missing="degrade"),
    "processes": Limits(processes=4, missing="degrade"),
}
"""Limits by the row's name: below what its deed asks for (``windows_deed.MEMORY``, ``windows_deed.CHILDREN``)."""
OTHERS: Mapping[str, tuple[str, int]] = {
    "container": (ANOTHER_PACKAGE, READ),
    "users": ("S-1-5-11", CHANGE),
}
"""Rights in the directory that a row is aimed at: for a package that is not mudroom's, and for all authenticated users
("Well-known SIDs")."""


def windows_trial(client: Client, library: Library, variables: Mapping[str, str], *, volume: Volume) -> Trial:
    """Return the trial for AppContainers and restricted tokens by ``client``. ``variables``: the host's environment."""
    from mudroom.ext.windows.sandbox.native import NativeFiles

    return Trial(prepare_by(NativeFiles(library)), _start_by(client, variables), volume, witness=native_witness())


def prepare_by(files: FileCalls) -> Prepare:
    """Return a function that makes plans. ``files`` gives others their rights in a row's directory."""

    def prepare(ground: TrialGround, port: int) -> Plan:
        work, private, project = (os.fsencode(path) for path in (ground.work, ground.private, ground.project))
        spec = SandboxSpec(project=project, view=Copy(work), cwd=project, home=private, scratch=private)
        if ground.row.where == "policy":
            policy = project + b"/.mudroom"
            spec = spec._replace(binds=(Bind(policy, policy),))
        if ground.row.way == "gate":
            spec = spec._replace(network="gate", proxy=port)
        if ground.row.way == "level 0":
            spec = spec._replace(network="open", around=HostView())
        if ground.row.where in OTHERS:
            try:
                files.grant(text(os.fsencode(ground.aim)), *OTHERS[ground.row.where])
            except CallFailed as failed:
                raise Unsupported("a directory of others", failed.function, f"error {failed.code}") from failed
        limits = LIMITS.get(ground.row.name, Limits(missing="degrade"))
        return Plan(0, (b"", b"", False), (("windows", spec, limits),))

    return prepare


def _start_by(client: Client, variables: Mapping[str, str]) -> Start:
    root = next((value for name, value in variables.items() if name.upper() == "SYSTEMROOT"), "C:\\Windows")
    captured, attend = streams()

    def start(plan: Plan, words: Sequence[bytes], ground: TrialGround, patience: float) -> tuple[int, bytes, bool]:
        environment = {b"PATH": join(root, "System32").encode(), b"HOME": os.fsencode(ground.private)}
        with captured(None, None, None, _LIMIT) as output:
            running = client.run(plan, Invocation(words, environment, output.descriptors))
            ((_windows, spec, _limits),) = plan.steps
            if spec.network == "gate":
                running.open_gate((GATE, spec.proxy), b"")
            ended, timed_out = attend(running, output, patience, lambda: None)
            return ended.status, output.captured("stdout"), timed_out

    return start
