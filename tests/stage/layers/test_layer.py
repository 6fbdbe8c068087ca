"""What is written into a layer: every kind over every kind, as a model, as a union and as the kernel show it."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inner_path import inner
from mudroom.errors import Unsupported
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.layer import OPAQUE, WHITEOUT, LayerWriter, read_directory, remove_tree
from mudroom.stage.layers.union import Union
from mudroom.stage.source import OpenSource, Source, read_all, walk
from mudroom.stage.views.mount import mount_overlay, unmount
from tiers import examples

pytestmark = [pytest.mark.both_users, pytest.mark.root]

Shown = dict[bytes, tuple[str, int, bytes]]
LACKING = ("link", "fifo") if sys.platform == "win32" else ()
"""Kinds that are not made on Windows."""
BELOW = tuple(kind for kind in ("nothing", "file", "link", "fifo", "directory") if kind not in LACKING)
EVERY = ("untouched", "file", "link", "fifo", "whiteout", "directory", "new", "hard")
FIRST = tuple(kind for kind in EVERY if kind not in LACKING)
THEN = tuple(kind for kind in FIRST if kind != "untouched")


def kept(kind: str, mode: int) -> int:
    """Return the mode that the system keeps of a file."""
    return mode if sys.platform != "win32" else 0o755 if kind == "directory" else 0o644


def make_base(root: Path, name: str, kind: str) -> None:
    at = root / name
    if kind == "file":
        at.write_text("base\n")
    elif kind == "link":
        at.symlink_to("base")
    elif kind == "fifo":
        os.mkfifo(at, 0o644)
    elif kind == "directory":
        (at / "sub").mkdir(parents=True)
        (at / "kept").write_text("base\n")
        (at / "sub/deep").write_text("base\n")
        at.chmod(0o755)


def write(writer: LayerWriter, model: Shown, path: bytes, kind: str, word: bytes) -> None:
    """One call of the writer, and the same in a dictionary."""
    if kind == "untouched":
        return
    if kind != "directory" or model.get(path, ("",))[0] != "directory":
        for key in [key for key in model if key == path or key.startswith(path + b"/")]:
            del model[key]
    if kind == "file":
        writer.data(path, word, mode=0o640)
        model[path] = ("file", kept("file", 0o640), word)
    elif kind == "link":
        writer.symlink(path, word)
        model[path] = ("symlink", 0, word)
    elif kind == "fifo":
        writer.fifo(path, 0o606)
        model[path] = ("fifo", 0o606, b"")
    elif kind == "whiteout":
        writer.whiteout(path)
    elif kind == "directory":
        writer.directory(path, 0o711)
        model[path] = ("directory", kept("directory", 0o711), b"")
    elif kind == "new":
        writer.new_directory(path, 0o700)
        model[path] = ("directory", kept("directory", 0o700), b"")
    else:
        writer.link(path, b"anchor")
        model[path] = ("file", 0o644, b"anchor")


def shown(source: Source) -> Shown:
    found: Shown = {}
    for path, entry in walk(source):
        content = entry.target
        if entry.kind == "file":
            content = read_all(source, path, 1000) or b""
        found[path] = (entry.kind, entry.mode, content)
    return found


@contextmanager
def layer_over(root: Path, base: Path) -> Iterator[tuple[LayerWriter, bytes]]:
    layer = root / "layer"
    layer.mkdir()
    descriptor = open_layer(os.fsencode(layer))
    try:
        with OpenSource(os.fsencode(base)) as lower:
            writer = LayerWriter(descriptor, lower)
            yield writer, os.fsencode(layer)
            writer.finish()
    finally:
        os.close(descriptor)


def merged(layer: bytes, base: Path) -> Shown:
    with OpenSource(os.fsencode(base)) as lower, Union([layer], lower) as union:
        return shown(union)


def by_the_kernel(layer: bytes, base: Path, place: Path) -> Shown | None:
    """None where no overlay can be mounted."""
    if sys.platform == "win32":
        return None
    place.mkdir()
    try:
        mount_overlay([layer], os.fsencode(base), None, b"", os.fsencode(place))
    except Unsupported:
        return None
    try:
        with OpenSource(os.fsencode(place)) as source:
            return shown(source)
    finally:
        unmount("overlay", os.fsencode(place))


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["", "way/down/"])
def test_every_kind_over_every_kind(tmp_path: Path, inside: str) -> None:
    base = tmp_path / "base"
    (base / inside).mkdir(parents=True)
    combinations = list(itertools.product(BELOW, FIRST, THEN))
    for kinds in combinations:
        make_base(base / inside, "-".join(kinds), kinds[0])
    with OpenSource(os.fsencode(base)) as source:
        model = shown(source)
    with layer_over(tmp_path, base) as (writer, layer):
        writer.data(b"anchor", b"anchor", mode=0o644)
        model[b"anchor"] = ("file", 0o644, b"anchor")
        for kinds in combinations:
            path = os.fsencode(inside + "-".join(kinds))
            write(writer, model, path, kinds[1], b"first")
            write(writer, model, path, kinds[2], b"then")
    assert merged(layer, base) == model
    assert by_the_kernel(layer, base, tmp_path / "mount") in (model, None)


NAMES = st.sampled_from([b"a", b"a/b", b"a/b/c", b"a/x", b"d", b"d/sub", b"d/sub/deep", b"d/kept", b"d/sub/new"])
STEPS = st.lists(st.tuples(NAMES, st.sampled_from(THEN)), max_size=14)


@pytest.mark.slow
@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_any_order_of_writes(tmp_path: Path, steps: list[tuple[bytes, str]]) -> None:
    root = tmp_path / os.urandom(6).hex()
    base = root / "base"
    base.mkdir(parents=True)
    make_base(base, "d", "directory")
    with OpenSource(os.fsencode(base)) as source:
        model = shown(source)
    with layer_over(root, base) as (writer, layer):
        writer.data(b"anchor", b"anchor", mode=0o644)
        model[b"anchor"] = ("file", 0o644, b"anchor")
        for number, (path, kind) in enumerate(steps):
            above = path.rpartition(b"/")[0]
            if above and model.get(above, ("",))[0] != "directory":
                continue
            write(writer, model, path, kind, b"%d" % number)
        assert merged(layer, base) == model, "while the writer is in use, too"
    remove_tree(inner(root))


def _calls(writer: LayerWriter) -> list[Callable[[bytes], object]]:
    return [
        lambda path: writer.data(path, b"", mode=0o644),
        lambda path: writer.symlink(path, b"x"),
        lambda path: writer.fifo(path, 0o600),
        writer.whiteout,
        lambda path: writer.directory(path, 0o755),
        lambda path: writer.new_directory(path, 0o755),
    ]


def test_paths_that_do_not_fit_the_view(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "outside").mkdir(parents=True)
    (base / "file").touch()
    (base / "link").symlink_to("outside")
    with layer_over(tmp_path, base) as (writer, layer):
        writer.data(b"here", b"", mode=0o644)
        writer.symlink(b"alias", b"outside")
        writer.whiteout(b"outside")
        for call in _calls(writer):
            for path in (b"file/x", b"link/x", b"here/x", b"alias/x", b"outside/x"):
                with pytest.raises(NotADirectoryError):
                    call(path)
            with pytest.raises(FileNotFoundError):
                call(b"missing/x")
        assert sorted(os.listdir(layer)) == [b"alias", b"here", b"outside"]
    assert os.listdir(base / "outside") == []


def test_marks_on_disk(tmp_path: Path) -> None:
    """The format is the kernel's: nothing more is written than it needs."""
    base = tmp_path / "base"
    make_base(tmp_path, "base", "directory")
    with layer_over(tmp_path, base) as (writer, layer):
        writer.whiteout(b"never-was")
        assert os.listdir(layer) == []
        writer.whiteout(b"kept")
        info = os.lstat(layer + b"/kept")
        assert stat.S_ISCHR(info.st_mode) and info.st_rdev == 0
        writer.new_directory(b"sub", 0o755)
        assert os.getxattr(layer + b"/sub", OPAQUE) == b"y"
        writer.directory(b"fresh", 0o755)
        assert os.listxattr(layer + b"/fresh") == []
        writer.directory(b"kept", 0o755)
        assert os.getxattr(layer + b"/kept", OPAQUE) == b"y", "what was gone does not come back through it"


def test_the_way_down_gets_the_modes_of_the_view(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "a/b").mkdir(parents=True)
    (base / "a").chmod(0o751)
    (base / "a/b").chmod(0o2775)
    with layer_over(tmp_path, base) as (writer, layer):
        writer.data(b"a/b/c", b"x", mode=0o4755, mtime=1_000_000_007)
        info = os.lstat(layer + b"/a/b/c")
        assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (0o4755, 1_000_000_007)
        assert [stat.S_IMODE(os.lstat(layer + at).st_mode) for at in (b"/a", b"/a/b")] == [0o751, 0o2775]
        writer.directory(b"a", 0o700)
        assert merged(layer, base)[b"a"] == ("directory", 0o700, b"")
        assert b"a/b/c" in merged(layer, base)


def test_a_file_with_its_attributes(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    source = tmp_path / "source"
    source.write_bytes(b"x" * 200_000)
    os.setxattr(source, "user.note", b"n")
    with layer_over(tmp_path, base) as (writer, layer), source.open("rb") as stream:
        writer.file(b"with", stream.fileno(), mode=0o600, mtime=5, xattrs=True)
        os.lseek(stream.fileno(), 0, os.SEEK_SET)
        writer.file(b"without", stream.fileno(), mode=0o644)
        for name in (b"/with", b"/without"):
            with open(layer + name, "rb") as copy:
                assert copy.read() == b"x" * 200_000
        assert os.listxattr(layer + b"/with") == ["user.note"]
        assert os.listxattr(layer + b"/without") == []
        assert os.lstat(layer + b"/with").st_mtime_ns == 5


def test_listings_know_both_forms_of_a_whiteout(tmp_path: Path) -> None:
    directory = tmp_path / "layer/d"
    directory.mkdir(parents=True)
    os.mknod(directory / "device", stat.S_IFCHR, os.makedev(0, 0))
    (directory / "marked").touch()
    os.setxattr(directory / "marked", WHITEOUT, b"")
    (directory / "full").write_text("x")
    os.setxattr(directory / "full", WHITEOUT, b"")
    (directory / "plain").touch()
    root = open_layer(os.fsencode(tmp_path / "layer"))
    try:
        found = read_directory(root, b"d")
        assert found is not None
        assert (found.gone, set(found.entries), found.opaque) == (
            frozenset({b"device"}),
            {b"marked", b"full", b"plain"},
            False,
        )
        os.setxattr(directory, OPAQUE, b"x")
        found = read_directory(root, b"d")
        assert found is not None
        assert (found.gone, set(found.entries), found.opaque) == (
            frozenset({b"device", b"marked"}),
            {b"full", b"plain"},
            False,
        )
        os.setxattr(directory, OPAQUE, b"y")
        found = read_directory(root, b"d")
        assert found is not None and found.opaque and found.gone == {b"device"}
        assert read_directory(root, b"missing") is None
        assert read_directory(root, b"d/full") is None
    finally:
        os.close(root)


def test_remove_tree_whatever_the_modes_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").touch()
    deep = tmp_path / "tree"
    for number in range(200):
        deep = deep / f"d{number % 10}"
    deep.mkdir(parents=True)
    (deep / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "tree/link").symlink_to("../outside")
    (tmp_path / "tree/d0").chmod(0)
    remove_tree(os.fsencode(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()
    assert (tmp_path / "outside/precious").exists()
    (tmp_path / "alias").symlink_to("outside")
    remove_tree(os.fsencode(tmp_path / "alias"))
    assert (tmp_path / "outside/precious").exists() and not (tmp_path / "alias").is_symlink()
    remove_tree(os.fsencode(tmp_path / "missing"))
