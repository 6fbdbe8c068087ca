"""What stays in memory between two commands, against an idle interpreter and against bwrap while it runs one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

from bench.measure import NONE, Against, Finding, Series, at_most, reason
from bench.place import BWRAP, Place, Scale, discard, fill, new_place, run
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.session import Session

_COMMANDS = 20
_SETTLE = 0.3  # seconds in which the launcher prepares the next sandbox and the last one ends
_IDLE = [sys.executable, "-I", "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]


def launcher_memory(base: bytes, scale: Scale) -> Iterator[Finding]:
    del scale
    with new_place(base, "memory") as place:
        fill(place.project, 10)
        yield from _measure(place)


def launcher_of(session: Session) -> int:
    """Return the pid of a session's launcher."""
    return cast(LauncherClient, session.machine.client).launcher.require_pid()


def _measure(place: Place) -> Iterator[Finding]:
    with ExitStack() as stack, place.session() as session:
        others = {"an idle python -I -S": _start(stack, _IDLE)}
        missing = ""
        try:
            others["bwrap, running a command"] = _start(stack, [*BWRAP, "sh", "-c", "echo; exec cat"])
        except OSError as error:
            missing = reason(error)
        for _ in range(_COMMANDS):
            discard(session, run(session, "/bin/true"))
        launcher = launcher_of(session)
        time.sleep(_SETTLE)
        for what, measure in (("RSS", resident), ("PSS", proportional)):
            ours = measure(launcher)
            beside = [(name, measure(pid)) for name, pid in others.items()]
            if ours is not None:
                known = tuple(Against(name, _megabytes(size)) for name, size in beside if size is not None)
                known += (Against("bwrap, running a command", NONE, None, missing),) if missing else ()
                yield Finding("memory", f"launcher, {what}", _megabytes(ours), at_most(15, "15 MB"), known)
        yield from _with_helpers(launcher)


def _start(stack: ExitStack, argv: list[str]) -> int:
    """The pid of a process that is up and waits for its input to end."""
    process = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


def _with_helpers(launcher: int) -> Iterator[Finding]:
    """With the prepared root and the sandbox that waits for a command. Only root may read what those share."""
    pids = (launcher, *descendants(launcher))
    sizes = [size for pid in pids if (size := proportional(pid)) is not None]
    if len(sizes) == len(pids):
        yield Finding("memory", f"launcher and its {len(pids) - 1} helpers, PSS", _megabytes(sum(sizes)))


def _megabytes(size: float) -> Series:
    return Series((size / 1e6,), "MB")


def resident(pid: int) -> float | None:
    with open(f"/proc/{pid}/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def proportional(pid: int) -> float | None:
    """Shared pages count by the share; None where that may not be read, or of a process that has just ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as stream:
            return next(int(line.split()[1]) * 1024.0 for line in stream if line.startswith("Pss:"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError:
        return _root.ask(pid) if _root is not None else None


class RootReader:
    """Asks a process of root's for what only root may read: the share of a process that cannot be dumped.

    The child of ``--user`` has one end, its parent answers at the other (``answer``) until the child has ended.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end, self._stream = end, end.makefile("rw")

    def close(self) -> None:
        self._stream.close()
        self._end.close()

    def ask(self, pid: int) -> float | None:
        self._stream.write(f"{pid}\n")
        self._stream.flush()
        said = self._stream.readline().strip()
        return float(said) if said else None


def answer(end: socket.socket) -> None:
    """Answer a ``RootReader`` until its process has ended."""
    with end.makefile("rw") as stream:
        for line in stream:
            size = proportional(int(line))
            stream.write(f"{'' if size is None else size}\n")
            stream.flush()


_root: RootReader | None = None


def read_as_root(end: socket.socket) -> None:
    """Let this process ask at ``end`` for what it may not read itself."""
    global _root  # noqa: PLW0603 - set once, when the process has become another user
    _root = RootReader(end)


def descendants(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as stream:
        children = [int(word) for word in stream.read().split()]
    return [below for child in children for below in (child, *descendants(child))]
