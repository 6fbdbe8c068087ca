"""A delegated cgroup subtree for an ordinary user: a scope that systemd's user manager makes for a vault's launchers.

An ordinary user may not move a process from its login session into a group of the user manager, nor clone one there:
their nearest common group belongs to root. The manager may, so the launcher is handed to it. Every process that the
launcher clones afterwards starts inside the scope, below which the kernel permits the user everything.

    user@UID.service/app.slice/mudroom-VAULT.scope/
        launcher/            the launchers: a group that enables controllers below it has no processes (cgroups(7))
        mudroom/VAULT/PID.N  leaves, as anywhere

systemd ends the scope with its last launcher, also after a crash. Sources: org.freedesktop.systemd1(5),
systemd.scope(5), systemd's document "Control Group APIs and Delegation".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from mudroom.core.confinement.limit import Limits
from mudroom.sandbox.limits.cgroup import (
    CgroupTree,
    NoControlGroup,
    directory,
    make_v2,
    memberships,
    mounts,
    read,
    write,
)
from mudroom.typing import Any

TIMEOUT = 10.0
"""Seconds to wait for each answer from the bus or the user manager."""
LAUNCHERS = "launcher"

Call = Callable[..., tuple[Any, ...]]


def bus_address(environ: Mapping[bytes, bytes], uid: int) -> str:
    """Return the address of the user's session bus: from the environment, or systemd's default."""
    address = environ.get(b"DBUS_SESSION_BUS_ADDRESS", b"")
    return os.fsdecode(address) if address else f"unix:path=/run/user/{uid}/bus"


def make(
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
