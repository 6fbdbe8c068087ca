"""The other's processes: their memory, descriptors, directories and signals, as the kernel shows them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from ..call import call, libc  # noqa: TID252 - the package has another name inside
from .meetings import give_nothing
from .pair import Part, World, read_from, register

_GROUP = "processes"


def giver(world: World) -> int:
    """Return the process id of the giver. Raise ProcessLookupError if it is not in sight."""
    ours = {os.getpid(), os.getppid()}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if f"give {world.key}".encode() in words and int(path.parent.name) not in ours:
            return int(path.parent.name)
    raise ProcessLookupError(3, "the giver is not in sight")


def of_giver(body: Callable[[World, int], Any]) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        yield
        return body(world, giver(world))

    return take


def arguments(_world: World, pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def environment(world: World, pid: int) -> str:
    return f"claim {world.key}" if Path(f"/proc/{pid}/environ").read_bytes() else ""


def through_root(world: World, pid: int) -> str:
    return Path(f"/proc/{pid}/root{world.places['own_project']}/{world.name('held')}").read_text()


def through_cwd(world: World, pid: int) -> str:
    return Path(f"/proc/{pid}/cwd/{world.name('held')}").read_text()


def through_descriptors(world: World, pid: int) -> str | None:
    for entry in os.scandir(f"/proc/{pid}/fd"):
        if os.readlink(entry.path).endswith(world.name("held")):
            return Path(entry.path).read_text()
    return None


def stolen_descriptor(world: World, pid: int) -> str | None:
    other = call("pidfd_open", pid, 0)
    for number in range(3, 64):
        try:
            descriptor = call("pidfd_getfd", other, number, 0)
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(world.name("held")):
                return read_from(descriptor)
        except PermissionError:
            raise
        except OSError:
            continue
    return None


def memory(_world: World, pid: int) -> str | None:
    """The giver's arguments are on its stack."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "[stack]" in line:
            first, last = (int(word, 16) for word in line.split()[0].split("-"))
            area = ctypes.create_string_buffer(last - first)
            ours = (ctypes.c_uint64 * 2)(ctypes.addressof(area), last - first)
            theirs = (ctypes.c_uint64 * 2)(first, last - first)
            size = call("process_vm_readv", pid, ctypes.addressof(ours), 1, ctypes.addressof(theirs), 1, 0)
            return area.raw[:size].decode(errors="replace")
    return None


def memory_file(_world: World, pid: int) -> str | None:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "[stack]" in line:
            first, last = (int(word, 16) for word in line.split()[0].split("-"))
            with open(f"/proc/{pid}/mem", "rb") as stream:
                stream.seek(first)
                return stream.read(last - first).decode(errors="replace")
    return None


def traced(world: World, pid: int) -> str:
    """ptrace(2): only a tracee that is stopped can be detached; another one stops at its next signal for ever."""
    call("ptrace", 0x4206, pid, 0, 0)  # PTRACE_SEIZE
    call("ptrace", 0x4207, pid, 0, 0)  # PTRACE_INTERRUPT
    os.waitpid(pid, 0x40000000)  # __WALL
    call("ptrace", 17, pid, 0, 0)  # PTRACE_DETACH
    return f"claim {world.key}"


def signalled(world: World, pid: int) -> str:
    os.kill(pid, signal.SIGCONT)
    return f"claim {world.key}"


def compared(world: World, pid: int) -> str:
    call("kcmp", os.getpid(), pid, 1, 0, 0)
    return f"claim {world.key}"


def slowed(world: World, pid: int) -> str:
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
    return f"claim {world.key}"


_TRACE = "proc_pid_root(5), ptrace(2)"
_YAMA = "Yama permits tracing of descendants only"
for _name, _tries, _body, _source, _control in (
    ("arguments", "the arguments of its process", arguments, "proc_pid_cmdline(5)", ""),
    ("environment", "the environment of its process", environment, "proc_pid_environ(5)", ""),
    ("root", "the root directory of its process", through_root, _TRACE, ""),
    ("cwd", "the working directory of its process", through_cwd, _TRACE, ""),
    ("fd", "the descriptors of its process", through_descriptors, "proc_pid_fd(5)", ""),
    ("pidfd_getfd", "a descriptor of its process is duplicated", stolen_descriptor, "pidfd_getfd(2)", _YAMA),
    ("vm_readv", "the memory of its process by process_vm_readv(2)", memory, "process_vm_readv(2)", _YAMA),
    ("mem", "the memory of its process by /proc/PID/mem", memory_file, "proc_pid_mem(5)", _YAMA),
    ("ptrace", "its process is traced", traced, "ptrace(2)", _YAMA),
    ("kill", "its process is sent a signal", signalled, "kill(2)", ""),
    ("kcmp", "its process is compared with the own", compared, "kcmp(2)", _YAMA),
    ("priority", "the priority of its process is set", slowed, "setpriority(2)", ""),
):
    register(f"process_{_name}", _GROUP, _tries, give_nothing, of_giver(_body), source=_source, control=_control)


def take_terminals(world: World) -> Generator[None, None, Any]:
    """A terminal that the giver has written to is read back."""
    yield
    refused = None
    for entry in os.scandir("/dev/pts"):
        if entry.name == "ptmx":
            continue
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            refused = error
            continue
        try:
            return os.read(descriptor, 200).decode()
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
    if refused:
        raise refused
    return None


def give_terminal(world: World) -> Generator[None, None, Any]:
    master, _slave = os.openpty()
    os.write(master, world.secret.encode() + b"\n")
    while True:
        yield


register("terminal", _GROUP, "a pseudo-terminal of the other is read", give_terminal, take_terminals, source="pts(4)",
         control="other terminals of the user are found first")  # fmt: skip


def give_hostname(world: World) -> Generator[None, None, Any]:
    text = world.name("host").encode()
    if libc.sethostname(text, len(text)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    while True:
        yield


def take_hostname(world: World) -> Generator[None, None, Any]:
    yield
    return f"claim {world.key}" if os.uname().nodename == world.name("host") else None


register("hostname", _GROUP, "the host's name is changed", give_hostname, take_hostname, source="uts_namespaces(7)",
         control="only root may")  # fmt: skip
