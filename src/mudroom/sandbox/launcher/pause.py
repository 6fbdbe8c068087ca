"""Stop every process in a sandbox, and continue those that were stopped here.

Launcher code: the rules in ``launcher.py`` hold here. The launcher or template that cloned an init is an ancestor of
every process in its sandbox: init inherits orphans (pid_namespaces(7), or as a subreaper). So the processes to stop are
init and its descendants, all visible in this process's /proc.

A process is stopped before its children are listed, because a stopped process makes no more children. A shell that is
stopped first also does not see its jobs stop and does not take the terminal back. For the same reason children are
continued before their parents.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 3.0
"""Seconds in which a process must come to rest: longer than any scheduler lets a process wait, however busy the
machine. A process that waits for a dead disk never rests. The launcher serves no other request meanwhile."""
MOST = 60.0
"""Seconds in which all processes must have come to rest. A sandbox that forks faster than it can be stopped never does.
On a slow machine (emulated, or with hundreds of busy processes) a normal pause takes many seconds."""
RESTING = b"TtZXx"
"""States in proc_pid_stat(5) in which no instruction is executed: stopped, traced, ended."""


def pause(init: int, stopped: list[int]) -> None:
    """Stop a sandbox. On return none of its threads runs or is in a system call, until ``resume``.

    Add to ``stopped`` the pids that were not stopped already. Raise OSError if that is impossible; the sandbox then
    continues as before.
    """
    end = os.times().elapsed + MOST
    before: set[int] = set()
    try:
        while True:
            seen, resting = set[int](), True
            for generation in generations(init):
                seen.update(generation)
                busy = [pid for pid in generation if not is_at_rest(pid)]
                stopped += [pid for pid in busy if pid not in stopped]
                stop(busy, end)
                resting = resting and not busy
            if resting and seen == before:  # two equal passes: /proc may skip a child while another one ends (proc(5))
                return
            before = seen
    except OSError:
        resume(init, stopped)
        raise


def resume(init: int, stopped: list[int]) -> None:
    """Continue the processes that ``pause`` stopped and that still exist. A process stopped before the pause stays
    stopped."""
    present = {pid for generation in generations(init) for pid in generation}
    for pid in reversed(stopped):
        # Not only ``present``: after a failed pause other processes end meanwhile, and then /proc may skip a child
        # (proc(5)), which would stay stopped for ever. It is found by its parents.
        if pid in present or descends(pid, init):
            signal(pid, _signal.SIGCONT)
    stopped.clear()


def descends(pid: int, init: int) -> bool:
    """Return whether a process is ``init`` or descends from it."""
    while pid > 1 and pid != init:
        fields = read(pid, b"%d" % pid, b"stat").rpartition(b") ")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
    return pid == init


def generations(root: int) -> Iterator[list[int]]:
    """Yield a process's pid, then its children's, then theirs, and so on. A generation is listed only after the one
    above it was yielded."""
    generation = [root]
    while generation:
        yield generation
        files = [read(pid, thread, b"children") for pid in generation for thread in threads(pid)]
        generation = [int(word) for file in files for word in file.split()]


def is_at_rest(pid: int) -> bool:
    """Return whether none of a process's threads can run. True for a process that has ended."""
    states = [read(pid, thread, b"stat").rpartition(b") ")[2][:1] for thread in threads(pid)]
    return all(state in RESTING for state in states)


def stop(processes: list[int], end: float) -> None:
    """Stop processes and wait until they rest; a system call in progress completes first. A child made by vfork(2) has
    to exec before its parent can stop, so it must not be stopped before its parent. Raise TimeoutError if a process
    does not come to rest within ``PATIENCE`` seconds, or not all have by ``end``."""
    for pid in processes:
        signal(pid, _signal.SIGSTOP)
    for pid in processes:
        deadline = min(end, os.times().elapsed + PATIENCE)
        while not is_at_rest(pid):
            if os.times().elapsed > deadline:
                raise TimeoutError(0, "its processes did not stop in time")
            select.select([], [], [], 0.0002)


def signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # the process has just ended


def threads(pid: int) -> list[bytes]:
    """List a process's threads; empty if it is gone. Raise PermissionError if it exists but its /proc entry is hidden
    (hidepid, proc(5))."""
    try:
        return os.listdir(b"/proc/%d/task" % pid)
    except (FileNotFoundError, ProcessLookupError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return []
        raise PermissionError(1, "its processes are hidden in /proc") from None


def read(pid: int, thread: bytes, name: bytes) -> bytes:
    """Read a thread's /proc file; empty if the thread is gone."""
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
