"""Level 0 on Linux: compile a ``SandboxSpec`` with ``around`` to a ``Plan``. Pure.

Level 0 has no isolation but a staged view. Its root is the host's own, read-only through every mount. In it:

* writable: the staged project at its own path, private /tmp, /dev and runtime directories, the vault's caches, and
  named credential stores; no other file;
* hidden: mudroom's own state, credential stores that were not named, host programs' sockets that were not named;
* shared with the host: its network (unless the network is off), its IPC objects and its processes' abstract sockets.
  The host's processes are invisible, and processes that the command leaves behind end with it.

Programs with their own sandbox (browsers, other agents) may make nested user namespaces. All mounts made here are
locked there (mount_namespaces(7)), so these programs can neither uncover a hidden file nor make a mount writable.
"""

from __future__ import annotations

from mudroom.core.confinement.plan import NAMESPACES, Plan, Step
from mudroom.core.confinement.spec import Bind, Copy, HostView, SandboxSpec
from mudroom.core.tree.path import is_below
from mudroom.sandbox.linux.metadata import calls, route
from mudroom.sandbox.linux.plan import (
    FILE_RIGHTS,
    FS_EXECUTE,
    FS_READ_DIR,
    FS_READ_FILE,
    HIDDEN_PROC,
    NODEV,
    NOEXEC,
    NOSUID,
    READ_ONLY,
    ROOT_HIDDEN_PROC,
    ROOT_ONLY_PROC,
    SCOPE_ABSTRACT_UNIX_SOCKET,
    SCOPE_SIGNAL,
    WRITABLE,
    bind_step,
    cache_steps,
    device_steps,
    filesystem_rights,
    filter_for,
    inside_caches,
    no_audit_flags,
    own_directory,
    process_steps,
    session_limits,
    tmpfs,
    view_step,
)
from mudroom.sandbox.linux.seccomp import rows
from mudroom.sandbox.linux.syscall import DENY, NO_NAMESPACES, NO_NETWORK, Cond
from mudroom.typing import Any

_NESTED = (
    "chroot", "pivot_root", "mount", "umount2", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr",
)  # fmt: skip
"""Calls that programs with their own sandbox need: Chromium, bubblewrap. All mounts made here are locked there."""
_OWN = ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp")
"""Needed by debuggers and Mesa, within the command's own processes: no others are visible."""
PERMITTED = frozenset((*_NESTED, *_OWN))
CLONE_NEWCGROUP = 0x02000000
_CGROUP = (Cond(0, "!=", 0, CLONE_NEWCGROUP),)
_NARROWED = {"unshare": _CGROUP, "clone": _CGROUP}
"""All namespaces but cgroup are permitted. In a cgroup namespace a command could mount the control groups again, and
their owner could write to them: limits would be lifted. clone3 stays refused, because a filter cannot see its flags."""
_NUMBERED = tuple(
    (number, rule._replace(conditions=_NARROWED.get(rule.syscall, rule.conditions)))
    for number, rule in enumerate(DENY)
    if rule.syscall not in PERMITTED
)
RULES = tuple(rule for _number, rule in _NUMBERED)
"""The level 1 rules that remain."""
_EMPTY = ((b"mode", b"0555"), (b"size", b"4k"))


def compile_bare(spec: SandboxSpec, machine: str) -> Plan:
    """Compile a spec that has ``around`` for ``machine``. Raise ValueError as ``compile_plan`` does."""
    assert spec.around is not None
    if not spec.namespaces:
        return _without_namespaces(spec, spec.around, machine)
    flags = NAMESPACES["user"] | NAMESPACES["mount"] | NAMESPACES["pid"]
    flags |= NAMESPACES["net"] if spec.network == "none" else 0
    shared, ahead, last = (
        _shared(spec, spec.around),
        _ahead(spec, spec.around),
        _confinement(spec, spec.around, machine),
    )
    own = [
        *cache_steps(spec),
        view_step(spec),
        *own_directory(spec),
        *(("cover", path[1:]) for path in spec.around.covered),
        *(bind_step(bind, spec.around.live) for bind in sorted(spec.around.live, key=lambda bind: bind.path)),
        ("view", spec.project[1:]),
        ("terminal", b"dev/pts/ptmx"),
        ("pivot",),
        ("cwd", spec.cwd),
    ]
    maps = (spec.uid_map, spec.gid_map, spec.deny_setgroups)
    return Plan(flags, maps, (*shared, *ahead, *own, *last), len(shared), len(ahead), len(last))


def _bind(bind: Bind) -> Step:
    return ("bind", bind.source, bind.path[1:], WRITABLE if bind.writable else READ_ONLY, False)


def _shared(spec: SandboxSpec, around: HostView) -> list[Step]:
    """Return the steps for the root that a session's commands share. The host's directories are read-only and get no
    new entries: mount points are made only in private directories and in the home's stand-ins."""
    steps: list[Step] = [*session_limits(spec), ("private",), ("host", spec.scratch, READ_ONLY)]
    steps += device_steps(spec)
    steps += _in_order(spec, around, private=False)
    return [*steps, ("seal", b"dev", NOSUID | NOEXEC | 1), ("drop_bounding_set",)]


def _in_order(spec: SandboxSpec, around: HostView, *, private: bool) -> list[Step]:
    """Return the mounts in directories that are private to each command, or those elsewhere. A parent comes before its
    children. The home is made read-only last, after everything in it has been put in place."""
    placed = sorted(_placed(spec, around), key=lambda place: place[0])
    steps = [step for path, step in placed if _is_private(path, around) is private]
    return [*steps, ("seal", spec.home[1:], READ_ONLY)] if _is_private(spec.home, around) is private else steps


def _placed(spec: SandboxSpec, around: HostView) -> list[tuple[bytes, Step]]:
    """Return the steps that put entries into the host's tree, with their paths."""
    inside = {bind.path for bind in inside_caches(spec)}
    size = spec.tmpfs
    placed: list[tuple[bytes, Step]] = [
        (path, tmpfs(path, size.tmp if path == b"/tmp" else size.other)) for path in around.private
    ]
    placed.append((spec.home, tmpfs(spec.home, size.other, b"0700", NOSUID | NODEV)))
    missing = (
        path for _name, path in spec.caches.places if not any(is_below(path, bind.path) for bind in around.shown)
    )
    placed += [(path, ("directory", path[1:], 0o700)) for path in missing]
    placed += [(path, ("directory", path[1:], mode)) for path, mode in around.directories]
    placed += [(path, ("symlink", target, path[1:])) for target, path in around.links]
    placed += [(bind.path, (*_bind(bind)[:4], True)) for bind in around.shown]
    own = {spec.project + b"/.mudroom", *inside}
    placed += [(bind.path, _bind(bind)) for bind in spec.binds if bind.path not in own]
    placed += [(path, ("tmpfs", path[1:], _EMPTY, READ_ONLY | NOEXEC)) for path in around.hidden]
    return placed + [(path, ("file", path[1:], content, 0o600)) for path, content in spec.files]


def _is_private(path: bytes, around: HostView) -> bool:
    """Return whether a path is in a directory that is private to each command."""
    return any(is_below(path, own) for own in around.private)


def _ahead(spec: SandboxSpec, around: HostView) -> list[Step]:
    """Return the steps that each command performs for itself, whatever the command.

    An ordinary user's /proc has no mounts over it: a nested sandbox may mount its own /proc only if this one is visible
    as a whole (mount_too_revealing in fs/namespace.c). For root the machine's settings are covered: root could change
    them.
    """
    steps = _in_order(spec, around, private=True)
    steps += [tmpfs(b"/dev/shm", spec.tmpfs.other), ("proc", b"proc"), ("devpts", b"dev/pts")]
    if spec.network == "none":
        steps.append(("loopback",))
    if spec.as_root:
        steps += [("bind", b"/" + path, path, READ_ONLY | NOEXEC, True) for path in ROOT_ONLY_PROC]
        steps += [("cover", path) for path in (*HIDDEN_PROC, *ROOT_HIDDEN_PROC)]
    return steps


def _confinement(spec: SandboxSpec, around: HostView, machine: str) -> list[Step]:
    steps: list[Step] = [("umask", spec.umask), ("drop_capabilities",), ("no_new_privs",)]
    steps += [("rlimit", *limit) for limit in spec.rlimits]
    if spec.landlock_abi >= 6 and not around.abstract:
        steps.append(
            ("landlock", 0, 0, SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL, (), no_audit_flags(spec.landlock_abi))
        )
    notifying = filter_for(machine, RULES, notify=True)
    return [*steps, ("seccomp", filter_for(machine, RULES), notifying, _rows(machine))]


def _rows(machine: str) -> tuple[tuple[int, Any], ...]:
    """Return rows with level 1's rule numbers, so that a denial means the same at both levels."""
    return tuple(
        (call, tuple((_NUMBERED[index][0], action, conditions) for index, action, conditions in own))
        for call, own in rows(RULES, machine).items()
    )


def _without_namespaces(spec: SandboxSpec, around: HostView, machine: str) -> Plan:
    """Confine by Landlock: writes only in the copy, a private directory, caches and named stores; reads everywhere but
    in hidden places, whose names can still be listed."""
    assert isinstance(spec.view, Copy), "an overlay needs a mount namespace"
    everything = filesystem_rights(spec.landlock_abi)
    own = (spec.view.work, spec.scratch, *(bind.source for bind in (*spec.binds, *around.live) if bind.writable))
    rules: list[tuple[bytes, int]] = [(b"/", FS_READ_DIR | FS_EXECUTE)]
    rules += [(bind.source, FS_READ_FILE) for bind in around.shown]
    rules += [(path, everything) for path in own]
    rules += [(device, everything & FILE_RIGHTS) for device in spec.devices]
    scoped = SCOPE_SIGNAL | (0 if around.abstract else SCOPE_ABSTRACT_UNIX_SOCKET) if spec.landlock_abi >= 6 else 0
    routed = {number: tuple(call) for number, call in calls(machine, spec.landlock_abi).items()}
    steps: tuple[Step, ...] = (
        ("view", spec.view.work),
        ("terminal", b"/dev/ptmx"),
        *process_steps(spec),
        ("landlock", everything, 0, scoped, tuple(rules), no_audit_flags(spec.landlock_abi)),
        ("seccomp", filter_for(machine, (*(NO_NETWORK if spec.network == "none" else ()), *NO_NAMESPACES, *DENY))),
    )
    return Plan(0, (b"", b"", False), steps, mediation=(route(list(routed)), routed, own))
