"""The template's end of the native init: a small program that clones and performs what Python would, for most commands.

Launcher code: the rules in ``launcher.py`` hold here; the program's own rules are in ``src/native/init/nursery.c``. A
cloned interpreter copies hundreds of pages before a command starts, the cloned program twenty. Where the program is
missing or fails, or for a command that it does not serve, the template clones itself.
"""

from __future__ import annotations

import _socket
import ctypes
import marshal
import os

from mudroom.sandbox.launcher.kernel import (
    AT_FDCWD,
    CLONE_NEWNS,
    CLONE_NEWPID,
    LINUX_CAPABILITY_VERSION_3,
    MOUNT_ATTR_READ_ONLY,
    OPEN_TREE_CLOEXEC,
    OPEN_TREE_CLONE,
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAP_AMBIENT_RAISE,
    SYS_capget,
    SYS_capset,
    SYS_open_tree,
    prctl,
    set_attributes,
    syscall,
)
from mudroom.sandbox.launcher.netlink import redirect_to, routes
from mudroom.sandbox.launcher.wire import NATIVE_STEPS, PLAIN, PROTOCOL, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mudroom.sandbox.launcher.init import Plan

_CHANNEL = 3
_HELD = ctypes.c_char * 24


def is_able(path: bytes, namespaces: int, plan: Plan) -> bool:
    """Return whether the program can make a template's inits: it exists, each init has its own processes and mounts,
    and the program knows all steps."""
    own = CLONE_NEWPID | CLONE_NEWNS
    if not path or namespaces & own != own:
        return False
    return os.access(path, os.X_OK) and all(step[0] in NATIVE_STEPS for step in plan)


def keep_capabilities() -> None:
    """Let the next exec keep this process's capabilities in its user namespace: inheritable, and ambient
    (capabilities(7)). Call before the bounding set is emptied."""
    header, held = _header(), bytes(_held())
    # Two structs: effective, permitted, inheritable.
    parts = [held[at : at + 4] for at in range(0, 24, 4)]
    syscall(SYS_capset, header, b"".join((parts[0], parts[1], parts[1], parts[3], parts[4], parts[4])))
    permitted = int.from_bytes(parts[1] + parts[4], "little")
    for capability in range(permitted.bit_length()):
        if permitted >> capability & 1:
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def lose_capabilities_at_exec() -> None:
    """Undo ``keep_capabilities``."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    held = bytes(_held())
    syscall(SYS_capset, _header(), b"".join((held[:8], bytes(4), held[12:20], bytes(4))))


def _header() -> bytes:
    return LINUX_CAPABILITY_VERSION_3.to_bytes(4, "little") + bytes(4)


def _held() -> Any:
    held = _HELD.from_buffer(bytearray(24))
    syscall(SYS_capget, _header(), ctypes.addressof(held))
    return held


def start_nursery(path: bytes, namespaces: int, ahead: Plan, last: Plan) -> _socket.socket | None:
    """Start the program in this process's namespaces and directory, from a read-only mount (``program.py``). Return the
    socket to it, or None if it cannot be started. It ends with this process."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), _CHANNEL)]
    if theirs.fileno() == _CHANNEL:
        os.set_inheritable(_CHANNEL, True)
        actions = []
    begin = {
        "protocol": PROTOCOL,
        "each": namespaces,
        "ahead": tuple(map(_with_messages, ahead)),
        "last": tuple(map(_with_messages, last)),
    }
    try:
        file = _above(_CHANNEL, syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC))
        try:
            set_attributes(file, MOUNT_ATTR_READ_ONLY, recursive=False)
            os.posix_spawn(b"/proc/self/fd/%d" % file, [path], {}, file_actions=actions)
        finally:
            os.close(file)
        theirs.close()
        send(ours, marshal.dumps(begin, PLAIN), [])
    except OSError:
        theirs.close()
        ours.close()
        return None
    return ours


def _above(number: int, descriptor: int) -> int:
    """Return the descriptor, moved if it is ``number``."""
    if descriptor != number:
        return descriptor
    moved = os.dup(descriptor)  # close-on-exec
    os.close(descriptor)
    return moved


def ask_for_init(nursery: _socket.socket, channel: int) -> int:
    """Have the program clone an init, which has the other end of ``channel``. Return its pid; it is this process's
    child. Raise OSError if that fails, EOFError if the program has ended."""
    try:
        send(nursery, marshal.dumps(None, PLAIN), [channel])
        answer = nursery.recv(4)
    except OSError:
        raise EOFError from None
    if len(answer) != 4:
        raise EOFError
    pid = int.from_bytes(answer, "little", signed=True)
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return pid


def _with_messages(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a step with the netlink(7) messages that it sends."""
    if step[0] == "routes":
        return (*step, b"".join(routes()))
    if step[0] == "listen":
        return (*step, b"".join(redirect_to(step[2])) if step[2] else b"")
    return step
