"""The descriptor with which a held sandbox's host reconfigures its overlay.

Launcher code: the rules in ``launcher.py`` hold here.
"""

from __future__ import annotations

import _socket
import os

from mudroom.sandbox.launcher.kernel import ENOSYS, EPERM, FSPICK_CLOEXEC, SYS_fspick, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.launcher.step_context import StepContext


def send_refresher(context: StepContext, path: bytes) -> None:
    """Send the host a descriptor with which it can reconfigure the overlay at ``path``. Called in the step ``view``:
    fspick(2) needs the privilege in the mount namespace, which init gives up later. The reconfiguration itself needs
    only the privilege in the user namespace, whose owner is the host (vfs_cmd_reconfigure in fs/fsopen.c).

    There is no descriptor for a view of another kind, whose file system is not the sandbox's own; nor where the kernel
    (before 5.2) or a container's filter has no fspick(2): the view may then show old names, as docs/THREATS.md says.
    """
    door = _socket.socket(fileno=context.door)
    picked = _picked(context.root, path) if context.is_overlay else -1
    if picked >= 0:
        door.sendmsg([b"r"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, picked.to_bytes(4, "little"))])
        os.close(picked)
    else:
        door.sendmsg([b"r"])
    door.detach()


def _picked(root: int, path: bytes) -> int:
    try:
        return syscall(SYS_fspick, root, path, FSPICK_CLOEXEC)
    except OSError as error:
        if error.errno not in (ENOSYS, EPERM):
            raise
        return -1
