"""Level 2 without namespaces inside a container: compile a ``SandboxSpec`` to the container's mounts and a ``Plan``.
Pure.

Here only the container itself hides the host. It is made for one fork, with the staged copy mounted at the project's
own path. The gate's listeners are in the container's own network namespace, which has only loopback. No other address
is reachable, so programs that ignore the proxy have no network at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.confinement.limit import NAMES, Limits, command_limits, show_limit, stand_in, total_limits
from mudroom.core.confinement.plan import Plan, Step
from mudroom.core.confinement.spec import Copy, SandboxSpec
from mudroom.errors import Unsupported
from mudroom.ext.containers.core.container import Engine
from mudroom.sandbox.linux.plan import PROXY_PORT, domain, filter_for, gate_steps, process_steps
from mudroom.sandbox.linux.seccomp import rows
from mudroom.sandbox.linux.syscall import DENY, NO_NETWORK
from mudroom.typing import Any, NamedTuple

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


# --- limits ---

BY_ENGINE = ("memory", "processes", "cpus")
OWN_PROCESSES = 4
"""The launcher, a template, its spare and an init are in the container's group, but are not counted for the user."""
OWN_MEMORY = 4 << 20
"""Bytes that they use: four static programs of 100 kB and what the kernel counts for them: stacks, page tables,
namespaces."""


class AllowedLimits(NamedTuple):
    limits: Limits
    """The limits that the container enforces, as it is to be started with: its own processes are included."""
    rlimits: tuple[tuple[int, int, int], ...] = ()
    """Substitutes for other limits."""
    notes: tuple[str, ...] = ()


def unenforced(limits: Limits, engine: Engine) -> Iterator[tuple[str, str, float]]:
    """Yield (field, kind, limit) for each requested limit that is not enforced."""
    able = getattr(engine, "limits", BY_ENGINE)
    for kind, limit in command_limits(limits):
        if kind not in BY_ENGINE or kind not in able:
            yield kind, kind, limit
    for kind, limit in total_limits(limits):
        yield "total_" + kind, kind, limit


def allow(limits: Limits, engine: Engine) -> AllowedLimits:
    """Split the limits into those that the container enforces, substitutes and notes. Raise Unsupported for a limit
    that is not enforced, unless the policy permits that.

    An engine makes a control group for each container alone. No group surrounds a project's containers, and no io limit
    counts writes through the page cache everywhere.
    """
    missing = list(unenforced(limits, engine))
    if missing and limits.missing == "refuse":
        field, kind, limit = missing[0]
        raise Unsupported(
            f"at level 2 a limit of {NAMES[kind]}{_scope_text(field)}, {show_limit(kind, limit)},",
            "a control group that enforces it",
            f"containers of {engine.kind}, whose control groups do not",
            "use level 1, remove the limit, or permit running without it: limits: {missing: degrade} in the policy",
        )
    notes, rlimits, changes = [], [], dict[str, Any]()
    for field, kind, limit in missing:
        if field == kind:
            rlimit, lost = stand_in(kind, limit, counts_processes=False)
            rlimits += [rlimit] if rlimit is not None else []
        else:
            lost = f"limit of all commands together: {NAMES[kind]}, {show_limit(kind, limit)}: not enforced"
        notes.append(f"{lost} (level 2, {engine.kind})")
        changes[field] = None
    held = limits._replace(**changes)
    return AllowedLimits(
        held._replace(
            memory=None if held.memory is None else held.memory + OWN_MEMORY,
            processes=None if held.processes is None else held.processes + OWN_PROCESSES,
        ),
        tuple(rlimits),
        tuple(notes),
    )


def _scope_text(field: str) -> str:
    return " of all commands together" if field.startswith("total_") else ""
