"""Stop every process of a sandbox, and let those go on that were stopped here.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here. The launcher, or template, that
cloned an init is an ancestor of all that is in its sandbox: init inherits orphans (pid_namespaces(7), or as the
subreaper that it is), so what is to be stopped is init and what descends from it, and all of it is in our /proc.

A process is stopped before its children are looked for: a stopped one makes no more of them, and a shell that is
stopped first does not see its jobs stop, and does not take the terminal back. For the same reason children go on first.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 3.0
"""Seconds in which one process more must have come to rest: longer than any scheduler lets one wait, however busy the
machine. A process that waits for a dead disk does not; nobody else is served meanwhile."""
MOST = 60.0
"""Seconds in which all of them must have: a sandbox that forks faster than it can be stopped never does. On a slow
machine (emulated, or with hundreds of processes that are all busy) what is no fault takes many seconds."""
RESTING = b"TtZXx"
"""States of proc_pid_stat(5) in which no instruction is executed: stopped, traced, ended."""


def pause(init: int, stopped: list[int]) -> None:
    """Stop a sandbox. When this returns no thread of it is in a system call or runs, until somebody lets it.

    Adds to ``stopped`` what had not been stopped already. Raises OSError if it cannot be done: the sandbox then goes
    on as before.
    """
    end = os.times().elapsed + MOST
    before: set[int] = set()
    try:
        while True:
            seen, resting = set[int](), True
            for generation in generations(init):
                seen.update(generation)
                busy = [pid for pid in generation if not rests(pid)]
                stopped += [pid for pid in busy if pid not in stopped]
                stop(busy, end)
                resting = resting and not busy
            if resting and seen == before:  # twice the same: /proc may skip a child while another one ends (proc(5))
                return
            before = seen
    except OSError:
        resume(init, stopped)
        raise


def resume(init: int, stopped: list[int]) -> None:
    """Let go on what ``pause`` stopped, as far as it is still there. What had been stopped before stays so."""
    present = {pid for generation in generations(init) for pid in generation}
    for pid in reversed(stopped):
        if pid in present:
            signal(pid, _signal.SIGCONT)
    stopped.clear()


def generations(root: int) -> Iterator[list[int]]:
    """A process, its children, theirs, and so on. Each is looked for after the one above it has been yielded."""
    generation = [root]
    while generation:
        yield generation
        files = [read(pid, thread, b"children") for pid in generation for thread in threads(pid)]
        generation = [int(word) for file in files for word in file.split()]


def rests(pid: int) -> bool:
    """Whether no thread of a process can do anything. One that is gone cannot."""
    states = [read(pid, thread, b"stat").rpartition(b") ")[2][:1] for thread in threads(pid)]
    return all(state in RESTING for state in states)


def stop(processes: list[int], end: float) -> None:
    """Stop processes and wait until they are: a system call that one is in comes to its end before. A child made by
    vfork(2) has to exec first, so that child must not be stopped before its parent. Raises TimeoutError if none comes
    to rest for ``PATIENCE``, or not all of them until ``end``."""
    for pid in processes:
        signal(pid, _signal.SIGSTOP)
    for pid in processes:
        deadline = min(end, os.times().elapsed + PATIENCE)
        while not rests(pid):
            if os.times().elapsed > deadline:
                raise TimeoutError(0, "its processes do not come to rest")
            select.select([], [], [], 0.0002)


def signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has just ended


def threads(pid: int) -> list[bytes]:
    """None if the process is gone. Raises PermissionError if it is not, but may not be looked at: hidepid, proc(5)."""
    try:
        return os.listdir(b"/proc/%d/task" % pid)
    except (FileNotFoundError, ProcessLookupError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return []
        raise PermissionError(1, "its processes are hidden in /proc") from None


def read(pid: int, thread: bytes, name: bytes) -> bytes:
    """A file about a thread; empty if that is gone."""
    try:
        descriptor = os.open(b"/proc/%d/task/%s/%s" % (pid, thread, name), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return b""
    try:
        return b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    except ProcessLookupError:
        return b""
    finally:
        os.close(descriptor)
