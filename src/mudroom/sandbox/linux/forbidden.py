"""Find out why this host forbids user namespaces, and the fix.

Each row of ``_SETTINGS`` is a kernel file, its value where namespaces are forbidden, and the fix. The files are read
only after making a namespace has failed: whether namespaces work is found by trying.
"""

from __future__ import annotations

import os
from collections.abc import Callable

APPARMOR = """\
write /etc/apparmor.d/mudroom:
  abi <abi/4.0>,
  include <tunables/global>
  profile mudroom {program} flags=(unconfined) {{
    userns,
    include if exists <local/mudroom>
  }}
then: sudo apparmor_parser -r /etc/apparmor.d/mudroom
It permits them to every program of that interpreter; to narrow it, install mudroom into an environment made with
python3 -m venv --copies. Or for all programs: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"""

PROFILE = "add the rule `userns,` to the profile {profile} in /etc/apparmor.d, then: sudo systemctl reload apparmor"

_SETTINGS: tuple[tuple[str, str, str, str], ...] = (
    # Ubuntu from 23.10 on (security/apparmor/task.c there, apparmor_userns_restrict)
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor forbids them", APPARMOR),
    # Debian's kernels, Arch's hardened kernel
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "the kernel is set to forbid them to users",
        "sudo sysctl kernel.unprivileged_userns_clone=1, and in /etc/sysctl.d to keep it",
    ),
    # namespaces(7), /proc/sys/user; RHEL 7, hardened images
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "the kernel permits none",
        "sudo sysctl user.max_user_namespaces=15000, and in /etc/sysctl.d to keep it",
    ),
)

CONTAINER = """\
start the container with --security-opt seccomp=PROFILE, Docker's default profile with clone, unshare, mount, umount2,
pivot_root, fsopen, fsconfig, fsmount, open_tree, move_mount and mount_setattr allowed, --security-opt
apparmor=unconfined and --security-opt systempaths=unconfined (Podman: unmask=ALL); or run mudroom outside of it"""


def in_container(exists: Callable[[str], bool] = os.path.exists) -> bool:
    """Return whether Docker or Podman has marked this file system as a container's."""
    return exists("/.dockerenv") or exists("/run/.containerenv")


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read(4096).strip()
    except OSError:
        return ""  # this kernel has no such setting


def why_forbidden(
    program: str, read: Callable[[str], str] = _read, exists: Callable[[str], bool] = os.path.exists
) -> tuple[str, str]:
    """Return why user namespaces are forbidden, and the fix. ``program``: real path of the interpreter that runs
    mudroom."""
    for path, value, reason, fix in _SETTINGS:
        if read(path) == value:
            return f"{reason} ({path} is {value})", fix.format(program=program) if fix is APPARMOR else fix
    if in_container(exists):
        return "the container's own filter forbids them", CONTAINER
    profile, _, mode = read("/proc/self/attr/current").rpartition(" ")  # apparmor(7)
    if mode == "(enforce)":
        return f"the AppArmor profile {profile} forbids them", PROFILE.format(profile=profile)
    return "this kernel or an outer filter forbids them", "use a kernel with CONFIG_USER_NS, and no filter against them"
