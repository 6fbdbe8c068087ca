"""Resources: what is taken, bounded here, must be given back; and nothing may go on after the end."""

from __future__ import annotations

import mmap
import os
import signal
import sys

from .attempt import World, attempt

_ORPHANS = "pid_namespaces(7): all end with init"


_CHAIN = "f() { if [ $1 -lt 100 ]; then f $(($1 + 1)) & else sleep 60; fi; }; f 0"
"""The last one stays until it is looked for, on a busy machine, too."""


def leave_behind(world: World, *, ignore: bool = False, argv: tuple[str, ...] = ("/bin/sleep", "600")) -> None:
    """A process of a session of its own, its parent gone, nothing open, under the mark. Returns when it is so."""
    reading, writing = os.pipe()  # close-on-exec
    pid = os.fork()
    if pid:
        os.close(writing)
        os.waitpid(pid, 0)
        os.read(reading, 1)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for descriptor in range(64):
        try:
            if descriptor != writing:
                os.close(descriptor)
        except OSError:
            continue
    if ignore:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
    os.execv(argv[0], [world.mark, *argv[1:]])


@attempt("leftovers", "a process in a session of its own goes on", _ORPHANS)
def orphan(world: World) -> None:
    leave_behind(world)


@attempt("leftovers", "a process that ignores signals goes on", _ORPHANS)
def orphan_ignoring(world: World) -> None:
    leave_behind(world, ignore=True)


@attempt("leftovers", "many processes go on", _ORPHANS)
def orphans(world: World) -> None:
    for _ in range(20):
        leave_behind(world)


@attempt("leftovers", "a process that forks faster than it is found", "kill, then look again: races", alone=True)
def orphan_chain(world: World) -> None:
    """Each generation ends when the next is there, a hundred times. Bounded: whoever ends first has lost."""
    leave_behind(world, argv=("/bin/sh", "-c", _CHAIN))


@attempt("leftovers", "a process that keeps the output open goes on", "the end of a pipe is not the end of a command",
         alone=True)  # fmt: skip
def orphan_with_output(world: World) -> None:
    if os.fork() == 0:
        os.setsid()
        os.execv("/bin/sleep", [world.mark, "600"])


@attempt("limits", "two hundred processes at once", "fork bombs", limits=True, alone=True)
def fork_bomb(world: World) -> None:
    for _ in range(200):
        if os.fork() == 0:
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            os.execv("/bin/sleep", [world.mark, "600"])


@attempt("limits", "256 MB of memory, and the end of its owner", "memory bombs", limits=True, control="never",
         why="memory goes with its owner everywhere")  # fmt: skip
def memory_bomb(world: World) -> None:
    with mmap.mmap(-1, 256 << 20) as area:
        for place in range(0, len(area), 4096):
            area[place] = 1


@attempt("limits", "64 MB of shared memory that nobody removes", "shm_overview(7)", limits=True)
def shared_memory_bomb(world: World) -> None:
    with open(f"/dev/shm/{world.mark}-bomb", "wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 64 << 20)


@attempt("limits", "64 MB of the disk that hold /tmp", "disk filling", limits=True)
def disk_bomb(world: World) -> None:
    with open(f"/tmp/{world.mark}-bomb", "wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 64 << 20)


@attempt("limits", "ten thousand open files", "getrlimit(2)", limits=True, control="never",
         why="they are closed with their owner everywhere")  # fmt: skip
def descriptor_bomb(world: World) -> None:
    for _ in range(10_000):
        os.dup(2)


@attempt("limits", "16 MB of output", "output flooding", limits=True, alone=True, control="never",
         why="whoever reads has the say")  # fmt: skip
def output_flood(world: World) -> None:
    """The harness takes a bounded part of it, and what follows must still come through."""
    for _ in range(256):
        sys.stderr.write("x" * 65535 + "\n")
