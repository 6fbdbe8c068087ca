"""Corners of the kernel that are shared: keyrings, io_uring, bpf, other tables of calls, time, modules, /proc, /sys."""

from __future__ import annotations

import errno
import os
import resource
import signal
import struct
import time
from collections.abc import Iterable

from .attempt import Proof, World, attempt, register
from .call import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    HIGH,
    O_PATH,
    X86,
    address,
    buffer,
    call,
    int80,
    ioctl,
    libc,
    machine_code,
    reached,
    words,
)
from .deed import get
from .namespaces import in_child

_KEYS = "keyrings(7): no namespace has them; CVE-2016-0728"
_RING = "io_uring(7): what it does passes no filter"
USER_KEYRING, SESSION_KEYRING = -4, -3


@attempt("keyrings", "a key is put into the user's keyring, for whoever is the user", _KEYS, proof="claim")
def add_key(world: World) -> str:
    key = call("add_key", "user", world.mark, world.mark, len(world.mark), USER_KEYRING)
    call("keyctl", 9, key, USER_KEYRING, 0, 0)
    return f"key {key}"


@attempt("keyrings", "a key of the user's keyring is read", _KEYS, proof="secret")
def read_key(world: World) -> str:
    key = call("keyctl", 10, USER_KEYRING, "user", f"{world.queue}-key", 0)
    content = buffer(4096)
    size = call("keyctl", 11, key, content, 4096)
    return content.raw[:size].decode()


@attempt("keyrings", "a key is asked for", "request_key(2)", proof="claim")
def request_key(world: World) -> str | None:
    return reached((errno.ENOKEY,), "request_key", "user", "no such key", 0, 0)


@attempt("keyrings", "a new session keyring is joined", "keyctl(2)", proof="claim")
def join_session(world: World) -> str:
    return f"keyring {in_child(lambda: call('keyctl', 1, 0))}"


@attempt("keyrings", "the descriptions of the user's keys are listed", "keyrings(7), /proc/keys", proof="secret")
def list_keys(world: World) -> str:
    return get("/proc/keys")


@attempt("keyrings", "how many keys each user has", "keyrings(7), /proc/key-users", proof="claim")
def count_keys(world: World) -> str:
    return get("/proc/key-users")


@attempt("io_uring", "a ring is set up", _RING, proof="claim")
def ring(world: World) -> str:
    return f"descriptor {call('io_uring_setup', 4, buffer(120))}"


@attempt("io_uring", "a ring that was passed on is entered", _RING, proof="claim")
def ring_enter(world: World) -> str | None:
    return reached((errno.EBADF, errno.EOPNOTSUPP), "io_uring_enter", 999, 1, 0, 0, 0, 0)


@attempt("io_uring", "a ring that was passed on is told of files", _RING, proof="claim")
def ring_register(world: World) -> str | None:
    return reached((errno.EBADF, errno.EOPNOTSUPP), "io_uring_register", 999, 2, 0, 0)


@attempt("kernel", "a map for programs in the kernel", "bpf(2); CVE-2017-16995, CVE-2021-3490", proof="claim",
         control="root")  # fmt: skip
def bpf_map(world: World) -> str:
    return f"descriptor {call('bpf', 0, struct.pack('<4I', 2, 4, 4, 1) + bytes(112), 72)}"


@attempt("kernel", "a program in the kernel", "bpf(2)", proof="claim", control="root")
def bpf_program(world: World) -> str:
    code = buffer(struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0))
    license_ = buffer(b"GPL")
    attributes = struct.pack("<IIQQIIQ", 1, 2, address(code), address(license_), 0, 0, 0) + bytes(80)
    return f"descriptor {call('bpf', 5, attributes, 72)}"


@attempt("kernel", "the processor is sampled", "perf_event_open(2); CVE-2013-2094", proof="claim")
def perf(world: World) -> str:
    attributes = struct.pack("<IIQQQQQ", 1, 112, 9, 0, 0, 0, 0x60) + bytes(64)
    return f"descriptor {call('perf_event_open', attributes, 0, -1, -1, 0)}"


@attempt("kernel", "page faults are held up", "userfaultfd(2): it makes races in the kernel winnable", proof="claim")
def fault(world: World) -> str:
    return f"descriptor {call('userfaultfd', 1)}"


@attempt("kernel", "the same by its device", "userfaultfd(2)", proof="claim", control="root")
def fault_device(world: World) -> str:
    return f"opened {os.open('/dev/userfaultfd', os.O_RDWR)}"


@attempt("kernel", "file access of a whole file system is watched", "fanotify(7)", proof="claim")
def fanotify(world: World) -> str:
    return f"descriptor {call('fanotify_init', 0x200, 0)}"


PERSONAS = {"compatible": 0x0400000, "zero": 0x0200000 | 0x0100000, "executable": 0x0400000, "high": HIGH | 0x0400000}
for _name, _persona in PERSONAS.items():
    register(
        f"personality_{_name}",
        "kernel",
        f"protections of the address space are turned off ({_persona:#x})",
        lambda world, persona=_persona: in_child(lambda: call("personality", persona)),  # type: ignore[misc]
        source="personality(2); CVE-2009-1895",
        proof="claim",
    )

_X32 = 0x40000000
_FAR_RETURN = b"\x6a\x23\x68\x00\x00\x00\x00\x48\xcb"  # push 0x23; push 0; retfq
_NO_X32 = "kernels are built without it; where one has it, it must be refused as well"


@attempt("other tables", "a call of the x32 table", "seccomp(2); CVE-2019-10063", proof="claim", control="never",
         why=_NO_X32)  # fmt: skip
def x32(world: World) -> str | None:
    return f"getpid = {call(_X32 | 39)}" if X86 else None


@attempt("other tables", "ptrace of the x32 table, whose numbers begin at 512", "seccomp(2)", proof="claim",
         control="never", why=_NO_X32)  # fmt: skip
def x32_ptrace(world: World) -> str | None:
    return f"{call(_X32 | 521, 0, 0, 0, 0)}" if X86 else None


@attempt("other tables", "the x32 numbers without their bit", "seccomp(2): until Linux 5.4", proof="claim",
         control="never", why=_NO_X32)  # fmt: skip
def x32_bare(world: World) -> str | None:
    return f"{call(512 + 9, 0, 0, 0, 0)}" if X86 else None


@attempt("other tables", "a 32-bit call", "int 0x80: the numbers mean other calls there", proof="claim")
def i386(world: World) -> str | None:
    return f"getpid = {in_child(lambda: int80(20))}" if X86 else None


for _name, _nr, _arguments in (
    ("i386_unshare", 310, (0x10000000,)),
    ("i386_keyctl", 288, (0, -4, 1)),
    ("i386_socket", 359, (16, 3, 4)),
    ("i386_vsock", 359, (40, 1, 0)),
    ("i386_personality", 136, (0x0400000,)),
):
    register(
        _name,
        "other tables",
        f"a call that is refused, by its 32-bit number {_nr}",
        lambda world, nr=_nr, arguments=_arguments: in_child(lambda: int80(nr, *arguments)) if X86 else None,  # type: ignore[misc]
        source="int 0x80; the filter of 64-bit numbers does not know it",
        proof="claim",
    )

# mov eax, 1; mov ebx, 42; int 0x80: exit(42), in the smallest ELF file for i386.
_CODE = b"\xb8\x01\x00\x00\x00\xbb\x2a\x00\x00\x00\xcd\x80"
_ELF = (
    b"\x7fELF\x01\x01\x01" + bytes(9)
    + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, 0x08048054, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    + struct.pack("<8I", 1, 0, 0x08048000, 0x08048000, 84 + len(_CODE), 84 + len(_CODE), 5, 0x1000)
    + _CODE
)  # fmt: skip


@attempt(
    "other tables", "a 32-bit program that is only in memory is run", "memfd_create(2), execveat(2)", proof="claim"
)
def memfd_i386(world: World) -> str | None:
    descriptor = os.memfd_create("x")
    os.write(descriptor, _ELF)
    pid = os.fork()
    if pid == 0:
        try:
            call("execveat", descriptor, "", struct.pack("<Q", 0), struct.pack("<Q", 0), AT_EMPTY_PATH)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 42:
        raise OSError(errno.EPERM, f"it ended with {code}")
    return "it ran"


@attempt("other tables", "a 32-bit program in a file is run", "the filter must hold after exec", proof="claim")
def file_i386(world: World) -> str | None:
    with open("program32", "wb") as stream:
        stream.write(_ELF)
    os.chmod("program32", 0o755)
    code = os.waitstatus_to_exitcode(os.spawnv(os.P_WAIT, "./program32", ["x"]) << 8)
    return "it ran" if code == 42 else None


@attempt("other tables", "a 32-bit call by way of a 32-bit code segment", "far return to segment 0x23", proof="claim",
         control="never", why="what it returns to lies above 4 GB: it faults after the call")  # fmt: skip
def segment_i386(world: World) -> str | None:
    return in_child(lambda: machine_code(_FAR_RETURN)) if X86 else None


# What the machine has once. Each is refused for want of a capability, too: which are all gone is tried below.
REACHED: dict[str, tuple[str, str, tuple[int, ...], tuple[object, ...]]] = {
    "set_module": ("a kernel module is loaded", "init_module", (errno.ENOEXEC, errno.EFAULT), (b"x", 1, b"")),
    "set_module_file": ("a kernel module is loaded from a file", "finit_module", (errno.EBADF,), (999, b"", 0)),
    "remove_module": ("a kernel module is removed", "delete_module", (errno.ENOENT,), (b"no_such_module", 0o4000)),
    "kexec": ("another kernel is loaded", "kexec_load", (errno.EINVAL,), (0, 99, 0, 0)),
    "kexec_file": (
        "another kernel is loaded from a file", "kexec_file_load", (errno.EBADF, errno.EINVAL), (999, 999, 0, b"", 0),
    ),
    "swap_on": ("swap is added", "swapon", (errno.ENOENT,), (b"/no-such-file", 0)),
    "swap_off": ("swap is taken away", "swapoff", (errno.ENOENT, errno.EINVAL), (b"/no-such-file",)),
    "reboot": ("the machine is restarted", "reboot", (errno.EINVAL,), (1, 2, 3, 0)),
    "accounting": ("all processes are recorded in a file", "acct", (errno.ENOENT,), (b"/no-such-file",)),
    "quota": (
        "disk quotas are changed", "quotactl",
        (errno.ENODEV, errno.ENOENT, errno.ENOTBLK, errno.ESRCH), (0x80000200, b"/no-such", 0, 0),
    ),
    "log": ("the kernel's log is read", "syslog", (), (3, bytes(64), 64)),
    "log_size": ("the size of the kernel's log is asked for", "syslog", (), (10, 0, 0)),
    "ports": ("hardware ports are opened", "ioperm", (), (0x80, 1, 1)),
    "ports_all": ("all hardware ports are opened", "iopl", (), (3,)),
}  # fmt: skip
for _name, (_tries, _call, _errors, _given) in REACHED.items():
    register(
        f"machine_{_name}",
        "machine",
        _tries,
        lambda world, nr=_call, errors=_errors, given=_given: reached(errors, nr, *given),  # type: ignore[misc]
        source=f"{_call}(2)",
        proof="claim",
        control="root",
    )


@attempt("time", "the clock is set (to what it is)", "clock_settime(2)", proof="claim", control="root")
def set_clock(world: World) -> str:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "set"


@attempt("time", "the clock is set by the older call", "settimeofday(2)", proof="claim", control="root")
def set_time(world: World) -> str:
    now = time.time()
    return f"set {call('settimeofday', struct.pack('<qq', int(now), int(now % 1 * 1e6)), 0)}"


@attempt("time", "the clock's rate is looked at, by the call that changes it", "adjtimex(2)", proof="claim")
def adjust(world: World) -> str:
    return f"state {call('adjtimex', buffer(208))}"


@attempt("time", "the same for a clock by its number", "clock_adjtime(2)", proof="claim")
def adjust_clock(world: World) -> str:
    return f"state {call('clock_adjtime', 0, buffer(208))}"


def _status(field: str) -> int:
    return int(get("/proc/self/status").partition(f"{field}:")[2].split()[0], 16)


for _name, _field, _tries in (
    ("effective", "CapEff", "a capability is held"),
    ("bounding", "CapBnd", "a program could gain a capability"),
    ("ambient", "CapAmb", "a capability is passed on"),
    ("inheritable", "CapInh", "a capability can be inherited"),
):
    register(
        f"capability_{_name}",
        "capabilities",
        _tries,
        lambda world, field=_field: f"{_status(field):x}" if _status(field) else None,  # type: ignore[misc]
        source="capabilities(7)",
        proof="claim",
        control="root" if _name == "effective" else "never" if _name in ("ambient", "inheritable") else "anybody",
        why="nobody has any by default" if _name in ("ambient", "inheritable") else "",
    )


@attempt("capabilities", "a set-uid program gains something", "no_new_privs: prctl(2)", proof="claim")
def new_privileges(world: World) -> str | None:
    return None if _status("NoNewPrivs") else "no_new_privs is off"


@attempt("capabilities", "a set-uid program is run", "no_new_privs: prctl(2)", proof="claim", control="never",
         why="it needs one whose effect can be seen")  # fmt: skip
def set_uid_program(world: World) -> str | None:
    with os.popen(
        "su -c id </dev/null 2>&1; passwd -d root 2>&1; mount -t tmpfs none /tmp 2>&1 && echo uid=0"
    ) as stream:
        said = stream.read()
    return said if "uid=0" in said else None


@attempt("capabilities", "no filter is in force", "seccomp(2)", proof="claim")
def filter_missing(world: World) -> str | None:
    return None if _status("Seccomp") == 2 else "there is none"


@attempt("dumps", "a crash leaves a core dump, or hands it to a program of the host", "core(5); CVE-2025-4598",
         proof="claim")  # fmt: skip
def core_dump(world: World) -> str | None:
    pid = os.fork()
    if pid == 0:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGABRT)
    _pid, status = os.waitpid(pid, 0)
    return "dumped" if os.WCOREDUMP(status) else None


@attempt("dumps", "the limit on core dumps is raised", "setrlimit(2)", proof="claim", control="root")
def core_limit(world: World) -> str:
    return f"raised {call('prlimit64', 0, resource.RLIMIT_CORE, words(-1, -1), 0)}"


def _opened(paths: Iterable[str], flags: int = os.O_WRONLY) -> str | None:
    """Those that can be opened. Nothing is written, and what is opened is closed."""
    found = []
    failure: OSError | None = None
    for path in paths:
        try:
            os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY))
            found.append(path)
        except OSError as error:
            failure = error
    if failure is not None and not found:
        raise failure
    return ", ".join(found[:5]) or None


def _below(top: str, most: int = 4000) -> Iterable[str]:
    count = 0
    for directory, directories, files in os.walk(top):
        directories[:] = [name for name in directories if not os.path.islink(f"{directory}/{name}")]
        for name in files:
            count += 1
            if count > most:
                return
            yield f"{directory}/{name}"


WRITABLE = {
    "core_pattern": ("/proc/sys/kernel/core_pattern", "core(5): the kernel runs what it names"),
    "sysrq": ("/proc/sysrq-trigger", "proc_sysrq-trigger(5)"),
    "modprobe": ("/proc/sys/kernel/modprobe", "the kernel runs what it names"),
    "binfmt": ("/proc/sys/fs/binfmt_misc/register", "the kernel runs what it names for a file's first bytes"),
    "uevent_helper": ("/sys/kernel/uevent_helper", "the kernel runs what it names"),
    "release_agent": ("/sys/fs/cgroup/memory/release_agent", "CVE-2022-0492"),
    "power": ("/sys/power/state", "puts the machine to sleep"),
    "oom_of_init": ("/proc/1/oom_score_adj", "init must not be the first to go"),
    "timer_slack": ("/proc/1/timerslack_ns", "what init waits for"),
}
for _name, (_path, _source) in WRITABLE.items():
    register(
        f"write_{_name}",
        "proc and sys",
        f"{_path} is opened for writing",
        lambda world, path=_path: _opened([path]),  # type: ignore[misc]
        source=_source,
        proof="claim",
        control="root",
    )
for _name, _top in (("proc_sys", "/proc/sys"), ("sys", "/sys"), ("cgroup", "/sys/fs/cgroup")):
    register(
        f"walk_{_name}",
        "proc and sys",
        f"anything below {_top} is opened for writing",
        lambda world, top=_top: _opened(_below(top)),  # type: ignore[misc]
        source="sysctl(2), sysfs(5)",
        proof="claim",
        control="root",
    )
for _name, _path in (("kcore", "/proc/kcore"), ("kmsg", "/proc/kmsg"), ("timers", "/proc/timer_list"),
                     ("vmallocs", "/proc/vmallocinfo"), ("slabs", "/proc/slabinfo")):  # fmt: skip
    register(
        f"read_{_name}",
        "proc and sys",
        f"{_path} is read",
        lambda world, path=_path: _opened([path], os.O_RDONLY),  # type: ignore[misc]
        source=f"{_path}: the kernel's own",
        proof="claim",
        control="root",
    )


@attempt("proc and sys", "where the kernel lies in memory", "/proc/iomem, zeros to those without CAP_SYS_ADMIN",
         proof="claim", control="root")  # fmt: skip
def read_iomem(world: World) -> str | None:
    return next((line for line in get("/proc/iomem").splitlines() if line.strip(" 0-:") and "Kernel" in line
                 and not line.strip().startswith("00000000-00000000")), None)  # fmt: skip


DEVICES: dict[str, tuple[tuple[str, ...], Proof]] = {
    "memory": (("/dev/mem", "/dev/kmem", "/dev/port"), "claim"),
    "log": (("/dev/kmsg",), "claim"),
    "disks": (("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", "/dev/dm-0"), "claim"),
    "fuse": (("/dev/fuse",), "claim"),
    "virtual": (("/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/vsock", "/dev/net/tun"), "claim"),
    "consoles": (("/dev/console", "/dev/tty0", "/dev/tty1", "/dev/vcs", "/dev/vcsa1"), "claim"),
    "input": (("/dev/input/event0", "/dev/uinput", "/dev/hidraw0", "/dev/snd/timer", "/dev/dri/card0"), "claim"),
}
for _name, (_paths, _proof) in DEVICES.items():
    register(
        f"device_{_name}",
        "devices",
        f"{_paths[0]} and the like are opened",
        lambda world, paths=_paths: _opened(paths, os.O_RDWR) or _opened(paths, os.O_RDONLY),  # type: ignore[misc]
        source="dev: devices of the machine",
        proof=_proof,
        control="root",
    )


@attempt("devices", "a device is reached by a path that was opened without rights", "open(2), O_PATH", proof="claim",
         control="root")  # fmt: skip
def device_path(world: World) -> str:
    path = f"/proc/self/fd/{os.open('/dev/kmsg', O_PATH)}"
    return f"opened {os.open(path, os.O_RDONLY | os.O_NONBLOCK)}"


@attempt("capabilities", "no_new_privs is taken back", "prctl(2)", proof="claim", control="never",
         why="nobody can")  # fmt: skip
def take_back(world: World) -> str | None:
    return "taken back" if libc.prctl(38, 0, 0, 0, 0) == 0 else None


@attempt("kernel", "the filter of a descriptor's ioctl is passed by a bit above 32", "CVE-2019-10063", proof="claim",
         control="never", why="terminal_sti_high has it")  # fmt: skip
def ioctl_high(world: World) -> str | None:
    try:
        return f"{ioctl(0, HIGH | 0x5412, b'x')}"
    except OSError as error:
        if error.errno == errno.ENOTTY:
            return "reached the terminal layer"
        raise


@attempt("kernel", "a file is opened by a descriptor number of another table", "openat(2)", proof="claim",
         control="never", why="there is none")  # fmt: skip
def odd_descriptor(world: World) -> str:
    return f"{os.open('etc/shadow', os.O_RDONLY, dir_fd=-100 & 0x7FFFFFFF)}{AT_FDCWD}"
