"""Processes: of the host and of the sandbox's own making: traced, read, written, signalled, slowed down."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import resource
import signal
import struct
import time

from .attempt import PID_1, World, attempt, register
from .call import HIGH, address, buffer, call, reached
from .deed import get
from .files import any_of, processes
from .namespaces import in_child

PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_PEEK, PTRACE_DETACH = 16, 0x4206, 2, 17
_TRACE = "ptrace(2)"


def _traced(pid: int, how: int) -> str:
    call("ptrace", how, pid, 0, 0)
    if how == PTRACE_ATTACH:
        os.waitpid(pid, 0x40000000)
        call("ptrace", PTRACE_DETACH, pid, 0, 0)
    return f"traced {pid}"


@attempt("processes", "a process of the host is attached to", _TRACE, proof="claim")
def ptrace_victim(world: World) -> str:
    return in_child(lambda: _traced(world.victim, PTRACE_ATTACH))


@attempt("processes", "a process of the host is seized", _TRACE, proof="claim")
def ptrace_seize(world: World) -> str:
    return in_child(lambda: _traced(world.victim, PTRACE_SEIZE))


@attempt("processes", "the same with a request that has bits above 32", "CVE-2019-10063", proof="claim",
         control="never", why="the kernel compares all bits of the request")  # fmt: skip
def ptrace_high(world: World) -> str:
    return in_child(lambda: _traced(world.victim, HIGH | PTRACE_SEIZE))


@attempt("processes", "init is attached to", _TRACE, proof="claim", control="never", why=PID_1)
def ptrace_init(world: World) -> str:
    return in_child(lambda: _traced(1, PTRACE_SEIZE))


@attempt("processes", "the process that started us is attached to", _TRACE, proof="claim", control="never",
         why="it would be the harness")  # fmt: skip
def ptrace_starter(world: World) -> str:
    above = int(re.findall(r"PPid:\s+(\d+)", get(f"/proc/{os.getppid()}/status"))[0])
    return in_child(lambda: _traced(above or world.harness, PTRACE_SEIZE))


def _stack(pid: int) -> tuple[int, int]:
    with open(f"/proc/{pid}/maps") as stream:
        first, last = re.findall(r"(\w+)-(\w+) .*\[stack\]", stream.read())[0]
    return int(first, 16), int(last, 16)


@attempt("processes", "the memory of a process of the host is read", "proc_pid_mem(5)", proof="secret")
def memory(world: World) -> str:
    first, last = _stack(world.victim)
    with open(f"/proc/{world.victim}/mem", "rb", 0) as stream:
        return os.pread(stream.fileno(), last - first, first).decode("latin-1")


@attempt("processes", "the memory of init is written", "CVE-2012-0056", proof="claim", control="never",
         why=PID_1)  # fmt: skip
def memory_of_init(world: World) -> str:
    return f"opened {os.open('/proc/1/mem', os.O_RDWR)}"


def _vector(data: ctypes.Array[ctypes.c_char], where: int) -> tuple[bytes, bytes]:
    return struct.pack("<QQ", address(data), len(data)), struct.pack("<QQ", where, len(data))


@attempt("processes", "the memory of a process of the host is read in one call", "process_vm_readv(2)", proof="claim")
def vm_read(world: World) -> str:
    ours, theirs = _vector(buffer(64), 0x1000)
    return reached((errno.EFAULT,), "process_vm_readv", world.victim, ours, 1, theirs, 1, 0) or ""


@attempt("processes", "the memory of a process of the host is written in one call", "process_vm_writev(2)",
         proof="claim")  # fmt: skip
def vm_write(world: World) -> str:
    ours, theirs = _vector(buffer(64), 0x1000)
    return reached((errno.EFAULT,), "process_vm_writev", world.victim, ours, 1, theirs, 1, 0) or ""


@attempt("processes", "the kernel is advised about the memory of a process of the host", "process_madvise(2)",
         proof="claim", control="root")  # fmt: skip
def madvise(world: World) -> str:
    descriptor = call("pidfd_open", world.victim, 0)
    return f"{call('process_madvise', descriptor, struct.pack('<QQ', 0, 0), 1, 20, 0)} bytes"


@attempt("processes", "an open file of a process of the host is taken", "pidfd_getfd(2)", proof="secret")
def take_descriptor(world: World) -> str:
    descriptor = call("pidfd_getfd", call("pidfd_open", world.victim, 0), 7, 0)
    return os.pread(descriptor, 4096, 0).decode()


@attempt("processes", "an open file of init is taken", "pidfd_getfd(2)", proof="claim", control="never", why=PID_1)
def take_from_init(world: World) -> str:
    return f"descriptor {call('pidfd_getfd', call('pidfd_open', 1, 0), 0, 0)}"


@attempt("processes", "what a process of the host has open is compared", "kcmp(2)", proof="claim")
def kcmp(world: World) -> str:
    return f"{call('kcmp', os.getpid(), world.victim, 0, 0, 0)}"


@attempt("processes", "pages of a process of the host are moved", "move_pages(2); CVE-2010-0415", proof="claim")
def move_pages(world: World) -> str:
    return f"{call('move_pages', world.victim, 0, 0, 0, 0, 0)}"


@attempt("processes", "pages of a process of the host are moved to another node", "migrate_pages(2)", proof="claim")
def migrate_pages(world: World) -> str:
    mask = struct.pack("<Q", 1)
    return f"{call('migrate_pages', world.victim, 2, mask, mask)}"


for _name, _file in (("environment", "environ"), ("arguments", "cmdline")):
    register(
        f"{_name}_of_victim",
        "environment",
        f"the {_name} of a process of the host are read",
        lambda world, file=_file: get(f"/proc/{world.victim}/{file}"),  # type: ignore[misc]
        source=f"proc_pid_{_file}(5)",
        proof="secret",
    )
    register(
        f"{_name}_of_all",
        "environment",
        f"the {_name} of all processes in sight are read",
        lambda world, file=_file: any_of([f"/proc/{pid}/{file}" for pid in processes()]),  # type: ignore[misc]
        source=f"proc_pid_{_file}(5)",
        proof="secret",
    )


@attempt("environment", "a secret of the environment in which the sandbox was started", "environ(7)", proof="secret")
def environment(world: World) -> str:
    return repr(dict(os.environ))


@attempt("environment", "the environment that the own process was started with", "proc_pid_environ(5)",
         proof="secret")  # fmt: skip
def environment_of_self(world: World) -> str:
    return get("/proc/self/environ")


@attempt("environment", "the environment of init", "proc_pid_environ(5)", proof="claim", control="never", why=PID_1)
def environment_of_init(world: World) -> str:
    return get("/proc/1/environ") or "(empty, but it could be read)"


@attempt("signals", "a process of the host is asked to end", "kill(2)")
def kill(world: World) -> None:
    os.kill(world.victim, signal.SIGTERM)


@attempt("signals", "a process of the host is stopped", "kill(2)")
def stop(world: World) -> None:
    os.kill(world.victim, signal.SIGSTOP)


@attempt("signals", "a process of the host is signalled by its thread", "tgkill(2)")
def tgkill(world: World) -> None:
    call("tgkill", world.victim, world.victim, signal.SIGUSR1)


@attempt("signals", "the same by the older call", "tkill(2)")
def tkill(world: World) -> None:
    call("tkill", world.victim, signal.SIGUSR1)


@attempt("signals", "a process of the host is sent a signal with a message", "rt_sigqueueinfo(2)")
def sigqueue(world: World) -> None:
    call("rt_sigqueueinfo", world.victim, signal.SIGUSR1, struct.pack("<3i116x", signal.SIGUSR1, 0, -1))


@attempt("signals", "a process of the host is signalled by its pidfd", "pidfd_send_signal(2)")
def pidfd(world: World) -> None:
    call("pidfd_send_signal", call("pidfd_open", world.victim, 0), signal.SIGUSR1, 0, 0)


@attempt("signals", "the process group of a process of the host is signalled", "kill(2)")
def process_group(world: World) -> None:
    os.killpg(world.victim, signal.SIGUSR1)


@attempt("signals", "a pipe's news is to be signalled to a process of the host", "fcntl(2), F_SETOWN, F_SETSIG")
def sigio(world: World) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, world.victim)
    fcntl.fcntl(reading, 10, signal.SIGUSR1)
    fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(writing, b"x")


@attempt("signals", "everybody is signalled", "kill(2), -1", control="never", why="it would end the harness, and more",
         alone=True)  # fmt: skip
def everybody(world: World) -> None:
    os.kill(-1, signal.SIGKILL)


@attempt("signals", "init is killed, and what it was to end lives on", "pid_namespaces(7)", control="never",
         why="it would end the harness", alone=True)  # fmt: skip
def kill_init(world: World) -> None:
    from .resources import leave_behind

    leave_behind(world)
    for pid in (1, os.getppid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


@attempt("priorities", "a process of the host is slowed down", "setpriority(2)")
def nice(world: World) -> None:
    call("setpriority", 0, world.victim, 19)


@attempt("priorities", "all processes of the user are slowed down", "setpriority(2), PRIO_USER", control="never",
         why="it would slow down all that runs here")  # fmt: skip
def nice_user(world: World) -> None:
    call("setpriority", 2, os.getuid(), 1)


@attempt("priorities", "a process of the host is given less of the disk", "ioprio_set(2)")
def ioprio(world: World) -> None:
    call("ioprio_set", 1, world.victim, 3 << 13)


@attempt("priorities", "a process of the host is bound to one processor", "sched_setaffinity(2)")
def affinity(world: World) -> None:
    os.sched_setaffinity(world.victim, {min(os.sched_getaffinity(0))})


@attempt("priorities", "a process of the host is made idle", "sched_setscheduler(2)")
def scheduler(world: World) -> None:
    call("sched_setscheduler", world.victim, 5, struct.pack("<i", 0))


@attempt("priorities", "the same by the newer call", "sched_setattr(2)")
def scheduler_attributes(world: World) -> None:
    call("sched_setattr", world.victim, struct.pack("<IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0), 0)


@attempt("priorities", "a process of the host gets a limit that ends it", "prlimit(2)")
def limit(world: World) -> None:
    call("prlimit64", world.victim, resource.RLIMIT_NOFILE, struct.pack("<QQ", 3, 3), 0)


@attempt("priorities", "a process of the host is the first to go when memory is short", "proc_pid_oom_score_adj(5)")
def oom(world: World) -> None:
    with open(f"/proc/{world.victim}/oom_score_adj", "w") as stream:
        stream.write("1000")


@attempt("processes", "a program of the host is seen in memory it shares", "proc_pid_maps(5)", proof="claim")
def maps(world: World) -> str:
    return get(f"/proc/{world.victim}/maps")[:40]


@attempt("processes", "where a process of the host works", "proc_pid_cwd(5)", proof="claim")
def where(world: World) -> str:
    return os.readlink(f"/proc/{world.victim}/cwd")


@attempt("processes", "the parent's end is waited for, to be adopted outside", "prctl(2)", alone=True)
def adopted(world: World) -> None:
    """A child of a child, its parent gone, in a session of its own."""
    from .resources import leave_behind

    leave_behind(world)
    time.sleep(0.01)  # so that it has been adopted: whatever is to end it does not find it below us
