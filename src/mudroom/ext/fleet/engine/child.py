"""``mudroom worker --stdio`` as a child of a cluster's process, which passes its bytes on.

The child ends with its parent: a node that is lost runs nothing on. The files that its commands have written are kept,
as by any worker that is ended.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from mudroom.core.system.process import ends_with_parent

_PIECE = 1 << 18
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_WRAPPER = (
    sys.executable,
    "-IS",
    "-c",
    "import os, sys\n"
    "kept = {name: value for name, value in os.environb.items() if not name.startswith(b'RAY_')}\n"
    "os.execve(sys.argv[1], sys.argv[1:], kept)",
)
"""A program that becomes another without the cluster's variables, its token among them. This module is below the edges,
which alone look at the environment."""


def worker_command(jobs: int) -> tuple[str, ...]:
    """Return the command for a worker on this machine. ``-P``: it loads no module from the directory where a cluster
    starts it, which may be a job's."""
    return sys.executable, "-P", "-m", "mudroom", "worker", "--stdio", "--jobs", str(jobs)


class WorkerChild:
    """A thread each may read and write; any thread may ``close``."""

    def __init__(self, argv: Sequence[str]) -> None:
        """The worker has this process's variables but for the cluster's own. Raise OSError if the program cannot be
        started."""
        started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()
        threading.Thread(target=_supervise, args=([*_WRAPPER, *argv], started), name="worker", daemon=True).start()
        child = started.get()
        if isinstance(child, OSError):
            raise child
        self._child = child
        assert child.stdin is not None and child.stdout is not None
        self._input, self._output = child.stdin, child.stdout

    def __enter__(self) -> WorkerChild:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the worker and close its pipes, which no other thread uses any more."""
        self.close()
        self._input.close()
        self._output.close()

    def read(self, seconds: float) -> bytes | None:
        """Return the next bytes; empty: the worker has ended; None: there were none for so long."""
        ready, _writable, _failed = select.select([self._output], [], [], seconds)
        return os.read(self._output.fileno(), _PIECE) if ready else None

    def write(self, data: bytes) -> None:
        """Raise BrokenPipeError if the worker has ended."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._input.fileno(), rest) :]

    def end(self) -> None:
        """Close the worker's input: it ends when its commands have, at the latest with its lease."""
        self._input.close()

    def close(self) -> None:
        """End the worker and its commands now."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._child.send_signal(number)
            try:
                self._child.wait(GRACE)
            except subprocess.TimeoutExpired:
                continue
            return


def _supervise(argv: Sequence[str], started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError]) -> None:
    """Start a program and wait for its end. The "parent" in PR_SET_PDEATHSIG is the thread that started it (prctl(2)):
    a thread in Ray's pool may end at any time, and the worker with it."""
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=ends_with_parent(signal.SIGTERM),  # noqa: PLW1509 - two calls, which take no lock
        )
    except OSError as error:
        started.put(error)
        return
    started.put(child)
    child.wait()
