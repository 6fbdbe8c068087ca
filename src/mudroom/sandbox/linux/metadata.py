"""System calls that change a file's metadata, and connect(2), for hosts where Landlock alone confines a command.

Landlock decides which files may be opened, created and removed, but does not cover chmod, chown, utime and xattrs, nor
truncate(2) before its ABI 3 (landlock(7), "current limitations"). Without a mount namespace a command could therefore
change modes and times in the real project. So these calls go to ``src/native/launcher/mediator.c`` by seccomp user
notification. The mediator performs them itself on files inside the command's own directories and refuses the rest.

Landlock's TCP rules name ports, not addresses (landlock(7)): the gate's port would be open at every address on the
internet, and a server that listens on all ports is easy to get. So connect(2) goes the same way.

Pure: the table, and the filter that routes the calls.
"""

from __future__ import annotations

import struct

from mudroom.typing import NamedTuple


class MetadataCall(NamedTuple):
    """A call's arguments, by index. -1: the call has no such argument."""

    action: str
    """chmod, chown, times, setxattr, removexattr, connect, or refuse (ENOSYS: libc falls back to an older call)."""
    directory: int = -1
    """A directory descriptor; if ``path`` is -1, the file's own descriptor."""
    path: int = -1
    flags: int = -1
    """AT_* flags."""
    values: int = -1
    """The first argument with new values. For connect: the gate's port."""
    follow: bool = True
    """Whether a symbolic link at the path's end is followed (unless the flags say otherwise)."""
    clock: str = ""
    """Time format: ``seconds`` (utime), ``timeval`` or ``timespec``."""
    places: tuple[tuple[str, int, int], ...] = ()
    """For connect: places on the host's loopback, as in ``SandboxSpec.loopback``."""


_X86_64: dict[int, MetadataCall] = {
    90: MetadataCall("chmod", path=0, values=1),
    91: MetadataCall("chmod", directory=0, values=1),
    268: MetadataCall("chmod", directory=0, path=1, values=2),
    92: MetadataCall("chown", path=0, values=1),
    93: MetadataCall("chown", directory=0, values=1),
    94: MetadataCall("chown", path=0, values=1, follow=False),
    260: MetadataCall("chown", directory=0, path=1, values=2, flags=4),
    132: MetadataCall("times", path=0, values=1, clock="seconds"),
    235: MetadataCall("times", path=0, values=1, clock="timeval"),
    261: MetadataCall("times", directory=0, path=1, values=2, clock="timeval"),
    280: MetadataCall("times", directory=0, path=1, values=2, flags=3, clock="timespec"),
    188: MetadataCall("setxattr", path=0, values=1),
    189: MetadataCall("setxattr", path=0, values=1, follow=False),
    190: MetadataCall("setxattr", directory=0, values=1),
    197: MetadataCall("removexattr", path=0, values=1),
    198: MetadataCall("removexattr", path=0, values=1, follow=False),
    199: MetadataCall("removexattr", directory=0, values=1),
}
_AARCH64: dict[int, MetadataCall] = {
    52: MetadataCall("chmod", directory=0, values=1),
    53: MetadataCall("chmod", directory=0, path=1, values=2),
    54: MetadataCall("chown", directory=0, path=1, values=2, flags=4),
    55: MetadataCall("chown", directory=0, values=1),
    88: MetadataCall("times", directory=0, path=1, values=2, flags=3, clock="timespec"),
    5: MetadataCall("setxattr", path=0, values=1),
    6: MetadataCall("setxattr", path=0, values=1, follow=False),
    7: MetadataCall("setxattr", directory=0, values=1),
    14: MetadataCall("removexattr", path=0, values=1),
    15: MetadataCall("removexattr", path=0, values=1, follow=False),
    16: MetadataCall("removexattr", directory=0, values=1),
}
_BOTH: dict[int, MetadataCall] = {
    452: MetadataCall("chmod", directory=0, path=1, values=2, flags=3),  # fchmodat2
    463: MetadataCall("refuse"),  # setxattrat
    466: MetadataCall("refuse"),  # removexattrat
    469: MetadataCall("refuse"),  # file_setattr
}
_TRUNCATE = {"x86_64": 76, "aarch64": 45}
_CONNECT = {"x86_64": 42, "aarch64": 203}

_LD_NR = (0x20, 0, 0, 0)
_ALLOW = (0x06, 0, 0, 0x7FFF0000)
_USER_NOTIF = (0x06, 0, 0, 0x7FC00000)


def calls(
    machine: str, landlock_abi: int, gate: int = 0, places: tuple[tuple[str, int, int], ...] = ()
) -> dict[int, MetadataCall]:
    """Return the routed calls by system call number. ``gate``: the gate's port on the host's loopback; 0: no gate and
    no connections. ``places``: loopback addresses and ports that lead to the gate's listeners. Raise ValueError for an
    unknown machine."""
    own = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(machine)
    if own is None:
        raise ValueError(f"no table of system calls for {machine}")
    table = {**own, **_BOTH}
    if landlock_abi < 3:
        table[_TRUNCATE[machine]] = MetadataCall("refuse")
    if gate:
        table[_CONNECT[machine]] = MetadataCall("connect", values=gate, places=places)
    return table


def route(numbers: list[int]) -> bytes:
    """Return a filter that sends these calls to the listener and allows the rest. It does not check the architecture:
    another filter does."""
    program = [_LD_NR]
    for number in sorted(numbers):
        program += [(0x15, 0, 1, number), _USER_NOTIF]
    program.append(_ALLOW)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
