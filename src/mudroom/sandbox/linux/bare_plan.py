"""Level 0 on Linux: a ``SandboxSpec`` with ``around`` compiled to a ``Plan``. Pure.

No isolation, but a staged view: the host's own root, read-only through every mount of it, and in it

* the staged project at its own path; private /tmp, /dev and runtime directory; caches of the vault; nothing else that
  can be written, but for the credential stores that were named;
* hidden: mudroom's own state, credential stores that were not named, sockets of host programs that were not named;
* the host's network (unless there is to be none), its IPC objects and its processes' abstract sockets are those of the
  host; its processes are not in sight, and what the command leaves behind ends with it.

Programs with a sandbox of their own (browsers, other agents) may make nested user namespaces: all that is mounted here
is locked there (mount_namespaces(7)), so they uncover nothing and make nothing writable.
"""

from __future__ import annotations

from typing import Any

from mudroom.core.confinement.plan import NAMESPACES, Plan, Step
from mudroom.core.confinement.spec import Bind, Copy, HostView, SandboxSpec
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
    STANDARD_LINKS,
    TMPFS_LIMIT,
    WRITABLE,
    filesystem_rights,
    filter_for,
    own_directory,
    silence,
    view_step,
)
from mudroom.sandbox.linux.seccomp import rows
from mudroom.sandbox.linux.syscall import DENY, NO_NAMESPACES, NO_NETWORK, Cond

_NESTED = (
    "chroot", "pivot_root", "mount", "umount2", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr",
)  # fmt: skip
"""What programs need that have a sandbox of their own: Chromium, bubblewrap. All mounts of ours are locked there."""
_OWN = ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp")
"""Debuggers, and Mesa: within the command's own processes, no others being in sight."""
PERMITTED = frozenset((*_NESTED, *_OWN))
CLONE_NEWCGROUP = 0x02000000
_CGROUP = (Cond(0, "!=", 0, CLONE_NEWCGROUP),)
_NARROWED = {"unshare": _CGROUP, "clone": _CGROUP}
"""Namespaces are permitted but this one: in it the control groups can be mounted anew and, by whoever owns them, be
written: limits would be lifted. clone3 stays refused, as its flags cannot be seen."""
_NUMBERED = tuple(
    (number, rule._replace(conditions=_NARROWED.get(rule.syscall, rule.conditions)))
    for number, rule in enumerate(DENY)
    if rule.syscall not in PERMITTED
)
RULES = tuple(rule for _number, rule in _NUMBERED)
"""What is left of the list of level 1."""
_EMPTY = ((b"mode", b"0555"), (b"size", b"4k"))


def compile_bare(spec: SandboxSpec, machine: str) -> Plan:
    """The steps for this spec, which has ``around``, on ``machine``. Raises ValueError as ``compile_plan`` does."""
    assert spec.around is not None
    if not spec.namespaces:
        return _without_namespaces(spec, spec.around, machine)
    flags = NAMESPACES["user"] | NAMESPACES["mount"] | NAMESPACES["pid"]
    flags |= NAMESPACES["net"] if spec.network == "none" else 0
    shared, ahead, last = _shared(spec, spec.around), _ahead(spec), _confinement(spec, spec.around, machine)
    own = [
        view_step(spec),
        *own_directory(spec),
        *(("cover", path[1:]) for path in spec.around.covered),
        *(_bind(bind) for bind in spec.around.live),
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
    """The root as every command of a session has it. Nothing is made in what is the host's: it is read-only. What has
    to be made is made in the directories that stand in for the home, and in private ones."""
    steps: list[Step] = [("private",), ("host", spec.scratch, READ_ONLY)]
    steps += [("tmpfs", b"dev", ((b"mode", b"0755"), (b"size", b"64k")), NOSUID | NOEXEC)]
    steps += [("bind", device, device[1:], NOSUID | NOEXEC, False) for device in spec.devices]
    steps += [("tmpfs", b"dev/shm", TMPFS_LIMIT, WRITABLE)]
    steps += [("directory", b"dev/pts", 0o755), *(("symlink", target, path) for target, path in STANDARD_LINKS)]
    placed: list[tuple[bytes, Step]] = [(path, ("tmpfs", path[1:], TMPFS_LIMIT, WRITABLE)) for path in around.private]
    placed.append((spec.home, ("tmpfs", spec.home[1:], ((b"mode", b"0700"), (b"size", b"50%")), NOSUID | NODEV)))
    placed += [(path, ("directory", path[1:], mode)) for path, mode in around.directories]
    placed += [(path, ("symlink", target, path[1:])) for target, path in around.links]
    placed += [(bind.path, (*_bind(bind)[:4], True)) for bind in around.shown]
    placed += [(bind.path, _bind(bind)) for bind in spec.binds if bind.path != spec.project + b"/.mudroom"]
    placed += [(path, ("tmpfs", path[1:], _EMPTY, READ_ONLY | NOEXEC)) for path in around.hidden]
    placed += [(path, ("file", path[1:], content, 0o600)) for path, content in spec.files]
    steps += [step for _path, step in sorted(placed, key=lambda place: place[0])]
    steps += [("seal", spec.home[1:], READ_ONLY), ("seal", b"dev", NOSUID | NOEXEC | 1)]
    return [*steps, ("drop_bounding_set",)]


def _ahead(spec: SandboxSpec) -> list[Step]:
    """An ordinary user's /proc has nothing laid over it: a nested sandbox may mount its own only if all of ours is to
    be seen (mount_too_revealing in fs/namespace.c). Root would have the machine's settings in its hands."""
    steps: list[Step] = [("proc", b"proc"), ("devpts", b"dev/pts")]
    if spec.network == "none":
        steps.append(("loopback",))
    if spec.as_root:
        steps += [("bind", b"/" + path, path, READ_ONLY | NOEXEC, True) for path in ROOT_ONLY_PROC]
        steps += [("cover", path) for path in (*HIDDEN_PROC, *ROOT_HIDDEN_PROC)]
    return steps


def _confinement(spec: SandboxSpec, around: HostView, machine: str) -> list[Step]:
    steps: list[Step] = [("umask", spec.umask), ("drop_capabilities",), ("no_new_privs",)]
    steps += [("rlimit", *one) for one in spec.rlimits]
    if spec.landlock_abi >= 6 and not around.abstract:
        steps.append(("landlock", 0, 0, SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL, (), silence(spec.landlock_abi)))
    told = filter_for(machine, RULES, telling=True)
    return [*steps, ("seccomp", filter_for(machine, RULES), told, _rows(machine))]


def _rows(machine: str) -> tuple[tuple[int, Any], ...]:
    """Under the numbers that the rules have in the list of level 1: a denial has one meaning."""
    return tuple(
        (call, tuple((_NUMBERED[index][0], action, conditions) for index, action, conditions in own))
        for call, own in rows(RULES, machine).items()
    )


def _without_namespaces(spec: SandboxSpec, around: HostView, machine: str) -> Plan:
    """Landlock: writing only in the copy, a private directory, caches and what was named; reading everywhere but in
    what is hidden, of which names can be listed."""
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
        ("umask", spec.umask),
        ("cwd", spec.cwd),
        ("drop_bounding_set",),
        ("drop_capabilities",),
        ("no_new_privs",),
        *(("rlimit", *one) for one in spec.rlimits),
        ("landlock", everything, 0, scoped, tuple(rules), silence(spec.landlock_abi)),
        ("seccomp", filter_for(machine, (*(NO_NETWORK if spec.network == "none" else ()), *NO_NAMESPACES, *DENY))),
    )
    return Plan(0, (b"", b"", False), steps, mediation=(route(list(routed)), routed, own))
