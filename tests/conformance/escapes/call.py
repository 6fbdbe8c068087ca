"""The kernel as an attempt uses it: raw system calls by name, and machine code where no library call does it."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from typing import Any

MACHINE = platform.machine()
X86 = MACHINE == "x86_64"
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW = -100, 0x1000, 0x100, 0x400
O_PATH = 0o10000000
HIGH = 1 << 32
"""A bit that the kernel does not look at where it takes an int, and that a filter of 64 bits trips over."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# (x86_64, aarch64): arch/x86/entry/syscalls/syscall_64.tbl, scripts/syscall.tbl; one number where they agree.
_NUMBERS: dict[str, tuple[int, int] | int] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone": (56, 220), "clone3": 435,
    "delete_module": (176, 106), "fanotify_init": (300, 262), "fchmodat2": 452, "file_setattr": 469,
    "finit_module": (313, 273), "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433,
    "init_module": (175, 105), "inotify_add_watch": (254, 27), "inotify_init1": (294, 26), "io_uring_enter": 426,
    "io_uring_register": 427, "io_uring_setup": 425, "ioperm": (173, -1), "iopl": (172, -1), "ioprio_set": (251, 30),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "listmount": 458, "memfd_secret": 447, "migrate_pages": (256, 238), "mknodat": (259, 33), "mount": (165, 40),
    "mount_setattr": 442, "move_mount": 429, "move_pages": (279, 239), "mq_getsetattr": (245, 185),
    "mq_open": (240, 180), "mq_timedreceive": (243, 183), "mq_timedsend": (242, 182), "mq_unlink": (241, 181),
    "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188), "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": 428, "open_tree_attr": 467,
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": 438, "pidfd_open": 434,
    "pidfd_send_signal": 424, "pivot_root": (155, 41), "prlimit64": (302, 261), "process_madvise": 440,
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "reboot": (169, 142), "removexattrat": 466, "renameat2": (316, 276), "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "seccomp": (317, 277),
    "semctl": (66, 191), "semget": (64, 190), "semop": (65, 193), "sethostname": (170, 161), "setns": (308, 268),
    "setpriority": (141, 140), "settimeofday": (164, 170), "setxattrat": 463, "shmat": (30, 196), "shmctl": (31, 195),
    "shmget": (29, 194), "socket": (41, 198), "socketpair": (53, 199), "swapoff": (168, 225), "swapon": (167, 224),
    "syslog": (103, 116), "tgkill": (234, 131), "tkill": (200, 130), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "utimensat": (280, 88), "vhangup": (153, 58), "ioctl": (16, 29),
    # Only x86-64 has these; elsewhere libc makes others of them.
    "chmod": (90, -1), "chown": (92, -1), "futimesat": (261, -1), "lchown": (94, -1), "mknod": (133, -1),
    "utime": (132, -1), "utimes": (235, -1), "fchmodat": (268, 53), "fchownat": (260, 54), "fchmod": (91, 52),
    "fchown": (93, 55), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "truncate": (76, 45), "execveat": (322, 281),
    "sched_setscheduler": (144, 119), "linkat": (265, 37), "sendmmsg": (307, 269),
}  # fmt: skip


def number(name: str) -> int:
    found = _NUMBERS[name]
    return found if isinstance(found, int) else found[0 if X86 else 1]


def call(name: str | int, *arguments: Any) -> int:
    """The raw system call: ints become longs (high bits and all), texts and bytes pointers. Raises OSError."""
    which = name if isinstance(name, int) else number(name)
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(which), *map(_argument, arguments))
    if result == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(name))
    return int(result)


def _argument(value: Any) -> Any:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return ctypes.c_char_p(value)
    return ctypes.c_long(value) if isinstance(value, int) else value


def ioctl(descriptor: int, request: int, argument: Any = 0) -> int:
    return call("ioctl", descriptor, request, argument)


def words(*values: int) -> bytes:
    """64-bit words in a row, as most structures of newer calls are."""
    return struct.pack(f"<{len(values)}Q", *(value & (1 << 64) - 1 for value in values))


def address(data: ctypes.Array[Any]) -> int:
    return ctypes.addressof(data)


def buffer(content: bytes | int) -> ctypes.Array[Any]:
    return ctypes.create_string_buffer(content)


def reached(errors: tuple[int, ...], name: str | int, *arguments: Any) -> str | None:
    """For calls that must not be let through even to be told that what was asked makes no sense: evidence if the kernel
    did, or answered with one of ``errors``. What else it answered is a refusal."""
    try:
        result = call(name, *arguments)
    except OSError as error:
        if error.errno in errors:
            return f"{name}: let through ({error.strerror})"
        raise
    return f"{name} = {result}"


def machine_code(code: bytes) -> int:
    """Call machine code that returns an int. Needs memory that is writable and executable."""
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    entry = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return int(ctypes.CFUNCTYPE(ctypes.c_long)(entry)())


def int80(nr: int, first: int = 0, second: int = 0, third: int = 0) -> int:
    """A 32-bit system call from 64-bit code: push rbx; mov eax, ebx, ecx, edx; int 0x80; pop rbx; ret."""
    loads = b"".join(op + struct.pack("<I", value & 0xFFFFFFFF) for op, value in (
        (b"\xb8", nr), (b"\xbb", first), (b"\xb9", second), (b"\xba", third)))  # fmt: skip
    result = machine_code(b"\x53" + loads + b"\xcd\x80\x5b\x48\x98\xc3")
    if result < 0:
        raise OSError(-result, os.strerror(-result), f"int 0x80: {nr}")
    return result
