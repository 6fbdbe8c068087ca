"""``mudroom`` as a fork of a process that has its modules: a fifth of the time of ``python -m mudroom``.

A test sees the same process but for its parent and its name. The interpreter's start, and the modules that a cold
command loads, are shown by tests/cli/test_cold_start.py, and by each test that starts
``sys.executable`` itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl
    import resource
    import termios

READ_AT_THE_START = re.compile(r"PYTHON(?!PATH$)|LC_(?!ALL$)|LANG")
"""Variables for the start of an interpreter; PYTHONPATH is for programs that the command starts."""


class _Server:
    """The process that forks, one for each process of tests. It ends with that."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, __file__]
            self.process = subprocess.Popen(
                words, stdin=theirs.fileno(), env={**os.environ, "LC_ALL": "C.UTF-8"}, cwd="/"
            )


_servers: list[_Server] = []


@atexit.register
def _end() -> None:
    for server in _servers:
        if server.owner == os.getpid():
            server.control.close()
            server.process.wait()


def _server() -> _Server:
    if not _servers or _servers[0].owner != os.getpid() or _servers[0].process.poll() is not None:
        _servers[:] = [_Server()]
    return _servers[0]


class _Forked(subprocess.Popen[Any]):
    """A process that the server has forked. The server waits for it, and writes its exit code into a pipe."""

    def _execute_child(self, words, _program, _before, _closes, _passed, directory, variables, *others) -> None:  # type: ignore[no-untyped-def]
        pipes = others[3:9]  # both ends of each, -1 if there is none; before are startupinfo, creationflags and shell
        streams = [given if given != -1 else number for number, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        umask = re.search(r"^Umask:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
        assert umask is not None
        told = {"words": list(words), "directory": os.fspath(directory or os.getcwd()), "umask": int(umask[1], 8)}
        told["is_new_session"], told["files"] = bool(others[14]), resource.getrlimit(resource.RLIMIT_NOFILE)
        self._end, theirs = os.pipe()
        request = os.memfd_create("request")
        try:
            os.pwrite(request, json.dumps({**told, "variables": dict(variables)}).encode(), 0)
            socket.send_fds(_server().control, [b"run"], [request, theirs, *streams])
        finally:
            for descriptor in (request, theirs):
                os.close(descriptor)
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self._child_created = True
        (self.pid,) = struct.unpack("i", os.read(self._end, 4))

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            (self.returncode,) = struct.unpack("i", os.read(self._end, 4))
            os.close(self._end)
        return self.returncode

    def _internal_poll(self, *_given: Any, **_named: Any) -> int | None:
        try:
            return self._wait(0)
        except subprocess.TimeoutExpired:
            return None


def popen(words: Sequence[str], *, env: dict[str, str], **options: Any) -> subprocess.Popen[Any]:
    """Return the process of ``mudroom`` with the words. The options are cwd, the streams, those of their text,
    and start_new_session, in which a terminal that is the standard input becomes the controlling one."""
    if sys.platform != "linux" or env.get("LC_ALL") != "C.UTF-8" or any(map(READ_AT_THE_START.match, env)):
        terminal = ["setsid", "--ctty", "--wait"] if options.get("start_new_session") else []
        return subprocess.Popen([*terminal, sys.executable, "-m", "mudroom", *words], env=env, **options)
    return _Forked(list(words), env=env, **options)


def on_terminal(words: Sequence[str], *, cwd: Path, env: dict[str, str]) -> tuple[subprocess.Popen[Any], int]:
    """Return the process of ``mudroom`` with the words on a terminal of its own, and the other end of that."""
    master, slave = os.openpty()
    try:
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        return popen(words, cwd=cwd, env=env, start_new_session=True, **streams), master
    finally:
        os.close(slave)


def run(
    words: Sequence[str],
    *,
    input: str | None = None,  # noqa: A002 - as subprocess.run has it
    timeout: float = 100,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run ``mudroom`` with the words to its end, and return its text."""
    pipes: dict[str, Any] = dict.fromkeys(
        ("stdout", "stderr", *(["stdin"] if input is not None else [])), subprocess.PIPE
    )
    with popen(words, text=True, **{**pipes, **options}) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(words), process.returncode, out, err)


def _load() -> None:
    """Import all modules of this platform, but those that need another framework."""
    import mudroom

    root = Path(mudroom.__file__).parent
    for path in root.rglob("*.py"):
        *folders, name = path.relative_to(root).with_suffix("").parts
        if name != "__main__" and folders[1:2] not in (["macos"], ["orchestra"], ["windows"]):
            importlib.import_module(".".join(("mudroom", *folders, *([name] if name != "__init__" else []))))
    _rehearse()
    gc.collect()
    gc.freeze()


def _rehearse() -> None:
    """Run the usual commands as a keeper does at its start: a first use compiles patterns and filters."""
    try:
        from mudroom.cli.main import run
        from mudroom.ext.keeper.cli.keeper_process import _rehearse as rehearse
    except ImportError:
        return  # dev/without has deleted it
    null, own = os.open(os.devnull, os.O_RDWR), [os.dup(1), os.dup(2)]
    with tempfile.TemporaryDirectory() as directory:
        for number in range(3):
            os.dup2(null, number)
        rehearse(os.fsencode(directory) + b"/rehearsal", run)
    for number, saved in enumerate(own, 1):
        os.dup2(saved, number)
    for descriptor in (null, *own):
        os.close(descriptor)


def _become(request: int, streams: Sequence[int]) -> None:
    """Take over what the request says, as a new interpreter would have it."""
    told = json.loads(os.pread(request, os.fstat(request).st_size, 0))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    if told["is_new_session"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.closerange(3, 1 << 16)
    os.chdir(told["directory"])
    os.umask(told["umask"])
    resource.setrlimit(resource.RLIMIT_NOFILE, told["files"])
    os.environ.clear()
    os.environ.update(told["variables"])
    tempfile.tempdir = None  # that of the rehearsal
    time.tzset()
    sys.argv = ["mudroom", *told["words"]]
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8", "surrogateescape")
    for name, number, errors in (("stdout", 1, "surrogateescape"), ("stderr", 2, "backslashreplace")):
        raw = io.FileIO(number, "wb", closefd=False)
        at_lines = number == 2 or raw.isatty()
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors, line_buffering=at_lines))


def _serve(control: socket.socket) -> None:
    from mudroom.cli import main  # before the module of that name is loaded

    _load()
    ends: dict[int, tuple[int, int]] = {}
    while True:
        ready = select.select([control.fileno(), *ends], [], [])[0]
        for pidfd in ends.keys() & set(ready):
            pid, end = ends.pop(pidfd)
            os.write(end, struct.pack("i", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
            os.close(pidfd)
            os.close(end)
        if control.fileno() not in ready:
            continue
        word, descriptors, _flags, _address = socket.recv_fds(control, 16, 8)
        if not word:
            return
        request, end, *streams = descriptors
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _become(request, streams)
                main()
            except SystemExit as error:  # of a parser that has printed its help
                code = error.code if isinstance(error.code, int) else int(error.code is not None)
            except BaseException:  # noqa: BLE001 - as an interpreter does
                traceback.print_exc()
            with suppress(OSError):  # the reader is gone
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
        ends[os.pidfd_open(pid)] = pid, end
        os.write(end, struct.pack("i", pid))
        for descriptor in (request, *streams):
            os.close(descriptor)


if __name__ == "__main__":
    _serve(socket.socket(fileno=os.dup(0)))
