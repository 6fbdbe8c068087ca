"""An engine of containers (Podman) beside a command: the second half of its plan.

The command keeps its sandbox and its filter, and sees one socket. The engine is in a sandbox of its own with the same
root, view, network and gate; ``src/native/launcher/engine.c`` has the namespaces. Its filter permits the calls that
make containers, and its capabilities reach its own namespaces only.
"""

from __future__ import annotations

import os

from mudroom.core.confinement.default_limit import NO_NAMESPACES, Counter
from mudroom.core.confinement.plan import Plan, Step
from mudroom.core.confinement.spec import Overlay, SandboxSpec
from mudroom.errors import UsageError
from mudroom.ext.engine.numbers import TUN, IdMaps, id_maps
from mudroom.sandbox.linux.plan import DEVICE, NOEXEC, READ_ONLY, WRITABLE, filter_for, tmpfs
from mudroom.sandbox.linux.syscall import AF_NETLINK, DENY, ENOSYS, NETLINK_OTHER, NETLINK_ROUTE, Cond, SyscallRule
from mudroom.typing import Any

SOCKET = b"/run/engine.sock"
STORAGE = b"/engine"
"""In a fork's directory: images, containers and volumes. Their files have subordinate owners."""
_PLACE = b"engine"
"""The engine's own directory in its root."""
_MAKES_CONTAINERS = frozenset((
    "chroot", "clone", "fsconfig", "fsmount", "fsopen", "mknod", "mknodat", "mount", "mount_setattr", "move_mount",
    "open_tree", "pivot_root", "setns", "umount2", "unshare",
))  # fmt: skip
"""Calls that the engine's filter permits, beside those that the command's does."""
_NETFILTER = 12
_OTHER_NETLINK = (Cond(0, "==", AF_NETLINK), Cond(2, "!=", NETLINK_ROUTE), Cond(2, "!=", _NETFILTER))
_NO_KEYRING = SyscallRule("keyctl", ENOSYS, (), "with EPERM crun ends; without a keyring it goes on")
"""containers.conf has keyrings off for containers, but not for RUN in builds by Docker's interface."""
RULES = (
    _NO_KEYRING,
    *(
        rule._replace(conditions=_OTHER_NETLINK) if rule.conditions == NETLINK_OTHER else rule
        for rule in DENY
        if rule.syscall not in _MAKES_CONTAINERS
    ),
)
"""The engine's filter. Bridges of containers need netfilter. The first rule for a call decides."""

_NO_GROUPS: Counter = (b"max_cgroup_namespaces", 0, False)
"""Control groups are mounted by the owner of a namespace of them. No container gets one: it could write to groups that
are the user's own, and leave them."""
_CONTAINERS = b"""[containers]
cgroupns = "host"
cgroups = "disabled"
http_proxy = false
keyring = false
pids_limit = 0
log_driver = "k8s-file"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
"""
_STORAGE = b"""[storage]
driver = "overlay"
graphroot = "/engine/storage/graph"
rootless_storage_path = "/engine/storage/graph"
runroot = "/engine/run/storage"
"""

VARIABLES = {
    b"DOCKER_HOST": b"unix://" + SOCKET,
    b"CONTAINER_HOST": b"unix://" + SOCKET,
    b"TESTCONTAINERS_RYUK_DISABLED": b"true",
}
"""Of the command. Ryuk removes containers that a test leaves; here they end with the command."""


def with_engine(plan: Plan, spec: SandboxSpec, machine: str, fork: bytes) -> Plan:
    """Return the plan with an engine beside its command. ``fork``: the fork's directory, which gets one for images.
    Raise UsageError for a plan that cannot have one, Unsupported if no engine can run on this machine."""
    if not (spec.namespaces and isinstance(spec.view, Overlay)) or spec.around is not None:
        raise UsageError("--engine needs level 1, user namespaces and the overlay view", "mudroom doctor")
    if spec.network == "open":
        raise UsageError("--engine is not for --net open: containers reach what the gate allows", "leave --net out")
    found = id_maps()
    if os.path.isdir(fork):  # else the plan is only explained
        os.makedirs(fork + STORAGE, mode=0o700, exist_ok=True)
    first = next(index for index, step in enumerate(plan.steps) if step[0] == "overlay")
    view = next(index for index, step in enumerate(plan.steps) if step[0] == "view")
    places = [step for step in plan.steps[view:] if step[0] == "listen_on_loopback"]
    rest = [step for step in plan.steps[view:] if step[0] != "listen_on_loopback"]
    limits = [step for step in rest if step[0] == "rlimit"]
    empty: Any = ((b"mode", b"0555"), (b"size", b"4k"))
    steps: list[Step] = [
        *(_with_namespaces(step) for step in plan.steps[:first] if step[0] != "drop_bounding_set"),
        *places,
        ("counters", (_NO_GROUPS,)),
        ("sysfs", _PLACE + b"/sys"),
        ("tmpfs", _PLACE + b"/sys/fs/cgroup", empty, READ_ONLY | NOEXEC),  # crun looks what file system it is
        (
            "engine",
            SOCKET[1:],
            found.inner,
            found.nested,
            _inside(spec, fork + STORAGE, limits, machine),
            (found.podman, b"system", b"service", b"--time=0"),
            _variables(found),
        ),
        ("nest", spec.uid_map, spec.gid_map, spec.scratch),
        ("counters", (NO_NAMESPACES,)),
        ("drop_bounding_set",),
        ("tmpfs", _PLACE, empty, READ_ONLY | NOEXEC),
        *plan.steps[first:view],
        ("lend", spec.project[1:]),
        *rest,
    ]
    return plan._replace(maps=found.outer, steps=tuple(steps), shared=0, ahead=0, last=0)


def _with_namespaces(step: Step) -> Step:
    """Return a step without the limit that forbids user namespaces; the command's own namespace gets it."""
    if step[0] != "counters":
        return step
    return ("counters", tuple(counter for counter in step[1] if counter != NO_NAMESPACES))


def _inside(spec: SandboxSpec, storage: bytes, limits: list[Step], machine: str) -> tuple[Step, ...]:
    return (
        ("enter",),
        ("copy_root", spec.scratch),
        ("bind", spec.scratch + b"/" + _PLACE + b"/sys", b"sys", 0, False),
        ("proc", b"proc"),
        ("bind", TUN, TUN[1:], DEVICE, False),
        tmpfs(b"/dev/shm", spec.tmpfs.other),
        tmpfs(b"/" + _PLACE, spec.tmpfs.other, b"0700"),
        ("directory", _PLACE + b"/run", 0o700),
        ("directory", _PLACE + b"/home", 0o700),
        ("bind", storage, _PLACE + b"/storage", WRITABLE, False),
        ("file", _PLACE + b"/containers.conf", _CONTAINERS, 0o600),
        ("file", _PLACE + b"/storage.conf", _STORAGE, 0o600),
        ("lent", spec.project[1:]),
        ("pivot",),
        ("umask", 0o022),
        *limits,
        ("seccomp", filter_for(machine, RULES)),
    )


def _variables(found: IdMaps) -> tuple[bytes, ...]:
    """Return the engine's environment. The first three name the state in which Podman finds itself after it has mapped
    the numbers itself (pkg/rootless of Podman): here they are mapped already."""
    return (
        b"_CONTAINERS_USERNS_CONFIGURED=done",
        b"_CONTAINERS_ROOTLESS_UID=%d" % found.user,
        b"_CONTAINERS_ROOTLESS_GID=%d" % found.group,
        b"CONTAINERS_CONF=/engine/containers.conf",
        b"CONTAINERS_STORAGE_CONF=/engine/storage.conf",
        b"HOME=/engine/home",
        b"XDG_RUNTIME_DIR=/engine/run",
        b"TMPDIR=/engine/storage",
        b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    )
