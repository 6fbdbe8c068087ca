"""Linux: a ``SandboxSpec`` compiled to a ``Plan``. Pure; what it gives can be read and tested on any machine.

Two shapes, by what the kernel lets an ordinary user do:

* with namespaces: hide, do not deny. A nearly empty root, the staged view at the project's own path, a private home,
  /tmp and /run; nothing else of the host is there to be opened, connected to or signalled.
* without (containers, hardened kernels): Landlock decides what may be opened for reading and writing, seccomp takes
  the network away. Weaker, and reported as such.
"""

from __future__ import annotations

import functools
from typing import Any

from mudroom.core.confinement.plan import NAMESPACES, Plan, Step
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.sandbox.linux.metadata import calls, route
from mudroom.sandbox.linux.seccomp import compile_filter, rows
from mudroom.sandbox.linux.syscall import DENY, NO_NAMESPACES, NO_NETWORK, ONLY_TCP, SyscallRule

# MOUNT_ATTR_* of mount_setattr(2).
RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
READ_ONLY = RDONLY | NOSUID | NODEV
WRITABLE = NOSUID | NODEV

PROXY_PORT, REDIRECTED = 3128, 1
"""Where the gate listens inside: programs are told of the one; the other is tcpmux, which nobody runs, and below 1024,
where no command can listen itself (ip_unprivileged_port_start in ip-sysctl.rst)."""

MOST_LOWERS = 500
"""OVL_MAX_STACK in fs/overlayfs/super.c."""

# landlock(7): access rights by the ABI that brought them.
FS_EXECUTE, FS_WRITE_FILE, FS_READ_FILE, FS_READ_DIR = 1, 2, 4, 8
FS_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15, 9: 1 << 16}
_NET_RIGHTS, _CONNECT_TCP = 0b11, 0b10
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1, 2
_LOG_SAME_EXEC_OFF, _LOG_SUBDOMAINS_OFF = 1, 4
"""LANDLOCK_RESTRICT_SELF_LOG_* of include/uapi/linux/landlock.h. Where the host's audit is on, the kernel logs what a
domain refuses until the next execve(2), and afterwards only if it was asked to. The first flag is for whoever starts
programs that he does not know: it is about what a child is refused between our fork and its exec. The second is about
domains that a command makes for itself: it could ask for a log of all that it is refused, and fill the host's. The
header wants the second to be somebody's choice, for the sake of who debugs a sandbox by that log; without it the
command would be the one who chooses, and the log is not its own."""
FILE_RIGHTS = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | 1 << 14 | 1 << 15 | 1 << 16

HIDDEN_PROC = (b"proc/keys", b"proc/key-users")
"""No namespace has keyrings: all keys of the user outside are listed here (keyrings(7))."""
ROOT_HIDDEN_PROC = (
    b"proc/timer_list", b"proc/vmallocinfo", b"proc/slabinfo", b"proc/pagetypeinfo", b"proc/kpagecount",
    b"proc/kpageflags", b"proc/kpagecgroup",
)  # fmt: skip
"""The kernel's own, which it opens to its root: uid 0 owns them, and needs no capability for that."""
ROOT_ONLY_PROC = (b"proc/sys", b"proc/sysrq-trigger", b"proc/irq", b"proc/bus", b"proc/fs")
STANDARD_LINKS = (
    (b"/proc/self/fd", b"dev/fd"),
    (b"/proc/self/fd/0", b"dev/stdin"),
    (b"/proc/self/fd/1", b"dev/stdout"),
    (b"/proc/self/fd/2", b"dev/stderr"),
    (b"pts/ptmx", b"dev/ptmx"),
)
_RUN = (b"/run", b"/var/run")
_PRIVATE = (b"/", b"/tmp", b"/run", b"/dev/shm")
"""The sandbox has its own, and in it, where that is meant to be possible, parts of the host's."""
TMPFS_LIMIT = ((b"mode", b"1777"), (b"size", b"50%"))


def compile_plan(spec: SandboxSpec, machine: str) -> Plan:
    """The steps for this spec on ``machine`` (as uname(2) names it). Raises ValueError for an unknown machine or
    too many layers, UsageError for a bind in a place that the sandbox needs for itself."""
    if spec.namespaces:
        return _with_namespaces(spec, machine)
    assert isinstance(spec.view, Copy), "an overlay needs a mount namespace"
    gate = spec.proxy if spec.network == "gate" else 0
    routed = {number: tuple(call) for number, call in calls(machine, spec.landlock_abi, gate).items()}
    mediation = (route(list(routed)), routed, (spec.view.work, spec.scratch))
    steps = tuple(_without_namespaces(spec, spec.view, machine))
    return Plan(0, (b"", b"", False), steps, mediation=mediation)


def _with_namespaces(spec: SandboxSpec, machine: str) -> Plan:
    common = spec._replace(view=_NO_VIEW, cwd=b"")
    flags, shared, ahead, last = _frame(common, machine)
    own = [
        # uid 0 without capabilities still *owns* secrets that others cannot read. Of each command, not prepared once: a
        # cover is gone for all as soon as the host puts another file in that place (vfs_rename in fs/namei.c)
        *(("cover", mask[1:]) for mask in spec.masks),
        view_step(spec),
        *own_directory(spec),
        ("view", spec.project[1:]),
        ("terminal", b"dev/pts/ptmx"),
        *((("hand_over",),) if spec.network == "gate" else ()),
        ("seal", b"", READ_ONLY),
        ("pivot",),
        ("cwd", spec.cwd),
    ]
    maps = (spec.uid_map, spec.gid_map, spec.deny_setgroups)
    return Plan(flags, maps, (*shared, *ahead, *own, *last), len(shared), len(ahead), len(last))


_NO_VIEW = Copy(b"")


@functools.lru_cache(maxsize=8)
def _frame(spec: SandboxSpec, machine: str) -> tuple[int, tuple[Step, ...], tuple[Step, ...], tuple[Step, ...]]:
    """What does not depend on the command: the namespaces, the steps before its own, and those after. Worked out once
    in a session: there are a hundred of them."""
    flags = sum(bit for name, bit in NAMESPACES.items() if name != "net" or spec.network != "open")
    return flags, tuple(_shared(spec)), tuple(ahead(spec)), tuple(confinement(spec, machine))


def ahead(spec: SandboxSpec) -> list[Step]:
    """What each command has of its own, but which does not depend on the command."""
    steps: list[Step] = [("proc", b"proc"), *(("cover", path) for path in HIDDEN_PROC)]
    steps += [("devpts", b"dev/pts"), ("hostname", b"mudroom")]
    if spec.as_root:  # uid 0 without capabilities still owns what is in these: sysctl(2), proc(5)
        steps += [("bind", b"/" + path, path, READ_ONLY | NOEXEC, True) for path in ROOT_ONLY_PROC]
        steps += [("cover", path) for path in ROOT_HIDDEN_PROC]
    else:
        steps.append(("freeze", b"proc/sys"))
    steps.append(("freeze", b"proc/1"))  # init's own: its timers are everybody's to write, its OOM score uid 0's
    if spec.network != "open":
        steps.append(("loopback",))
    if spec.network == "gate":
        steps += [("routes",), ("listen", PROXY_PORT, REDIRECTED, spec.ports)]
    return steps


def _shared(spec: SandboxSpec) -> list[Step]:
    """The root as every command of a session has it; the private directories live as long as the session.

    Nothing is made inside a bind: what lies there is the host's, and read-only.
    """
    placed = sorted(_placed(spec), key=lambda place: place[0])
    steps: list[Step] = [("private",), ("root", spec.scratch, ((b"mode", b"0755"), (b"size", b"16m")))]
    steps += [("symlink", target, path[1:]) for target, path in spec.links]
    steps += _devices(spec)
    steps += [step for _path, step in placed]
    steps += [("file", path[1:], content, 0o600) for path, content in spec.files]
    steps += [("symlink", target, path) for target, path in STANDARD_LINKS]
    if not any(is_below(_RUN[1], path) for path, _step in placed):  # else it is the host's: most often the same link
        steps.append(("symlink", _RUN[0], _RUN[1][1:]))
    steps.append(("directory", b"proc", 0o555))
    return [*steps, ("drop_bounding_set",)]


def _devices(spec: SandboxSpec) -> list[Step]:
    steps: list[Step] = [("directory", b"dev", 0o755)]
    steps += [("bind", device, device[1:], NOSUID | NOEXEC, False) for device in spec.devices]
    steps.append(("tmpfs", b"dev/shm", TMPFS_LIMIT, WRITABLE))
    return steps


def _placed(spec: SandboxSpec) -> list[tuple[bytes, Step]]:
    """What has a place in the tree; sorted by place, a parent is mounted before what lies in it. Of two binds in one
    place the later one counts."""
    binds = {_place(bind, spec): bind for bind in spec.binds if not is_below(bind.path, spec.project)}
    placed: list[tuple[bytes, Step]] = [
        (b"/tmp", ("tmpfs", b"tmp", TMPFS_LIMIT, WRITABLE)),
        (b"/run", ("tmpfs", b"run", ((b"mode", b"0755"), (b"size", b"64m")), WRITABLE)),
        (spec.home, ("tmpfs", spec.home[1:], ((b"mode", b"0700"), (b"size", b"50%")), WRITABLE)),
    ]
    if not any(is_below(b"/var/tmp", path) for path in binds):
        placed.append((b"/var/tmp", ("tmpfs", b"var/tmp", TMPFS_LIMIT, WRITABLE)))
    for path, bind in binds.items():
        attributes = WRITABLE if bind.writable else READ_ONLY
        placed.append((path, ("bind", bind.source, path[1:], attributes, False)))
    return placed


def _place(bind: Bind, spec: SandboxSpec) -> bytes:
    """Where a bind belongs, the links of the root resolved: a link is never mounted upon, nor followed by a step (an
    absolute one would lead back to the host). Raises UsageError where only the sandbox's own can be."""
    path = bind.path
    for target, link in (*spec.links, _RUN):
        if is_below(path, link):
            parts = [part for part in target.split(b"/") if part not in (b"", b".", b"..")]
            path = b"/" + b"/".join(parts) + path[len(link) :]
            break
    devices = is_below(path, b"/dev") and not is_below(path, b"/dev/shm")
    if path in (*_PRIVATE, spec.home) or devices or is_below(path, b"/proc"):
        hint = "" if devices or is_below(path, b"/proc") else "name what is needed of it"
        raise UsageError(f"{show(bind.path)} cannot be shown: the sandbox has its own", hint)
    return path


def own_directory(spec: SandboxSpec) -> list[Step]:
    """The project's ``.mudroom``: readable inside, but its policy is not the command's to change."""
    own = spec.project + b"/.mudroom"
    return [("bind", bind.source, own[1:], READ_ONLY, False) for bind in spec.binds if bind.path == own]


def view_step(spec: SandboxSpec) -> Step:
    path = spec.project[1:]
    if isinstance(spec.view, Copy):
        return ("bind", spec.view.work, path, WRITABLE, False)
    if len(spec.view.lowers) > MOST_LOWERS:
        raise ValueError(f"an overlay of {len(spec.view.lowers)} layers: Linux takes {MOST_LOWERS}")
    return ("overlay", path, spec.view.lowers, spec.view.upper, spec.view.work, True)


def confinement(spec: SandboxSpec, machine: str) -> list[Step]:
    steps: list[Step] = [("umask", spec.umask), ("drop_capabilities",), ("no_new_privs",)]
    steps += [("rlimit", *one) for one in spec.rlimits]
    if spec.landlock_abi >= 6:
        scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL
        steps.append(("landlock", 0, 0, scoped, (), silence(spec.landlock_abi)))
    told = filter_for(machine, DENY, telling=True)
    return [*steps, ("seccomp", filter_for(machine, DENY), told, _rows(machine))]


_FILTERS: dict[tuple[str, tuple[SyscallRule, ...], bool], bytes] = {}

_NO_UNIX = tuple(rule for rule in NO_NETWORK if rule.conditions)
"""Without a mount namespace the host's unix servers (docker, D-Bus) are in sight: none are to be reached."""


def filter_for(machine: str, rules: tuple[SyscallRule, ...], *, telling: bool = False) -> bytes:
    key = (machine, rules, telling)
    if key not in _FILTERS:
        _FILTERS[key] = compile_filter(rules, machine, telling=telling)
    return _FILTERS[key]


def _rows(machine: str) -> tuple[tuple[int, Any], ...]:
    return tuple(rows(DENY, machine).items())


def silence(abi: int) -> int:
    """The flags with which nothing that is refused comes into the host's log. Before ABI 7 there is no log."""
    return _LOG_SAME_EXEC_OFF | _LOG_SUBDOMAINS_OFF if abi >= 7 else 0


def filesystem_rights(abi: int) -> int:
    """Every LANDLOCK_ACCESS_FS_* right that a kernel of this ABI can handle."""
    return sum(bits for since, bits in FS_RIGHTS.items() if abi >= since)


def _without_namespaces(spec: SandboxSpec, view: Copy, machine: str) -> list[Step]:
    everything = filesystem_rights(spec.landlock_abi)
    reading = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR
    rules: list[tuple[bytes, int]] = [(bind.source, everything if bind.writable else reading) for bind in spec.binds]
    rules += [(b"/proc", reading), (b"/sys/devices/system/cpu", reading)]
    rules += [(device, everything & FILE_RIGHTS) for device in spec.devices]
    rules += [(view.work, everything), (spec.scratch, everything)]  # not /dev/pts: the user's other terminals
    scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if spec.landlock_abi >= 6 else 0
    handled_net = 0 if spec.network == "open" or spec.landlock_abi < 4 else _NET_RIGHTS
    gated = spec.network == "gate" and spec.landlock_abi >= 4
    ports = ((spec.proxy, _CONNECT_TCP),) if gated else ()
    sockets = _NO_UNIX if spec.network == "open" else ONLY_TCP if gated else NO_NETWORK
    outside = (*sockets, *NO_NAMESPACES)
    return [
        ("view", view.work),
        ("terminal", b"/dev/ptmx"),
        ("umask", spec.umask),
        ("cwd", spec.cwd),
        ("drop_bounding_set",),
        ("drop_capabilities",),
        ("no_new_privs",),
        *(("rlimit", *one) for one in spec.rlimits),
        ("landlock", everything, handled_net, scoped, tuple(rules), silence(spec.landlock_abi), ports),
        ("seccomp", filter_for(machine, (*outside, *DENY))),
    ]
