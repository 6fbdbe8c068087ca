"""Twins of POSIX calls that only Windows can show: locks, processes, boot, owners. Run by ``dev/wine``."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

import msvcrt

from mudroom.ext.windows.sandbox.native import NativeFiles
from mudroom.ext.windows.stage import nt_disk, nt_private
from mudroom.ext.windows.stage.nt_call import granted  # type: ignore[attr-defined,unused-ignore]
from mudroom.ext.windows.win32 import console, owner, process
from mudroom.ext.windows.win32.api import Library
from mudroom.ext.windows.win32.lock import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock

try:
    from mudroom.vault.lock import Lock, holder_of
    from mudroom.vault.turn import Turn
except AttributeError as missing:  # a name of os
    MISSING = str(missing)
else:
    MISSING = ""
needs_files = pytest.mark.skipif(bool(MISSING), reason=f"the file system of Windows is not there: {MISSING}")

LIBRARY = Library()
WINE = hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")
HOLD = """
import sys
sys.path[:0] = {places!r}
from mudroom.ext.windows.sandbox.native import NativeFiles
from mudroom.vault.lock import Lock
Lock({path!r}, 'the other one').acquire('the other one')
print('held', flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that holds a lock until it is ended."""

    def __init__(self, path: Path) -> None:
        text = HOLD.format(places=sys.path, path=os.fsencode(path))
        self.process = subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "held"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_BINARY)


def test_shared_and_exclusive_locks_are_those_of_flock(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    flock(first, LOCK_SH)
    flock(second, LOCK_SH | LOCK_NB)
    with pytest.raises(BlockingIOError):
        flock(second, LOCK_EX | LOCK_NB)
    flock(first, LOCK_UN)
    flock(first, LOCK_UN)  # not held: as flock(2), no error
    flock(second, LOCK_EX | LOCK_NB)  # a lock is changed, not added
    with pytest.raises(BlockingIOError):
        flock(first, LOCK_SH | LOCK_NB)
    flock(second, LOCK_UN)
    flock(first, LOCK_EX | LOCK_NB)  # one unlock was enough
    os.close(first)
    flock(second, LOCK_EX | LOCK_NB)  # a lock dies with its file
    os.close(second)


@needs_files
def test_the_text_of_a_holder_can_be_read_while_it_holds_the_lock(tmp_path: Path) -> None:
    holder = Holder(tmp_path / "lock")
    try:
        lock = Lock(os.fsencode(tmp_path / "lock"))
        assert not lock.acquire_now()
        descriptor = opened(tmp_path / "lock")
        assert holder_of(descriptor) == "the other one"
        assert (tmp_path / "lock").read_text().strip() == "the other one"
        os.close(descriptor)
    finally:
        holder.kill()
    lock.acquire("me")  # waits until the system has taken the lock of a killed process away
    assert lock.is_at_its_path
    lock.release()


@needs_files
def test_a_wait_ends_when_the_lock_is_free(tmp_path: Path) -> None:
    holder, told = Holder(tmp_path / "lock"), list[str]()

    def waiting(text: str) -> None:
        told.append(text)
        holder.kill()

    lock = Lock(os.fsencode(tmp_path / "lock"))
    lock.acquire("me", waiting)
    lock.release()
    assert told == ["the other one"]


@needs_files
def test_a_turn_makes_agents_stand_aside(tmp_path: Path) -> None:
    vault = os.fsencode(tmp_path)
    agent, user = Turn(vault), Turn(vault)
    agent.begin()
    taken = threading.Event()

    def take() -> None:
        user.take(lambda: None)
        taken.set()
        user.give()

    thread = threading.Thread(target=take)
    thread.start()
    paused = list[str]()
    while not paused:
        agent.stand_aside(lambda: paused.append("pause"), lambda: paused.append("resume"))
    thread.join()
    assert taken.is_set()
    assert paused == ["pause", "resume"]
    agent.end()
    agent.close()
    user.close()


@needs_files
def test_the_clock_of_the_vault_runs(tmp_path: Path) -> None:
    from mudroom.stage.stamp import file_clock
    from mudroom.vault import moment

    first = moment.note(os.fsencode(tmp_path))
    assert first.last.boot.startswith("windows-")
    again = moment.note(os.fsencode(tmp_path))
    assert (len(again.spans), again.last.boot) == (len(first.spans), first.last.boot)
    moment.save(os.fsencode(tmp_path), again)  # over the file that is there
    assert moment.clock_of(os.fsencode(tmp_path)).swept == first.swept
    before = file_clock()
    (tmp_path / "file").write_bytes(b"x")
    written = (tmp_path / "file").stat().st_mtime_ns
    assert abs(written - before) < 5_000_000_000
    start = moment.present()
    assert start.boot < start.time


def test_a_process_is_its_number_with_its_start() -> None:
    own = process.started(LIBRARY, os.getpid())
    assert own > 0
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    assert process.started(LIBRARY, other.pid) >= own
    other.communicate()
    assert process.started(LIBRARY, other.pid) == 0  # its object lives as long as the handle of ``other``
    assert process.started(LIBRARY, 0x7FFFFFF0) == 0


def test_the_boot_has_one_name() -> None:
    names = {process.boot_id(LIBRARY) for _reading in range(50)}
    assert len(names) == 1
    assert process.boot_id(LIBRARY) != "windows-0"


@pytest.mark.skipif(WINE, reason="Wine keeps a list as a mode, with an entry of Everyone")
def test_a_protected_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret")
    owner.protect(LIBRARY, str(path))
    with path.open("rb") as stream:
        assert owner.is_private(LIBRARY, msvcrt.get_osfhandle(stream.fileno()))


@pytest.mark.parametrize("question", ["is_private", "is_own"])
def test_an_open_directory_is_asked_by_a_handle_that_may_read_its_list(
    tmp_path: Path, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "GetSecurityInfo": READ_CONTROL, which Wine does not ask for. Elsewhere these two are stood for (``place``):
    this is another copy of their module."""
    spec = importlib.util.find_spec(nt_private.__name__)
    assert spec is not None and spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    asked: list[int] = []
    monkeypatch.setattr(owner, question, lambda _library, handle: not asked.append(handle))
    descriptor = nt_disk.open_root(os.fsencode(tmp_path))
    try:
        assert getattr(fresh, question)(descriptor)
        assert asked == [msvcrt.get_osfhandle(descriptor)]
        assert granted(asked[0]) & 0x20000
    finally:
        os.close(descriptor)


def test_a_file_that_everyone_may_read_is_not_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret")
    owner.protect(LIBRARY, str(path))
    NativeFiles(LIBRARY).grant(str(path), "S-1-1-0", 0x120089)  # Everyone, reading
    with path.open("rb") as stream:
        assert not owner.is_private(LIBRARY, msvcrt.get_osfhandle(stream.fileno()))


def test_a_handle_that_is_no_console_has_no_modes(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as stream:
        handle = msvcrt.get_osfhandle(stream.fileno())
        assert console.mode(LIBRARY, handle) is None
        assert console.size(LIBRARY, handle) is None
        assert console.enter_raw(LIBRARY, handle, handle) is None
        console.discard_typed(LIBRARY, handle)
