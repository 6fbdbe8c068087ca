"""Level 2 without namespaces inside a container: compile a ``SandboxSpec`` to the container's mounts and a ``Plan``.
Pure.

Here only the container itself hides the host. It is made for one fork, with the staged copy mounted at the project's
own path. The gate's listeners are in the container's own network namespace, which has only loopback. No other address
is reachable, so programs that ignore the proxy have no network at all.
"""

from __future__ import annotations

from mudroom.core.confinement.plan import Plan, Step
from mudroom.core.confinement.spec import Copy, SandboxSpec
from mudroom.sandbox.linux.plan import (
    PROXY_PORT,
    domain,
    filter_for,
    gate_steps,
    process_steps,
)
from mudroom.sandbox.linux.seccomp import rows
from mudroom.sandbox.linux.syscall import DENY, NO_NETWORK
from mudroom.typing import Any

_NOTHING = b"/dev/null"


def compile_inside(spec: SandboxSpec, machine: str) -> Plan:
    """Compile a spec for ``machine``, with the mounts. Raise ValueError for an unknown machine."""
    assert isinstance(spec.view, Copy), "an overlay needs a mount namespace"
    steps = [
        ("view", spec.project),
        ("terminal", b"/dev/ptmx"),
        *((("listen", PROXY_PORT, 0, (), b""), *gate_steps(spec)) if spec.network == "gate" else ()),
        *process_steps(spec),
        *domain(spec.landlock_abi),  # no signal reaches the launcher, the container's first process, of the same user
        *_filter(spec, machine),
    ]
    return Plan(0, (b"", b"", False), tuple(steps), mounts=tuple(_mounts(spec, spec.view)), memory=(spec.home,))


def compile_remote(spec: SandboxSpec) -> Plan:
    """Compile a spec for a container that runs elsewhere. The mounts and directories are the container's; the steps are
    for the engine's command line, which runs on this machine. See ``remote.py``."""
    assert isinstance(spec.view, Copy), "an overlay needs a mount namespace"
    steps: tuple[Step, ...] = (
        ("view", spec.view.work),
        ("terminal", b"/dev/ptmx"),
        ("umask", spec.umask),
        ("cwd", b"/"),
    )
    gate = spec.proxy if spec.network == "gate" else 0
    mounts = tuple(_mounts(spec, spec.view))
    return Plan(0, (b"", b"", False), steps, mounts=mounts, memory=(spec.home,), cwd=spec.cwd, gate=gate)


def _filter(spec: SandboxSpec, machine: str) -> tuple[Step, ...]:
    if spec.network == "none":
        return (("seccomp", filter_for(machine, (*NO_NETWORK[1:2], *DENY))),)
    notified_rows: tuple[tuple[int, Any], ...] = tuple(rows(DENY, machine).items())
    return (("seccomp", filter_for(machine, DENY), filter_for(machine, DENY, notify=True), notified_rows),)


def _mounts(spec: SandboxSpec, view: Copy) -> list[tuple[bytes, bytes, bool]]:
    own = spec.project + b"/.mudroom"
    mounts = [(bind.source, bind.path, bind.writable) for bind in spec.binds if bind.path != own]
    mounts += [(spec.caches.upper + b"/" + name, path, True) for name, path in spec.caches.places]
    mounts += [(_NOTHING, mask, False) for mask in spec.masks]
    mounts.append((view.work, spec.project, True))
    return [*mounts, *((bind.source, own, False) for bind in spec.binds if bind.path == own)]
