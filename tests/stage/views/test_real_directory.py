"""A real directory as a tree: whole files or none, no link followed, and a target for a buffer."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mudroom.stage import disk
from mudroom.stage.beneath import open_root
from mudroom.stage.layers.layer import LayerWriter
from mudroom.stage.source import NothingBelow
from mudroom.stage.views import real_directory
from mudroom.stage.views.real_directory import PlainTree


@pytest.fixture(params=["openat2", "by hand"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(disk, "_have_openat2", request.param == "openat2", raising=False)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    root = tmp_path / "root"
    (root / "d/e").mkdir(parents=True)
    (root / "d/f").write_text("f")
    (root / "d/f").chmod(0o750)
    (root / "out").symlink_to("../outside")
    (root / "d/out").symlink_to("../../outside/secret")
    return root


@pytest.fixture
def tree(root: Path) -> Iterator[PlainTree]:
    descriptor = open_root(os.fsencode(root))
    yield PlainTree(descriptor)
    os.close(descriptor)


def test_a_descriptor_that_can_only_be_walked_from_will_do(root: Path) -> None:
    """As the launcher hands out of a running command's mount."""
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        tree = PlainTree(descriptor)
        tree.write(b"new", b"x")
        assert tree.read(b"new") == b"x" and set(tree.names(b"")) == {b"d", b"out", b"new"}
        top = tree.look(b"")
        assert top is not None and top.inode == root.stat().st_ino
        tree.remove(b"d")
    finally:
        os.close(descriptor)


CHANGES: list[Callable[[PlainTree, bytes], object]] = [
    lambda tree, path: tree.read(path),
    lambda tree, path: tree.open(path),
    lambda tree, path: tree.write(path, b"x"),
    lambda tree, path: tree.create(path),
    lambda tree, path: tree.chmod(path, 0o777),
    lambda tree, path: tree.utime(path, 0),
]
ABOVE: list[Callable[[PlainTree, bytes], object]] = [
    *CHANGES,
    lambda tree, path: tree.mkdir(path),
    lambda tree, path: tree.symlink(path, b"x"),
    lambda tree, path: tree.unlink(path),
    lambda tree, path: tree.rmdir(path),
    lambda tree, path: tree.remove(path),
    lambda tree, path: tree.rename(path, b"new"),
    lambda tree, path: tree.rename(b"d/f", path),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_link_at_the_end_is_not_followed(tree: PlainTree, root: Path, change: Callable[..., object]) -> None:
    _refused(lambda: change(tree, b"d/out"), root)


@pytest.mark.parametrize("path", [b"out/secret", b"out/new"])
@pytest.mark.parametrize("change", ABOVE)
def test_a_link_on_the_way_is_not_followed(
    tree: PlainTree, root: Path, change: Callable[..., object], path: bytes
) -> None:
    assert tree.look(path) is None and tree.names(b"out") == {}
    _refused(lambda: change(tree, path), root)


def _refused(action: Callable[[], object], root: Path) -> None:
    secret = root.parent / "outside/secret"
    before = secret.stat()
    with pytest.raises(OSError) as caught:
        action()
    assert caught.value.errno == errno.ELOOP
    after = secret.stat()
    assert (before.st_mode, before.st_mtime_ns, before.st_ctime_ns) == (
        after.st_mode,
        after.st_mtime_ns,
        after.st_ctime_ns,
    )
    assert [*os.listdir(root.parent / "outside")] == ["secret"] and secret.read_text() == "secret"


def test_a_file_is_replaced_whole_and_keeps_its_mode(tree: PlainTree, root: Path) -> None:
    path, opened = root / "d/f", (root / "d/f").open()
    with opened, tree.create(b"d/f") as draft:
        draft.write(b"the ne")
        assert path.read_text() == "f"
        draft.write(b"w content")
        draft.flush()
        assert opened.read() == "f"
    assert path.read_text() == "the new content" and stat.S_IMODE(path.stat().st_mode) == 0o750
    tree.write(b"d/f", b"x", 0o604)
    tree.write(b"new", b"x")
    assert [stat.S_IMODE((root / name).stat().st_mode) for name in ("d/f", "new")] == [0o604, 0o644]
    assert sorted(os.listdir(root / "d")) == ["e", "f", "out"]


def test_the_mode_is_the_one_asked_for_whatever_the_umask(tree: PlainTree, root: Path) -> None:
    before = os.umask(0o077)
    try:
        tree.write(b"new", b"", 0o666)
        tree.mkdir(b"dir", 0o777)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((root / name).stat().st_mode) for name in ("new", "dir")] == [0o666, 0o777]


def test_what_a_crash_left_is_not_in_the_way(tree: PlainTree, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_directory, "_numbers", iter([1, 2]))
    (root / f".mudroom-{os.getpid()}-1").write_text("left")
    tree.write(b"new", b"x")
    assert (root / "new").read_text() == "x" and (root / f".mudroom-{os.getpid()}-1").read_text() == "left"


def test_a_disk_that_is_full_leaves_the_old_file(tree: PlainTree, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="disk full"):
        tree.write(b"d/f", b"new")
    assert (root / "d/f").read_text() == "f" and sorted(os.listdir(root / "d")) == ["e", "f", "out"]


def test_a_draft_whose_file_somebody_removed(tree: PlainTree, root: Path) -> None:
    """The command that works in the directory may do anything."""
    draft, discarded = tree.create(b"new"), tree.create(b"other")
    for path in root.glob(".mudroom-*"):
        path.unlink()
    with pytest.raises(FileNotFoundError):
        draft.close()
    discarded.discard()
    assert not (root / "new").exists()


def test_what_is_no_file_has_no_content(tree: PlainTree, root: Path) -> None:
    os.mkfifo(root / "fifo")
    back = os.getcwd()
    os.chdir(root)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("sock")
        os.chdir(back)
        for name in (b"fifo", b"sock"):
            for action in (tree.read, tree.open, tree.readable, tree.create):
                with pytest.raises(OSError) as caught:
                    action(name)
                assert caught.value.errno == errno.ENXIO
    with pytest.raises(IsADirectoryError):
        tree.read(b"d")


def test_a_directory_that_cannot_be_renamed_is_moved_in_parts(
    tree: PlainTree, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an overlay mount refuses it for what lies below."""
    rename = os.rename

    def of_an_overlay(old: bytes, new: bytes, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if stat.S_ISDIR(os.stat(old, dir_fd=src_dir_fd, follow_symlinks=False).st_mode):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", of_an_overlay)
    (root / "d/e").chmod(0o711)
    (root / "d/e/deep").mkdir()
    (root / "d/e/deep/x").write_text("x")
    (root / "empty").mkdir()
    tree.rename(b"d", b"empty")  # over an empty one
    tree.rename(b"empty", b"z")
    assert (root / "z/e/deep/x").read_text() == "x" and os.readlink(root / "z/out") == "../../outside/secret"
    assert stat.S_IMODE((root / "z/e").stat().st_mode) == 0o711
    assert sorted(os.listdir(root)) == ["out", "z"]
    (root / "full").mkdir()
    (root / "full/x").touch()
    with pytest.raises(OSError, match="not empty"):
        tree.rename(b"z", b"full")
    assert (root / "z/e/deep/x").exists()


def test_a_tree_deeper_than_the_stack_is_removed(tmp_path: Path) -> None:
    subprocess.run(["mkdir", "-p", tmp_path / "/".join(["x"] * 1100)], check=True)
    descriptor = open_root(os.fsencode(tmp_path))
    try:
        PlainTree(descriptor).remove(b"x")
    finally:
        os.close(descriptor)
    assert not (tmp_path / "x").exists()


def test_a_writer_replaces_whatever_is_there(root: Path) -> None:
    descriptor = open_root(os.fsencode(root))
    writer = LayerWriter(descriptor, NothingBelow())
    try:
        (root / "d/e").chmod(0)
        writer.data(b"d", b"now a file", mode=0o640, mtime=1_000_000_007)
        assert ((root / "d").read_text(), (root / "d").stat().st_mtime_ns) == ("now a file", 1_000_000_007)
        writer.new_directory(b"d", 0o700)
        with (root / "large").open("w+b") as stream:
            stream.write(b"x" * 100_000)
            stream.flush()
            writer.file(b"d/copy", stream.fileno(), mode=0o600, mtime=5)
        writer.symlink(b"out", b"elsewhere")
        writer.fifo(b"large", 0o622)
        writer.directory(b"d", 0o755)
        writer.directory(b"d/copy2", 0o711)
        writer.finish()
        assert os.readlink(root / "out") == "elsewhere"
        assert (root / "d/copy").read_bytes() == b"x" * 100_000
        assert stat.S_ISFIFO((root / "large").stat().st_mode)
        assert [stat.S_IMODE((root / name).stat().st_mode) for name in ("d", "d/copy2", "large")] == [
            0o755,
            0o711,
            0o622,
        ]
        writer.whiteout(b"d")
        writer.whiteout(b"none")
        assert sorted(os.listdir(root)) == ["large", "out"]
        with pytest.raises(FileNotFoundError):
            writer.data(b"none/x", b"", mode=0o644)
        with pytest.raises(NotADirectoryError):
            writer.data(b"out/x", b"", mode=0o644)
    finally:
        os.close(descriptor)
