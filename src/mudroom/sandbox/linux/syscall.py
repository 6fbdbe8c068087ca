"""The system calls that a sandboxed command may not make, each with its reason. Data only.

Rules:

1. One row per denied call, with its reason. A row without a reason is a bug.
2. A row names a system call; `NUMBERS` has its number once for every machine. A call that a machine does not have is
   `None` there, on purpose and by hand; a name that is not in the table is a typo.
3. A condition sees only the *low 32 bits* of an argument. The kernel takes `int`, `unsigned int` and `umode_t`
   arguments from the low half of the register but shows a filter all of it (seccomp(2): "the more-significant half of
   the argument register is ignored by the system call, but visible in the seccomp data"), so a filter that compares 64
   bits is evaded by setting bit 32: CVE-2019-10063. Every argument named below is such an argument, or is cut to 32
   bits by the kernel (`clone`, kernel/fork.c: `lower_32_bits`), or is refused by the kernel if any high bit is set
   (`unshare`). A filter cannot judge pointers and 64-bit sizes, and no row tries.
4. The error is one that programs can already handle: EPERM, or ENOSYS where programs fall back to an older way if a
   call "does not exist". No rule kills: a command should fail, not vanish.

This is a deny list: defence in depth behind namespaces, dropped capabilities and `no_new_privs`. The kernel refuses
most of these calls anyway; they are listed because past holes were in the code behind them.

Left open on purpose: the calls in docs/evidence/SYSCALLS.md, and chmod of set-id bits (mounts are `nosuid`).
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.typing import Literal, NamedTuple

# Linux's numbers, not `errno`'s: a filter may be compiled and shown where ENOSYS is not 38.
EPERM, EACCES, ENOSYS, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EAFNOSUPPORT = 1, 13, 38, 93, 94, 97
ERROR_NAMES: Mapping[int, str] = {
    1: "EPERM", 13: "EACCES", 38: "ENOSYS", 93: "EPROTONOSUPPORT", 94: "ESOCKTNOSUPPORT", 97: "EAFNOSUPPORT",
}  # fmt: skip


class Cond(NamedTuple):
    """Holds when `(low 32 bits of argument `arg`) & mask` equals `value` (`==`), or differs (`!=`)."""

    arg: int
    op: Literal["==", "!="]
    value: int
    mask: int = 0xFFFFFFFF


class SyscallRule(NamedTuple):
    """`syscall` fails with the error `action` when all `conditions` hold. The first such rule decides."""

    syscall: str
    action: int
    conditions: tuple[Cond, ...]
    reason: str


class Architecture(NamedTuple):
    """An architecture's data for a filter. `column`: its index in `NUMBERS`'s rows."""

    audit_arch: int
    column: int
    foreign: tuple[tuple[int, int], ...]  # [first, end): numbers in another calling convention


# linux/audit.h: ELF machine number | 64 bit (0x80000000) | little endian (0x40000000).
AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64 = 0xC000003E, 0xC00000B7

# x32 shares its AUDIT_ARCH with x86-64, so a policy based on numbers must deny everything that has __X32_SYSCALL_BIT.
# Before 5.4 the x32 calls 512-547 were reached *without* the bit, too: 521 was ptrace, 514 ioctl (both: seccomp(2)).
MACHINES: Mapping[str, Architecture] = {
    "x86_64": Architecture(AUDIT_ARCH_X86_64, 0, ((512, 548), (0x40000000, 1 << 32))),
    "aarch64": Architecture(AUDIT_ARCH_AARCH64, 1, ()),
}

# (x86_64, aarch64): arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl. Equal from 424 on.
NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listns": (470, 470),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}


def number_of(syscall: str, machine: str) -> int | None:
    """Return a system call's number, or None if the machine has no such call. Raise ValueError for an unknown machine
    or name."""
    if machine not in MACHINES:
        raise ValueError(f"no system call filter for machine {machine!r}, only for {', '.join(MACHINES)}")
    if syscall not in NUMBERS:
        raise ValueError(f"system call {syscall!r} is not in the table of numbers")
    return NUMBERS[syscall][MACHINES[machine].column]


# linux/sched.h. CLONE_NEWTIME (0x80) lies within CSIGNAL: clone reads it as part of the exit signal, so only unshare
# can ask for it. For unshare the harmless flags are listed, not the namespaces, because bits gain meanings there:
# 0x00100000 is CLONE_PARENT_SETTID to clone, but UNSHARE_EMPTY_MNTNS (7.1) to unshare. Harmless: CLONE_VM, CLONE_FS,
# CLONE_FILES, CLONE_SIGHAND, CLONE_THREAD, CLONE_SYSVSEM.
CLONE_NEW_ANY = 0x7E020000
UNSHARE_HARMLESS = 0x00000100 | 0x00000200 | 0x00000400 | 0x00000800 | 0x00010000 | 0x00040000

# personality(2): PER_LINUX32 and UNAME26 change uname's answer. `setarch -R`, gdb and ThreadSanitizer set
# ADDR_NO_RANDOMIZE for themselves and their children. 0xffffffff asks and sets nothing.
PERSONA_HARMLESS = 0x0008 | 0x0020000 | 0x0040000
PERSONA_QUERY = 0xFFFFFFFF

# asm-generic/ioctls.h, the same on both machines.
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423

S_IFMT, S_IFCHR, S_IFBLK = 0o170000, 0o020000, 0o060000

PRIO_USER = 2  # setpriority(2)
IOPRIO_WHO_PROCESS, IOPRIO_WHO_USER = 1, 3  # linux/ioprio.h

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0
# net/socket.c takes the type from these bits (SOCK_TYPE_MASK); above them are SOCK_CLOEXEC and SOCK_NONBLOCK.
TYPE_MASK = 0xF
SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_PACKET = 1, 2, 3, 5, 10
# linux/in.h. 0 is the type's default protocol: TCP or UDP.
IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6 = 1, 6, 17, 58

_ALWAYS: tuple[Cond, ...] = ()
_UNSHARES = (Cond(0, "!=", 0, ~UNSHARE_HARMLESS & 0xFFFFFFFF),)
_WEAKER = (Cond(0, "!=", 0, ~PERSONA_HARMLESS & 0xFFFFFFFF), Cond(0, "!=", PERSONA_QUERY))
_OTHER_FAMILY = tuple(Cond(0, "!=", family) for family in (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK))
NETLINK_OTHER = (Cond(0, "==", AF_NETLINK), Cond(2, "!=", NETLINK_ROUTE))
_UNCONNECTED = (Cond(1, "!=", SOCK_STREAM, TYPE_MASK), Cond(1, "!=", SOCK_SEQPACKET, TYPE_MASK))
_RAW, _PACKET = Cond(1, "==", SOCK_RAW, TYPE_MASK), Cond(1, "==", SOCK_PACKET, TYPE_MASK)
_OTHER_TYPE = (Cond(1, "!=", SOCK_STREAM, TYPE_MASK), Cond(1, "!=", SOCK_DGRAM, TYPE_MASK))


def _other_protocol(family: int, kind: int, *protocols: int) -> tuple[Cond, ...]:
    """Return the conditions for a socket with this family and type, and a protocol that is neither 0 nor in
    ``protocols``."""
    others = tuple(Cond(2, "!=", protocol) for protocol in (0, *protocols))
    return (Cond(0, "==", family), Cond(1, "==", kind, TYPE_MASK), *others)


_FAMILY = "a family no command here needs: vsock reaches a VM's host; CVE-2017-7308, CVE-2021-43267 in others"
_PROTOCOL = "asking loads the protocol's module (request_module in net/ipv4/af_inet.c): SCTP, DCCP, SMC, L2TP, MPTCP …"
_NETLINK = "only routes may be asked for; netfilter behind netlink was CVE-2022-34918, CVE-2024-1086"
_KEYRING = "keyrings are not part of any namespace: keys of the user outside are within reach; CVE-2016-0728"
_MODULE = "kernel modules are the machine's, not the sandbox's"
_DEVICE = "a device node is the way around every path rule; fifos, sockets and files stay allowed"
_CLOCK = "the clock is the machine's"
_URING = "its operations pass no filter: sockets and opens would go unseen; libuv and others fall back"
_MOUNT = "the view of the files is made before the command starts and stays as it is"
_MOUNT_API = "a second way to mount; ENOSYS sends libmount back to the first; CVE-2022-0185"
_RING = "a ring may be inherited or received as an open file, so setting up none is not enough"
_FIRST = "the sandbox's first process serves later commands, too: none may slow it"
_MEMORY = "another process's memory; the filter cannot tell whose process it is"

DENY: tuple[SyscallRule, ...] = (
    # Namespaces: in a new user namespace a process has every capability again, and reaches the kernel code behind them.
    SyscallRule("unshare", EPERM, _UNSHARES, "a new namespace gives capabilities"),
    SyscallRule("clone", EPERM, (Cond(0, "!=", 0, CLONE_NEW_ANY),), "a new namespace gives capabilities"),
    SyscallRule("clone3", ENOSYS, _ALWAYS, "its flags lie behind a pointer, out of sight; libc falls back to clone"),
    SyscallRule("setns", EPERM, _ALWAYS, "enters a namespace that another process left open"),
    # Mounts, the old API and the new one.
    SyscallRule("mount", EPERM, _ALWAYS, _MOUNT),
    SyscallRule("umount2", EPERM, _ALWAYS, "what lies under a mount was covered on purpose"),
    SyscallRule("pivot_root", EPERM, _ALWAYS, _MOUNT),
    SyscallRule("chroot", EPERM, _ALWAYS, "a new root misleads programs that check paths"),
    SyscallRule("open_tree", ENOSYS, _ALWAYS, _MOUNT_API),
    SyscallRule("open_tree_attr", ENOSYS, _ALWAYS, _MOUNT_API),
    SyscallRule("move_mount", ENOSYS, _ALWAYS, _MOUNT_API),
    SyscallRule("fsopen", ENOSYS, _ALWAYS, _MOUNT_API),
    SyscallRule("fsconfig", ENOSYS, _ALWAYS, _MOUNT_API),
    SyscallRule("fsmount", ENOSYS, _ALWAYS, _MOUNT_API),
    SyscallRule("fspick", ENOSYS, _ALWAYS, _MOUNT_API),
    SyscallRule(
        "mount_setattr", ENOSYS, _ALWAYS, "would make read-only mounts writable; libmount falls back to mount()"
    ),
    SyscallRule("open_by_handle_at", EPERM, _ALWAYS, "opens by inode, past any root: the shocker escape"),
    SyscallRule("mknod", EPERM, (Cond(1, "==", S_IFCHR, S_IFMT),), _DEVICE),
    SyscallRule("mknod", EPERM, (Cond(1, "==", S_IFBLK, S_IFMT),), _DEVICE),
    SyscallRule("mknodat", EPERM, (Cond(2, "==", S_IFCHR, S_IFMT),), _DEVICE),
    SyscallRule("mknodat", EPERM, (Cond(2, "==", S_IFBLK, S_IFMT),), _DEVICE),
    SyscallRule("fanotify_init", EPERM, _ALWAYS, "watches, and can hold up, file access of a whole file system"),
    SyscallRule("quotactl", EPERM, _ALWAYS, "disk quotas are the machine's"),
    SyscallRule("quotactl_fd", EPERM, _ALWAYS, "disk quotas are the machine's"),
    # Other processes.
    SyscallRule("ptrace", EPERM, _ALWAYS, "steers another process; before 4.8, past this filter (seccomp(2))"),
    SyscallRule("process_vm_readv", EPERM, _ALWAYS, _MEMORY),
    SyscallRule("process_vm_writev", EPERM, _ALWAYS, _MEMORY),
    SyscallRule("pidfd_getfd", EPERM, _ALWAYS, "takes open sockets and directories from another process"),
    SyscallRule("kcmp", EPERM, _ALWAYS, "compares what other processes have open, by kernel address"),
    SyscallRule("move_pages", EPERM, _ALWAYS, "moves and locates another process's memory; CVE-2010-0415"),
    SyscallRule("migrate_pages", EPERM, _ALWAYS, "moves another process's memory between nodes"),
    SyscallRule("prlimit64", EPERM, (Cond(0, "==", 1),), "a sandbox's first process serves it, and needs its limits"),
    SyscallRule("setpriority", EPERM, (Cond(1, "==", 1),), _FIRST),
    SyscallRule("setpriority", EPERM, (Cond(0, "==", PRIO_USER),), _FIRST),
    SyscallRule("ioprio_set", EPERM, (Cond(1, "==", 1),), _FIRST),
    SyscallRule("ioprio_set", EPERM, (Cond(0, "==", IOPRIO_WHO_USER),), _FIRST),
    *(
        SyscallRule(name, EPERM, (Cond(0, "==", 1),), _FIRST)
        for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
    ),
    # Large and privileged corners of the kernel.
    SyscallRule("io_uring_setup", ENOSYS, _ALWAYS, _URING),
    SyscallRule("io_uring_enter", ENOSYS, _ALWAYS, _RING),
    SyscallRule("io_uring_register", ENOSYS, _ALWAYS, _RING),
    SyscallRule("bpf", EPERM, _ALWAYS, "runs programs in the kernel; CVE-2017-16995, CVE-2021-3490"),
    SyscallRule("perf_event_open", EPERM, _ALWAYS, "samples kernel and neighbours; CVE-2013-2094"),
    SyscallRule("userfaultfd", EPERM, _ALWAYS, "halts the kernel in mid-copy, which makes its races winnable"),
    SyscallRule("add_key", EPERM, _ALWAYS, _KEYRING),
    SyscallRule("request_key", EPERM, _ALWAYS, _KEYRING),
    SyscallRule("keyctl", EPERM, _ALWAYS, _KEYRING),
    # Most persona bits weaken the address space: READ_IMPLIES_EXEC, MMAP_PAGE_ZERO, old layouts.
    SyscallRule("personality", EPERM, _WEAKER, "turns protections of the address space off; CVE-2009-1895"),
    # Terminals: the command must not type into, or paste from, the terminal in which mudroom was started.
    SyscallRule("ioctl", EPERM, (Cond(1, "==", TIOCSTI),), "types into the user's shell; CVE-2017-5226"),
    SyscallRule("ioctl", EPERM, (Cond(1, "==", TIOCLINUX),), "pastes into a virtual console; CVE-2023-28100"),
    SyscallRule("ioctl", EPERM, (Cond(1, "==", TIOCSETD),), "loads line disciplines; CVE-2017-2636, CVE-2023-6546"),
    SyscallRule("vhangup", EPERM, _ALWAYS, "hangs up the terminal"),
    # Sockets: four families, and from netlink only routes. (AF_INET, SOCK_PACKET) is packet(7) under an old name, which
    # a check on the family alone would permit (net/socket.c, __sock_create).
    SyscallRule("socket", EAFNOSUPPORT, _OTHER_FAMILY, _FAMILY),
    # The kernel makes the sockets, and so loads their protocol's module, before it finds that they have no pairs.
    SyscallRule("socketpair", EAFNOSUPPORT, (Cond(0, "!=", AF_UNIX),), "only unix sockets have pairs; " + _FAMILY),
    SyscallRule("socket", EAFNOSUPPORT, NETLINK_OTHER, _NETLINK),
    SyscallRule("socket", EPERM, (Cond(0, "==", AF_INET), _RAW), "forges packets; ping uses SOCK_DGRAM"),
    SyscallRule("socket", EPERM, (Cond(0, "==", AF_INET6), _RAW), "forges packets; ping uses SOCK_DGRAM"),
    SyscallRule("socket", EPERM, (Cond(0, "==", AF_INET), _PACKET), "an old name of AF_PACKET; CVE-2017-7308"),
    # IP: only TCP, UDP and ping. A kernel without the protocol answers EPROTONOSUPPORT: Go, whose listeners ask for
    # MPTCP, then uses TCP (net/mptcpsock_linux.go).
    SyscallRule("socket", ESOCKTNOSUPPORT, (Cond(0, "==", AF_INET), *_OTHER_TYPE), _PROTOCOL),
    SyscallRule("socket", ESOCKTNOSUPPORT, (Cond(0, "==", AF_INET6), *_OTHER_TYPE), _PROTOCOL),
    *(
        SyscallRule("socket", EPROTONOSUPPORT, _other_protocol(family, kind, *protocols), _PROTOCOL)
        for family, kind, protocols in (
            (AF_INET, SOCK_STREAM, (IPPROTO_TCP,)),
            (AF_INET6, SOCK_STREAM, (IPPROTO_TCP,)),
            (AF_INET, SOCK_DGRAM, (IPPROTO_UDP, IPPROTO_ICMP)),
            (AF_INET6, SOCK_DGRAM, (IPPROTO_UDP, IPPROTO_ICMPV6)),
        )
    ),
    # Calls that affect the whole machine; all need capabilities in the first user namespace. adjtimex and clock_adjtime
    # can also only read, but the pointer hides which is meant.
    SyscallRule("settimeofday", EPERM, _ALWAYS, _CLOCK),
    SyscallRule("clock_settime", EPERM, _ALWAYS, _CLOCK),
    SyscallRule("clock_adjtime", EPERM, _ALWAYS, _CLOCK),
    SyscallRule("adjtimex", EPERM, _ALWAYS, _CLOCK),
    SyscallRule("init_module", EPERM, _ALWAYS, _MODULE),
    SyscallRule("finit_module", EPERM, _ALWAYS, _MODULE),
    SyscallRule("delete_module", EPERM, _ALWAYS, _MODULE),
    SyscallRule("kexec_load", EPERM, _ALWAYS, "replaces the kernel"),
    SyscallRule("kexec_file_load", EPERM, _ALWAYS, "replaces the kernel"),
    SyscallRule("reboot", EPERM, _ALWAYS, "stops the machine, or the sandbox's first process"),
    SyscallRule("swapon", EPERM, _ALWAYS, "swap is the machine's"),
    SyscallRule("swapoff", EPERM, _ALWAYS, "swap is the machine's"),
    SyscallRule("acct", EPERM, _ALWAYS, "lets the kernel write records of all processes into a file"),
    SyscallRule("syslog", EPERM, _ALWAYS, "the kernel's log holds addresses and other people's paths"),
    SyscallRule("iopl", EPERM, _ALWAYS, "touches hardware ports"),
    SyscallRule("ioperm", EPERM, _ALWAYS, "touches hardware ports"),
    # Missing in kernels without CONFIG_MODIFY_LDT_SYSCALL. Its users are 16-bit programs in Wine and DOSEMU; Wine
    # starts them through 32-bit calls, which no filter here lets through anyway.
    SyscallRule("modify_ldt", ENOSYS, _ALWAYS, "segments of 16-bit programs; CVE-2015-3290, CVE-2015-5157"),
    SyscallRule("listns", ENOSYS, _ALWAYS, "lists namespaces, which are nobody's business here; Linux 6.19"),
    # Removed from current kernels, which answer ENOSYS; an older kernel should not do more.
    SyscallRule("lookup_dcookie", ENOSYS, _ALWAYS, "paths of all processes, for a profiler that is gone too"),
    SyscallRule("nfsservctl", ENOSYS, _ALWAYS, "control of the NFS server; removed in 3.1"),
    SyscallRule("_sysctl", ENOSYS, _ALWAYS, "kernel settings by number; removed in 5.5"),
)

# Added to DENY where no network namespace separates the command from the network: no sockets but connected pairs. A
# pair of datagram sockets is refused, too: connect() to AF_UNSPEC dissolves it and another connect() points it at any
# unix server; SOCK_RAW is the same under another name (net/unix/af_unix.c, unix_create). Streams and sequenced packets
# cannot be connected again.
NO_NETWORK: tuple[SyscallRule, ...] = (
    SyscallRule("socket", EPERM, (Cond(0, "==", AF_UNIX),), "unix servers (docker, D-Bus) act outside"),
    SyscallRule("socket", EACCES, _ALWAYS, "the network is closed for this command"),
    SyscallRule("socketpair", EPERM, _UNCONNECTED, "a pair of datagram sockets can be pointed at any unix server"),
)

_MSG_FASTOPEN = 0x20000000
_PAST_LANDLOCK = "connects by sending (MSG_FASTOPEN), which Landlock is not asked about"
# Replaces NO_NETWORK where the gate is a proxy on the host's loopback, and Landlock permits connections to one port:
# Landlock's rules cover only TCP and connect(2) (security/landlock/net.c).
ONLY_TCP: tuple[SyscallRule, ...] = (
    SyscallRule("socket", EPERM, (Cond(0, "==", AF_UNIX),), "unix servers (docker, D-Bus) act outside"),
    SyscallRule("socket", EACCES, (Cond(0, "!=", AF_INET), Cond(0, "!=", AF_INET6)), "only TCP leads to the gate"),
    SyscallRule("socket", EACCES, (Cond(1, "!=", SOCK_STREAM, TYPE_MASK),), "only TCP leads to the gate"),
    SyscallRule("socket", EACCES, (Cond(2, "!=", 0), Cond(2, "!=", IPPROTO_TCP)), "Landlock's rules are for TCP alone"),
    SyscallRule("sendto", EACCES, (Cond(3, "==", _MSG_FASTOPEN, _MSG_FASTOPEN),), _PAST_LANDLOCK),
    SyscallRule("sendmsg", EACCES, (Cond(2, "==", _MSG_FASTOPEN, _MSG_FASTOPEN),), _PAST_LANDLOCK),
    SyscallRule("sendmmsg", EACCES, (Cond(3, "==", _MSG_FASTOPEN, _MSG_FASTOPEN),), _PAST_LANDLOCK),
    SyscallRule("socketpair", EPERM, _UNCONNECTED, "a pair of datagram sockets can be pointed at any unix server"),
)

_SYSV = "without an IPC namespace System V objects are the user's, everywhere; as in a kernel without CONFIG_SYSVIPC"
_QUEUE = "without an IPC namespace message queues are the user's, everywhere"
_NEIGHBOUR = "other processes of the user are in sight, and Landlock has no rule for it; 0 is the caller itself"

# Added to those where there are no namespaces at all: calls by which a process affects the user's other processes by
# number. A thread counts as another process here: a library that binds its threads to processors gets an error, and
# continues.
NO_NAMESPACES: tuple[SyscallRule, ...] = (
    *(
        SyscallRule(name, ENOSYS, _ALWAYS, _SYSV)
        for name in (
            "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl",
            "msgget", "msgsnd", "msgrcv", "msgctl",
        )
    ),
    SyscallRule("mq_open", ENOSYS, _ALWAYS, _QUEUE),
    SyscallRule("mq_unlink", ENOSYS, _ALWAYS, _QUEUE),
    SyscallRule("setpriority", EPERM, (Cond(0, "!=", 0),), "groups and users are slowed down, mudroom with them"),
    SyscallRule("setpriority", EPERM, (Cond(1, "!=", 0),), _NEIGHBOUR),
    SyscallRule("ioprio_set", EPERM, (Cond(0, "!=", IOPRIO_WHO_PROCESS),), "groups and users are slowed down"),
    SyscallRule("ioprio_set", EPERM, (Cond(1, "!=", 0),), _NEIGHBOUR),
    *(
        SyscallRule(name, EPERM, (Cond(0, "!=", 0),), _NEIGHBOUR)
        for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "prlimit64")
    ),
)  # fmt: skip

RENAMES: tuple[tuple[int | None, int | None], ...] = ((82, None), (264, 38), (316, 276), (446, 446))
"""By machine, as in ``NUMBERS``: rename, renameat, renameat2 and landlock_restrict_self. Calls that init sees, and lets
pass or performs, where the view is an overlay (``src/native/launcher/rename.c``)."""
