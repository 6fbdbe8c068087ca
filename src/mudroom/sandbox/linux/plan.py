"""Linux: compile a ``SandboxSpec`` to a ``Plan``. Pure; the plan can be read and tested on any machine.

There are two shapes, depending on what the kernel permits an ordinary user:

* with namespaces: hide, do not deny. The root is nearly empty: the staged view at the project's own path, a private
  home, /tmp and /run. Nothing else on the host can be opened, connected to or signalled.
* without namespaces (containers, hardened kernels): Landlock decides which files may be read and written, seccomp takes
  the network away. This is weaker, and reported as such.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from mudroom.core.confinement.cache_place import CacheView
from mudroom.core.confinement.plan import NAMESPACES, Plan, Step
from mudroom.core.confinement.spec import Bind, Copy, Overlay, SandboxSpec
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.sandbox.linux.metadata import calls, route
from mudroom.sandbox.linux.netlink import redirect_to, routes
from mudroom.sandbox.linux.seccomp import compile_filter, rows
from mudroom.sandbox.linux.syscall import DENY, NO_NAMESPACES, NO_NETWORK, ONLY_TCP, RENAMES, SyscallRule
from mudroom.typing import Any

# MOUNT_ATTR_*, mount_setattr(2).
RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
READ_ONLY = RDONLY | NOSUID | NODEV
WRITABLE = NOSUID | NODEV
DEVICE = RDONLY | NOSUID | NOEXEC
"""A device on a read-only mount can be written to, but its mode, owner and times, which are the host's, cannot be
changed."""

PROXY_PORT, REDIRECTED = 3128, 1
"""Ports of the gate's listeners inside. Programs are told the proxy port. The redirected port is tcpmux: practically
unused, and below 1024, where no command can listen (ip_unprivileged_port_start in ip-sysctl.rst)."""

MOST_LOWERS = 500
"""OVL_MAX_STACK in fs/overlayfs/super.c."""

# landlock(7): access rights by the ABI that introduced them.
FS_EXECUTE, FS_WRITE_FILE, FS_READ_FILE, FS_READ_DIR = 1, 2, 4, 8
FS_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15, 9: 1 << 16}
_NET_RIGHTS, _CONNECT_TCP = 0b11, 0b10
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1, 2
_LOG_SAME_EXEC_OFF, _LOG_SUBDOMAINS_OFF = 1, 4
"""LANDLOCK_RESTRICT_SELF_LOG_* in include/uapi/linux/landlock.h.

Where the host's audit is on, the kernel logs a domain's refusals until the next execve(2), and afterwards only on
request. The first flag is for programs that start unknown programs: it covers refusals between fork and exec. The
second covers domains that a command makes for itself: a command could request a log of all its refusals, and fill the
host's log. The header recommends making the second flag optional, for people who debug a sandbox by that log. But then
the command would choose, and the log is not its own.
"""
SOCKETS_SINCE = 9
"""The ABI whose LANDLOCK_ACCESS_FS_RESOLVE_UNIX covers connect(2) and sendmsg(2) to a socket's path."""
FS_REFER, FS_RESOLVE_UNIX = 1 << 13, 1 << 16
MOVES = ((b"/", FS_REFER),)
"""Renames and links between directories are permitted everywhere, and mounts still decide. If a domain or a nested one
(a joined command's, one that a program makes for itself) handles any file right, each layer without a rule forbids them
(LANDLOCK_ACCESS_FS_REFER in include/uapi/linux/landlock.h)."""
FILE_RIGHTS = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | 1 << 14 | 1 << 15 | 1 << 16

HIDDEN_PROC = (b"proc/keys", b"proc/key-users")
"""Keyrings have no namespace: these files list all the user's keys outside (keyrings(7))."""
ROOT_HIDDEN_PROC = (
    b"proc/timer_list", b"proc/vmallocinfo", b"proc/slabinfo", b"proc/pagetypeinfo", b"proc/kpagecount",
    b"proc/kpageflags", b"proc/kpagecgroup",
)  # fmt: skip
"""Files that the kernel opens to root: uid 0 owns them and needs no capability to read them."""
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
"""The sandbox has its own; parts of the host's can be bound into them where that is allowed."""
MOST_FILES = b"1m"
"""Files in a tmpfs: the kernel memory for each, about a kilobyte, is not counted in its size."""


def tmpfs(path: bytes, size: bytes, mode: bytes = b"1777", attributes: int = WRITABLE) -> Step:
    """Return the step that mounts a tmpfs at an absolute path."""
    return ("tmpfs", path[1:], ((b"mode", mode), (b"size", size), (b"nr_inodes", MOST_FILES)), attributes)


def session_limits(spec: SandboxSpec) -> list[Step]:
    """Return the steps that limit a session's commands together. They come first, while /proc is the host's, and are
    inherited: they cost a command nothing."""
    steps: list[Step] = [("counters", spec.counters)] if spec.counters else []
    return [*steps, *(("rlimit", *limit) for limit in spec.session_rlimits)]


def compile_plan(spec: SandboxSpec, machine: str) -> Plan:
    """Compile a spec for ``machine`` (as in uname(2)). Raise ValueError for an unknown machine or too many layers,
    UsageError for a bind at a path that the sandbox needs for itself."""
    if spec.namespaces:
        return _with_namespaces(spec, machine)
    assert isinstance(spec.view, Copy), "an overlay needs a mount namespace"
    gate = spec.proxy if spec.network == "gate" else 0
    routed = {number: tuple(call) for number, call in calls(machine, spec.landlock_abi, gate, spec.loopback).items()}
    own = (spec.view.work, spec.scratch, *(bind.source for bind in spec.binds if bind.writable))
    mediation = (route(list(routed)), routed, own)
    steps = tuple(_without_namespaces(spec, spec.view, machine))
    return Plan(0, (b"", b"", False), steps, mediation=mediation)


def _with_namespaces(spec: SandboxSpec, machine: str) -> Plan:
    view: Overlay | Copy = Copy(b"", (0, 0)) if _is_mounted(spec.view) else _NO_VIEW
    if isinstance(spec.view, Overlay):
        view = Overlay((), b"", b"")
    common = spec._replace(view=view, cwd=b"", caches=CacheView(spec.caches.places))
    flags, shared, ahead, last = _frame(common, machine)
    own = [*command_steps(spec, ahead), ("seal", b"", READ_ONLY), ("pivot",), ("cwd", spec.cwd)]
    maps = (spec.uid_map, spec.gid_map, spec.deny_setgroups)
    return Plan(flags, maps, (*shared, *ahead, *own, *last), len(shared), len(ahead), len(last))


def command_steps(spec: SandboxSpec, ahead: Sequence[Step]) -> list[Step]:
    """Return the steps for the command's own view, after those that are performed ``ahead`` of any command."""
    dropped = (spec.home[1:], b"tmp", b"var/tmp")  # directories whose files nobody keeps, and a user may expect to find
    return [
        # uid 0 without capabilities still *owns* secrets that others cannot read. Covered for each command, not in the
        # template: a cover disappears for every command as soon as the host replaces the file (vfs_rename in
        # fs/namei.c).
        *(("cover", mask[1:]) for mask in spec.masks),
        *hidden_steps(spec),
        *cache_steps(spec),
        view_step(spec),
        *own_directory(spec),
        *root_steps(spec),
        ("view", spec.project[1:]),
        ("left", tuple(step[1] for step in ahead if step[0] == "tmpfs" and step[1] in dropped)),
        ("terminal", b"dev/pts/ptmx"),
        *gate_steps(spec),
    ]


def gate_steps(spec: SandboxSpec) -> tuple[Step, ...]:
    """Return a command's steps that complete the gate's listeners and hand them over."""
    if spec.network != "gate":
        return ()
    places = tuple((address, port) for address, port, _outside in spec.loopback)
    return (*((("listen_on_loopback", places),) if places else ()), ("hand_over",))


_NO_VIEW = Copy(b"")


def _is_mounted(view: Overlay | Copy) -> bool:
    """Return whether the view is a mount in which the user works, too."""
    return isinstance(view, Copy) and view.identity is not None


@functools.lru_cache(maxsize=8)
def _frame(spec: SandboxSpec, machine: str) -> tuple[int, tuple[Step, ...], tuple[Step, ...], tuple[Step, ...]]:
    """Return the command-independent parts: the namespaces, the steps before the command's own, and those after. Cached
    for the session: there are a hundred steps."""
    flags = sum(bit for name, bit in NAMESPACES.items() if name != "net" or spec.network != "open")
    placed = sorted(_placed(spec), key=lambda place: place[0])
    return flags, tuple(_shared(spec, placed)), tuple(_ahead(spec, placed)), tuple(confinement(spec, machine))


def _ahead(spec: SandboxSpec, placed: Iterable[tuple[bytes, Step]]) -> list[Step]:
    """Return the steps that each command performs for itself, whatever the command: no two sandboxes share a directory
    that both can write to."""
    steps = [step for path, step in placed if _is_private(path, spec)]
    steps += [("file", path[1:], content, 0o600) for path, content in spec.files]
    steps += [("symlink", target, path[1:]) for target, path in spec.home_links]
    return [*steps, *own_system(spec)]


def own_system(spec: SandboxSpec) -> list[Step]:
    """Return the steps for a command's own /proc, terminals and network."""
    steps: list[Step] = [("proc", b"proc"), *(("cover", path) for path in HIDDEN_PROC)]
    steps.append(("devpts", b"dev/pts"))
    if spec.as_root:  # uid 0 without capabilities still owns the files in these: sysctl(2), proc(5)
        steps += [("bind", b"/" + path, path, READ_ONLY | NOEXEC, True) for path in ROOT_ONLY_PROC]
        steps += [("cover", path) for path in ROOT_HIDDEN_PROC]
    else:
        steps.append(("freeze", b"proc/sys"))
    steps.append(("freeze", b"proc/1"))  # init's own: any process may write its timers, uid 0 its OOM score
    if spec.network == "none":
        steps.append(("loopback",))
    if spec.network == "gate":
        steps += [("routes", routes()), ("listen", PROXY_PORT, REDIRECTED, spec.ports, redirect_to(REDIRECTED))]
    return steps


def _shared(spec: SandboxSpec, placed: Sequence[tuple[bytes, Step]]) -> list[Step]:
    """Return the steps for the root that a session's commands share. No command can write there.

    No file is made inside a bind, which is the host's and read-only.
    """
    own_run = not any(is_below(_RUN[1], path) for path, _step in placed)  # else the host's: usually the same link
    steps: list[Step] = [
        *session_limits(spec),
        ("private",),
        ("root", spec.scratch, ((b"mode", b"0755"), (b"size", b"16m"))),
    ]
    steps += [("symlink", target, path[1:]) for target, path in spec.links]
    steps += [("directory", b"dev", 0o755), *(("bind", device, device[1:], DEVICE, False) for device in spec.devices)]
    steps += [step for path, step in placed if not _is_private(path, spec)]
    steps += [("symlink", target, path) for target, path in STANDARD_LINKS]
    if own_run:
        steps.append(("symlink", _RUN[0], _RUN[1][1:]))
    steps.append(("directory", b"proc", 0o555))
    return [*steps, ("drop_bounding_set",)]


def device_steps(spec: SandboxSpec) -> list[Step]:
    """Return the steps for a /dev in memory, with the devices and links that programs expect."""
    steps: list[Step] = [("tmpfs", b"dev", ((b"mode", b"0755"), (b"size", b"64k")), NOSUID | NOEXEC)]
    steps += [("bind", device, device[1:], DEVICE, False) for device in spec.devices]
    steps += [("directory", b"dev/shm", 0o1777)]
    return [*steps, ("directory", b"dev/pts", 0o755), *(("symlink", target, path) for target, path in STANDARD_LINKS)]


def _is_private(path: bytes, spec: SandboxSpec) -> bool:
    """Return whether a path is in a directory that is private to each command."""
    places = (b"/tmp", b"/run", b"/var/tmp", b"/dev/shm", spec.home)
    return path in places or path.startswith(tuple(place + b"/" for place in places))


def _placed(spec: SandboxSpec) -> list[tuple[bytes, Step]]:
    """Return the tree's mounts by path. Sorted by path, a parent is mounted before its children. If two binds have the
    same path, the later counts."""
    binds = {_place(bind, spec): bind for bind in spec.binds if not is_below(bind.path, spec.project)}
    inside = {bind.path for bind in inside_caches(spec)}
    home = tmpfs(spec.home, spec.tmpfs.other, b"0700")
    placed: list[tuple[bytes, Step]] = [
        (b"/dev/shm", tmpfs(b"/dev/shm", spec.tmpfs.other)),
        (b"/tmp", tmpfs(b"/tmp", spec.tmpfs.tmp)),
        (b"/run", ("tmpfs", b"run", ((b"mode", b"0755"), (b"size", b"64m")), WRITABLE)),
        (spec.home, next((overlay_step(root.path, root.view) for root in spec.roots if root.path == spec.home), home)),
    ]
    if not any(is_below(b"/var/tmp", path) for path in binds):
        placed.append((b"/var/tmp", tmpfs(b"/var/tmp", spec.tmpfs.other)))
    for path, bind in binds.items():
        if bind.path in inside:
            continue
        placed.append((path, bind_step(bind._replace(path=path), spec.binds)))
    return placed


def bind_step(bind: Bind, others: Iterable[Bind]) -> Step:
    attributes = WRITABLE if bind.writable else READ_ONLY
    # Commands have written to this tree: "inside" follows no link, which could lead back to the host.
    if any(other.writable and other.path != bind.path and is_below(bind.path, other.path) for other in others):
        return ("inside", bind.source, bind.path[1:], attributes)
    return ("bind", bind.source, bind.path[1:], attributes, False)


def cache_steps(spec: SandboxSpec) -> list[Step]:
    """Return the mounts for the caches: one overlay, whose directories are then bound to their own places; then the
    binds inside them."""
    caches = spec.caches
    if not caches.places:
        return []
    shown: list[Step] = [
        ("inside", bind.source, bind.path[1:], WRITABLE if bind.writable else READ_ONLY) for bind in inside_caches(spec)
    ]
    if not caches.lowers:
        places = ((caches.upper + b"/" + name, path[1:]) for name, path in caches.places)
        return [*(("bind", source, path, WRITABLE, False) for source, path in places), *shown]
    first = caches.places[0][1][1:]
    spread = tuple((name, path[1:]) for name, path in (*caches.places[1:], caches.places[0]))
    overlay = ("overlay", first, caches.lowers, caches.upper, caches.work, True)
    return [overlay, ("spread", first, spread), *shown]


def inside_caches(spec: SandboxSpec) -> tuple[Bind, ...]:
    """Return the binds that lie in a cache. They are mounted after it."""
    return _inside(spec.binds, spec.caches.places)


@functools.lru_cache(maxsize=8)
def _inside(binds: tuple[Bind, ...], caches: tuple[tuple[bytes, bytes], ...]) -> tuple[Bind, ...]:
    """Cached for the session: each bind is compared with each cache."""
    inside = [bind for bind in binds if any(is_below(bind.path, place) for _name, place in caches)]
    return tuple(sorted(inside, key=lambda bind: bind.path))


def _place(bind: Bind, spec: SandboxSpec) -> bytes:
    """Return a bind's path with the root's links resolved. A link is never mounted upon, nor followed by a step: an
    absolute link would lead back to the host. Raise UsageError for a path that the sandbox needs for itself."""
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
    """Mount the project's ``.mudroom``: readable inside except apply slots. The command cannot change its policy."""
    own = spec.project + b"/.mudroom"
    steps: list[Step] = [("bind", bind.source, own[1:], READ_ONLY, False) for bind in spec.binds if bind.path == own]
    if steps and spec.has_slots:
        steps.append(empty_step(own + b"/apply"))
    return steps


def hidden_steps(spec: SandboxSpec) -> Iterable[Step]:
    """Yield the covers of what is left out of a staged home. A directory in which something is mounted later is sealed
    after that (``root_steps``)."""
    for root in spec.roots:
        yield from (("cover", path[1:]) for path in root.covered)
        for path in root.emptied:
            options, attributes = ((b"mode", b"0755"), (b"size", b"64k")), WRITABLE | NOEXEC
            yield ("tmpfs", path[1:], options, attributes) if _is_passed(path, spec) else empty_step(path)


def _is_passed(path: bytes, spec: SandboxSpec) -> bool:
    """Return whether something is mounted below a directory."""
    places = (spec.project, *(root.path for root in spec.roots), *(bind.path for bind in spec.binds))
    return any(is_below(place, path) for place in (*places, *(place for _name, place in spec.caches.places)))


def root_steps(spec: SandboxSpec) -> Iterable[Step]:
    """Yield the mounts of the staged directories beside the project, and of what is read-only in them. A staged home is
    mounted before (``_placed``)."""
    for root in spec.roots:
        if root.path != spec.home:
            yield overlay_step(root.path, root.view)
        for bind in root.binds:
            yield ("bind", bind.source, bind.path[1:], READ_ONLY, False)
        if root.has_slots:
            yield empty_step(root.path + b"/.mudroom/apply")
    for root in spec.roots:
        yield from (("seal", path[1:], READ_ONLY | NOEXEC) for path in root.emptied if _is_passed(path, spec))


def overlay_step(path: bytes, view: Overlay) -> Step:
    return ("overlay", path[1:], view.lowers, view.upper, view.work, True)


def empty_step(path: bytes) -> Step:
    """Return the step that lets a directory appear empty."""
    return ("tmpfs", path[1:], ((b"mode", b"0555"), (b"size", b"4k")), READ_ONLY | NOEXEC)


def view_step(spec: SandboxSpec) -> Step:
    path = spec.project[1:]
    if isinstance(spec.view, Copy):
        if spec.view.identity is not None:
            return ("mounted", spec.view.work, path, WRITABLE, spec.view.identity)
        return ("bind", spec.view.work, path, WRITABLE, False)
    if len(spec.view.lowers) > MOST_LOWERS:
        raise ValueError(f"an overlay of {len(spec.view.lowers)} layers: Linux takes {MOST_LOWERS}")
    return overlay_step(spec.project, spec.view)


def confinement(spec: SandboxSpec, machine: str) -> list[Step]:
    steps: list[Step] = [("umask", spec.umask), ("drop_capabilities",), ("no_new_privs",)]
    steps += [("rlimit", *limit) for limit in spec.rlimits]
    steps += domain(spec.landlock_abi, *socket_rights(spec))
    notifying = filter_for(machine, DENY, notify=True, renames=isinstance(spec.view, Overlay))
    return [*steps, ("seccomp", filter_for(machine, DENY), notifying, _rows(machine))]


def domain(abi: int, handled: int = FS_REFER, rules: tuple[tuple[bytes, int], ...] = MOVES) -> list[Step]:
    """Return the step that makes the domain in which the commands' own are nested (``set_apart`` in the launcher)."""
    if abi < 2:
        return []
    scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if abi >= 6 else 0
    return [("landlock", handled, 0, scoped, rules, no_audit_flags(abi))]


def socket_rights(spec: SandboxSpec) -> tuple[int, tuple[tuple[bytes, int], ...]]:
    """Return the file rights that Landlock handles in addition to namespaces, and its rules: others' pathname sockets
    can be connected to only in the fork's own places, and where the user named them.

    A server in the command's own domain, which all processes in its sandbox share, can always be reached, so the
    private directories need no rule. Rules there would also open the host's stores and sockets below them (landlock(7)
    has no exceptions).

    In a mounted fork the user's own programs may listen, so its directory gets no rule.
    """
    if spec.landlock_abi < SOCKETS_SINCE:
        return FS_REFER, MOVES
    own = (
        *(() if _is_mounted(spec.view) else (spec.project,)),
        *(path for _name, path in spec.caches.places),
        *spec.sockets,
    )
    return FS_REFER | FS_RESOLVE_UNIX, (*MOVES, *((path, FS_RESOLVE_UNIX) for path in own))


_NO_UNIX = tuple(rule for rule in NO_NETWORK if rule.conditions)
"""Without a mount namespace the host's unix servers (docker, D-Bus) are visible: none may be reached."""


@functools.cache
def filter_for(machine: str, rules: tuple[SyscallRule, ...], *, notify: bool = False, renames: bool = False) -> bytes:
    return compile_filter(rules, machine, notify=notify, routed=RENAMES if renames else ())


@functools.lru_cache(maxsize=8)
def _rows(machine: str) -> tuple[tuple[int, Any], ...]:
    return tuple(rows(DENY, machine).items())


def no_audit_flags(abi: int) -> int:
    """Return the flags that keep refusals out of the host's log. Before ABI 7 there is no log."""
    return _LOG_SAME_EXEC_OFF | _LOG_SUBDOMAINS_OFF if abi >= 7 else 0


def filesystem_rights(abi: int) -> int:
    """Return every LANDLOCK_ACCESS_FS_* right that a kernel with this ABI can handle."""
    return sum(bits for since, bits in FS_RIGHTS.items() if abi >= since)


def process_steps(spec: SandboxSpec) -> list[Step]:
    """Return what a command without mounts of its own does to its process, before Landlock and seccomp."""
    steps: list[Step] = [("umask", spec.umask), ("cwd", spec.cwd), ("drop_bounding_set",), ("drop_capabilities",)]
    return [*steps, ("no_new_privs",), *(("rlimit", *limit) for limit in spec.rlimits)]


def _without_namespaces(spec: SandboxSpec, view: Copy, machine: str) -> list[Step]:
    everything = filesystem_rights(spec.landlock_abi)
    reading = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR
    rules: list[tuple[bytes, int]] = [(bind.source, everything if bind.writable else reading) for bind in spec.binds]
    rules += [(b"/proc", reading), (b"/sys/devices/system/cpu", reading)]
    rules += [(device, everything & FILE_RIGHTS) for device in spec.devices]
    rules += [(view.work, everything), (spec.scratch, everything)]  # not /dev/pts: it has the user's other terminals
    scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if spec.landlock_abi >= 6 else 0
    handled_net = 0 if spec.network == "open" or spec.landlock_abi < 4 else _NET_RIGHTS
    gated = spec.network == "gate" and spec.landlock_abi >= 4
    listening = (spec.proxy, *(outside for _address, _port, outside in spec.loopback))
    ports = tuple((port, _CONNECT_TCP) for port in listening) if gated else ()
    sockets = _NO_UNIX if spec.network == "open" else ONLY_TCP if gated else NO_NETWORK
    outside = (*sockets, *NO_NAMESPACES)
    return [
        ("view", view.work),
        ("terminal", b"/dev/ptmx"),
        *process_steps(spec),
        ("landlock", everything, handled_net, scoped, tuple(rules), no_audit_flags(spec.landlock_abi), ports),
        ("seccomp", filter_for(machine, (*outside, *DENY))),
    ]
