"""A fork as a real directory for the user's own tools, in one of three ways.

    overlay   a kernel overlay in the host's own mount namespace; needs root
    fuse      fuse-overlayfs, for any user who may use /dev/fuse
    copy      a staged copy; its changes are brought into the fork at unmount

Sources: mount(2), umount2(2), fuse-overlayfs(1), fusermount3(1).
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Sequence

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported
from mudroom.stage import disk
from mudroom.stage.beneath import open_root
from mudroom.stage.views.preflight import mounts
from mudroom.typing import Any, Literal

Kind = Literal["overlay", "fuse", "copy"]

_MS_RDONLY, _MS_NOSUID, _MS_NODEV = 1, 2, 4
_PAGE = 4096
"""Length limit for mount(2) options, in bytes."""
_FUSE = (b"/usr/bin/fuse-overlayfs", b"/usr/local/bin/fuse-overlayfs", b"/bin/fuse-overlayfs")
_FUSERMOUNT = (b"/usr/bin/fusermount3", b"/bin/fusermount3", b"/usr/local/bin/fusermount3")

_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform != "win32" else None


def best_kind() -> Kind:
    """Return the best kind that should work here, without trying it."""
    if os.geteuid() == 0:
        return "overlay"
    return (
        "fuse"
        if _first_executable(_FUSE) and _first_executable(_FUSERMOUNT) and os.access("/dev/fuse", os.R_OK | os.W_OK)
        else "copy"
    )


def is_mounted(place: bytes) -> bool:
    return any(mount.path == os.path.realpath(place) for mount in mounts())


def mount_overlay(layers: Sequence[bytes], base: bytes, upper: bytes | None, work: bytes, place: bytes) -> None:
    """Mount an overlay. ``layers``: topmost first. Without ``upper`` it is read-only. Raise Unsupported with the
    kernel's error."""
    flags = os.O_PATH | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC
    lower = [disk.open_path(path, flags) for path in (*layers, base)]
    upper_and_work = [] if upper is None else [disk.open_path(path, flags) for path in (upper, work)]
    try:  # by descriptor: no character needs escaping
        options = b"userxattr,lowerdir=" + b":".join(b"/proc/self/fd/%d" % descriptor for descriptor in lower)
        if upper_and_work:
            options += b",upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d" % (upper_and_work[0], upper_and_work[1])
        flags = _MS_NOSUID | _MS_NODEV | (0 if upper_and_work else _MS_RDONLY)
        if len(options) >= _PAGE:
            hint = "mudroom apply, or a new fork, has fewer layers"
            raise Unsupported(
                "a mount of so many layers", "options of less than 4096 bytes", f"{len(options)} bytes", hint
            )
        if _libc.mount(b"mudroom", place, b"overlay", ctypes.c_ulong(flags), options) < 0:
            why = os.strerror(ctypes.get_errno())
            raise Unsupported("a mount by the kernel", "overlayfs and root", why, "mudroom doctor tries overlays")
    finally:
        for descriptor in (*lower, *upper_and_work):
            os.close(descriptor)


def mount_fuse(
    layers: Sequence[bytes], base: bytes, upper: bytes | None, work: bytes, place: bytes, *, kept: int = -1
) -> None:
    """Mount with fuse-overlayfs, which goes into the background when it is ready. Parameters as for ``mount_overlay``.
    ``kept``: a descriptor that it holds as long as it runs."""
    program = _first_executable(_FUSE)
    if not program or not _first_executable(_FUSERMOUNT):
        raise Unsupported(
            "a mount without root",
            "fuse-overlayfs and fusermount3",
            "not installed",
            "apt install fuse-overlayfs fuse3",
        )
    for path in layers if upper is None else (*layers, upper):
        os.close(open_root(path))  # raises if it is a link
    options = b"lowerdir=" + b":".join(_escaped(path) for path in (*layers, base))
    if upper is not None:
        # no write cache: written data reaches the layer, with its times, even if the server is killed
        options += b",upperdir=" + _escaped(upper) + b",workdir=" + _escaped(work) + b",writeback=0"
    command = [program, b"-o", options + b",nosuid,nodev" + (b"" if upper is not None else b",ro"), place]
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    kept_open = (kept,) if kept >= 0 else ()
    done = subprocess.run(
        command, capture_output=True, stdin=subprocess.DEVNULL, env=environment, check=False, pass_fds=kept_open
    )
    if done.returncode:
        reason = show(done.stderr.strip().splitlines()[-1]) if done.stderr.strip() else f"exit code {done.returncode}"
        raise Unsupported("a mount without root", "FUSE", reason, "ls -l /dev/fuse shows who may open it")


def _escaped(path: bytes) -> bytes:
    return b"".join(b"\\" + bytes((c,)) if c in b"\\:," else bytes((c,)) for c in path)


def unmount(kind: Kind, place: bytes) -> None:
    """Unmount the directory. Raise MudroomError if it is in use."""
    if kind == "overlay":
        reason = os.strerror(ctypes.get_errno()) if _libc.umount2(place, 0) < 0 else ""
    else:
        reason = _fusermount(b"-u", place)
    if reason:
        raise MudroomError(
            f"{show(place)} cannot be unmounted: {reason}",
            f"close the programs that use it: fuser -vm {show(place)} names them",
        )


def _fusermount(*words: bytes) -> str:
    """Run fusermount3(1). Return why it failed, or an empty text."""
    program = _first_executable(_FUSERMOUNT)
    if not program:
        return "fusermount3 is not installed"
    done = subprocess.run([program, *words], capture_output=True, check=False)
    if not done.returncode:
        return ""
    return show(done.stderr.strip()) or f"fusermount3 ended with {done.returncode}"


def is_dead(place: bytes) -> bool:
    """Return whether there is a FUSE mount whose server has ended (ENOTCONN, fuse(4))."""
    try:
        # Not stat(2), which may answer without asking the server.
        os.statvfs(place)
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


def abandon(place: bytes) -> None:
    """Remove a FUSE mount whose server has ended, even while programs have files on it open. Raise MudroomError."""
    reason = _fusermount(b"-u", b"-z", place)
    if reason:
        raise MudroomError(f"{show(place)} cannot be unmounted: {reason}", f"fusermount3 -u -z {show(place)}")


def _first_executable(candidates: Sequence[bytes]) -> bytes:
    return next((path for path in candidates if os.access(path, os.X_OK)), b"")
