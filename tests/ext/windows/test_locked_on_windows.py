"""Files of the project of which another process has locked a part (LockFileEx), as a database does: they can be opened
and not be read. Each that has to be read is one conflict, as one that is held open
(``tests/vault/apply/test_held_file.py``). Run by ``dev/wine``."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.core.tree.entry import HELD, FileHeld
from mudroom.ext.windows.stage import nt_file
from mudroom.stage import disk
from test_on_windows import WINE
from workbench import Workbench, contents

LINES = b"".join(b"%d\n" % number for number in range(20))
FIRST, LAST = b"first\n", b"last\n"
CLASH = "clash: also changed in the project, in the same lines"
AFTER = {"merged": FIRST + LINES + LAST, "clash": b"mine!\n", "other": b"new\n"}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    made = Workbench(tmp_path)
    for name, data in (("merged", LINES), ("clash", b"clash\n"), ("other", b"other\n")):
        (made.project / name).write_bytes(data)
    yield made
    made.close()


def command(work: Path) -> None:
    (work / "merged").write_bytes(FIRST + LINES)
    (work / "clash").write_bytes(b"yours\n")
    (work / "other").write_bytes(b"new\n")


def user(project: Path) -> None:
    (project / "merged").write_bytes(LINES + LAST)
    (project / "clash").write_bytes(b"mine!\n")


LOCKS = """
import ctypes, sys
kernel = ctypes.WinDLL("kernel32")
kernel.CreateFileW.restype = ctypes.c_void_p
for path in sys.argv[1:]:
    handle = ctypes.c_void_p(kernel.CreateFileW(path, 0x80000000, 7, None, 3, 0, None))  # it shares all
    at = (ctypes.c_uint64 * 4)()
    assert kernel.LockFileEx(handle, 3, 0, 0xFFFFFFFF, 0x7FFFFFFF, at), path
print("locked", flush=True)
sys.stdin.read()
"""
LOCK_VIOLATION = 33
"""ERROR_LOCK_VIOLATION of winerror.h, which is EACCES of the C runtime."""


@contextmanager
def locked(*paths: Path) -> Iterator[None]:
    """Another process locks the files. Wine, whose locks hinder no read, gets the errors of one."""
    program = [sys.executable, "-c", LOCKS, *map(str, paths)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder, ExitStack() as stack:
        try:
            assert holder.stdout is not None and holder.stdout.readline().strip() == b"locked"
            if WINE:
                refusing(stack, {os.stat(path).st_ino for path in paths})
            yield
        finally:
            holder.communicate()


def refusing(stack: ExitStack, files: set[int]) -> None:
    read, kernel = os.read, nt_file.kernel

    def read_os(descriptor: int, length: int) -> bytes:
        if os.fstat(descriptor).st_ino in files:
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(descriptor, length)

    def read_file(handle: int, *words: Any) -> int:
        held = any(nt_file.handle_of(descriptor) == handle for descriptor in opened(files))
        if held:
            ctypes.set_last_error(LOCK_VIOLATION)
        return 0 if held else kernel.ReadFile(handle, *words)

    stack.enter_context(mock.patch.object(os, "read", read_os))
    stack.enter_context(
        mock.patch.object(nt_file, "kernel", SimpleNamespace(ReadFile=read_file, WriteFile=kernel.WriteFile))
    )


def opened(files: set[int]) -> Iterator[int]:
    for descriptor in range(3, 256):
        with suppress(OSError):
            if os.fstat(descriptor).st_ino in files:
                yield descriptor


def test_it_can_be_opened_and_each_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"text")
    with locked(tmp_path / "f"):
        descriptor = disk.open_path(str(tmp_path / "f"), os.O_RDONLY)
        try:
            for read in (lambda: disk.read(descriptor, 4), lambda: disk.pread(descriptor, 4, 0)):
                with pytest.raises(FileHeld, match="another program has locked a part of it"):
                    read()
        finally:
            os.close(descriptor)


def test_an_apply_and_then_an_undo(bench: Workbench) -> None:
    """Nothing of a locked file is lost: not to the apply that cannot merge it, nor to the undo that cannot see it."""
    bench.run("f", command)
    user(bench.project)
    before = contents(bench.project)
    with locked(bench.project / "merged", bench.project / "clash"):
        told = bench.apply("f")
    assert sorted(told) == [f"clash: {HELD}", f"merged: {HELD}"], told
    assert contents(bench.project) == {**AFTER, "merged": before["merged"]}
    assert bench.apply("f") == [CLASH] and contents(bench.project) == AFTER
    with (bench.project / "merged").open("ab") as stream:
        stream.write(b"since\n")
    with locked(bench.project / "merged"):
        result = bench.changes.undo()
    assert [(each.path, each.reason) for each in result.conflicts] == [(b"merged", HELD)]
    assert bench.changes.redo().conflicts == () and bench.undo() == []
    assert contents(bench.project)["merged"] == LINES + LAST + b"since\n"


def test_a_copy_is_made_without_it(bench: Workbench) -> None:
    (bench.project / "held").write_bytes(b"database")
    with locked(bench.project / "held"):
        changes = bench.run("f", command)
    assert all(change.path != b"held" for change in changes.changes)
    assert ["held" in note for note in bench.notes] == [True], bench.notes
    user(bench.project)
    assert bench.apply("f") == [CLASH]
    assert contents(bench.project) == {**AFTER, "held": b"database"}
