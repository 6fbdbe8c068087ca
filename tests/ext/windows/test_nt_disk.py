"""The twin of ``mudroom.stage.disk`` on Windows: run by ``dev/wine``, and by anybody who has a Windows.

Wine 8 makes no links and no junctions, and it resolves the links of Linux before ntdll could tell of them: that links
are refused is shown by a Windows alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

import msvcrt

from mudroom.ext.windows.stage import nt_call, nt_file
from mudroom.stage import disk
from mudroom.stage.beneath import directory, entries, look, look_beneath, open_beneath, open_layer, open_root, read_file

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
DIRECTORY = os.O_RDONLY | disk.O_DIRECTORY


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    descriptor = open_root(os.fsencode(tmp_path))
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def layer(tmp_path: Path) -> Iterator[int]:
    descriptor = open_layer(os.fsencode(tmp_path))
    yield descriptor
    os.close(descriptor)


def write(at: int, name: bytes, content: bytes = b"") -> None:
    with os.fdopen(disk.open_at(at, name, NEW), "wb") as stream:
        stream.write(content)


def number(act: Callable[..., object], *words: object) -> int | None:
    with pytest.raises(OSError) as raised:
        act(*words)
    return raised.value.errno


def hold(path: Path) -> int:
    """Open the file as an editor may that shares nothing."""
    kernel = ctypes.WinDLL("kernel32")
    kernel.CreateFileW.restype = ctypes.c_void_p
    handle = kernel.CreateFileW(str(path), 0x80000000, 0, None, 3, 0, None)
    assert handle not in (None, ctypes.c_void_p(-1).value)
    return msvcrt.open_osfhandle(int(handle), os.O_RDONLY)


def test_a_file_goes_through_all_calls(root: int, tmp_path: Path) -> None:
    disk.mkdir(root, b"d", 0o700)
    write(root, b"d/a", b"one")
    assert (tmp_path / "d" / "a").read_bytes() == b"one"
    assert read_file(root, b"d/a", 100) == b"one"
    entry = look_beneath(root, b"d/a")
    assert entry is not None
    assert (entry.kind, entry.mode, entry.size, entry.links) == ("file", 0o644, 3, 1)
    disk.link(root, b"d/a", root, b"b")
    assert {name: each.kind for name, each in entries(root).items()} == {b"d": "directory", b"b": "file"}
    same = look(root, b"b")
    assert same is not None and (same.inode, same.links) == (entry.inode, 2)
    write(root, b"c", b"two")
    assert number(disk.rename_new, root, b"b", root, b"c") == errno.EEXIST
    assert read_file(root, b"c", 9) == b"two"
    disk.rename(root, b"b", root, b"c")
    assert read_file(root, b"c", 9) == b"one"
    disk.rename_new(root, b"c", root, b"d/c")
    assert number(disk.rmdir, root, b"d") == errno.ENOTEMPTY
    disk.unlink(root, b"d/c")
    disk.unlink(root, b"d/a")
    disk.rmdir(root, b"d")
    assert disk.names(root) == []


def test_times_are_those_of_the_change(root: int) -> None:
    """ctime is that of the last change and not of the creation: a tool that restores the mtime is noticed."""
    write(root, b"f", b"1")
    before = look(root, b"f")
    assert before is not None
    time.sleep(0.03)
    descriptor = disk.open_at(root, b"f", os.O_WRONLY)
    os.write(descriptor, b"2")
    disk.set_times_of(descriptor, before.mtime)
    os.close(descriptor)
    after = look(root, b"f")
    assert after is not None
    assert (after.mtime // 1000, after.inode) == (before.mtime // 1000, before.inode)
    assert after.ctime > before.ctime


@pytest.mark.parametrize(
    "name", [b"a:b", b"a\\b", b"nul", b"NUL.txt", b"com1", b"dot.", b"space ", b"..", b"a?", b"GIT~1"]
)
def test_a_name_that_means_another_is_refused(root: int, tmp_path: Path, name: bytes) -> None:
    assert look(root, name) is None
    assert number(disk.open_at, root, name, NEW) == errno.EINVAL
    assert number(disk.mkdir, root, name, 0o700) == errno.EINVAL
    write(root, b"plain")
    assert number(disk.rename_new, root, b"plain", root, name) == errno.EINVAL
    assert os.listdir(tmp_path) == ["plain"]


def test_a_long_path(root: int) -> None:
    """Windows' own calls end at 260 characters: here a path is one name after the other."""
    path = b"/".join([b"d" * 60] * 6)
    parts = path.split(b"/")
    for length in range(1, len(parts) + 1):
        disk.mkdir(root, b"/".join(parts[:length]), 0o700)
    write(root, path + b"/file", b"deep")
    assert read_file(root, path + b"/file", 9) == b"deep"
    disk.unlink(root, path + b"/file")
    for length in range(len(parts), 0, -1):
        disk.rmdir(root, b"/".join(parts[:length]))
    assert disk.names(root) == []


@pytest.mark.parametrize("path", [b"C:file", b"file", b"//server/share/x", b"\\\\server\\share\\x", b"/x"])
def test_a_path_that_depends_on_the_process_is_refused(path: bytes) -> None:
    with pytest.raises(OSError, match=r"drive|server") as raised:
        open_root(path)
    assert raised.value.errno == errno.EINVAL


def test_names_that_differ_in_case_clash(root: int) -> None:
    write(root, b"Read", b"1")
    assert number(disk.open_at, root, b"READ", NEW) == errno.EEXIST
    assert number(disk.mkdir, root, b"read", 0o700) == errno.EEXIST
    write(root, b"other", b"2")
    assert number(disk.rename_new, root, b"other", root, b"READ") == errno.EEXIST
    disk.rename_new(root, b"other", root, b"free")
    assert number(disk.rename, root, b"free", root, b"READ") == errno.EEXIST
    assert look(root, b"read") is None
    assert number(read_file, root, b"read", 9) == errno.ENOENT
    assert number(disk.unlink, root, b"read") == errno.ENOENT
    assert read_file(root, b"Read", 9) == b"1"
    disk.rename_new(root, b"free", root, b"other")
    assert disk.names(root) == [b"other", b"Read"] or disk.names(root) == [b"Read", b"other"]


@pytest.mark.parametrize("act", ["rename", "unlink", "replace", "open"])
def test_a_file_held_open_is_told_and_kept(root: int, tmp_path: Path, act: str) -> None:
    write(root, b"held", b"mine")
    write(root, b"new", b"theirs")
    handle = hold(tmp_path / "held")
    try:
        with pytest.raises(OSError, match="another program holds it open") as raised:
            if act == "rename":
                disk.rename_new(root, b"held", root, b"moved")
            elif act == "unlink":
                disk.unlink(root, b"held")
            elif act == "replace":
                disk.rename(root, b"new", root, b"held")
            else:
                os.close(disk.open_at(root, b"held", os.O_RDONLY))
        assert raised.value.errno == errno.EBUSY
        assert sorted(disk.names(root)) == [b"held", b"new"]
    finally:
        os.close(handle)
    assert (tmp_path / "held").read_bytes() == b"mine"
    disk.rename(root, b"new", root, b"held")
    assert (tmp_path / "held").read_bytes() == b"theirs"


def test_a_file_held_for_a_moment_is_waited_for(root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, b"held", b"mine")
    handle = hold(tmp_path / "held")
    monkeypatch.setattr(time, "sleep", lambda _seconds: os.close(handle))
    disk.rename_new(root, b"held", root, b"moved")
    assert disk.names(root) == [b"moved"]


@pytest.mark.parametrize(("old", "wanted"), [(b"full", errno.ENOTEMPTY), (b"file", errno.EISDIR)])
def test_a_directory_in_the_way_is_told_from_a_missing_right(
    root: int, tmp_path: Path, old: bytes, wanted: int
) -> None:
    """As rename(2) does: whoever takes a free name tries another one then."""
    for name in (b"full", b"taken"):
        disk.mkdir(root, name, 0o700)
        write(root, name + b"/a", name)
    write(root, b"file", b"f")
    assert number(disk.rename, root, old, root, b"taken") == wanted
    assert number(disk.rename_path, bytes(tmp_path / os.fsdecode(old)), bytes(tmp_path / "taken")) == wanted
    assert number(disk.rename_new, root, old, root, b"taken") == errno.EEXIST
    assert read_file(root, b"taken/a", 9) == b"taken" and read_file(root, b"full/a", 9) == b"full"
    assert sorted(disk.names(root)) == [b"file", b"full", b"taken"]


def test_a_read_only_file_can_be_deleted(root: int, tmp_path: Path) -> None:
    write(root, b"f")
    os.chmod(tmp_path / "f", stat.S_IREAD)
    disk.unlink(root, b"f")
    assert disk.names(root) == []


def test_a_name_changes_its_case(root: int) -> None:
    write(root, b"Read", b"1")
    disk.rename(root, b"Read", root, b"READ")
    if hasattr(ctypes.WinDLL("ntdll"), "wine_get_version"):
        pytest.skip("Wine 8 keeps the name of a file that is renamed to the same letters")
    assert disk.names(root) == [b"READ"]


def test_a_whiteout_stands_in_a_table(layer: int, tmp_path: Path) -> None:
    disk.whiteout(layer, b"gone")
    write(layer, b"there")
    assert {name: entry.kind for name, entry in entries(layer).items()} == {b"gone": "device", b"there": "file"}
    entry = look(layer, b"gone")
    assert entry is not None and entry.kind == "device"
    assert number(disk.whiteout, layer, b"gone") == errno.EEXIST
    assert number(disk.whiteout, layer, b"there") == errno.EEXIST
    disk.rename(layer, b"there", layer, b"gone")
    assert {name: entry.kind for name, entry in entries(layer).items()} == {b"gone": "file"}
    disk.unlink(layer, b"gone")
    disk.whiteout(layer, b"gone")
    disk.unlink(layer, b"gone")
    assert os.listdir(tmp_path) == []


def test_a_whiteout_beside_a_file_in_another_case(layer: int) -> None:
    """A command has renamed ``readme`` to ``README``: neither may take the other away."""
    write(layer, b"README", b"new")
    disk.whiteout(layer, b"readme")
    assert {name: entry.kind for name, entry in entries(layer).items()} == {b"readme": "device", b"README": "file"}
    disk.unlink(layer, b"readme")
    assert disk.names(layer) == [b"README"]


def test_marks_of_a_directory(layer: int, tmp_path: Path) -> None:
    from mudroom.stage import xattr

    disk.mkdir(layer, b"d", 0o700)
    with directory(layer, b"d") as opened:
        xattr.put(opened, "user.overlay.opaque", b"y")
        disk.whiteout(opened, b"x")
        assert xattr.get(opened, "user.overlay.opaque") == b"y"
        assert xattr.names(opened) == ["user.overlay.opaque"]
        assert disk.names(opened) == [b"x"]
        xattr.drop(opened, "user.overlay.opaque")
        disk.unlink(opened, b"x")
    disk.rmdir(layer, b"d")
    assert os.listdir(tmp_path) == []


def test_a_damaged_table_is_an_error(layer: int, tmp_path: Path) -> None:
    (tmp_path / nt_call.TABLE).write_text('{"gone": ["a"')
    assert number(disk.names, layer) == errno.EIO


PLANTED = '{"gone": ["kept"], "marks": {"user.overlay.opaque": "y"}}'


@pytest.mark.parametrize("name", [".mudroom-layer", ".Mudroom-LAYER", ".mudroom-layer.new"])
def test_a_planted_table_says_nothing(root: int, layer: int, tmp_path: Path, name: str) -> None:
    """A project, or a command in its copy, may have a file of the table's name. It hides and marks nothing there,
    nothing brings it into a layer, and it is told of."""
    from mudroom.stage import xattr

    for directory_ in (tmp_path / "project", tmp_path / "project" / "d", tmp_path / "layer"):
        directory_.mkdir()
    (tmp_path / "project" / name).write_text(PLANTED)
    (tmp_path / "project" / "d" / name).write_text(PLANTED)
    (tmp_path / "project" / "d" / "kept").write_text("kept")
    with directory(root, b"project/d") as project, directory(layer, b"layer") as inside:
        assert {each: entry.kind for each, entry in entries(project).items()} == {
            name.encode(): "socket",  # as anything that cannot be staged
            b"kept": "file",
        }
        assert look(project, b"gone") is None
        assert xattr.names(project) == []
        for act in (disk.whiteout, lambda at, last: xattr.put(at, "user.overlay.opaque", b"y")):
            assert number(act, project, b"new") == errno.ENOTSUP
        assert disk.why_unnamed(name.encode())
        assert number(disk.open_at, inside, name.encode(), NEW) == errno.EINVAL
        assert number(disk.mkdir, inside, name.encode(), 0o700) == errno.EINVAL
        assert number(disk.rename, project, b"kept", inside, name.encode()) == errno.EINVAL
        assert number(disk.whiteout, inside, name.encode()) == errno.EINVAL
        assert number(disk.rename_new, root, b"project/d", inside, b"d") == errno.EINVAL
        assert disk.names(inside) == []
    assert (tmp_path / "project" / "d" / name).read_text() == PLANTED


def test_a_table_does_not_follow_a_directory_out_of_its_layer(root: int, layer: int, tmp_path: Path) -> None:
    from mudroom.ext.windows.stage import nt_disk
    from mudroom.stage import xattr

    disk.mkdir(layer, b"d", 0o700)
    with directory(layer, b"d") as opened:
        xattr.put(opened, "user.overlay.opaque", b"y")
    (tmp_path / "slots").mkdir()
    disk.rename_new(layer, b"d", root, b"slots/1")
    nt_disk.leave_layer(root, b"slots/1")
    assert os.listdir(tmp_path / "slots" / "1") == []


@pytest.mark.parametrize("opener", [open_root, open_layer])
def test_a_tree_with_tables_is_removed(opener: Callable[[bytes], int], tmp_path: Path) -> None:
    from mudroom.stage.layers.layer import remove_at

    (tmp_path / "tree" / "d").mkdir(parents=True)
    opened = open_layer(os.fsencode(tmp_path / "tree"))
    disk.whiteout(opened, b"x")
    os.close(opened)
    (tmp_path / "tree" / "d" / ".mudroom-layer").write_text(PLANTED)
    above = opener(os.fsencode(tmp_path))
    remove_at(above, b"tree")
    os.close(above)
    assert os.listdir(tmp_path) == []


def raw_file(at: int, name: str) -> None:
    """Make a file as a command can through \\\\?\\: by its exact name."""
    nt_call.close(nt_call.create(msvcrt.get_osfhandle(at), name, nt_call.GENERIC_WRITE, nt_call.CREATE))


UNNAMED = ("dot.", "space ", "CON", "nul.txt", "aux", "GIT~1", ".mudroom-layer")


def test_names_that_cannot_be_staged_are_listed_and_removed(root: int, tmp_path: Path) -> None:
    """They are not dropped without a word, and a copy that has them is removed like any other."""
    from mudroom.stage.layers.layer import remove_at

    disk.mkdir(root, b"work", 0o700)
    with directory(root, b"work") as work:
        for name in UNNAMED:
            raw_file(work, name)
        write(work, b"unnamed-0")
        kinds = {name: entry.kind for name, entry in entries(work).items()}
        assert kinds == {**{name.encode(): "socket" for name in UNNAMED}, b"unnamed-0": "file"}
        for name in UNNAMED:
            assert look(work, name.encode()) is None
    remove_at(root, b"work")
    assert os.listdir(tmp_path) == []


def test_a_directory_stays_the_one_that_was_opened(root: int, tmp_path: Path) -> None:
    disk.mkdir(root, b"d", 0o700)
    with directory(root, b"d") as opened:
        disk.rename_new(root, b"d", root, b"moved")
        disk.mkdir(root, b"d", 0o700)
        os.close(disk.open_at(opened, b"f", NEW))  # Wine loses what it knows of such a file by path: it is not read
    assert sorted(path.name for path in tmp_path.rglob("f")) == ["f"]
    assert (tmp_path / "moved" / "f").exists()


def test_a_writer_may_not_be_a_directory(root: int) -> None:
    disk.mkdir(root, b"d", 0o700)
    write(root, b"f")
    assert number(disk.open_at, root, b"d", os.O_WRONLY) == errno.EISDIR
    assert number(open_beneath, root, b"f", DIRECTORY) == errno.ENOTDIR
    assert number(open_beneath, root, b"f/x", os.O_RDONLY) in (errno.ENOTDIR, errno.ENOENT)
    assert look_beneath(root, b"f/x") is None
    assert number(disk.unlink, root, b"d") == errno.EISDIR
    assert number(disk.rmdir, root, b"f") == errno.ENOTDIR


# --- links ---


@pytest.mark.parametrize("path", [b"link", b"link/secret", b"link/new"])
def test_a_junction_is_not_followed(root: int, tmp_path: Path, path: bytes) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    project.mkdir()
    (outside / "secret").write_text("secret")
    made = subprocess.run(["cmd", "/c", "mklink", "/J", str(project / "link"), str(outside)], check=False)
    if made.returncode or not (project / "link" / "secret").exists():
        pytest.skip("Wine 8 makes no junctions")
    with directory(root, b"project") as opened:
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, DIRECTORY):
            assert number(open_beneath, opened, path, flags) == errno.ELOOP
        entry = look(opened, b"link")
        assert entry is not None and entry.kind == "symlink"
    assert os.listdir(outside) == ["secret"]


class Ntdll:
    """With the call of Windows 10 1803, which Wine 8 lacks: it records the modes."""

    def __init__(self) -> None:
        self.modes: list[int] = []

        def disguise(mode: int) -> int:
            self.modes.append(mode)
            return 0

        self.RtlSetProcessPlaceholderCompatibilityMode = disguise


def test_files_of_a_cloud_look_like_files() -> None:
    ntdll = Ntdll()
    nt_call.disguise_placeholders(ntdll)  # type: ignore[arg-type]
    nt_call.disguise_placeholders(object())  # type: ignore[arg-type]  # an older Windows
    assert ntdll.modes == [1], "PHCM_DISGUISE_PLACEHOLDER"


@pytest.mark.parametrize(("code", "words"), [(362, "attrib +p"), (388, "attrib +p"), (23, "it cannot be read (23)")])
def test_a_file_that_the_cloud_does_not_give_is_told(
    root: int, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def fails(*_words: object) -> int:
        ctypes.set_last_error(code)
        return 0

    write(root, b"a", b"one")
    descriptor = disk.open_at(root, b"a", os.O_RDONLY)
    try:
        with monkeypatch.context() as patch, pytest.raises(OSError, match=re.escape(words)):
            patch.setattr(nt_file, "kernel", SimpleNamespace(ReadFile=fails))
            disk.pread(descriptor, 3, 0)
    finally:
        os.close(descriptor)


def test_links_are_not_made(root: int) -> None:
    assert number(disk.symlink, root, b"link", b"target") == errno.EPERM
    assert number(disk.mkfifo, root, b"pipe", 0o600) == errno.ENOTSUP
    assert disk.names(root) == []


def test_all_calls_are_there() -> None:
    """The twins have the same names: a caller does not ask which it has (anywhere/test_disk.py reads both)."""
    assert disk.__name__ == "mudroom.ext.windows.stage.nt_disk"
