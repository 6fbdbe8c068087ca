"""What holds the limits of a session's commands on this machine, decided once; then a leaf for each command.

What was asked for and cannot be enforced is refused, unless the policy permits to go on without it
(``limits: {missing: degrade}``); what is lost is said then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from mudroom.core.confinement.limit import (
    CONTROLLERS,
    KINDS,
    NAMES,
    Limits,
    command_limits,
    needed_controllers,
    show_limit,
    stand_in,
    total_limits,
)
from mudroom.errors import Unsupported
from mudroom.sandbox.limits import scope
from mudroom.sandbox.limits.cgroup import CgroupTree, Leaf, NotHere, dismantle, find, read, sweep
from mudroom.sandbox.linux.forbidden import in_container

Rlimits = tuple[tuple[int, int, int], ...]


class HeldLimits(NamedTuple):
    """How the limits of a session are held."""

    limits: Limits
    """Those of them that control groups hold."""
    tree: CgroupTree | None
    rlimits: Rlimits
    """In the place of others."""
    notes: tuple[str, ...]
    devices: tuple[str, ...]


class Limiter:
    """``vault``: the name of the vault's groups. ``launcher`` gives the pid of the process that sandboxes are cloned
    from, and starts it if need be. ``places``: directories that commands write to, for the limit of io."""

    def __init__(
        self, vault: str, launcher: Callable[[], int], environ: Mapping[bytes, bytes], places: Iterable[bytes]
    ) -> None:
        self._vault, self._launcher, self._environ, self._places = vault, launcher, environ, tuple(places)
        self._held: HeldLimits | None = None
        self._asked: tuple[Limits, bool] | None = None

    def hold(self, limits: Limits, *, counts_processes: bool) -> HeldLimits:
        """Find out what can be done for these limits, once in a session, as long as nothing of it changes. Raises
        Unsupported."""
        if self._held is None or self._asked != (limits, counts_processes):
            self._held, self._asked = self._decide(limits, counts_processes), (limits, counts_processes)
        return self._held

    def leaf(self) -> Leaf | None:
        """The group of the next command, to be closed by the caller. None if none is needed. Raises Unsupported if it
        cannot be made any more."""
        held = self._held
        if held is None or held.tree is None:
            return None
        try:
            return Leaf(held.tree, held.limits, held.devices)
        except FileNotFoundError:  # the last session but us has removed the vault's group
            tree = self._tree(held.limits, needed_controllers(held.limits))
            self._held = held._replace(tree=tree)
            return Leaf(tree, held.limits, held.devices)
        except OSError as error:
            raise Unsupported("a limit", "a control group", f"{error.strerror} at {error.filename}") from error

    def close(self) -> None:
        if self._held is not None and self._held.tree is not None:
            dismantle(self._held.tree)
        self._held = None

    def _decide(self, limits: Limits, counts_processes: bool) -> HeldLimits:
        asked = limits
        notes: list[str] = []
        rlimits: list[tuple[int, int, int]] = []
        tree: CgroupTree | None = None
        devices: tuple[str, ...] = ()
        if limits.io is not None:
            devices, why = disks(self._places)
            if not devices:
                asked = self._without(asked, "io", NotHere(why), notes, rlimits, counts_processes)
        while needed_controllers(asked) and tree is None:
            try:
                tree = self._tree(asked, needed_controllers(asked))
            except NotHere as missing:
                kind = self._culprit(asked)
                asked = self._without(asked, kind, missing, notes, rlimits, counts_processes)
        if tree is not None:
            sweep(tree)
        return HeldLimits(asked, tree, tuple(rlimits), tuple(notes), devices)

    def _tree(self, limits: Limits, wanted: frozenset[str]) -> CgroupTree:
        """As root directly; else by systemd, and directly only where there is none. Raises NotHere."""
        if os.geteuid() == 0 or not _is_unified():
            return find(self._vault, limits, wanted)
        try:
            return scope.make(self._vault, self._launcher(), limits, wanted, self._environ)
        except NotHere as first:
            try:
                return find(self._vault, limits, wanted)
            except NotHere:
                raise first from None

    def _culprit(self, limits: Limits) -> str:
        """Which limit to give up: one that cannot be held on its own, else all of them one after the other."""
        kinds = [kind for kind in KINDS if CONTROLLERS[kind] in needed_controllers(limits)]
        for kind in reversed(kinds):
            if len(kinds) > 1:
                try:
                    dismantle(self._tree(Limits(), frozenset([CONTROLLERS[kind]])))
                except NotHere:
                    return kind
        return kinds[0]

    def _without(
        self, limits: Limits, kind: str, missing: NotHere, notes: list[str], rlimits: list[tuple[int, int, int]],
        counts_processes: bool,
    ) -> Limits:  # fmt: skip
        """``limits`` without one that cannot be enforced, if that is permitted."""
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
    """What to do about a limit that cannot be enforced, in one line."""
    permit = 'or permit to go on without: "limits: {missing: degrade}" in .mudroom/policy.yaml'
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
    """The whole disks, as "8:0", on which these directories are; or none, and why. A limit on a partition is refused by
    the kernel (blkg_conf_open_bdev in block/blk-cgroup.c)."""
    found = []
    for place in places:
        number = os.stat(place).st_dev
        name = f"{os.major(number)}:{os.minor(number)}"
        path = os.path.realpath(f"/sys/dev/block/{name}")
        if not os.path.isdir(path):
            return (), f"{os.fsdecode(place)} is on no block device of its own"
        if os.path.exists(path + "/partition"):
            name = read(os.path.dirname(path) + "/dev").strip()
        found.append(name)
    return tuple(dict.fromkeys(found)), ""


class LimitFinding(NamedTuple):
    """For ``mudroom doctor``: one kind of limit on this machine."""

    limit: str
    state: Literal["strict", "degraded", "missing"]
    """``strict``; ``degraded``: only a weaker stand-in; ``missing``."""
    found: str
    fix: str


def survey(
    launcher: Callable[[], int], environ: Mapping[bytes, bytes], place: bytes, *, counts_processes: bool
) -> tuple[LimitFinding, ...]:
    """Every limit, tried one by one. ``launcher``: the pid of a process of ours that may be put into a scope of the
    user manager; ``place``: a directory on the disk whose io is asked about; ``counts_processes``: see ``stand_in``."""
    found = []
    for kind in KINDS:
        limiter = Limiter(f"doctor{os.getpid()}", launcher, environ, (place,))
        value: Any = {"memory": 1 << 30, "processes": 1000, "cpus": 1, "io": 1 << 30}[kind]
        try:
            held = limiter.hold(Limits()._replace(**{kind: value}), counts_processes=counts_processes)
            leaf = limiter.leaf()
            if leaf is not None:
                leaf.close()
            found.append(LimitFinding(NAMES[kind], "strict", held.tree.how if held.tree is not None else "", ""))
        except Unsupported as error:
            rlimit, _lost = stand_in(kind, value, counts_processes=counts_processes)
            found.append(LimitFinding(NAMES[kind], "degraded" if rlimit else "missing", error.found, error.hint))
        finally:
            limiter.close()
    found += [LimitFinding(NAMES[kind], "strict", "rlimit", "") for kind in ("open_files", "file_size")]
    return tuple(found)
