"""The filter, judged three ways: by a small BPF machine, by reading the rules naively, and by the kernel."""

from __future__ import annotations

import errno
import json
import platform
import re
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from box import if_namespaces
from conformance.syscalls.left_open import LEFT_OPEN
from mudroom.sandbox.linux import bare_plan, syscall
from mudroom.sandbox.linux.seccomp import compile_filter
from mudroom.sandbox.linux.syscall import (
    DENY,
    MACHINES,
    NO_NAMESPACES,
    NO_NETWORK,
    NUMBERS,
    ONLY_TCP,
    RENAMES,
    Cond,
    SyscallRule,
    number_of,
)
from tiers import each

pytestmark = pytest.mark.both_users

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, EACCES, ENOSYS, EAFNOSUPPORT = (ERRNO | e for e in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT))
EPROTONOSUPPORT, ESOCKTNOSUPPORT = ERRNO | errno.EPROTONOSUPPORT, ERRNO | errno.ESOCKTNOSUPPORT
AUDIT_ARCH_I386, AUDIT_ARCH_ARM = 0x40000003, 0x40000028
X32, HIGH = 0x40000000, 0xDEADBEEF << 32
NEWNS, NEWTIME, NEWUSER, NEWNET = 0x00020000, 0x00000080, 0x10000000, 0x40000000
CALLER_OF_FORK = 0x01200011  # CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD, as glibc writes it
CLOSED = (*DENY, *NO_NETWORK, *NO_NAMESPACES)

machines = pytest.mark.parametrize("machine", MACHINES)


class Verdict(NamedTuple):
    action: int
    loaded: frozenset[int]
    steps: int


def run(program: bytes, nr: int, arch: int, args: Sequence[int] = ()) -> Verdict:
    """Classic BPF over struct seccomp_data, as far as a filter of ours uses it; anything else fails."""
    six = [arg & (1 << 64) - 1 for arg in (*args, *[0] * 6)][:6]
    data = struct.pack("<IIQ6Q", nr & 0xFFFFFFFF, arch, 0, *six)
    at = accumulator = steps = 0
    loaded = set()
    while True:
        op, jt, jf, k = struct.unpack_from("<HBBI", program, at * 8)
        at, steps = at + 1, steps + 1
        if op == 0x20:
            loaded.add(k)
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif op == 0x54:
            accumulator &= k
        elif op == 0x05:
            at += k
        elif op == 0x15:
            at += jt if accumulator == k else jf
        elif op == 0x35:
            at += jt if accumulator >= k else jf
        else:
            assert op == 0x06, f"no such instruction: {op:#x}"
            return Verdict(k, frozenset(loaded), steps)


def naive(rules: Sequence[SyscallRule], machine: str, nr: int, arch: int, args: Sequence[int]) -> int:
    if arch != MACHINES[machine].audit_arch:
        return KILL
    if machine == "x86_64" and (nr >= X32 or 512 <= nr <= 547):
        return ENOSYS
    for rule in rules:
        if number_of(rule.syscall, machine) == nr and all(holds(cond, args) for cond in rule.conditions):
            return ERRNO | rule.action
    return ALLOW


def holds(cond: Cond, args: Sequence[int]) -> bool:
    return ((args[cond.arg] & 0xFFFFFFFF & cond.mask) == cond.value) is (cond.op == "==")


FASTOPEN = 0x20000000
"""MSG_FASTOPEN of linux/socket.h."""
PROGRAMS = {
    (rules, machine): compile_filter(rules, machine) for rules in (DENY, CLOSED, ONLY_TCP) for machine in MACHINES
}


def decide(rules: tuple[SyscallRule, ...], machine: str, name: str, args: Sequence[int]) -> int:
    number = number_of(name, machine)
    assert number is not None
    return run(PROGRAMS[rules, machine], number, MACHINES[machine].audit_arch, args).action


@machines
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("unshare", [NEWUSER], EPERM),
        ("unshare", [NEWUSER | HIGH], EPERM),
        ("unshare", [NEWTIME], EPERM),
        ("unshare", [0x00100000], EPERM),  # UNSHARE_EMPTY_MNTNS
        ("unshare", [0x00000200 | 0x00000400], ALLOW),  # CLONE_FS, CLONE_FILES
        ("clone", [CALLER_OF_FORK], ALLOW),
        ("clone", [0x003D0F00], ALLOW),  # pthread_create
        ("clone", [CALLER_OF_FORK | NEWNS], EPERM),
        ("clone", [NEWUSER | HIGH], EPERM),
        ("clone", [NEWNET | 0x11], EPERM),
        ("clone3", [0, 88], ENOSYS),
        ("setns", [3, 0], EPERM),
        ("mount", [0, 0, 0, 0, 0], EPERM),
        ("open_tree_attr", [0], ENOSYS),
        ("fsopen", [0], ENOSYS),
        ("mknodat", [-100, 0, stat.S_IFCHR | 0o666, 0], EPERM),
        ("mknodat", [-100, 0, stat.S_IFBLK | 0o666, 0], EPERM),
        ("mknodat", [-100, 0, stat.S_IFCHR | HIGH, 0], EPERM),
        ("mknodat", [-100, 0, stat.S_IFIFO | 0o600, 0], ALLOW),
        ("mknodat", [-100, 0, stat.S_IFSOCK | 0o600, 0], ALLOW),
        ("mknodat", [-100, 0, stat.S_IFREG | 0o4755, 0], ALLOW),
        ("mknodat", [-100, 0, 0o644, 0], ALLOW),
        ("io_uring_setup", [8, 0], ENOSYS),
        ("ptrace", [0], EPERM),
        ("personality", [0], ALLOW),
        ("personality", [0xFFFFFFFF], ALLOW),
        ("personality", [0x0008], ALLOW),  # PER_LINUX32
        ("personality", [0x0040000], ALLOW),  # ADDR_NO_RANDOMIZE
        ("personality", [0x0040000 | 0x0400000], EPERM),  # READ_IMPLIES_EXEC
        ("personality", [0x0100000 | HIGH], EPERM),  # MMAP_PAGE_ZERO
        ("ioctl", [0, 0x5412], EPERM),  # TIOCSTI
        ("ioctl", [0, 0x5412 | HIGH], EPERM),
        ("ioctl", [0, 0x541C | 1 << 32], EPERM),  # TIOCLINUX
        ("ioctl", [0, 0x5423], EPERM),  # TIOCSETD
        ("ioctl", [0, 0x5401], ALLOW),  # TCGETS
        ("ioctl", [0x5412, 0x5401, 0x5412], ALLOW),  # only the request counts
        ("socket", [1, 1, 0], ALLOW),
        ("socket", [1, 2 | 0o2000000, 0], ALLOW),
        ("socket", [2, 1, 0], ALLOW),
        ("socket", [10, 2, 58], ALLOW),  # ping over IPv6
        ("socket", [16, 3, 0], ALLOW),  # NETLINK_ROUTE, SOCK_RAW
        ("socket", [16 | HIGH, 3, HIGH], ALLOW),
        ("socket", [16, 3, 12], EAFNOSUPPORT),  # NETLINK_NETFILTER
        ("socket", [16, 3, 12 | HIGH], EAFNOSUPPORT),
        ("socket", [38, 5, 0], EAFNOSUPPORT),  # AF_ALG
        ("socket", [40, 1, 0], EAFNOSUPPORT),  # AF_VSOCK
        ("socket", [40 | HIGH, 1, 0], EAFNOSUPPORT),
        ("socket", [17, 3, 0], EAFNOSUPPORT),  # AF_PACKET
        ("socket", [2, 3, 1], EPERM),
        ("socket", [10, 3 | 0o4000, 58], EPERM),
        ("socket", [2 | HIGH, 3 | HIGH, 1], EPERM),
        ("socket", [2, 10, 768], EPERM),  # SOCK_PACKET, which becomes AF_PACKET
        ("socketpair", [1, 2, 0], ALLOW),
        ("socketpair", [30, 1, 0], EAFNOSUPPORT),  # AF_TIPC
        ("socketpair", [16, 3, 9], EAFNOSUPPORT),
        ("socketpair", [2, 1, 132], EAFNOSUPPORT),  # the kernel would load SCTP before it refuses the pair
        ("socket", [2, 1, 6], ALLOW),
        ("socket", [10, 1 | 0o2004000, 6], ALLOW),
        ("socket", [2, 2, 17], ALLOW),
        ("socket", [2, 2 | 0o2000000, 1], ALLOW),  # ping
        ("socket", [2, 1, 132], EPROTONOSUPPORT),  # SCTP
        ("socket", [2, 1 | 0o2000000, 132 | HIGH], EPROTONOSUPPORT),
        ("socket", [10, 1, 132], EPROTONOSUPPORT),
        ("socket", [2, 5, 132], ESOCKTNOSUPPORT),
        ("socket", [2, 5, 0], ESOCKTNOSUPPORT),  # SOCK_SEQPACKET of protocol 0: SCTP as well
        ("socket", [2, 6, 33], ESOCKTNOSUPPORT),  # DCCP
        ("socket", [10, 6 | HIGH, 0], ESOCKTNOSUPPORT),
        ("socket", [2, 1, 256], EPROTONOSUPPORT),  # SMC
        ("socket", [10, 1, 256], EPROTONOSUPPORT),
        ("socket", [2, 1, 262], EPROTONOSUPPORT),  # MPTCP
        ("socket", [2, 2, 115], EPROTONOSUPPORT),  # L2TP
        ("socket", [10, 2, 136], EPROTONOSUPPORT),  # UDP-Lite
        ("socket", [2, 2, 58], EPROTONOSUPPORT),  # ping of the other family
        ("listns", [0, 0, 0, 0], ENOSYS),
    ],
)
def test_what_is_denied(machine: str, name: str, args: list[int], expected: int) -> None:
    assert decide(DENY, machine, name, args) == expected


def test_segments_of_16_bit_programs_are_closed() -> None:
    assert decide(DENY, "x86_64", "modify_ldt", [1, 0, 16]) == ENOSYS


def test_no_call_is_both_closed_and_left_open() -> None:
    assert not set(LEFT_OPEN) & set(NUMBERS)
    assert all(len(reason) > 10 for reason in LEFT_OPEN.values())


@machines
@pytest.mark.parametrize(("name", "at"), [("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)])
def test_where_the_gate_is_a_proxy_sending_does_not_connect(machine: str, name: str, at: int) -> None:
    """``at``: the number of the argument with the flags, by the man pages."""
    for number in range(6):
        args = [FASTOPEN if index == number else 0 for index in range(6)]
        assert decide(ONLY_TCP, machine, name, args) == (EACCES if number == at else ALLOW), f"argument {number}"


@machines
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("socket", [1, 1, 0], EPERM),
        ("socket", [1 | HIGH, 1, 0], EPERM),
        ("socket", [2, 1, 0], EACCES),
        ("socket", [10, 2, 0], EACCES),
        ("socket", [16, 3, 0], EACCES),
        ("socket", [40, 1, 0], EAFNOSUPPORT),
        ("socketpair", [1, 1 | 0o2000000, 0], ALLOW),
        ("socketpair", [1, 5, 0], ALLOW),
        ("socketpair", [1, 2, 0], EPERM),
        ("socketpair", [1, 2 | HIGH, 0], EPERM),
        ("socketpair", [1, 2 | 0o4000, 0], EPERM),
        ("socketpair", [1, 3, 0], EPERM),  # SOCK_RAW, which becomes SOCK_DGRAM
    ],
)
def test_without_a_network_only_connected_pairs_are_left(
    machine: str, name: str, args: list[int], expected: int
) -> None:
    assert decide(CLOSED, machine, name, args) == expected


@each(
    ("machine", "arch", "nr", "expected"),
    [
        ("x86_64", AUDIT_ARCH_I386, 20, KILL),
        ("x86_64", syscall.AUDIT_ARCH_AARCH64, 20, KILL),
        ("aarch64", AUDIT_ARCH_ARM, 20, KILL),
        ("x86_64", syscall.AUDIT_ARCH_X86_64, 0 | X32, ENOSYS),
        ("x86_64", syscall.AUDIT_ARCH_X86_64, 101 | X32, ENOSYS),
        ("x86_64", syscall.AUDIT_ARCH_X86_64, -1, ENOSYS),
        ("x86_64", syscall.AUDIT_ARCH_X86_64, 511, ALLOW),
        ("x86_64", syscall.AUDIT_ARCH_X86_64, 512, ENOSYS),
        ("x86_64", syscall.AUDIT_ARCH_X86_64, 521, ENOSYS),  # ptrace, by its number of x32, before 5.4
        ("x86_64", syscall.AUDIT_ARCH_X86_64, 547, ENOSYS),
        ("x86_64", syscall.AUDIT_ARCH_X86_64, 548, ALLOW),
        ("aarch64", syscall.AUDIT_ARCH_AARCH64, 512, ALLOW),
    ],
)
def test_other_calling_conventions(machine: str, arch: int, nr: int, expected: int) -> None:
    assert run(PROGRAMS[CLOSED, machine], nr, arch).action == expected


@machines
def test_calls_without_rules_are_decided_by_their_number_alone(machine: str) -> None:
    """seccomp_is_const_allow requires it to skip the filter; and it is cheap on kernels without that."""
    ruled = {number_of(rule.syscall, machine) for rule in CLOSED}
    for nr in set(range(512)) - ruled:
        verdict = run(PROGRAMS[CLOSED, machine], nr, MACHINES[machine].audit_arch)
        assert verdict.action == ALLOW
        assert verdict.loaded == {0, 4}
        assert verdict.steps <= 12
    assert max(len(PROGRAMS[CLOSED, machine]) // 8 for machine in MACHINES) < 420


FILE_CALLS = (
    "open", "openat", "openat2", "creat", "close", "close_range", "read", "pread64", "readv", "write", "pwrite64",
    "writev", "lseek", "stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat",
    "faccessat2", "readlink", "readlinkat", "getdents", "getdents64", "getcwd", "chdir", "fchdir", "fcntl", "flock",
    "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "mkdir",
    "mkdirat", "rmdir", "chmod", "fchmod", "fchmodat", "utimensat", "truncate", "ftruncate", "fsync", "fdatasync",
    "copy_file_range", "sendfile", "fadvise64", "getxattr", "lgetxattr", "listxattr", "mmap", "munmap", "mprotect",
    "brk", "futex", "execve", "execveat", "wait4", "exit_group", "pipe2", "dup3", "poll", "ppoll", "getpid",
)  # fmt: skip
"""Calls of which git, find, grep, compilers and package managers make thousands."""


@machines
@pytest.mark.parametrize("notify", [False, True])
@pytest.mark.parametrize("rules", [DENY, bare_plan.RULES], ids=["level 1", "level 0"])
def test_calls_on_files_run_no_filter(machine: str, rules: tuple[SyscallRule, ...], notify: bool) -> None:
    """They have no rule, and from Linux 5.11 the kernel answers a call whose number alone decides from a bitmap
    (kernel/seccomp.c)."""
    assert not {rule.syscall for rule in rules} & set(FILE_CALLS)
    program = compile_filter(rules, machine, notify=notify)
    ruled = {number_of(rule.syscall, machine) for rule in rules}
    for number in set(range(450)) - ruled:
        verdict = run(program, number, MACHINES[machine].audit_arch)
        assert verdict.action == ALLOW
        assert verdict.loaded == {0, 4}


@machines
def test_renames_reach_the_listener_and_its_own_do_not(machine: str) -> None:
    program, arch = compile_filter(DENY, machine, notify=True, routed=RENAMES), MACHINES[machine].audit_arch
    unrouted = compile_filter(DENY, machine, notify=True)
    numbers = {number for row in RENAMES if (number := row[MACHINES[machine].column]) is not None}
    own = [0, 0, 0, 0, 1 << 63, 0]
    for number in range(470):
        told, passed = (run(program, number, arch, args).action for args in ([0] * 6, own))
        plain = run(unrouted, number, arch, own).action
        assert (told == 0x7FC00000) if number in numbers else (told == run(unrouted, number, arch, [0] * 6).action)
        assert passed == plain


words = st.integers(0, 0xFFFFFFFF)
telling = st.sampled_from([c.value | bits for r in CLOSED for c in r.conditions for bits in (0, 1, c.mask)])
arguments = st.lists(
    st.builds(lambda low, high: low | high << 32, telling | words, st.just(0) | words), min_size=6, max_size=6
)
numbers = st.integers(-2, 600) | words | st.sampled_from([n for row in NUMBERS.values() for n in row if n])
arches = st.sampled_from([AUDIT_ARCH_I386, AUDIT_ARCH_ARM])


@st.composite
def conditions(draw: st.DrawFn) -> Cond:
    mask = draw(st.sampled_from([0xFFFFFFFF, 0xF, 0xF000, 0x80000001]))
    return Cond(draw(st.integers(0, 5)), draw(st.sampled_from(["==", "!="])), draw(telling | words) & mask, mask)


def rule_lists(longest: int) -> st.SearchStrategy[list[SyscallRule]]:
    """Few names, so that several rules meet in one system call; enough conditions to need long jumps."""
    names = st.sampled_from(["clone", "clone3", "ioctl", "mknod", "socket"])
    any_conditions = st.lists(conditions(), max_size=longest).map(tuple)
    return st.lists(st.builds(SyscallRule, names, st.integers(1, 4095), any_conditions, st.just("?")), max_size=8)


@machines
@given(nr=numbers, args=arguments, arch=arches | st.none())
def test_the_program_says_what_the_table_says(machine: str, nr: int, args: list[int], arch: int | None) -> None:
    where = MACHINES[machine].audit_arch if arch is None else arch
    for rules in (DENY, CLOSED):
        expected = naive(rules, machine, nr & 0xFFFFFFFF, where, args)
        assert run(PROGRAMS[rules, machine], nr, where, args).action == expected


@pytest.mark.slow
@machines
@given(rules=rule_lists(3) | rule_lists(30), args=arguments)
@example(
    rules=[SyscallRule("ioctl", 7, (Cond(0, "==", 0),) * 200, "?"), SyscallRule("ioctl", 8, (), "?")], args=[0] * 6
)
@example(
    rules=[SyscallRule("ioctl", 7, (Cond(0, "!=", 0),) * 200, "?"), SyscallRule("ioctl", 8, (), "?")], args=[0] * 6
)
@example(
    rules=[SyscallRule("clone", 7, (Cond(0, "==", 0),) * 200, "?"), SyscallRule("clone3", 8, (), "?")], args=[0] * 6
)
def test_any_table_compiles_to_what_it_says(machine: str, rules: list[SyscallRule], args: list[int]) -> None:
    program, arch = compile_filter(rules, machine), MACHINES[machine].audit_arch
    for name in ("clone", "clone3", "ioctl", "mknod", "socket"):
        number = number_of(name, machine)
        for nr in (number - 1, number, number + 1) if number else ():
            assert run(program, nr, arch, args).action == naive(rules, machine, nr, arch, args)


def test_every_rule_has_a_reason_and_none_is_written_twice() -> None:
    assert all(len(rule.reason) > 10 for rule in (*CLOSED, *ONLY_TCP))
    assert len({(rule.syscall, rule.conditions) for rule in CLOSED}) == len(CLOSED)
    assert {rule.syscall for rule in (*CLOSED, *ONLY_TCP)} == set(NUMBERS)


HEADERS = [
    ("x86_64", Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")),
    ("aarch64", Path("/usr/include/asm-generic/unistd.h")),
]


@pytest.mark.parametrize(("machine", "header"), HEADERS)
def test_numbers_are_those_of_the_kernel_headers(machine: str, header: Path) -> None:
    if not header.exists():
        pytest.skip(f"{header} is not installed (linux-libc-dev)")
    defined = re.findall(r"^#define\s+__NR_(\w+)\s+(\d+)\s*$", header.read_text(), re.MULTILINE)
    known = {name: int(number) for name, number in defined}
    newest = max(known[name] for name in known if name != "arch_specific_syscall" and known[name] < 512)
    for name in NUMBERS:
        number = number_of(name, machine)
        assert number == known.get(name) or (name not in known and number is not None and number > newest), name


@each(
    ("rule", "complaint"),
    [
        (SyscallRule("unshaer", 1, (), "a typo"), "'unshaer' is not in the table"),
        (SyscallRule("mount", 0, (), "success, for nothing done"), "0 is not an error number"),
        (SyscallRule("mount", 4096, (), "more than MAX_ERRNO"), "4096 is not an error number"),
        (SyscallRule("mount", 1, (Cond(6, "==", 0),), "a seventh argument"), "one of six arguments"),
        (SyscallRule("mount", 1, (Cond(0, "==", 0, 0xFF << 28),), "more than 32 bits"), "32 bits"),
        (SyscallRule("mount", 1, (Cond(0, "==", 0x10, 0xF),), "can never hold"), "mask hides bits"),
        (SyscallRule("mount", 1, (Cond(0, "==", 0),) * 2048, "too long"), "the kernel takes 4096"),
    ],
)
def test_mistaken_rules_do_not_compile(rule: SyscallRule, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        compile_filter([rule], "x86_64")


def test_unknown_machines_are_named() -> None:
    with pytest.raises(ValueError, match="'riscv64'"):
        compile_filter(DENY, "riscv64")


def test_calls_a_machine_does_not_have_are_left_out() -> None:
    rules = [rule for rule in DENY if rule.syscall in ("mknod", "iopl", "ioperm", "_sysctl", "modify_ldt")]
    assert compile_filter(rules, "aarch64") == compile_filter([], "aarch64")


# What follows asks the kernel. A child installs the filter on itself, then runs a few lines under it. It is
# no fork of this process, which may have threads (pytest-xdist).
CHILD = """
import ctypes, json, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
seccomp, program, calls = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), json.loads(sys.argv[3])

def call(number, *args):
    ctypes.set_errno(0)
    words = [os.fsencode(arg) if isinstance(arg, str) else ctypes.c_long(arg) for arg in args]
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(number), *words) == -1 else 0

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

PR_SET_NO_NEW_PRIVS, SECCOMP_SET_MODE_FILTER = 38, 1
prog = Program(len(program) // 8, program)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))) == 0
assert call(seccomp, SECCOMP_SET_MODE_FILTER, 0, ctypes.addressof(prog)) == 0
"""
MAKE_CALLS = "print(json.dumps([call(number, *args) for number, args in calls]))"
LIVE = """
thread = threading.Thread(target=lambda: print("thread"))
thread.start()
thread.join()
print(os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", "(exit 7); exit $?"]))
"""
CONNECTED_PAIR = """
import _socket
a, b = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
a.send(b"heard")
print(b.recv(5).decode())
"""
INT_0X80 = """
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000 cd80 c3"))  # mov eax, 20 (getpid of i386); int 0x80; ret
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""

MACHINE = platform.machine()
SECCOMP = {"x86_64": 317, "aarch64": 277}
asks_the_kernel = pytest.mark.skipif(
    sys.platform != "linux" or MACHINE not in SECCOMP, reason=f"no filter for {sys.platform} on {MACHINE}"
)

Args = tuple[int | str, ...]


def confined(rules: tuple[SyscallRule, ...], what: str, calls: Sequence[tuple[int | None, Args]] = ()) -> str:
    """Return the child's output, or the name of the signal that ended it."""
    told = [str(SECCOMP[MACHINE]), PROGRAMS[rules, MACHINE].hex(), json.dumps(calls)]
    child = [sys.executable, "-I", "-S", "-c", CHILD + what, *told]
    done = subprocess.run(child, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode > 0:
        pytest.fail(done.stderr)
    return done.stdout if done.returncode == 0 else signal.Signals(-done.returncode).name


def check_calls(rules: tuple[SyscallRule, ...], expected: Sequence[tuple[str, Args, str]]) -> None:
    calls = [(number_of(name, MACHINE), args) for name, args, _ in expected]
    said = [errno.errorcode.get(error, "OK") for error in json.loads(confined(rules, MAKE_CALLS, calls))]
    asked = [(name, args) for name, args, _ in expected]
    assert list(zip(asked, said, strict=True)) == [((name, args), error) for name, args, error in expected]


@if_namespaces
@asks_the_kernel
def test_the_kernel_agrees(tmp_path: Path) -> None:
    check_calls(
        DENY,
        [
            ("unshare", (NEWUSER,), "EPERM"),
            ("unshare", (0x00000200,), "OK"),  # CLONE_FS
            ("clone", (NEWUSER | signal.SIGCHLD, 0, 0, 0, 0), "EPERM"),
            ("clone3", (0, 0), "ENOSYS"),
            ("mount", ("none", "/", "tmpfs", 0, 0), "EPERM"),
            ("fsopen", ("tmpfs", 0), "ENOSYS"),
            ("ptrace", (0, 0, 0, 0), "EPERM"),
            ("io_uring_setup", (1, 0), "ENOSYS"),
            ("personality", (0xFFFFFFFF,), "OK"),
            ("personality", (0x0400000,), "EPERM"),
            ("ioctl", (0, 0x5412, "x"), "EPERM"),
            ("ioctl", (0, 0x5412 | HIGH, "x"), "EPERM"),
            ("ioctl", (0, 0x5401 | HIGH, "x"), "ENOTTY"),  # reaches the kernel, which does not see the high half
            ("mknodat", (-100, f"{tmp_path}/fifo", stat.S_IFIFO | 0o600, 0), "OK"),
            ("mknodat", (-100, f"{tmp_path}/null", stat.S_IFCHR | 0o600, 0x0103), "EPERM"),
            ("mknodat", (-100, f"{tmp_path}/null", stat.S_IFCHR | 0o600 | HIGH, 0x0103), "EPERM"),
            ("socket", (1, 1, 0), "OK"),
            ("socket", (2, 1, 0), "OK"),
            ("socket", (16, 3, 0), "OK"),
            ("socket", (16, 3, 12), "EAFNOSUPPORT"),
            ("socket", (38, 5, 0), "EAFNOSUPPORT"),
            ("socket", (2, 3, 1), "EPERM"),
            ("socket", (2, 1, 132), "EPROTONOSUPPORT"),  # SCTP
            ("socket", (10, 1, 256), "EPROTONOSUPPORT"),  # SMC
            ("socket", (2, 6, 33), "ESOCKTNOSUPPORT"),  # DCCP
            ("socketpair", (2, 1, 132, 0), "EAFNOSUPPORT"),
        ],
    )
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


@asks_the_kernel
def test_the_kernel_closes_the_network() -> None:
    open_calls: list[tuple[str, Args, str]] = [
        ("socket", (1, 1, 0), "EPERM"),
        ("socket", (2, 1, 0), "EACCES"),
        ("socket", (40, 1, 0), "EAFNOSUPPORT"),
        ("socketpair", (1, 2, 0, 0), "EPERM"),
    ]
    check_calls(CLOSED, open_calls)
    assert confined(CLOSED, CONNECTED_PAIR) == "heard\n"


@asks_the_kernel
def test_programs_still_start_threads_and_children() -> None:
    """The libc of the day tries clone3 for threads and posix_spawn, and must fall back."""
    assert confined(CLOSED, LIVE).split() == ["thread", "7"]


@pytest.mark.skipif(sys.platform != "linux" or MACHINE != "x86_64", reason="int 0x80 is an x86 instruction")
def test_a_32_bit_call_kills() -> None:
    assert confined(DENY, INT_0X80) in ("SIGSYS", "SIGSEGV")  # SIGSEGV: a kernel without IA32 emulation
