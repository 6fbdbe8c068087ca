"""The write buffer beside a real copy: the same operations, the same answers and errors, the same tree when flushed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ground import Ground, fill, shape
from inner_path import inner
from mudroom.core.tree.entry import Entry
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.buffer.files import Tree
from mudroom.stage.buffer.flush import FlushTarget
from mudroom.stage.layers.layer import LayerWriter, remove_tree
from mudroom.stage.layers.union import Union
from mudroom.stage.source import NothingBelow, OpenSource, read_all
from mudroom.stage.views.real_directory import PlainTree
from tiers import examples


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with Ground(tmp_path) as ground:
        fill(ground.base)
        yield ground


# --- beside a copy ---

PATHS = st.sampled_from(
    [
        b"a", b"a/below", b"b", b"b/below", b"b/e", b"d", b"d/dangling", b"d/e", b"d/e/g", b"d/e/x/y", b"d/f", b"d/new",
        b"d/pipe", b"empty", b"empty/x", b"full", b"full/of", b"full/of/files/one", b"full/of/x", b"link", b"link/e/g",
        b"link/f",
    ]
)  # fmt: skip
CONTENT = st.sampled_from([b"", b"x", b"words\n", b"y" * 40, b"z" * 90])
MODE = st.sampled_from([0o755, 0o700, 0o751, 0o744])  # a directory goes on being accessible to its owner
OPERATION = st.one_of(
    st.tuples(st.just("write"), PATHS, CONTENT),
    st.tuples(st.just("write"), PATHS, CONTENT, st.sampled_from([0o644, 0o600, 0o755, 0o4711])),
    st.tuples(st.just("create"), PATHS, CONTENT),
    st.tuples(st.just("exclusive"), PATHS, CONTENT),
    st.tuples(st.just("mkdir"), PATHS),
    st.tuples(st.just("mkdir"), PATHS, MODE),
    st.tuples(st.just("symlink"), PATHS, PATHS),
    st.tuples(st.just("unlink"), PATHS),
    st.tuples(st.just("rmdir"), PATHS),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("chmod"), PATHS, MODE),
    st.tuples(st.just("utime"), PATHS, st.just(1_000_000_007)),
    st.tuples(st.just("read"), PATHS),
)


def perform(tree: Tree, operation: tuple[object, ...]) -> object:
    """What an operation gives: its result, or the class and number of its error."""
    name, path, *rest = operation
    try:
        if name in ("create", "exclusive"):
            with tree.create(path, exclusive=name == "exclusive") as draft:  # type: ignore[arg-type]
                draft.write(rest[0])  # type: ignore[arg-type]
            return None
        return getattr(tree, str(name))(path, *rest)
    except OSError as error:
        return type(error), error.errno


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(operations=st.lists(OPERATION, max_size=14), flush_at=st.integers(0, 14))
@example(operations=[("rename", b"d", b"b"), ("rename", b"full", b"d"), ("rename", b"b", b"full")], flush_at=14)
@example(
    operations=[("rename", b"d/e", b"b"), ("remove", b"d"), ("mkdir", b"d"), ("rename", b"b", b"d/e")], flush_at=14
)
def test_a_buffer_is_a_copy(operations: list[tuple[object, ...]], flush_at: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="mudroom-buffer-"))
    try:
        with Ground(root) as ground:
            _beside_a_copy(ground, operations, flush_at)
    finally:
        remove_tree(inner(root))


def _beside_a_copy(ground: Ground, operations: list[tuple[object, ...]], flush_at: int) -> None:
    fill(ground.base)
    before = shape(ground.below)
    plain = PlainTree(ground.opened(ground.copy("plain")))
    work = ground.copy("work")
    path, writer = ground.layer()
    buffer = ground.buffer(per_file=60, total=150)  # small: much of it is spilled
    for number, operation in enumerate(operations):
        if number == flush_at:  # into the layer on which it goes on lying
            buffer.flush(writer, lambda: ground._stack.enter_context(Union([path], ground.below)))
        assert perform(buffer, operation) == perform(plain, operation), operation
        assert shape(buffer) == shape(plain), operation
        assert buffer._contents.used <= 150
    expected = shape(plain)
    for at in {*before, *expected}:
        if before.get(at) != expected.get(at):
            assert at in ground.kept or any(at.startswith(kept + b"/") for kept in ground.kept)
    if flush_at < len(operations):
        buffer.flush(LayerWriter(ground.opened(Path(os.fsdecode(path))), ground.below))
    else:
        assert buffer.changed or expected == before
        buffer.flush(Both(writer, LayerWriter(ground.opened(work), NothingBelow())))
        assert shape(ground._stack.enter_context(OpenSource(inner(work)))) == expected
    with Union([path], ground.below) as union:
        assert shape(union) == expected
    assert not buffer.changed and not ground.spilled() and not buffer._contents.used
    assert shape(ground.below) == before


class Both:
    """A writer that writes to two."""

    def __init__(self, *writers: FlushTarget) -> None:
        self._writers = writers

    def __getattr__(self, name: str) -> Callable[..., None]:
        def do(*arguments: object, **options: object) -> None:
            for writer in self._writers:
                getattr(writer, name)(*arguments, **options)

        return do


# --- originals ---


def test_the_original_of_every_path_is_kept_once_and_before_its_change(ground: Ground) -> None:
    seen: list[tuple[bytes, bytes | None]] = []

    def keep(path: bytes) -> None:
        entry = buffer.look(path)
        seen.append((path, buffer.read(path) if entry is not None and entry.kind == "file" else None))

    buffer = ground.buffer(keep=keep)
    buffer.write(b"a", b"one")
    buffer.write(b"a", b"two")
    buffer.write(b"new", b"")
    buffer.rename(b"full", b"moved")
    buffer.chmod(b"d/f", 0o600)
    buffer.remove(b"d")
    assert seen[:2] == [(b"a", b"a of the base"), (b"new", None)]
    assert {path for path, _ in seen[2:7]} == {b"full", b"full/two", b"full/of", b"full/of/files", b"full/of/files/one"}
    assert (b"full/of/files/one", b"1") in seen and (b"d/f", b"f of the base") in seen
    assert {path for path, _ in seen[7:]} == {b"moved", b"d", b"d/f", b"d/e", b"d/e/g", b"d/dangling", b"d/pipe"}
    assert len(seen) == len(dict(seen))


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree.write(b"a", b"x"),
        lambda tree: tree.create(b"a").close(),
        lambda tree: tree.unlink(b"a"),
        lambda tree: tree.remove(b"d"),
        lambda tree: tree.rename(b"d", b"z"),
        lambda tree: tree.rename(b"z", b"d/f"),
        lambda tree: tree.chmod(b"d", 0o700),
        lambda tree: tree.utime(b"a", 1),
        lambda tree: tree.mkdir(b"z"),
        lambda tree: tree.symlink(b"z", b"a"),
    ],
)
def test_without_its_original_nothing_is_changed(ground: Ground, change: Callable[[Buffer], None]) -> None:
    def keep(path: bytes) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    buffer = ground.buffer(keep=keep)
    before = shape(buffer)
    with pytest.raises(OSError):
        change(buffer)
    assert shape(buffer) == before and not buffer.changed and not buffer._contents.used


# --- bad input ---


@pytest.mark.parametrize(
    "change",
    [
        lambda tree, path: tree.write(path, b""),
        lambda tree, path: tree.create(path),
        lambda tree, path: tree.mkdir(path),
        lambda tree, path: tree.symlink(path, b"a"),
        lambda tree, path: tree.unlink(path),
        lambda tree, path: tree.rmdir(path),
        lambda tree, path: tree.remove(path),
        lambda tree, path: tree.rename(path, b"new"),
        lambda tree, path: tree.rename(b"a", path),
        lambda tree, path: tree.chmod(path, 0o600),
        lambda tree, path: tree.utime(path, 0),
        lambda tree, path: tree.look(path or b".."),
        lambda tree, path: tree.names(path or b".."),
        lambda tree, path: tree.read(path or b".."),
        lambda tree, path: tree.open(path or b".."),
    ],
)
@pytest.mark.parametrize("path", [b"", b".", b"..", b"a/../b", b"/a", b"../a", b"a\0b", b"x" * 256, b"d/" + b"x" * 256])
def test_a_path_that_is_none_is_refused(ground: Ground, path: bytes, change: Callable[[Tree, bytes], None]) -> None:
    for tree in (ground.buffer(), PlainTree(ground.opened(ground.base))):
        with pytest.raises(ValueError):
            change(tree, path)
    assert not ground.kept


def test_other_spellings_of_a_path_are_that_path(ground: Ground) -> None:
    buffer = ground.buffer()
    buffer.write(b"./d//new", b"x")
    assert buffer.read(b"d/new") == buffer.read(b"d/./new") == b"x"
    buffer.rename(b"d/", b"z//")
    assert set(buffer.names(b"z")) == {b"new", b"f", b"e", b"dangling", b"pipe"}


def test_what_no_system_call_takes_is_refused_before_it_blocks_a_flush(ground: Ground) -> None:
    buffer = ground.buffer()
    deep = b"/".join([b"d" * 250] * 17)
    actions: list[Callable[[], None]] = [lambda: buffer.symlink(b"z", b"x" * 4096), lambda: buffer.mkdir(deep)]
    for action in actions:
        with pytest.raises(OSError) as caught:
            action()
        assert caught.value.errno == errno.ENAMETOOLONG
    for target in (b"", b"a\0b"):
        with pytest.raises((FileNotFoundError, ValueError)):
            buffer.symlink(b"z", target)
    assert not buffer.changed


def test_an_error_tells_the_path_in_one_line(ground: Ground) -> None:
    for tree in (ground.buffer(), PlainTree(ground.opened(ground.base))):
        with pytest.raises(FileNotFoundError, match=r"^\[Errno 2\] No such file or directory: 'd/e/none'$"):
            tree.read(b"d/e/none")
        with pytest.raises(IsADirectoryError, match=r"'d/e'$"):
            tree.write(b"d/e", b"")
        with pytest.raises(FileNotFoundError, match=r"'d/none'$"):
            tree.rename(b"d/none", b"full/x")


# --- what is below moves ---


def test_the_users_own_changes_below_neither_block_a_flush_nor_hide(ground: Ground) -> None:
    path, writer = ground.layer()
    buffer = ground.buffer()
    buffer.write(b"full/of/new", b"new")
    buffer.rename(b"a", b"renamed")
    buffer.rename(b"d", b"z")
    (ground.base / "d/f").write_bytes(b"edited by the user")
    assert buffer.read(b"z/f") == b"edited by the user"
    (ground.base / "a").unlink()
    shutil.rmtree(ground.base / "full")
    with pytest.raises(FileNotFoundError, match=r"'renamed'$"):
        buffer.read(b"renamed")
    assert buffer.flush(writer) == [b"renamed"]
    with Union([path], ground.below) as union:
        assert set(union.names(b"")) == {b"full", b"z", b"empty", b"link"}
        assert read_all(union, b"full/of/new", 100) == b"new"
        assert read_all(union, b"z/f", 100) == b"edited by the user"


def test_a_socket_that_was_moved_is_listed(ground: Ground) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as bound, ground_directory(ground.base):
        bound.bind("sock")
    path, writer = ground.layer()
    buffer = ground.buffer()
    buffer.rename(b"sock", b"d/sock")
    buffer.rename(b"d", b"z")
    with pytest.raises(OSError) as caught:
        buffer.read(b"z/sock")
    assert caught.value.errno == errno.ENXIO
    assert buffer.flush(writer) == [b"z/sock"]
    assert os.listdir(path) and not buffer.changed


@contextmanager
def ground_directory(path: Path) -> Iterator[None]:
    back = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(back)


# --- entries, times, modes ---


def test_entries_are_those_of_files(ground: Ground) -> None:
    now = iter(range(10**18, 10**18 + 1000))
    buffer = Buffer(ground.below, keep=lambda _path: None, spill=b"unused", clock=lambda: next(now))
    buffer.write(b"new", b"12345", 0o4755)
    buffer.mkdir(b"dir")
    entry, directory = buffer.look(b"new"), buffer.look(b"dir")
    assert isinstance(entry, Entry) and directory is not None
    assert (entry.kind, entry.mode, entry.size, entry.mtime, entry.links) == ("file", 0o4755, 5, 10**18, 1)
    assert (entry.uid, entry.gid) == (os.geteuid(), os.getegid())
    assert (entry.device, entry.inode) != (directory.device, directory.inode)
    buffer.write(b"dir/in", b"")
    later = buffer.look(b"dir")
    assert later is not None and later.mtime > directory.mtime and later.inode == directory.inode
    buffer.rename(b"dir/in", b"out")
    last = buffer.look(b"dir")
    assert last is not None and last.mtime > later.mtime
    renamed = buffer.look(b"new")
    buffer.rename(b"new", b"dir/new")
    moved = buffer.look(b"dir/new")
    assert renamed and moved and moved._replace(ctime=0) == renamed._replace(ctime=0)
    assert buffer.look(b"") == ground.below.look(b"")


def test_modes_and_times_reach_the_target(ground: Ground) -> None:
    path, writer = ground.layer()
    buffer = ground.buffer(per_file=10)
    buffer.write(b"short", b"x", 0o640)
    buffer.write(b"long", b"x" * 20, 0o400)
    buffer.mkdir(b"locked", 0o500)
    buffer.write(b"locked/in", b"")
    buffer.chmod(b"d", 0o500)
    buffer.write(b"d/in", b"")
    for name in (b"short", b"long", b"d/f"):
        buffer.utime(name, 1_000_000_007)
    work = ground.copy("work")
    buffer.flush(Both(writer, LayerWriter(ground.opened(work), NothingBelow())))
    with Union([path], ground.below) as union, OpenSource(inner(work)) as plain:
        for source in (union, plain):
            for name in (b"short", b"long", b"d/f"):
                entry = source.look(name)
                assert entry is not None and entry.mtime == 1_000_000_007
            modes = {name: entry.mode for name, entry in source.names(b"").items()}
            assert (modes[b"short"], modes[b"long"], modes[b"locked"], modes[b"d"]) == (0o640, 0o400, 0o500, 0o500)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_deep_tree(ground: Ground) -> None:
    path, writer = ground.layer()
    buffer = ground.buffer()
    depths = (
        1100 if sys.platform != "win32" else 100
    )  # Windows: each level is a call for each path, and one for its name
    deep = b"/".join([b"x"] * depths)
    for depth in range(depths):
        buffer.mkdir(deep[: 2 * depth + 1])
    buffer.write(deep + b"/file", b"")
    buffer.rename(b"x", b"y")
    buffer.flush(writer)
    with Union([path], ground.below) as union:
        assert union.look(b"y" + deep[1:] + b"/file")
    buffer.clear()


# --- several ---


def test_buffers_do_not_see_each_other_and_lie_on_each_other(ground: Ground) -> None:
    one, other = ground.buffer(), ground.buffer()
    one.write(b"a", b"one")
    one.rename(b"d", b"z")
    assert other.read(b"a") == b"a of the base" and other.look(b"z") is None
    upper = Buffer(one, keep=lambda _path: None, spill=inner(ground.root / "spill of the upper"))
    assert upper.read(b"z/f") == b"f of the base"
    upper.rename(b"z", b"y")
    upper.write(b"y/f", b"upper")
    assert one.read(b"z/f") == b"f of the base"
    path, writer = ground.layer()
    expected = shape(upper)
    one.flush(writer)
    upper._nodes.below = ground._stack.enter_context(Union([path], ground.below))
    assert shape(upper) == expected


def test_threads(ground: Ground) -> None:
    buffer = ground.buffer(per_file=2000, total=10_000)
    errors: list[BaseException] = []
    of_the_base = len(os.listdir(ground.base / "d"))

    def work(number: int) -> None:
        try:
            for turn in range(60):
                name = b"d/%d-%d" % (number, turn)
                with buffer.create(name) as draft:
                    draft.write(b"%d" % number * 700)
                    draft.write(b"%d" % number * 700)
                assert buffer.read(name) == b"%d" % number * 1400
                buffer.rename(name, b"full/%d" % number)
                assert len(buffer.names(b"d")) >= of_the_base
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert buffer._contents.used <= 10_000
    assert {name for name in buffer.names(b"full") if name.isdigit()} == {b"%d" % number for number in range(6)}
    buffer.clear()
    assert not ground.spilled() and not buffer._contents.used


def test_making_a_buffer_touches_nothing(ground: Ground) -> None:
    class Nothing:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    buffer = Buffer(Nothing(), keep=ground.kept.append, spill=b"/nowhere/at/all")  # type: ignore[arg-type]
    assert not buffer.changed


def test_it_needs_nothing_of_linux() -> None:
    program = "import os, sys; sys.modules['fcntl'] = None; del os.memfd_create, os.geteuid"
    program += """
import tempfile
from mudroom.core.tree.entry import Entry
class Empty:
    def look(self, path): return None if path else Entry("directory", 0o755, 0, b"", 0, 0, 1, 0, 0, 0, 0)
    def names(self, path): return {}
    def open(self, path): raise FileNotFoundError(2, "no such file", path)
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.buffer.files import Files
with tempfile.TemporaryDirectory() as spill:
    buffer = Buffer(Empty(), keep=lambda path: None, spill=os.fsencode(spill), per_file=4)
    files = Files(lambda: buffer)
    files.write("d/a", "content")
    files.move("d/a", "b")
    files.edit("b", "content", "abc")
    descriptor = buffer.open(b"b")
    assert os.read(descriptor, 10) == b"abc" == files.read("b"), files.read("b")
    assert files.glob("**") == ["b", "d"]
    buffer.clear()
    assert os.listdir(spill) == []
"""
    subprocess.run([sys.executable, "-c", program], check=True)
