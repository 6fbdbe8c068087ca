"""A directory of the project is renamed in an overlay, where the kernel alone answers EXDEV (overlayfs.rst, "renaming
directories"): src/native/launcher/rename.c."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import KINDS, Box, if_namespaces
from mudroom.core.result import Denial
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.host.denials import NO_RENAME, denials

pytestmark = [pytest.mark.both_users, if_namespaces]
OVERLAYS = tuple(kind for kind in KINDS if kind.startswith("overlay"))
PYTHON = "/usr/bin/python3"


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Iterator[Box]:
    yield Box(tmp_path, client)


def fill(project: Path) -> None:
    deep = project / "old" / "sub" / "deeper"
    deep.mkdir(parents=True)
    (project / "old" / "file").write_text("first\n")
    (project / "old" / "sub" / "program").write_text("#!/bin/sh\n")
    (project / "old" / "sub" / "program").chmod(0o755)
    (deep / "link").symlink_to("../../file")
    os.mkfifo(deep / "fifo")
    (project / "old" / "sub").chmod(0o750)
    for path in (project / "old" / "file", deep, project / "old" / "sub", project / "old"):
        os.utime(path, ns=(10**18, 10**18 + 5))


def python(code: str) -> str:
    return f"{PYTHON} - <<'END'\nimport os, errno\n{code}\nEND\n"


@pytest.mark.parametrize("kind", OVERLAYS)
def test_a_directory_of_the_project_is_renamed(box: Box, kind: str) -> None:
    fill(box.project)
    plan = box.prepared(kind)
    code = """
os.rename('old', 'new')
print(sorted(os.listdir('.')), open('new/file').read(), os.readlink('new/sub/deeper/link'))
for name in ('new', 'new/sub', 'new/sub/deeper', 'new/file', 'new/sub/program'):
    it = os.stat(name); print(name, oct(it.st_mode), it.st_nlink if name == 'new/file' else '')
print([os.stat(name).st_mtime_ns for name in ('new', 'new/sub', 'new/sub/deeper', 'new/file')] == [10**18 + 5] * 4)
print(oct(os.lstat('new/sub/deeper/fifo').st_mode), sorted(os.listdir('new/sub')))
"""
    ended, said = box.run(python(code), plan)
    assert ended.status == 0, said
    assert said.splitlines() == [
        "['new'] first",
        " ../../file",
        "new 0o40755 ",
        "new/sub 0o40750 ",
        "new/sub/deeper 0o40755 ",
        "new/file 0o100644 1",
        "new/sub/program 0o100755 ",
        "True",
        "0o10644 ['deeper', 'program']",
    ]
    assert (box.project / "old" / "file").read_text() == "first\n"
    assert denials(ended.refused) == ()


@pytest.mark.parametrize("kind", OVERLAYS)
def test_a_file_s_names_stay_names_of_one_file(box: Box, kind: str) -> None:
    """As on other file systems, and as ``mv`` copies them. A name outside of the directory is a file of its own."""
    fill(box.project)
    for name in ("old/sub/second", "old/third", "outside"):
        os.link(box.project / "old" / "file", box.project / name)
    code = """
os.rename('old', 'new')
first, second, third = (os.stat(f'new/{name}') for name in ('file', 'sub/second', 'third'))
print(first.st_nlink, first.st_ino == second.st_ino == third.st_ino, os.path.lexists('old'), os.path.exists('outside'))
open('new/sub/second', 'a').write('more\\n')
print(repr(open('new/third').read()), sorted(os.listdir('new')))
"""
    ended, said = box.run(python(code), box.prepared(kind))
    assert (ended.status, said.splitlines()) == (0, ["3 True False True", "'first\\nmore\\n' ['file', 'sub', 'third']"])


@pytest.mark.parametrize(
    ("before", "call", "error"),
    [
        ("", "os.rename('old', 'old/sub/inside')", errno.EINVAL),
        ("os.mkdir('full'); open('full/x', 'w').close()", "os.rename('old', 'full')", errno.ENOTEMPTY),
        ("open('file', 'w').close()", "os.rename('old', 'file')", errno.ENOTDIR),
        ("", "os.rename('old', 'none/new')", errno.ENOENT),
        ("", "os.rename('absent', 'new')", errno.ENOENT),
        ("", "os.rename('old', '/tmp/new')", errno.EXDEV),
        ("", "os.rename('old/.', 'new')", errno.EBUSY),
        ("", "os.rename('old', 'new/..')", errno.ENOENT),
        ("", "os.rename('/proc/1/cwd/old', 'new')", errno.EACCES),
        ("", "os.rename('/proc/./self/cwd/old', 'new')", errno.EXDEV),
        ("", "os.rename('/proc/thread-self/root' + os.getcwd() + '/old', 'new')", errno.EXDEV),
        ("", "os.rename('old', '.mudroom/new')", errno.ENOENT),
    ],
)
def test_an_impossible_rename_has_the_kernels_error(box: Box, before: str, call: str, error: int) -> None:
    fill(box.project)
    code = f"{before}\ntry: {call}\nexcept OSError as it: print(it.errno)\nprint(os.path.exists('old/sub/program'))"
    ended, said = box.run(python(code))
    assert said == f"{error}\nTrue\n"
    assert denials(ended.refused) == ()


@pytest.mark.parametrize(
    ("before", "call", "seen"),
    [
        ("os.mkdir('empty')", "os.rename('old', 'empty')", "empty/sub/program"),
        ("", "os.rename('old/', 'new/')", "new/sub/program"),
        ("", "os.rename(os.getcwd() + '/old', 'new')", "new/sub/program"),
        ("os.chdir('old/sub')", "os.rename('../../old', '../../new')", "../../new/sub/program"),
        ("os.mkdir('other')", "os.rename('old/sub', 'other/sub')", "other/sub/program"),
        ("at = os.open('old', 0)", "os.rename('sub', 'sub2', src_dir_fd=at, dst_dir_fd=at)", "old/sub2/program"),
        ("open('old/sub/more', 'w').close(); os.unlink('old/file')", "os.rename('old', 'new')", "new/sub/more"),
        ("os.rename('old', 'once')", "os.rename('once', 'old')", "old/sub/program"),
        ("os.chmod('old/sub', 0o555)", "os.rename('old', 'new')", "new/sub/program"),
    ],
)
def test_a_rename_follows_its_arguments(box: Box, before: str, call: str, seen: str) -> None:
    fill(box.project)
    ended, said = box.run(python(f"{before}\n{call}\nprint(os.path.exists({seen!r}))"))
    assert (ended.status, said) == (0, "True\n")


def test_an_open_file_is_the_renamed_file(box: Box) -> None:
    fill(box.project)
    code = """
file = open('old/file', 'r+')
os.rename('old', 'new')
file.seek(0, 2); file.write('second\\n'); file.close()
print(open('new/file').read(), end='')
"""
    assert box.run(python(code))[1] == "first\nsecond\n"


def test_an_exchange_of_directories_is_refused_and_named(box: Box) -> None:
    fill(box.project)
    (box.project / "other").mkdir()
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.renameat2(-100, b'old', -100, b'other', 2), ctypes.get_errno())
"""
    ended, said = box.run(python(code))
    assert said == f"-1 {errno.EXDEV}\n"
    assert denials(ended.refused) == (Denial("rename", b"old", NO_RENAME),)


def test_a_directory_with_a_file_that_cannot_be_linked_stays(box: Box) -> None:
    fill(box.project)
    (box.project / "old" / "closed").mkdir(mode=0o300)
    code = """
try: os.rename('old', 'new')
except OSError as it: print(it.errno)
print(sorted(os.listdir('.')), sorted(os.listdir('old')))
"""
    ended, said = box.run(python(code))
    if os.geteuid() == 0:
        assert ended.status == 0
        return
    assert said == f"{errno.EXDEV}\n['old'] ['closed', 'file', 'sub']\n"
    assert [denial.kind for denial in denials(ended.refused)] == ["rename"]


def test_a_process_that_has_narrowed_itself_gets_no_rename(box: Box) -> None:
    """The mediator is in no Landlock domain that a command makes: it would rename where the domain forbids it."""
    fill(box.project)
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
rights = ctypes.c_uint64(1 << 4 | 1 << 5 | 1 << 13)  # remove directory, remove file, refer
libc.prctl(38, 1, 0, 0, 0)
ruleset = libc.syscall(444, ctypes.byref(rights), 8, 0)
assert ruleset >= 0 and libc.syscall(446, ruleset, 0) == 0, ctypes.get_errno()
try: os.rename('old', 'new')
except OSError as it: print(it.errno)
print(sorted(os.listdir('.')))
"""
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < 2:
        pytest.skip("no Landlock with the right to refer here")
    said = box.run(python(code))[1]
    assert said in {f"{error}\n['old']\n" for error in (errno.EXDEV, errno.EACCES)}


def test_files_are_renamed_by_the_kernel_while_a_directory_moves(box: Box) -> None:
    """Two at a time: init answers others while a directory is renamed."""
    fill(box.project)
    for number in range(300):
        (box.project / "old" / f"f{number}").write_text("x")
    code = """
import threading
mover = threading.Thread(target=os.rename, args=('old', 'new'))
mover.start()
for number in range(200):
    open('a', 'w').close(); os.rename('a', 'b')
mover.join()
print(len(os.listdir('new')), os.path.exists('old'))
"""
    assert box.run(python(code))[1] == "302 False\n"


def test_a_killed_rename_leaves_the_old_name(box: Box) -> None:
    fill(box.project)
    for number in range(2000):
        (box.project / "old" / f"f{number}").write_text("x")
    code = """
import signal, time
child = os.fork()
if child == 0:
    os.rename('old', 'new'); os._exit(0)
while not any(name.startswith('.mudroom-rename') for name in os.listdir('.')): os.sched_yield()
os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
while any(name.startswith('.mudroom-rename') for name in os.listdir('.')): os.sched_yield()
print(sorted(os.listdir('.')), len(os.listdir('old')))
"""
    assert box.run(python(code))[1] == "['old'] 2002\n"
