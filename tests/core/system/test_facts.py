"""Facts of this system: handles of processes, boots, locks, short paths of sockets, waits."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mac import on_a_mac
from mudroom.core.system.process import ProcessHandle, boot, ends_with_parent, started
from mudroom.core.system.readiness import SelectorPoll, is_abandoned, wait_for_devices
from mudroom.core.system.write_lock import is_read_locked, try_write_lock
from mudroom.vault.socket_path import linked_path


def child() -> int:
    pid = os.fork()
    if not pid:
        signal.pause()
    return pid


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has PR_SET_PDEATHSIG")
def test_a_child_ends_with_the_process_that_has_started_it() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        subprocess.Popen(["sleep", "600"], pass_fds=[write], preexec_fn=ends_with_parent(signal.SIGKILL))  # noqa: PLW1509
        os.write(write, b"x")
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    assert os.read(read, 2) == b"x"
    assert select.select([read], [], [], 60)[0] and os.read(read, 1) == b"", "its end of the pipe is closed"
    os.close(read)


def test_the_end_of_a_process_is_told() -> None:
    pid = child()
    handle = ProcessHandle(pid)
    assert select.select([handle.fileno()], [], [], 0)[0] == []
    assert started(pid) >= started(os.getpid()) > 0 and len(boot()) == 36
    handle.kill_child()
    assert select.select([handle.fileno()], [], [], 0)[0] and started(pid) == 0
    handle.kill_child()  # harmless
    handle.close()


def test_as_on_a_mac() -> None:
    """The same by kqueue, libproc and sysctl; a process that is ending already cannot be watched there."""
    program = """
from mudroom.core.system.process import ProcessHandle, boot, started
pid = os.fork()
if not pid:
    signal.pause()
handle = ProcessHandle(pid)
before = select.select([handle.fileno()], [], [], 0)[0]
print(before, started(pid) >= started(os.getpid()) > 0, len(boot()))
os.kill(pid, signal.SIGKILL)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
late = ProcessHandle(pid)
for one in (handle, late):
    print(bool(select.select([one.fileno()], [], [], 0)[0]), end=" ")
    one.kill_child()
    one.close()
from mudroom.core.system.write_lock import is_read_locked, try_write_lock
import tempfile
with tempfile.NamedTemporaryFile() as file, open(file.name, "r+b") as other:
    print(try_write_lock(file.fileno()), try_write_lock(other.fileno()), is_read_locked(other.fileno()))
"""
    assert on_a_mac(program) == "[] True 36\nTrue True True False False\n"


def test_a_write_lock_is_of_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+b") as one, path.open("r+b") as other, path.open("rb") as reader:
        assert try_write_lock(one.fileno()) and not try_write_lock(other.fileno())
        assert not is_read_locked(other.fileno())
        with pytest.raises(OSError, match="Bad file descriptor"):
            try_write_lock(reader.fileno())
        one.close()
        fcntl.fcntl(reader.fileno(), fcntl.F_OFD_SETLK, _read_lock())
        assert not try_write_lock(other.fileno()) and is_read_locked(other.fileno())


def _read_lock() -> bytes:
    import struct

    return struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)


def test_a_long_path_of_a_socket(tmp_path: Path) -> None:
    """Through a link in a directory of this user alone, which is gone afterwards."""
    for length in (10, 200):
        directory = tmp_path / ("d" * 200) / ("e" * length)
        directory.mkdir(parents=True)
        path = bytes(directory / "socket")
        with linked_path(path) as short, socket.socket(socket.AF_UNIX) as listener:
            assert len(short) < 104 and short.startswith(b"/tmp/mudroom-")
            assert os.stat(short.rpartition(b"/d/")[0]).st_mode & 0o777 == 0o700
            listener.bind(short)
        assert not os.path.lexists(short.rpartition(b"/d/")[0]) and os.path.exists(path)
        os.unlink(path)
    with linked_path(b"/short/path") as short:
        assert short == b"/short/path"


@pytest.mark.parametrize("kind", [selectors.SelectSelector, selectors.PollSelector, selectors.DefaultSelector])
def test_a_selector_is_as_epoll(kind: type[selectors.BaseSelector]) -> None:
    poll = SelectorPoll(kind())
    ours, theirs = socket.socketpair()
    poll.register(ours.fileno(), select.POLLIN)
    assert poll.poll(0) == []
    poll.modify(ours.fileno(), select.POLLIN | select.POLLOUT)
    assert poll.poll(None) == [(ours.fileno(), select.POLLOUT)]
    theirs.close()
    assert dict(poll.poll(-1))[ours.fileno()] & select.POLLIN
    poll.unregister(ours.fileno())
    with pytest.raises(OSError, match=str(ours.fileno())):
        poll.unregister(ours.fileno())
    assert poll.poll(0) == []
    ours.close()
    poll.close()


def test_terminals_are_waited_for() -> None:
    master, side = pty.openpty()
    wanted = {master: select.POLLIN, side: 0}
    assert wait_for_devices(wanted, 0.0) == {}
    os.write(side, b"x")
    assert wait_for_devices(wanted, None) == {master: select.POLLIN}
    assert wait_for_devices({master: select.POLLOUT}, None) == {master: select.POLLOUT}
    os.close(master)
    os.close(side)


def test_a_reader_that_leaves() -> None:
    read, write = os.pipe()
    assert not is_abandoned(write, 0)
    thread = threading.Thread(target=os.close, args=(read,))
    thread.start()
    assert is_abandoned(write, 10)
    thread.join()
    os.close(write)
