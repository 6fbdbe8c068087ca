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
from mudroom.sandbox.limits.cgroup import (
    CgroupTree,
    Leaf,
    NoControlGroup,
    directory,
    dismantle,
    find,
    make_v2,
    memberships,
    mounts,
    read,
    sweep,
    write,
)
from mudroom.sandbox.linux.forbidden import in_container
from mudroom.typing import Any, Literal, NamedTuple

# --- a delegated cgroup subtree for an ordinary user ---
#
# It is a scope that systemd's user manager makes for a vault's launchers.
# An ordinary user may not move a process from its login session into a group of the user manager, nor clone one there:
# their nearest common group belongs to root. The manager may, so the launcher is handed to it. Every process that the
# launcher clones afterwards starts inside the scope, below which the kernel permits the user everything.
#
#     user@UID.service/app.slice/mudroom-VAULT.scope/
#         launcher/            the launchers: a group that enables controllers below it has no processes (cgroups(7))
#         mudroom/VAULT/PID.N  leaves, as anywhere
#
# systemd ends the scope with its last launcher, also after a crash. Sources: org.freedesktop.systemd1(5),
# systemd.scope(5), systemd's document "Control Group APIs and Delegation".


TIMEOUT = 10.0
"""Seconds to wait for each answer from the bus or the user manager."""
LAUNCHERS = "launcher"

Call = Callable[..., tuple[Any, ...]]


def bus_address(environ: Mapping[bytes, bytes], uid: int) -> str:
    """Return the address of the user's session bus: from the environment, or systemd's default."""
    address = environ.get(b"DBUS_SESSION_BUS_ADDRESS", b"")
    return os.fsdecode(address) if address else f"unix:path=/run/user/{uid}/bus"


def make_scope(
    vault: str, launcher: int, limits: Limits, wanted: frozenset[str], environ: Mapping[bytes, bytes]
) -> CgroupTree:
    """Put the launcher into the vault's scope, and set the scope up for leaves. Raise NoControlGroup."""
    scope = f"mudroom-{vault}.scope"
    _enter_scope(scope, launcher, environ)
    unified = next((mount for mount in mounts(read("/proc/self/mountinfo")) if mount.kind == "cgroup2"), None)
    path = memberships(read(f"/proc/{launcher}/cgroup")).get("", "").removesuffix("/" + LAUNCHERS)
    place = directory(unified, path) if unified is not None else None
    if place is None or os.path.basename(place) != scope:
        raise NoControlGroup(f"systemd's user manager left the launcher in {path}")
    try:
        os.makedirs(f"{place}/{LAUNCHERS}", exist_ok=True)
        write(f"{place}/{LAUNCHERS}/cgroup.procs", str(launcher))
    except OSError as error:
        raise NoControlGroup(f"{error.strerror} at {place}") from error
    offered = frozenset(read(place + "/cgroup.controllers").split())
    if not wanted <= offered:
        missing = ", ".join(sorted(wanted - offered))
        raise NoControlGroup(f"systemd's user manager, which is not given the controller {missing}")
    try:
        group = make_v2(place, vault, limits, wanted, offered)
    except OSError as error:
        raise NoControlGroup(f"{error.strerror} at {error.filename or place}") from error
    return CgroupTree(2, dict.fromkeys(wanted, group), (group,), "cgroup v2, systemd's user manager")


def _enter_scope(scope: str, launcher: int, environ: Mapping[bytes, bytes]) -> None:
    from jeepney import DBusErrorResponse  # type: ignore[import-untyped]
    from jeepney.io.blocking import open_dbus_connection  # type: ignore[import-untyped]

    try:
        with open_dbus_connection(bus_address(environ, os.geteuid()), auth_timeout=TIMEOUT) as connection:
            _start_or_attach(connection, scope, launcher)
    except DBusErrorResponse as error:
        raise NoControlGroup(f"systemd's user manager, which refused: {error}") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise NoControlGroup(f"no reachable user manager of systemd: {error}") from error


def _start_or_attach(connection: Any, scope: str, launcher: int) -> None:
    """Start the scope for the vault's first launcher, or attach a further launcher to it.

    Tried repeatedly: between the two calls the scope may end, or may not yet have its group for launchers.
    """
    from jeepney import DBusAddress, DBusErrorResponse, MatchRule, message_bus, new_method_call
    from jeepney.wrappers import unwrap_msg  # type: ignore[import-untyped]

    interface = "org.freedesktop.systemd1.Manager"
    manager = DBusAddress("/org/freedesktop/systemd1", "org.freedesktop.systemd1", interface)
    removed = MatchRule(type="signal", interface=interface, member="JobRemoved", path="/org/freedesktop/systemd1")

    def call(method: str, signature: str | None, *body: Any) -> Any:
        return unwrap_msg(
            connection.send_and_get_reply(new_method_call(manager, method, signature, body), timeout=TIMEOUT)
        )

    properties = [
        ("Description", ("s", "mudroom: sandboxes of one project")),
        ("Delegate", ("b", True)),
        ("CollectMode", ("s", "inactive-or-failed")),
        ("PIDs", ("au", [launcher])),
    ]
    unwrap_msg(connection.send_and_get_reply(message_bus.AddMatch(removed), timeout=TIMEOUT))
    call("Subscribe", None)
    with connection.filter(removed, bufsize=1000) as jobs:
        for attempt in range(20):
            try:
                (job,) = call("StartTransientUnit", "ssa(sv)a(sa(sv))", scope, "fail", properties, [])
            except DBusErrorResponse as error:
                if not str(error.name).endswith("UnitExists"):
                    raise
            else:
                outcome = ""
                while not outcome:
                    _number, path, _unit, result = connection.recv_until_filtered(jobs, timeout=TIMEOUT).body
                    outcome = result if path == job else ""
                if outcome != "done":
                    raise NoControlGroup(f"systemd's user manager, which could not start {scope}: {outcome}")
                return
            try:
                call("AttachProcessesToUnit", "ssau", scope, "/" + LAUNCHERS, [launcher])
                return
            except DBusErrorResponse:
                if attempt == 19:
                    raise


# --- limits of a session ---

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
            return make_scope(self._vault, self._launcher(), limits, wanted, self._environ)
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
