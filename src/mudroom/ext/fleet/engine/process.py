"""A worker as the program at the other end of two pipes: ssh, srun, kubectl exec -i, docker exec -i, or a local child.

The words come from the user's own file (``ext/fleet/origin/worker_registry.py``), and no shell reads them. The program
has its own session (setsid(2)): Ctrl-C at the origin's terminal does not reach it, and a program that would ask for a
password finds no terminal to ask on, and says so. The last part of its standard error is kept: it tells why it
ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.system.search_path import require_program
from mudroom.errors import MudroomError

NODE = b"{node}"
"""In a worker's words: replaced by its name."""
GRACE = 2.0
"""Seconds between the closing of the pipes and SIGTERM, and between that and SIGKILL."""
_KEPT = 4096
"""Bytes that are kept from standard error."""
_NOISE = ("Killed by signal", "Connection to ", "Warning: Permanently added")
"""Prefixes of ssh(1)'s lines that are no reason."""


class WorkerProcess:
    """``_stderr`` is written by the thread that reads standard error alone. ``close`` is called by one thread."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        self._child = child
        self.reader, self.writer = child.stdout.fileno(), child.stdin.fileno()
        self._stderr = bytearray()
        self._is_closing, self._closing = os.pipe()
        self._stderr_reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._stderr_reader.start()

    def _read_stderr(self) -> None:
        assert self._child.stderr is not None
        opened = self._child.stderr.fileno()
        poller = select.poll()
        poller.register(opened, select.POLLIN)
        poller.register(self._is_closing, select.POLLIN)
        while True:
            ready = dict(poller.poll())
            data = os.read(opened, 4096) if opened in ready else b""
            self._stderr += data
            del self._stderr[: max(0, len(self._stderr) - _KEPT)]
            if not data:
                return

    def close(self) -> None:
        """End the program: close its pipes, then SIGTERM, then SIGKILL; and wait for it."""
        child = self._child
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        for stream in (child.stdin, child.stdout):
            with suppress(OSError):  # nothing is buffered; the pipe has broken
                stream.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                child.wait(GRACE)
                break
            except subprocess.TimeoutExpired:
                child.send_signal(number)
        child.wait()
        os.close(self._closing)
        self._stderr_reader.join(GRACE)
        child.stderr.close()
        os.close(self._is_closing)

    def exit_reason(self) -> str:
        """Return the last line of standard error that is a reason, else how the program ended if it failed."""
        lines = [line.strip() for line in self._stderr.decode("utf-8", "replace").splitlines()]
        lines = [line for line in lines if line and not line.startswith(_NOISE)]
        if lines:
            return lines[-1]
        code = self._child.returncode
        program = os.fsdecode(os.path.basename(os.fsencode(self._words()[0])))
        if code is None or code == 0:
            return ""
        return f"{program} was ended by signal {-code}" if code < 0 else f"{program} exited with {code}"

    def was_killed(self) -> bool:
        """Return whether a signal has ended the program, or what it ran: a shell and ssh then say nothing but a code
        above 128."""
        code = self._child.returncode or 0
        return code < 0 or (code > 128 and not self._stderr.strip())

    def _words(self) -> Sequence[bytes]:
        words = self._child.args
        assert isinstance(words, list)
        return words


def start(argv: Sequence[bytes], node: str, environ: Mapping[bytes, bytes]) -> WorkerProcess:
    """Start a worker's program. Raise MudroomError if it cannot be started."""
    words = [word.replace(NODE, os.fsencode(node)) for word in argv]
    try:
        child = subprocess.Popen(
            words,
            executable=require_program(words[0], environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        program = os.fsdecode(words[0])
        hint = f"install it, or name it by its path: mudroom fleet add {node} -- …"
        raise MudroomError(f"{program}: {error.strerror}", hint) from error
    return WorkerProcess(child)
