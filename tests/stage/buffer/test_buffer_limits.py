"""The write buffer when memory or disk are short: drafts come whole or not at all, what does
not fit is spilled, what fails loses nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ground import MB, Ground, fill, shape
from inner_path import inner
from mudroom.core.system.write_all import write_all
from mudroom.stage.buffer import content
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.buffer.flush import FlushTarget
from mudroom.stage.layers.layer import LayerWriter
from mudroom.stage.layers.union import Union
from mudroom.stage.views.real_directory import PlainTree


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with Ground(tmp_path) as ground:
        fill(ground.base)
        yield ground


# --- writing in pieces ---


def test_a_draft_gets_its_place_when_it_is_closed(ground: Ground) -> None:
    buffer = ground.buffer(per_file=10)
    with buffer.create(b"a") as draft:
        draft.write(b"0123456")
        assert buffer.read(b"a") == b"a of the base"
        draft.write(bytearray(b"789abc"))  # now it is in a file
        draft.seek(1)
        draft.write(memoryview(b"X"))
        assert (draft.tell(), draft.read(2)) == (2, b"23")
    assert buffer.read(b"a") == b"0X23456789abc" and len(ground.spilled()) == 1
    entry = buffer.look(b"a")
    assert entry is not None and (entry.mode, entry.size) == (0o755, 13)
    draft.close()  # again: nothing happens
    with pytest.raises(ValueError, match="closed"):
        draft.write(b"more")


@pytest.mark.parametrize("size", [3, 30])
def test_a_draft_that_is_not_finished_leaves_nothing(ground: Ground, size: int) -> None:
    for tree in (ground.buffer(per_file=10), PlainTree(ground.opened(ground.base))):
        before = shape(tree)
        with pytest.raises(KeyError), tree.create(b"a") as draft:
            draft.write(b"x" * size)
            raise KeyError
        tree.create(b"new").write(b"x" * size)  # and forgotten
        draft = tree.create(b"other")
        draft.write(b"x" * size)
        draft.discard()
        draft.discard()
        draft.close()
        assert shape(tree) == before and not ground.spilled()
        if isinstance(tree, Buffer):
            assert not tree._contents.used and not tree.changed


def test_a_draft_whose_place_was_taken_fails_when_it_is_closed(ground: Ground) -> None:
    for tree in (ground.buffer(per_file=10), PlainTree(ground.opened(ground.base))):
        over, exclusive = tree.create(b"new"), tree.create(b"other", exclusive=True)
        over.write(b"x" * 30)
        tree.mkdir(b"new")
        tree.write(b"other", b"mine")
        with pytest.raises(IsADirectoryError):
            over.close()
        with pytest.raises(FileExistsError):
            exclusive.close()
        over.close()
        assert tree.read(b"other") == b"mine" and tree.names(b"new") == {}
        tree.remove(b"other")
        tree.remove(b"new")
        assert not ground.spilled()


def test_what_was_opened_stays_what_it_was(ground: Ground) -> None:
    buffer = ground.buffer(per_file=10)
    for held in (b"short", b"long" * 10):
        buffer.write(b"a", held)
        descriptor, stream = buffer.open(b"a"), buffer.readable(b"a")
        buffer.write(b"a", b"other")
        buffer.unlink(b"a")
        with os.fdopen(descriptor, "rb") as opened, stream:
            assert opened.read() == stream.read() == held


# --- memory ---

FILL = """
import os, sys
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.source import OpenSource
base, spill, written, per_file, total = sys.argv[1].encode(), sys.argv[2].encode(), *map(int, sys.argv[3:])
buffer = Buffer(OpenSource(base), keep=lambda path: None, spill=spill, per_file=per_file, total=total)
def peak():  # not ru_maxrss: that is inherited from who started us
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024
before = peak()
sizes, number, highest = [per_file // 2, per_file // 3, per_file * 8, 1000], 0, 0
piece = os.urandom(1 << 16)
while written > 0:
    size = sizes[number % 4]
    if size > per_file:
        with buffer.create(b"%d" % number) as draft:
            for _ in range(size >> 16): draft.write(piece)
    else:
        buffer.write(b"%d" % number, (piece * (size >> 16)) + piece[:size & 0xffff])
    written -= size
    number += 1
    highest = max(highest, buffer._contents.used)
assert buffer.read(b"0") == (piece * (sizes[0] >> 16)) + piece[:sizes[0] & 0xffff]
print(highest, peak() - before, peak())
"""


@pytest.mark.parametrize(
    ("written", "per_file", "total"),
    [
        (64 * MB, MB, 4 * MB),
        pytest.param(
            5000 * MB,
            4 * MB,
            64 * MB,
            marks=pytest.mark.skipif("MUDROOM_BIG" not in os.environ, reason="writes 5 GB; MUDROOM_BIG=1"),
        ),
    ],
)
def test_memory_stays_under_the_limit(tmp_path: Path, written: int, per_file: int, total: int) -> None:
    arguments = [str(argument) for argument in (tmp_path, tmp_path / "spill", written, per_file, total)]
    done = subprocess.run([sys.executable, "-c", FILL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    highest, grown, peak = (int(word) / MB for word in done.stdout.split())
    sys.stdout.write(f"{highest:.1f} MB of content; the process grew by {grown:.1f} to {peak:.1f} MB\n")
    assert highest <= total / MB
    assert grown <= (total + 4 * per_file) / MB + 4


def test_the_least_recently_used_is_spilled_first(ground: Ground) -> None:
    buffer = ground.buffer(per_file=100, total=250)
    for name in (b"1", b"2"):
        buffer.write(name, name * 100)
    buffer.read(b"1")
    buffer.write(b"3", b"3" * 100)
    in_memory = [name for name in (b"1", b"2", b"3") if (node := buffer._nodes.root.names[name]) and node.content.data]  # type: ignore[index, union-attr]
    assert in_memory == [b"1", b"3"]
    assert [buffer.read(name)[:1] for name in (b"1", b"2", b"3")] == [b"1", b"2", b"3"]
    buffer.clear()
    assert not ground.spilled() and not buffer._contents.used


def test_drafts_count_as_memory(ground: Ground) -> None:
    buffer = ground.buffer(per_file=100, total=250)
    drafts = [buffer.create(b"%d" % number) for number in range(6)]
    for draft in drafts:
        draft.write(b"x" * 90)
        assert buffer._contents.used <= 250
    for draft in drafts:
        draft.close()
    assert [buffer.read(b"%d" % number) for number in range(6)] == [b"x" * 90] * 6


# --- full disks ---


def test_a_disk_that_is_full_while_spilling_loses_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = ground.buffer(per_file=100, total=150)
    buffer.write(b"first", b"1" * 100)
    buffer.write(b"large", b"2" * 101)
    before = shape(buffer)
    draft = buffer.create(b"draft")
    draft.write(b"x" * 50)

    def full(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data[:10])
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(content, "write_all", full)
    for action in (
        lambda: buffer.write(b"a", b"y" * 101),
        lambda: buffer.write(b"a", b"y" * 90),
        lambda: draft.write(b"x" * 60),
    ):
        with pytest.raises(OSError, match="disk full"):
            action()
    draft.close()  # discarded when it failed
    monkeypatch.undo()
    assert shape(buffer) == before and len(ground.spilled()) == 1
    buffer.write(b"a", b"y" * 90)
    assert buffer.read(b"a") == b"y" * 90 and buffer.read(b"first") == b"1" * 100
    buffer.clear()
    assert not ground.spilled() and not buffer._contents.used


def test_a_real_limit_while_spilling_loses_nothing(ground: Ground) -> None:
    """RLIMIT_FSIZE: as a quota. Python ignores its signal, so write(2) gives EFBIG."""
    import resource

    buffer = ground.buffer(per_file=100)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    draft = buffer.create(b"draft")
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(OSError), draft:
            for _ in range(100):
                draft.write(b"x" * 90)
        with pytest.raises(OSError):
            buffer.write(b"a", b"x" * 6000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not buffer.changed and not ground.spilled()


class FullAfter:
    """A writer whose disk is full after so many calls."""

    def __init__(self, writer: FlushTarget, calls: int) -> None:
        self._writer, self._left = writer, calls

    def __getattr__(self, name: str) -> Callable[..., None]:
        self._left -= name != "finish"
        if self._left < 0 and name != "finish":
            raise OSError(errno.ENOSPC, "disk full")
        return getattr(self._writer, name)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_flush_that_fails_anywhere_loses_nothing_and_can_be_repeated(ground: Ground) -> None:
    """Into the very layer that the buffer lies on."""
    path, writer = ground.layer()
    writer.data(b"staged", b"staged before", mode=0o600)
    writer.data(b"d/f", b"f staged before", mode=0o644)

    def union() -> Union:
        return ground._stack.enter_context(Union([path], ground.below))

    buffer = Buffer(union(), keep=lambda _path: None, spill=inner(ground.spill), per_file=20)
    buffer.rename(b"staged", b"d/moved")
    buffer.write(b"staged", b"in the place of what was moved")
    buffer.rename(b"d", b"full/d")
    buffer.mkdir(b"d", 0o500)
    buffer.rename(b"full/d/e", b"d/e")
    buffer.chmod(b"a", 0o600)
    buffer.symlink(b"d/s", b"a")
    buffer.unlink(b"full/two")
    expected = shape(buffer)
    failed = 0
    while buffer.changed:
        try:
            buffer.flush(FullAfter(LayerWriter(ground.opened(Path(os.fsdecode(path))), ground.below), failed), union)
        except OSError:
            failed += 1
            assert shape(buffer) == expected
    assert failed > 12 and shape(buffer) == shape(union()) == expected and not ground.spilled()


def test_a_disk_that_is_full_while_taking_in_loses_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    path, writer = ground.layer()
    buffer = ground.buffer(per_file=50)
    buffer.rename(b"d", b"z")
    expected = shape(buffer)

    def full(_descriptor: int, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(content, "write_all", full)
    with pytest.raises(OSError, match="disk full"):
        buffer.flush(writer)
    monkeypatch.undo()
    assert os.listdir(path) == [] and shape(buffer) == expected
    assert buffer.flush(writer) == []
    with Union([path], ground.below) as union:
        assert shape(union) == expected
