"""Control groups: find where this machine lets them be made, and make a leaf for each command.

Rules:
1. The machine's capabilities are found by trying: a group is made and its controllers are enabled.
2. A leaf exists, with its limits, before the command is cloned. It is removed when the command has no process left.
   Leaves left by a crash are removed by the next session that needs groups; systemd removes its own scopes.
3. A command's processes never run outside its leaf. Version 2: init is cloned into it (CLONE_INTO_CGROUP, clone(2)).
   Version 1: init moves itself (by writing "0" to ``tasks``) before its first step, while it has a single thread. Both
   avoid the machine-wide lock over forks, for which a write to ``cgroup.procs`` may wait tens of milliseconds
   (``threadgroup`` in cgroup_procs_write_start, kernel/cgroup/cgroup.c).
4. The vault's group, directly above the leaves, carries the limits for all its sandboxes together.

    BASE/mudroom/VAULT/PID.N      PID: the process that made it

BASE is this process's group, or the nearest ancestor in which groups can be made, so limits on mudroom also limit the
sandboxes. Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress

from mudroom.core.confinement.limit import (
    NO_LIMITS,
    OWN_PROCESSES,
    READ_V1,
    READ_V2,
    Limits,
    Reading,
    Write,
    command_limits,
    reading_v1,
    reading_v2,
    total_limits,
    writes_v1,
    writes_v2,
)
from mudroom.core.system.closing import Descriptor
from mudroom.errors import MudroomError
from mudroom.typing import NamedTuple

OURS = "mudroom"
V1_NAMES = {"memory": "memory", "pids": "pids", "cpu": "cpu"}
V1_IO = "cgroup v1, which does not throttle writes through the page cache"
_COUNTED = ("memory", "pids")
"""Enabled where available even without a limit: they count a command's use."""
PATIENCE = 5000
"""Milliseconds that a killed process may take to exit."""


class CgroupMount(NamedTuple):
    kind: str
    point: str
    root: str
    options: tuple[str, ...]


class CgroupTree(NamedTuple):
    """The directories in which leaves are made."""

    version: int
    parents: Mapping[str, str]
    """The vault's directory by controller (version 2 names). In version 2 all directories are the same."""
    totals: tuple[str, ...]
    """The directories with the limits for all the vault's sandboxes together."""
    how: str
    """Description for people."""


class NoControlGroup(Exception):
    """No group with these controllers can be made. ``found`` describes what the host has."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


def read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def write(path: str, content: str) -> None:
    with Descriptor(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as descriptor:
        os.write(descriptor, content.encode())


def mounts(table: str) -> list[CgroupMount]:
    """Return the control group file systems in a /proc/PID/mountinfo, proc_pid_mountinfo(5)."""
    entries = []
    for line in table.splitlines():
        left, _dash, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            words = left.split()
            entries.append(CgroupMount(kind, words[4], words[3], tuple(options.split(","))))
    return entries


def memberships(table: str) -> dict[str, str]:
    """Return the paths in a /proc/PID/cgroup by controller; the version 2 path is under ""."""
    rows = (line.split(":", 2) for line in table.splitlines())
    return {name: row[2] for row in rows for name in row[1].split(",")}


def directory(mount: CgroupMount, path: str) -> str | None:
    """Return a group's directory, or None if it lies outside the mount."""
    root = mount.root.rstrip("/")
    if path.startswith("/..") or not (path + "/").startswith(root + "/"):
        return None
    return mount.point + path[len(root) :].rstrip("/")


def find(vault: str, limits: Limits, wanted: frozenset[str], own: str = "/proc/self") -> CgroupTree:
    """Return a tree with the controllers ``wanted``, set up for this vault. Raise NoControlGroup."""
    table, member = mounts(read(own + "/mountinfo")), memberships(read(own + "/cgroup"))
    hierarchies = {name: mount for mount in table if mount.kind == "cgroup" for name in mount.options}
    if "io" in wanted and "blkio" in hierarchies:
        raise NoControlGroup(V1_IO)
    if any(V1_NAMES.get(name) in hierarchies for name in wanted):
        return _find_v1(vault, limits, wanted, hierarchies, member)
    unified = next((mount for mount in table if mount.kind == "cgroup2"), None)
    if unified is None or "" not in member:
        raise NoControlGroup("no control group file system is mounted")
    group = directory(unified, member[""])
    if group is None:
        raise NoControlGroup("mudroom's own control group is not visible (a container)")
    return find_v2(group, unified.point, vault, limits, wanted)


def find_v2(group: str, top: str, vault: str, limits: Limits, wanted: frozenset[str]) -> CgroupTree:
    """Set up the nearest group, from ``group`` up to ``top``, in which groups can be made. Raise NoControlGroup."""
    reason = f"no group from {group} upwards has " + ", ".join(sorted(wanted))
    while True:
        offered = frozenset(read(group + "/cgroup.controllers").split())
        if wanted <= offered:
            try:
                # Without write access no process could be cloned into the groups below.
                if not os.access(group + "/cgroup.procs", os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), group)
                leaf_parent = make_v2(group, vault, limits, wanted, offered)
                return CgroupTree(2, dict.fromkeys(wanted, leaf_parent), (leaf_parent,), "cgroup v2, " + group)
            except OSError as error:
                reason = f"{error.strerror} at {group}"
        if group == top or not group.startswith(top):
            raise NoControlGroup(reason)
        group = os.path.dirname(group)


def make_v2(base: str, vault: str, limits: Limits, wanted: frozenset[str], offered: frozenset[str]) -> str:
    """Make BASE/mudroom/VAULT, with the controllers enabled for the groups below. Raise OSError after removing the
    groups that were made."""
    names = sorted(wanted | offered.intersection(_COUNTED))
    created: list[str] = []
    try:
        for place in (base, f"{base}/{OURS}", f"{base}/{OURS}/{vault}"):
            if place != base:
                _make_directory(place, created)
            enable(place, names)
        perform((f"{base}/{OURS}/{vault}",), writes_v2(total_limits(limits), ()))
    except OSError:
        _remove_quietly(reversed(created))
        raise
    return f"{base}/{OURS}/{vault}"


def enable(place: str, names: Iterable[str]) -> None:
    """Enable controllers for the groups below ``place``. Raise OSError; EBUSY if the group itself has processes."""
    on = read(place + "/cgroup.subtree_control").split()
    missing = [name for name in names if name not in on]
    if missing:
        write(place + "/cgroup.subtree_control", " ".join("+" + name for name in missing))


def _find_v1(
    vault: str, limits: Limits, wanted: frozenset[str], table: Mapping[str, CgroupMount], member: Mapping[str, str]
) -> CgroupTree:
    parents: dict[str, str] = {}
    created: list[str] = []
    names = {**V1_NAMES, "cpuacct": "cpuacct"}
    try:
        for name in (*sorted(wanted), *(name for name in (*_COUNTED, "cpuacct") if name not in wanted)):
            mount = table.get(names[name])
            base = directory(mount, member[names[name]]) if mount is not None else None
            if base is not None:
                parents[name] = f"{base}/{OURS}/{vault}"
                _make_directory(f"{base}/{OURS}", created)
                if name == "memory":  # otherwise, until Linux 5.11, it does not count the groups below
                    perform((f"{base}/{OURS}",), [Write(name, "memory.use_hierarchy", "1", optional=True)])
                _make_directory(parents[name], created)
            elif name in wanted:
                raise NoControlGroup(f"control groups of version 1 without the controller {names[name]}")
        perform((), writes_v1(total_limits(limits)), parents)
    except OSError as error:
        _remove_quietly(reversed(created))
        raise NoControlGroup(f"{error.strerror} at {error.filename or 'a control group of version 1'}") from error
    return CgroupTree(1, parents, tuple(dict.fromkeys(parents.values())), "cgroup v1")


def _make_directory(place: str, created: list[str]) -> None:
    with suppress(FileExistsError):
        os.mkdir(place, 0o755)
        created.append(place)


def perform(places: Iterable[str], writes: Iterable[Write], where: Mapping[str, str] | None = None) -> None:
    """Write limits into the only directory, or into each controller's (``where``). Raise an OSError that names the
    file."""
    only = "" if where is not None else next(iter(places))
    for entry in writes:
        path = f"{only if where is None else where[entry.controller]}/{entry.file}"
        try:
            write(path, entry.content)
        except FileNotFoundError:
            if not entry.optional:
                raise
        except OSError as error:
            if not entry.optional:
                raise OSError(error.errno, f"{error.strerror} (writing {entry.content})", path) from error


def _remove_quietly(places: Iterable[str]) -> None:
    for place in places:
        with suppress(OSError):  # gone, or in use by another session, which removes it later
            os.rmdir(place)


_numbers = itertools.count(1)


class Leaf:
    """One command's group. Owner: the thread that runs the command."""

    def __init__(self, tree: CgroupTree, limits: Limits, devices: Iterable[str], usual: Limits = NO_LIMITS) -> None:
        """Make the group with its limits. ``usual``: limits that are set only if the group has their controller. Raise
        OSError after removing what was made."""
        name = f"{os.getpid()}.{next(_numbers)}"
        self._tree = tree
        self._where = {controller: f"{parent}/{name}" for controller, parent in tree.parents.items()}
        self._places = tuple(dict.fromkeys(self._where.values()))
        self._usual = Limits()
        self.descriptors: tuple[int, ...] = ()
        """For the launcher. Version 2: the directory; version 1: each ``tasks`` file."""
        try:
            for place in self._places:
                os.mkdir(place, 0o755)
            own = command_limits(limits)
            version = tree.version
            writes = writes_v2(own, devices, OWN_PROCESSES) if version == 2 else writes_v1(own, OWN_PROCESSES)
            perform((), writes, self._where)
            self._usual = self._hold_usual(usual)
            for place in self._places:
                path, mode = (place, os.O_DIRECTORY) if self.is_cloned_into else (place + "/tasks", os.O_WRONLY)
                self.descriptors += (os.open(path, mode | os.O_CLOEXEC),)
        except OSError:
            with suppress(MudroomError):  # the first error is the reason
                self.close()
            raise
        self._before = self._total()

    def _hold_usual(self, usual: Limits) -> Limits:
        """Set the usual limits, without which a command still runs. Return those that could be set."""
        held = Limits()
        for kind, limit in command_limits(usual):
            own = ((kind, limit),)
            writes = writes_v2(own, (), OWN_PROCESSES) if self._tree.version == 2 else writes_v1(own, OWN_PROCESSES)
            try:
                perform((), writes, self._where)
            except (OSError, KeyError):
                continue  # the controller is not here
            held = held._replace(memory=int(limit)) if kind == "memory" else held._replace(processes=int(limit))
        return held

    def completed(self, limits: Limits) -> Limits:
        """Return the requested limits together with the usual ones that the group holds."""
        memory, processes = limits.memory or self._usual.memory, limits.processes or self._usual.processes
        return limits._replace(memory=memory, processes=processes)

    @property
    def is_cloned_into(self) -> bool:
        return self._tree.version == 2

    def reading(self) -> Reading:
        if self._tree.version == 2:
            return reading_v2(_texts(self._places[0], READ_V2))
        return reading_v1({file: read(f"{self._where[c]}/{file}") for c, file in READ_V1 if c in self._where})

    def totals(self) -> tuple[Reading, Reading]:
        """Return the counts in the vault's group: when the leaf was made, and now."""
        return self._before, self._total()

    def _total(self) -> Reading:
        if self._tree.version == 2:
            return reading_v2(_texts(self._tree.totals[0], READ_V2))
        return reading_v1({file: read(f"{self._tree.parents[c]}/{file}") for c, file in READ_V1 if c in self._where})

    def close(self) -> None:
        """Kill the remaining processes, wait for them, and remove the group. May be repeated. Raise MudroomError if a
        process cannot be killed."""
        descriptors, self.descriptors = self.descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)
        places, self._places = self._places, ()
        for place in places:
            remove(place)


def _texts(place: str, files: Iterable[str]) -> dict[str, str]:
    return {file: text for file in files if (text := read(f"{place}/{file}"))}


def remove(place: str) -> None:
    """Remove a group with all its processes. Raise MudroomError if a process does not end."""
    for _attempt in range(100):
        try:
            os.rmdir(place)
            return
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):  # cgroups(7): it has processes or groups
                raise MudroomError(f"{place} cannot be removed: {error.strerror}", f"rmdir {place}") from error
            _kill_all(place)
    raise MudroomError(f"{place} cannot be removed: processes in it do not end", f"cat {place}/cgroup.procs lists them")


def _kill_all(place: str) -> None:
    """Kill every process in a group, and wait for those that were listed."""
    poller, waiting = select.poll(), []
    for word in read(place + "/cgroup.procs").split():
        with suppress(ProcessLookupError):
            waiting.append(os.pidfd_open(int(word)))
            poller.register(waiting[-1], select.POLLIN)
    try:
        _kill(place, waiting)
        for pidfd in waiting:
            poller.poll(PATIENCE)
            poller.unregister(pidfd)
    finally:
        for pidfd in waiting:
            os.close(pidfd)


def _kill(place: str, processes: Iterable[int]) -> None:
    try:
        write(place + "/cgroup.kill", "1")  # Linux 5.14: all at once, even processes that are forking
    except OSError:
        for pidfd in processes:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def sweep(tree: CgroupTree) -> None:
    """Remove the leaves whose maker has ended, with the processes still in them."""
    for parent in set(tree.parents.values()):
        for name in os.listdir(parent):
            pid = name.partition(".")[0]
            if pid.isdecimal() and not is_alive(int(pid)):
                try:
                    remove(f"{parent}/{name}")
                except (MudroomError, OSError):
                    pass  # another user's pid namespace, not killable here: the next session tries again


def is_alive(pid: int) -> bool:
    """Return whether a process exists; a zombie does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def dismantle(tree: CgroupTree) -> None:
    """Remove the groups that ``find`` made, unless they are in use."""
    for parent in set(tree.parents.values()):
        _remove_quietly([parent, os.path.dirname(parent)] if os.path.basename(os.path.dirname(parent)) == OURS else [])
