"""Decide once per session how this machine enforces its limits; then make a leaf for each command.

A requested limit that cannot be enforced is refused, unless the policy permits running without it (``limits: {missing:
degrade}``); then a note reports the loss.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from mudroom.core.confinement.limit import (
    CONTROLLERS,
    KINDS,
    NAMES,
    NO_LIMITS,
    Limits,
    command_limits,
    needed_controllers,
    show_limit,
    stand_in,
    total_limits,
)
from mudroom.errors import Unsupported
from mudroom.sandbox.limits import scope
from mudroom.sandbox.limits.cgroup import CgroupTree, Leaf, NoControlGroup, dismantle, find, read, sweep
from mudroom.sandbox.linux.forbidden import in_container
from mudroom.typing import Any, Literal, NamedTuple

Rlimits = tuple[tuple[int, int, int], ...]


class HeldLimits(NamedTuple):
    """How a session's limits are enforced."""

    limits: Limits
    """Limits enforced by control groups."""
    tree: CgroupTree | None
    rlimits: Rlimits
    """Stand-ins for other limits."""
    notes: tuple[str, ...]
    devices: tuple[str, ...]


class Limiter:
    """Enforces a session's limits. ``vault``: name for the vault's groups. ``launcher``: returns the pid of the process
    that clones sandboxes, starting it if necessary. ``places``: directories that commands write to, for the io limit.

    Not thread-safe: callers hold their own lock around ``hold`` and ``leaf``.
    """

    def __init__(
        self, vault: str, launcher: Callable[[], int], environ: Mapping[bytes, bytes], places: Iterable[bytes]
    ) -> None:
        self._vault, self._launcher, self._environ, self._places = vault, launcher, environ, tuple(places)
        self._held: HeldLimits | None = None
        self._key: tuple[Limits, bool] | None = None

    def hold(self, limits: Limits, *, counts_processes: bool) -> HeldLimits:
        """Decide how to enforce these limits; cached while they stay the same. Raise Unsupported."""
        if self._held is None or self._key != (limits, counts_processes):
            self._held, self._key = self._decide(limits, counts_processes), (limits, counts_processes)
        return self._held

    def leaf(self, usual: Limits = NO_LIMITS) -> Leaf | None:
        """Return the next command's group, to be closed by the caller, or None if no group is needed. ``usual``: limits
        that are also set if the group can hold them. Raise Unsupported if the group can no longer be made."""
        held = self._held
        if held is None or held.tree is None:
            return None
        try:
            return Leaf(held.tree, held.limits, held.devices, usual)
        except FileNotFoundError:  # another session was the last to leave and removed the vault's group
            tree = self._tree(held.limits, needed_controllers(held.limits))
            self._held = held._replace(tree=tree)
            return Leaf(tree, held.limits, held.devices, usual)
        except OSError as error:
            found = f"{error.strerror} at {error.filename}"
            raise Unsupported("a limit", "a control group", found, "mudroom doctor tries each limit") from error

    def close(self) -> None:
        if self._held is not None and self._held.tree is not None:
            dismantle(self._held.tree)
        self._held = None

    def _decide(self, limits: Limits, counts_processes: bool) -> HeldLimits:
        remaining = limits
        notes: list[str] = []
        rlimits: list[tuple[int, int, int]] = []
        tree: CgroupTree | None = None
        devices: tuple[str, ...] = ()
        if limits.io is not None:
            devices, why = disks(self._places)
            if not devices:
                remaining = self._drop_limit(remaining, "io", NoControlGroup(why), notes, rlimits, counts_processes)
        while needed_controllers(remaining) and tree is None:
            try:
                tree = self._tree(remaining, needed_controllers(remaining))
            except NoControlGroup as missing:
                kind = self._choose_limit_to_drop(remaining)
                remaining = self._drop_limit(remaining, kind, missing, notes, rlimits, counts_processes)
        if tree is not None:
            sweep(tree)
        return HeldLimits(remaining, tree, tuple(rlimits), tuple(notes), devices)

    def _tree(self, limits: Limits, wanted: frozenset[str]) -> CgroupTree:
        """Make the tree: directly as root or without cgroup v2, otherwise by systemd, and directly if that fails. Raise
        NoControlGroup."""
        if os.geteuid() == 0 or not _is_unified():
            return find(self._vault, limits, wanted)
        try:
            return scope.make(self._vault, self._launcher(), limits, wanted, self._environ)
        except NoControlGroup as first:
            try:
                return find(self._vault, limits, wanted)
            except NoControlGroup:
                raise first from None

    def _choose_limit_to_drop(self, limits: Limits) -> str:
        """Return the kind to give up: a limit that cannot be enforced even alone, otherwise the first."""
        kinds = [kind for kind in KINDS if CONTROLLERS[kind] in needed_controllers(limits)]
        for kind in reversed(kinds):
            if len(kinds) > 1:
                try:
                    dismantle(self._tree(Limits(), frozenset([CONTROLLERS[kind]])))
                except NoControlGroup:
                    return kind
        return kinds[0]

    def _drop_limit(
        self, limits: Limits, kind: str, missing: NoControlGroup, notes: list[str], rlimits: list[tuple[int, int, int]],
        counts_processes: bool,
    ) -> Limits:  # fmt: skip
        """Return ``limits`` without ``kind``, which cannot be enforced. Raise Unsupported if the policy does not permit
        that."""
        if limits.missing == "refuse":
            raise Unsupported(
                f"a limit of {NAMES[kind]}", f"a control group with the controller {CONTROLLERS[kind]}", missing.found,
                fix(kind, missing.found),
            )  # fmt: skip
        for name, limit in command_limits(limits):
            if name == kind:
                rlimit, lost = stand_in(kind, limit, counts_processes=counts_processes)
                notes.append(f"{lost} ({missing.found})")
                rlimits += [rlimit] if rlimit is not None else []
        for name, limit in total_limits(limits):
            if name == kind:
                notes.append(f"limit of all commands together: {NAMES[kind]}, {show_limit(kind, limit)}: not enforced")
        changes: dict[str, Any] = {kind: None} | ({"total_" + kind: None} if kind != "io" else {})
        return limits._replace(**changes)


def _is_unified() -> bool:
    return bool(read("/sys/fs/cgroup/cgroup.controllers"))


def fix(kind: str, found: str) -> str:
    """Return one line that tells how to make a limit enforceable."""
    permit = 'or permit running without it: "limits: {missing: degrade}" in .mudroom/policy.yaml'
    if kind == "io" and ("v1" in found or "block device" in found) and not in_container():
        return f"keep project and vault on a disk, under cgroup v2; {permit}"
    if in_container():
        return (
            "limit the container, with all that runs in it (docker run --memory, --pids-limit, --cpus); or run mudroom "
            "as its root, under cgroup v2, with --security-opt writable-cgroups=true (Docker 28; Podman: "
            f"unmask=/sys/fs/cgroup); {permit}"
        )
    if not _is_unified():
        return f"boot with systemd.unified_cgroup_hierarchy=1, or run mudroom as root; {permit}"
    if os.geteuid() == 0:
        return f"mount cgroup2 at /sys/fs/cgroup, writable; {permit}"
    if "not given" in found:
        return (
            'sudo systemctl edit user@.service, with the lines "[Service]" and "Delegate=cpu cpuset io memory pids", '
            f"then log in again; {permit}"
        )
    return (
        f"log in through systemd (ssh, a console, loginctl enable-linger), with dbus-user-session installed; {permit}"
    )


def disks(places: Iterable[bytes]) -> tuple[tuple[str, ...], str]:
    """Return the whole disks, as "8:0", that hold these directories; or none, and the reason. The kernel refuses a
    limit on a partition (blkg_conf_open_bdev in block/blk-cgroup.c)."""
    numbers = []
    for place in places:
        number = os.stat(place).st_dev
        name = f"{os.major(number)}:{os.minor(number)}"
        path = os.path.realpath(f"/sys/dev/block/{name}")
        if not os.path.isdir(path):
            return (), f"{os.fsdecode(place)} is on no block device of its own"
        if os.path.exists(path + "/partition"):
            name = read(os.path.dirname(path) + "/dev").strip()
        numbers.append(name)
    return tuple(dict.fromkeys(numbers)), ""


class LimitFinding(NamedTuple):
    """How this machine enforces one kind of limit, for ``mudroom doctor``."""

    limit: str
    state: Literal["strict", "degraded", "missing"]
    """``degraded``: only by a weaker stand-in."""
    found: str
    fix: str


def survey(
    launcher: Callable[[], int], environ: Mapping[bytes, bytes], place: bytes, *, counts_processes: bool
) -> tuple[LimitFinding, ...]:
    """Try every limit on its own. ``launcher`` returns the pid of a process that may be put into a user manager's
    scope. ``place``: a directory on the disk to test for io. ``counts_processes``: see ``stand_in``."""
    findings = []
    for kind in KINDS:
        limiter = Limiter(f"doctor{os.getpid()}", launcher, environ, (place,))
        value: Any = {"memory": 1 << 30, "processes": 1000, "cpus": 1, "io": 1 << 30}[kind]
        try:
            held = limiter.hold(Limits()._replace(**{kind: value}), counts_processes=counts_processes)
            leaf = limiter.leaf()
            if leaf is not None:
                leaf.close()
            findings.append(LimitFinding(NAMES[kind], "strict", held.tree.how if held.tree is not None else "", ""))
        except Unsupported as error:
            rlimit, _lost = stand_in(kind, value, counts_processes=counts_processes)
            findings.append(LimitFinding(NAMES[kind], "degraded" if rlimit else "missing", error.found, error.hint))
        finally:
            limiter.close()
    findings += [LimitFinding(NAMES[kind], "strict", "rlimit", "") for kind in ("open_files", "file_size")]
    return tuple(findings)
