"""A user's subordinate numbers (subuid(5)), and what else an engine of containers needs from this machine."""

from __future__ import annotations

import os
import shutil

from mudroom.errors import Unsupported, UsageError
from mudroom.typing import NamedTuple

_FEWEST = 65536
"""Numbers that the users of an image need at least; fewer are not worth a start."""
TUN = b"/dev/net/tun"
_PROGRAMS = {"podman": "podman", "crun": "crun", "slirp4netns": "slirp4netns", "newuidmap": "uidmap"}
"""Programs and their Debian packages."""
_SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Not PATH: it may name a directory in which commands write."""
BRIDGES = (
    "/usr/lib/cni/bridge",
    "/usr/libexec/cni/bridge",
    "/opt/cni/bin/bridge",
    "/usr/lib/podman/netavark",
    "/usr/libexec/podman/netavark",
)
"""Docker's libraries start containers on a bridge."""


class IdMaps(NamedTuple):
    """What an engine uses of this machine. Each map has a line for the user and a line for subordinate numbers."""

    outer: tuple[bytes, bytes, bool, tuple[bytes, bytes]]
    """The sandbox's id maps, and the programs that write them."""
    inner: tuple[bytes, bytes]
    """The engine's id maps, in that sandbox or outside of it: the user is root."""
    nested: tuple[bytes, bytes]
    """The id maps of its containers, in the engine's namespace: the same numbers."""
    podman: bytes
    user: int
    group: int


def lacking() -> list[tuple[str, str]]:
    """Return what this machine lacks, as (what, the command that provides it); empty if an engine can run."""
    missing = [
        (program, f"sudo apt install {package}") for program, package in _PROGRAMS.items() if not _path_of(program)
    ]
    if not any(map(os.path.exists, BRIDGES)):
        missing.append(("bridge", "sudo apt install containernetworking-plugins"))
    name = _name()
    for file in ("/etc/subuid", "/etc/subgid"):
        if _range(file, name) is None:
            option = "--add-subuids" if file.endswith("subuid") else "--add-subgids"
            missing.append((f"{_FEWEST} numbers of {name} in {file}", f"sudo usermod {option} 100000-165535 {name}"))
    if not os.access(TUN, os.R_OK | os.W_OK):
        missing.append((os.fsdecode(TUN), f"sudo modprobe tun; sudo chmod 0666 {os.fsdecode(TUN)}"))
    return missing


def id_maps() -> IdMaps:
    """Return what an engine uses. Raise UsageError for root, Unsupported if something is lacking."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        raise UsageError(
            "--engine is not for root: a container's root would be the machine's", "run mudroom as an ordinary user"
        )
    if missing := lacking():
        found, hint = missing[0]
        raise Unsupported(
            "--engine", "podman, crun, slirp4netns, newuidmap and subordinate numbers", f"no {found}", hint
        )
    users, groups = _range("/etc/subuid", _name()), _range("/etc/subgid", _name())
    assert users is not None
    assert groups is not None
    programs = tuple(os.fsencode(_path_of(name)) for name in ("newuidmap", "newgidmap"))
    return IdMaps(
        (_identity(uid, users), _identity(gid, groups), False, (programs[0], programs[1])),
        (_from_zero(uid, users), _from_zero(gid, groups)),
        (b"0 0 1\n1 1 %d\n" % users[1], b"0 0 1\n1 1 %d\n" % groups[1]),
        os.fsencode(_path_of("podman")),
        uid,
        gid,
    )


def _identity(own: int, others: tuple[int, int]) -> bytes:
    return b"%d %d 1\n%d %d %d\n" % (own, own, others[0], *others)


def _from_zero(own: int, others: tuple[int, int]) -> bytes:
    return b"0 %d 1\n1 %d %d\n" % (own, *others)


def _path_of(program: str) -> str:
    return shutil.which(program, path=_SEARCH) or ""


def _name() -> str:
    import pwd  # not on Windows, where this says what is lacking

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _range(path: str, name: str) -> tuple[int, int] | None:
    """Return the first large enough range of a user in a file of subuid(5), as (first, count), or None."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            lines = stream.read(1 << 20).splitlines()
    except OSError:
        return None
    for line in lines:
        owner, _colon, rest = line.strip().partition(":")
        first, _colon, count = rest.partition(":")
        if owner in (name, str(os.geteuid())) and first.isdecimal() and count.isdecimal() and int(count) >= _FEWEST:
            return int(first), int(count)
    return None
