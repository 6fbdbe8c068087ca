"""Standalone program: test which overlay upper directories are in use by a mount, even a detached one.

    python -I -S overlay_probe.py SECONDS SCRATCH UPPER …

Print one character per UPPER: ``0`` not in use, ``1`` in use, ``?`` unknown. It runs as a script, because it enters its
own namespaces, which a process with several threads cannot (unshare(2)).

The kernel marks each overlay's upper directory from its mount until its superblock is gone (I_OVL_INUSE, ovl_get_upper
in fs/overlayfs/super.c). A superblock lives as long as there is any way into the mount: a mount namespace, an open file
or directory, an O_PATH descriptor, a working directory, a mapping. With ``index=on`` a second mount of such a directory
fails with EBUSY. If the second mount succeeds, no process can reach the files through the first.
"""

import ctypes
import os
import sys
import time

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_EBUSY = 16
_LONGEST = 0.05
"""Seconds between two tries; the first pause is 2 ms. The kernel logs a line per try."""
_OWN_XATTRS = ("user.overlay.origin", "user.overlay.uuid")
"""Left on the upper directory by a mount with an index (Documentation/filesystems/overlayfs.rst)."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _enter_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as stream:
            stream.write(text)
    _check(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))


def _is_in_use(upper: int, scratch: bytes, number: int) -> bool:
    """Mount the directory as another overlay's upper, and unmount it. Raise OSError if the result is inconclusive."""
    lower, work, place = (scratch + b"/%s%d" % (name, number) for name in (b"lower", b"work", b"mount"))
    for path in (lower, work, place):
        os.makedirs(path, 0o700, exist_ok=True)
    opened = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (lower, work)]
    try:
        names = tuple(b"/proc/self/fd/%d" % descriptor for descriptor in (opened[0], upper, opened[1]))
        before = os.listxattr(names[1])
        options = b"lowerdir=%s,upperdir=%s,workdir=%s,index=on,userxattr" % names
        if _libc.mount(b"overlay", place, b"overlay", ctypes.c_ulong(0), options) < 0:
            number = ctypes.get_errno()
            if number == _EBUSY:
                return True
            raise OSError(number, os.strerror(number))
        _check(_libc.umount2(place, 0))
        for name in os.listxattr(names[1]):
            if name in _OWN_XATTRS and name not in before:
                os.removexattr(names[1], name)
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _probe(seconds: float, scratch: bytes, uppers: "list[bytes]") -> str:
    answers = ["?"] * len(uppers)
    try:
        _enter_namespaces()  # before the directories are opened: the kernel mounts only what is in our namespace
        opened = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW) for path in uppers]
    except OSError:
        return "".join(answers)
    deadline, pause, pending = time.monotonic() + seconds, 0.002, list(range(len(uppers)))
    while pending:
        for number in list(pending):
            try:
                answers[number] = "1" if _is_in_use(opened[number], scratch, number) else "0"
            except OSError:
                answers[number] = "?"
            if answers[number] != "1":
                pending.remove(number)
        if time.monotonic() >= deadline:
            break
        if pending:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
    return "".join(answers)


if __name__ == "__main__":
    arguments = [os.fsencode(word) for word in sys.argv[1:]]
    sys.stdout.write(_probe(float(arguments[0]), arguments[1], arguments[2:]))
