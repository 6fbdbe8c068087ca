"""The kernel's interface as the launcher uses it. Numbers are from the uapi headers, names as in the man pages.

Launcher code: the rules in ``launcher.py`` hold here.
"""

from __future__ import annotations

import ctypes
import os

MACHINE = os.uname().machine
# Only these numbers differ between the architectures; numbers from 424 on are shared.
SYS_clone, SYS_pivot_root, SYS_seccomp = {"x86_64": (56, 155, 317), "aarch64": (220, 41, 277)}.get(MACHINE, (0, 0, 0))
SYS_capget, SYS_capset = {"x86_64": (125, 126), "aarch64": (90, 91)}.get(MACHINE, (0, 0))
SYS_openat2, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 437, 2, 4, 8, 0x10
SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick = 428, 429, 430, 431, 432, 433
SYS_close_range, SYS_mount_setattr = 436, 442
SYS_clone3 = 435
SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self = 444, 445, 446

AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, 0o2000000
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 4, 0x40
MOUNT_ATTR_RDONLY_NODEV, MOUNT_ATTR_READ_ONLY = 1 | 4, 1 | 2 | 4  # the second without set-user-ID, too
FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC, FSPICK_CLOEXEC = 1, 1, 1
FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE, FSCONFIG_CMD_RECONFIGURE = 0, 1, 6, 7
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE, MNT_DETACH = 2, 4, 0x4000, 0x40000, 2
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWCGROUP, CLONE_NEWNS = 0x10000000, 0x20000000, 0x02000000, 0x00020000
CLONE_FILES, CLONE_INTO_CGROUP = 0x400, 0x200000000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 4, 23, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_CLEAR_ALL = 47, 2, 4
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 8
LINUX_CAPABILITY_VERSION_3 = 0x20080522
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
TIOCSCTTY, TIOCSPTLCK, TIOCGPTPEER = 0x540E, 0x40045431, 0x5441
LANDLOCK_CREATE_RULESET_VERSION, LANDLOCK_RULE_PATH_BENEATH, LANDLOCK_RULE_NET_PORT = 1, 1, 2
LANDLOCK_FILE_RIGHTS = 0b1_1100_0000_0000_0111  # for files: execute, write, read; truncate, ioctl, resolve_unix

SIGCHLD = 17
ENOENT, EINTR, EIO, ENOEXEC, EACCES, EBUSY, EINVAL, EPERM, ENOSYS, ENOTDIR = 2, 4, 5, 8, 13, 16, 22, 1, 38, 20
ESTALE = 116
EXDEV, EROFS, ELOOP = 18, 30, 40
EOPNOTSUPP, EAFNOSUPPORT, EADDRINUSE, EADDRNOTAVAIL = 95, 97, 98, 99

# PyDLL keeps the GIL: a child that is cloned while the GIL is released would hang.
libc = ctypes.PyDLL(None, use_errno=True)
_OF_EACH_INIT = ("capget", "capset", "ioctl", "prctl", "sethostname", "setrlimit", "syscall", "umount2")
c_long, c_ulong, c_char_p, c_void_p = ctypes.c_long, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_void_p


def check(result: int, context: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), context)
    return result


def look_up_functions() -> None:
    """Look up the functions that each init calls. ``libc`` keeps a function from its first use on, but one looked up in
    a clone is lost with it."""
    for name in _OF_EACH_INIT:
        getattr(libc, name)


# Its own function object, with types: without them each argument in each call needs a ctypes object.
_call = libc["syscall"]
_call.restype, _call.argtypes = c_long, (c_long, *[c_void_p] * 6)
_UNUSED = (None,) * 6


def syscall(number: int, *args: int | bytes | None) -> int:
    """Call the raw system call ``number``. Integers are passed as longs, bytes as pointers. Raise OSError if it
    fails."""
    return check(_call(number, *args, *_UNUSED[len(args) :]))


def clone(flags: int) -> int:
    """Fork with new namespaces: clone(2) with a null stack behaves as fork does. Return the pid; 0 in the child."""
    return syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0)


def clone_into(flags: int, cgroup: int) -> int:
    """Clone as ``clone`` does, but into a version 2 control group, given by its directory's descriptor ``cgroup``:
    struct clone_args in clone(2). Linux 5.7."""
    words = [flags | CLONE_INTO_CGROUP, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, cgroup]
    arguments = b"".join(word.to_bytes(8, "little") for word in words)
    return syscall(SYS_clone3, arguments, len(arguments))


def unshare(flags: int) -> None:
    check(libc.unshare(flags))


def prctl(option: int, a: int = 0, b: int = 0) -> int:
    return check(libc.prctl(option, c_ulong(a), c_ulong(b), c_ulong(0), c_ulong(0)))


def set_attributes(tree: int, attributes: int, recursive: bool) -> None:
    """Call mount_setattr(2): struct mount_attr is attr_set, attr_clr, propagation, userns_fd (64 bits each)."""
    attr = attributes.to_bytes(8, "little") + bytes(24)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    syscall(SYS_mount_setattr, tree, b"", flags, attr, 32)
