"""Windows: the sandboxes in which the rows are tried. A row that has a deed is tried there; the others are declared."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.certify.trial import Start, Trial, TrialGround
from mudroom.certify.volume import Volume
from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import Copy, HostView, SandboxSpec
from mudroom.core.confinement.windows_command import join
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.windows.client import WindowsClient, attend
from mudroom.sandbox.windows.stream import PipedOutput
from mudroom.windows.api import Library

_LIMIT = 1 << 16


def windows_trial(client: WindowsClient, library: Library, variables: Mapping[str, str], *, volume: Volume) -> Trial:
    """Return the trial of AppContainers and restricted tokens by ``client``. ``variables``: the host's environment."""
    return Trial(_prepare, _start_by(client, library, variables), volume)


def _prepare(ground: TrialGround, _port: int) -> Plan:
    work, private, project = (os.fsencode(path) for path in (ground.work, ground.private, ground.project))
    spec = SandboxSpec(project=project, view=Copy(work), cwd=project, home=private, scratch=private)
    if ground.row.way == "level 0":
        spec = spec._replace(network="open", around=HostView())
    return Plan(0, (b"", b"", False), (("windows", spec, Limits(missing="degrade")),))


def _start_by(client: WindowsClient, library: Library, variables: Mapping[str, str]) -> Start:
    root = next((value for name, value in variables.items() if name.upper() == "SYSTEMROOT"), "C:\\Windows")

    def start(plan: Plan, words: Sequence[bytes], ground: TrialGround, patience: float) -> tuple[int, bytes, bool]:
        environment = {b"PATH": join(root, "System32").encode(), b"HOME": os.fsencode(ground.private)}
        with PipedOutput(library, None, None, None, _LIMIT) as output:
            running = client.run(plan, Invocation(words, environment, output.descriptors))
            ended, timed_out = attend(running, output, patience, lambda: None)
            return ended.status, output.captured("stdout"), timed_out

    return start
