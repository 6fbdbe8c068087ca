"""Table of protections: each platform's mechanism and where it was tested (docs/evidence/PROTECTIONS.md). Pure.

Rules of this file: a row describes what is implemented, and ``tested`` says where it has run, never where it should. A
missing protection has a row that says so. ``document`` generates the document, and a test compares it with the file.
``mudroom doctor`` tests on a single machine what the table claims for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from mudroom.typing import Literal, NamedTuple

State = Literal["strict", "degraded", "missing", "not probed"]
"""``not probed`` means that the probe could not run."""


class Finding(NamedTuple):
    protection: str
    state: State
    found: str
    fix: str = ""


class Way(NamedTuple):
    """A mechanism that confines commands on a platform."""

    level: int
    platform: str
    needs: str
    tested: str


_LINUX = "escapes, bypasses and conformance as root and as an ordinary user; a virtual machine with a stock kernel"
_MAC = "never on a Mac; profiles are read back by an evaluator, sessions run with a stand-in for sandbox-exec, on Linux"
_WINDOWS = "never on Windows; commands run under Wine, which confines nothing, rows tried against a model on Linux"

WAYS: dict[str, Way] = {
    "bare": Way(0, "Linux", "user namespaces, or Landlock", _LINUX),
    "namespaces": Way(1, "Linux", "user namespaces, overlayfs in them (Linux 5.11); else a copy", _LINUX),
    "landlock": Way(
        1, "Linux without namespaces", "Landlock (Linux 5.13; ABI 4 for the gate)", f"{_LINUX}; Docker's profile"
    ),
    "nested": Way(
        2, "Linux, an engine of this machine", "Docker, or Podman with or without root; user namespaces in containers",
        "Docker 20.10 and Podman 4.3 with runc, control groups of version 1: the same suites, by dev/engines",
    ),
    "plain": Way(
        2, "Linux, an engine that permits no namespaces", "Docker, or Podman with or without root",
        "Docker and Podman with the plan of this way; never under AppArmor, SELinux or where namespaces are forbidden",
    ),
    "remote": Way(
        2, "an engine in a virtual machine", "Docker Desktop, podman machine or Apple container, and an image",
        "never with such an engine; Docker on Linux in its place",
    ),
    "seatbelt": Way(1, "macOS", "sandbox-exec that held there: mudroom doctor --certify (MACOS.md)", _MAC),
    "seatbelt bare": Way(0, "macOS", "sandbox-exec that held there: mudroom doctor --certify (MACOS.md)", _MAC),
    "appcontainer": Way(1, "Windows", "Windows 10 that held there: mudroom doctor --certify (WINDOWS.md)", _WINDOWS),
    "restricted": Way(0, "Windows", "Windows 10 that held there: mudroom doctor --certify (WINDOWS.md)", _WINDOWS),
}  # fmt: skip


class Protection(NamedTuple):
    name: str
    row: str
    """The row in ``mudroom doctor`` on Linux that tests it at level 1, or at level 2 for container protections."""
    by: dict[str, str]
    """Mechanism by way. "none …": the way does not provide this protection."""
    tested: Mapping[str, str] = MappingProxyType({})
    """Exceptions to ``Way.tested``, by way."""


_WINE = "never on Windows; under Wine (dev/wine)"
_AS_LEVEL_1 = "as at level 1, in the container"

PROTECTIONS: tuple[Protection, ...] = (
    Protection(
        "The project's files change only by an apply", "the overlay view",
        {
            "bare": "overlay at the project's own path; or a staged copy",
            "namespaces": "overlay at the project's own path; or a staged copy there",
            "landlock": "a staged copy at a path of its own",
            "nested": _AS_LEVEL_1,
            "plain": "a staged copy, mounted at the project's own path",
            "remote": "a staged copy, mounted at the project's own path",
            "seatbelt": "a staged copy (clonefile); file-write*",
            "seatbelt bare": "a staged copy (clonefile); file-write*",
            "appcontainer": "a staged copy; rights for its SID alone",
            "restricted": "a staged copy; a write-restricted token: what Everyone may write stays writable",
        },
    ),
    Protection(
        "Other files of the host", "nothing of the host in sight",
        {
            "bare": "read-only, all mounts of them; credentials hidden",
            "namespaces": "not there: a root of its own; system directories and toolchains read-only",
            "landlock": "cannot be opened; names, sizes and times can be seen",
            "nested": "not there: neither in the container nor in the command's own root",
            "plain": "not there: the container has only the plan's mounts",
            "remote": "not there: only the image's files and the copy",
            "seatbelt": "file-read* by a list, deny by default",
            "seatbelt bare": "read; credentials and the real project refused",
            "appcontainer": "only files whose ACL names it, or all packages, can be opened",
            "restricted": "none: every file that the user can read is readable",
        },
    ),
    Protection(
        "Processes and servers of the host", "nothing of the host in sight",
        {
            "bare": "sockets hidden except named ones; processes visible",
            "namespaces": "pid, ipc and mount namespaces; no socket in sight",
            "landlock": "no unix socket can be connected to; processes visible; signals blocked from ABI 6",
            "nested": "the container's namespaces, and the command's own",
            "plain": "the container's namespaces; commands of one fork see each other",
            "remote": "the container's namespaces, in a virtual machine",
            "seatbelt": "same-sandbox for signals and process-info; network-outbound of sockets; mach-lookup by a list",
            "seatbelt bare": "the same for processes; services that act for others refused; without network a list",
            "appcontainer": "low integrity, the package's own objects, UI restrictions of the job",
            "restricted": "none but log-off and the desktop's settings",
        },
    ),
    Protection(
        "No network but the gate", "the gate",
        {
            "bare": "none by default: the host's network; or an empty network namespace (network.mode: none)",
            "namespaces": "a network namespace, every port redirected to the gate's listeners",
            "landlock": "one port of loopback, by a mediator of connect(2), and Landlock",
            "nested": "--network none, and the command's own network namespace as at level 1",
            "plain": "--network none; the gate listens in the container's network, for programs that use http_proxy",
            "remote": "--network none; the gate by the pipes of the first process, for programs that use http_proxy",
            "seatbelt": "one port of loopback, for programs that use http_proxy; the host's loopback is shared",
            "seatbelt bare": "none: the host's network, or no network",
            "appcontainer": "none: no network at all; the gate by a named pipe and a relay, closed until its rows held",
            "restricted": "none: the host's",
        },
    ),
    Protection(
        "No privileges, none to be gained", "no privileges",
        {
            "bare": "capabilities empty, no_new_privs",
            "namespaces": "capabilities and bounding set empty, no_new_privs",
            "landlock": "capabilities empty, no_new_privs",
            "nested": "--cap-drop ALL, no-new-privileges, a user that is not root; and as at level 1",
            "plain": "--cap-drop ALL, no-new-privileges, a user that is not root",
            "remote": "--cap-drop ALL, a user that is not root; Apple's has no no-new-privileges",
            "seatbelt": "set-user-id programs are refused by every sandbox",
            "seatbelt bare": "set-user-id programs are refused by every sandbox",
            "appcontainer": "all privileges removed, low integrity",
            "restricted": "all privileges removed, no administrator (LUA_TOKEN)",
        },
        {"appcontainer": _WINE, "restricted": _WINE},
    ),
    Protection(
        "System calls", "a system call filter",
        {
            "bare": "our filter, without its rows on namespaces, mounts and tracing",
            "namespaces": "our filter, refusals reported",
            "landlock": "our filter, with sockets and metadata by a mediator",
            "nested": "our filter, refusals reported; our list as the container's profile besides",
            "plain": "our filter, refusals reported; our list as the container's profile besides",
            "remote": "our list as the container's profile, refusals not reported; Apple's takes none",
            "seatbelt": "none: operations are judged, not system calls",
            "seatbelt bare": "none: operations are judged, not system calls",
            "appcontainer": "none; mitigation policies: no extension points, no code from other computers",
            "restricted": "none",
        },
    ),
    Protection(
        "Nothing is left behind", "a sandbox",
        {
            "bare": "the pid namespace ends with the command",
            "namespaces": "the pid namespace ends with the command, and with mudroom",
            "landlock": "a subreaper ends the command's descendants",
            "nested": "as at level 1; the container ends with mudroom (--rm), orphans are found at the next start",
            "plain": "a subreaper; the container ends with mudroom (--rm), orphans are found at the next start",
            "remote": "the container is removed after each command",
            "seatbelt": "a warden, by descent, session, group and a mark (Apple's own programs: not the mark); "
            "a process found by none of them outlives the command",
            "seatbelt bare": "a warden, likewise",
            "appcontainer": "a job object: kill on close, no breakaway",
            "restricted": "a job object: kill on close, no breakaway",
        },
        {"appcontainer": _WINE, "restricted": _WINE},
    ),
    Protection(
        "Limits: memory, processes, cpus", "limit: memory",
        {
            "bare": "control groups, version 2 delegated or as root, 1 as root; defaults: user namespace, tmpfs",
            "namespaces": "control groups, version 2 delegated or as root, 1 as root; defaults: user namespace, tmpfs",
            "landlock": "control groups where they can be written; no defaults",
            "nested": "the engine's control groups; rootless Podman: version 2 and delegated",
            "plain": "the engine's control groups; rootless Podman: version 2 and delegated",
            "remote": "the engine's; Apple's: memory and whole processors, no processes",
            "seatbelt": "none: the limit is refused, or reported",
            "seatbelt bare": "none: the limit is refused, or reported",
            "appcontainer": "the job object; io is refused",
            "restricted": "the job object; io is refused",
        },
        {
            "nested": "Docker and root's Podman, control groups of version 1; rootless Podman: that they are refused",
            "appcontainer": _WINE + " that a lost limit is detected",
            "restricted": _WINE + " that a lost limit is detected",
        },
    ),
    Protection(
        "The terminal", "",
        dict.fromkeys(
            ("bare", "namespaces", "landlock", "nested", "plain", "remote"), "a pseudo-terminal of its own, relayed"
        )
        | {
            "seatbelt": "a pseudo-terminal of its own; others cannot be opened",
            "seatbelt bare": "a pseudo-terminal of its own; others cannot be opened",
            "appcontainer": "pipes; its pseudo-console is not relayed yet",
            "restricted": "pipes; its pseudo-console is not relayed yet",
        },
        {"appcontainer": _WINE, "restricted": _WINE},
    ),
)  # fmt: skip


def rows() -> Iterator[tuple[str, int, str, str, str]]:
    """Yield protection, level, platform, mechanism, and where it was tested."""
    for protection in PROTECTIONS:
        for name, way in WAYS.items():
            yield protection.name, way.level, way.platform, protection.by[name], protection.tested.get(name, way.tested)


_HEAD = """\
# Protections by platform: mechanism and test

`mudroom doctor --table` prints this, from `core/confinement/protection.py`; a test compares the two. Which threats are
held and which are not is in [THREATS.md](../THREATS.md), of containers in [CONTAINERS.md](../CONTAINERS.md), of the
others in [MACOS.md](../MACOS.md) and [WINDOWS.md](../WINDOWS.md). `mudroom doctor` tries it on this machine.
"none" means that this way does not have the protection.
"""


def document() -> str:
    """Return the text for docs/evidence/PROTECTIONS.md."""
    lines = [_HEAD, "## Ways", "", "| level | platform | needs | tested where |", "| --- | --- | --- | --- |"]
    lines += [f"| {way.level} | {way.platform} | {way.needs} | {way.tested} |" for way in WAYS.values()]
    for protection in PROTECTIONS:
        tried = f' (`mudroom doctor`: "{protection.row}")' if protection.row else ""
        lines += ["", f"## {protection.name}{tried}", "", "| level | platform | by what |", "| --- | --- | --- |"]
        for name, way in WAYS.items():
            where = f" Tested: {protection.tested[name]}." if name in protection.tested else ""
            lines.append(f"| {way.level} | {way.platform} | {protection.by[name]}{'.' + where if where else ''} |")
    return "\n".join(lines) + "\n"
