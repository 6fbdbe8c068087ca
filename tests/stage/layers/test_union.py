"""Layers over a base, read without a mount: every kind of name over every other, as the kernel would show it."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mudroom.errors import MudroomError, Unsupported
from mudroom.stage.layers.layer import OPAQUE, WHITEOUT
from mudroom.stage.layers.union import OneLayer, Union, staged_source
from mudroom.stage.source import OpenSource, read_all
from mudroom.stage.views.mount import mount_overlay, unmount
from test_layer import Shown, shown

pytestmark = [pytest.mark.both_users, pytest.mark.root]

ORDINARY = ("nothing", "file", "link", "fifo", "empty", "full", "closed")
IN_LAYERS = (*ORDINARY, "whiteout", "opaque", "less")
"""``less``: a directory in which one name is whited out."""


def put(directory: Path, name: str, kind: str, level: str) -> None:
    """One name of a tree; what differs from level to level tells which one is seen."""
    at = directory / name
    if kind == "file":
        at.write_text(f"{name} of {level}\n")
        at.chmod({"base": 0o644, "one": 0o600, "two": 0o755}[level])
    elif kind == "link":
        at.symlink_to(f"to-{level}")
    elif kind == "fifo":
        os.mkfifo(at, 0o600)
    elif kind == "whiteout":
        os.mknod(at, stat.S_IFCHR, os.makedev(0, 0))
    elif kind != "nothing":
        at.mkdir()
        if kind != "empty":
            (at / level).write_text(f"in {name} of {level}\n")
            (at / "same").write_text(f"the same of {level}\n")
            (at / "sub").mkdir()
            (at / "sub" / level).write_text("deep\n")
        if kind == "opaque":
            os.setxattr(at, OPAQUE, b"y")
        if kind == "less":
            for gone in ("base", "sub"):
                remove(at / gone)
                os.mknod(at / gone, stat.S_IFCHR, os.makedev(0, 0))
        at.chmod(0o750 if kind == "closed" else 0o755)


def remove(path: Path) -> None:
    if path.is_dir():
        for below in path.iterdir():
            remove(below)
        path.rmdir()
    elif path.exists():
        path.unlink()


def levels(root: Path, *names: str) -> list[Path]:
    for name in names:
        (root / name).mkdir()
    return [root / name for name in names]


@contextmanager
def mounted(layers: list[Path], base: Path, place: Path) -> Iterator[Path]:
    """What the kernel makes of them. Skips where it cannot be asked."""
    place.mkdir()
    try:
        mount_overlay([os.fsencode(layer) for layer in layers], os.fsencode(base), None, b"", os.fsencode(place))
    except Unsupported as refused:
        pytest.skip(f"no overlay can be mounted: {refused}")
    try:
        yield place
    finally:
        unmount("overlay", os.fsencode(place))


def simulated(base: Path, *layers: Path) -> Shown:
    """The same by the rules of overlayfs.rst, layer by layer from the bottom, in the plainest way."""
    with OpenSource(os.fsencode(base)) as source:
        found = shown(source)
    for layer in layers:
        for directory, directories, files in os.walk(layer):
            for name in sorted([*directories, *files]):
                path = Path(directory) / name
                key = os.fsencode(os.path.relpath(path, layer))
                info = path.lstat()
                is_directory = stat.S_ISDIR(info.st_mode)
                opaque = is_directory and OPAQUE in os.listxattr(path) and os.getxattr(path, OPAQUE) == b"y"
                if key in found and (not is_directory or opaque or found[key][0] != "directory"):
                    found = {k: v for k, v in found.items() if k != key and not k.startswith(key + b"/")}
                mode = stat.S_IMODE(info.st_mode)
                if is_directory:
                    found[key] = ("directory", mode, b"")
                elif stat.S_ISLNK(info.st_mode):
                    found[key] = ("symlink", 0, os.fsencode(os.readlink(path)))
                elif stat.S_ISFIFO(info.st_mode):
                    found[key] = ("fifo", mode, b"")
                elif stat.S_ISREG(info.st_mode):
                    found[key] = ("file", mode, path.read_bytes())
    return found


def everything_over_everything(root: Path, inside: str = "") -> tuple[Path, Path, Path]:
    base, one, two = levels(root, "base", "one", "two")
    for level in (base, one, two):
        (level / inside).mkdir(exist_ok=True)
    for kinds in itertools.product(ORDINARY, IN_LAYERS, IN_LAYERS):
        for level, kind in zip((base, one, two), kinds, strict=True):
            put(level / inside, "-".join(kinds), kind, level.name)
    return base, one, two


Everything = tuple[Path, Path, Path]


@pytest.fixture(scope="module", params=["", "directory"])
def everything(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Everything:
    """A base and two layers; no test changes them."""
    return everything_over_everything(tmp_path_factory.mktemp("everything"), request.param)


@pytest.mark.slow
def test_every_kind_over_every_kind(everything: Everything) -> None:
    base, one, two = everything
    with OpenSource(os.fsencode(base)) as below, Union([os.fsencode(two), os.fsencode(one)], below) as union:
        found = shown(union)
        assert found == simulated(base, one, two)
        for path, (kind, mode, _content) in found.items():
            entry = union.look(path)
            assert entry is not None and (entry.kind, entry.mode) == (kind, mode)
    assert len(found) > 1000


@pytest.mark.slow
def test_the_kernel_shows_the_same(tmp_path: Path, everything: Everything) -> None:
    base, one, two = everything
    with (
        mounted([two, one], base, tmp_path / "mount") as place,
        OpenSource(os.fsencode(place)) as kernel,
        OpenSource(os.fsencode(base)) as below,
        Union([os.fsencode(two), os.fsencode(one)], below) as union,
    ):
        assert shown(union) == shown(kernel)


def mark_whiteouts(directory: Path, *names: str) -> None:
    os.setxattr(directory, OPAQUE, b"x")
    for name in names:
        (directory / name).touch()
        os.setxattr(directory / name, WHITEOUT, b"y")


def with_marked_whiteouts(root: Path) -> tuple[Path, Path]:
    base, layer = levels(root, "base", "layer")
    for name in ("file", "directory", "stays"):
        put(base, name, "full" if name == "directory" else "file", "base")
        (base / "sub").mkdir(exist_ok=True)
        put(base / "sub", name, "full" if name == "directory" else "file", "base")
    (layer / "sub").mkdir()
    mark_whiteouts(layer / "sub", "file", "directory", "never-was")
    (layer / "sub/empty").touch()
    return base, layer


def test_whiteouts_by_xattr(tmp_path: Path) -> None:
    base, layer = with_marked_whiteouts(tmp_path)
    with OpenSource(os.fsencode(base)) as below, Union([os.fsencode(layer)], below) as union:
        assert set(union.names(b"sub")) == {b"stays", b"empty"}
        assert union.look(b"sub/file") is None
        assert union.look(b"sub/directory/base") is None
        assert union.names(b"sub/directory") == {}
        with pytest.raises(FileNotFoundError):
            union.open(b"sub/file")
        assert set(union.names(b"")) == {b"file", b"directory", b"stays", b"sub"}


def test_whiteouts_by_xattr_in_the_kernel(tmp_path: Path) -> None:
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 7):
        pytest.skip("the kernel is older than whiteouts by xattr (6.7)")
    base, layer = with_marked_whiteouts(tmp_path)
    with (
        mounted([layer], base, tmp_path / "mount") as place,
        OpenSource(os.fsencode(place)) as kernel,
        OpenSource(os.fsencode(base)) as below,
        Union([os.fsencode(layer)], below) as union,
    ):
        assert shown(union) == shown(kernel)


def test_an_empty_file_with_the_xattr_is_a_file_where_the_directory_is_not_marked(tmp_path: Path) -> None:
    (layer,) = levels(tmp_path, "layer")
    (layer / "sub").mkdir()
    mark_whiteouts(layer / "sub", "gone")
    os.removexattr(layer / "sub", OPAQUE)
    with Union([os.fsencode(layer)], None) as union:
        assert set(union.names(b"sub")) == {b"gone"}


@pytest.mark.slow
def test_layers_alone_show_only_what_is_staged(tmp_path: Path, everything: Everything) -> None:
    base, one, two = everything
    (empty,) = levels(tmp_path, "no-base")
    with Union([os.fsencode(two), os.fsencode(one)], None) as union:
        assert shown(union) == simulated(empty, one, two)
    with staged_source([os.fsencode(one)]) as single:
        assert isinstance(single, OneLayer)
        assert shown(single) == simulated(empty, one)
    with staged_source([os.fsencode(two), os.fsencode(one)]) as several:
        assert isinstance(several, Union)
    assert base.exists()


def test_no_link_is_followed(tmp_path: Path) -> None:
    base, one, two = levels(tmp_path, "base", "one", "two")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    (base / "way").mkdir()
    (base / "way/secret").write_text("base")
    (one / "way").symlink_to("../outside")
    (two / "last").symlink_to("../outside/secret")
    with OpenSource(os.fsencode(base)) as below, Union([os.fsencode(two), os.fsencode(one)], below) as union:
        assert union.look(b"way/secret") is None
        assert union.names(b"way") == {}
        for path in (b"way/secret", b"last"):
            with pytest.raises(OSError):
                os.close(union.open(path))
        entry = union.look(b"last")
        assert entry is not None and entry.target == b"../outside/secret"


def test_many_layers_and_a_deep_tree(tmp_path: Path) -> None:
    names = [f"layer{number}" for number in range(60)]
    paths = levels(tmp_path, "base", *names)
    for number, layer in enumerate(paths):
        at = layer.joinpath(*["d"] * 40)
        at.mkdir(parents=True)
        (at / f"of-{number}").write_text(str(number))
        (at / "top").write_text(str(number))
    deep = b"/".join([b"d"] * 40)
    with (
        OpenSource(os.fsencode(paths[0])) as below,
        Union([os.fsencode(layer) for layer in reversed(paths[1:])], below) as union,
    ):
        assert len(union.names(deep)) == 62
        assert read_all(union, deep + b"/top", 10) == b"60"
        assert read_all(union, deep + b"/of-0", 10) == b"0"
        assert union.look(deep + b"/of-61") is None


def test_descriptors_are_let_go(tmp_path: Path) -> None:
    (layer,) = levels(tmp_path, "layer")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        Union([os.fsencode(layer), os.fsencode(tmp_path / "missing")], None)
    union = Union([os.fsencode(layer)] * 5, None)
    assert len(os.listdir("/proc/self/fd")) == before + 5
    union.close()
    union.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_its_owner_may_not_read_is_read_all_the_same(tmp_path: Path) -> None:
    (layer,) = levels(tmp_path, "layer")
    (layer / "closed").write_text("x")
    (layer / "closed").chmod(0o000)
    with Union([os.fsencode(layer)], None) as union:
        assert read_all(union, b"closed", 10) == b"x"
    assert stat.S_IMODE((layer / "closed").stat().st_mode) == 0


def test_too_many_layers_for_a_mount_is_said(tmp_path: Path) -> None:
    layers = levels(tmp_path, "base", *(f"l{number}" for number in range(300)))
    (tmp_path / "mount").mkdir()
    with pytest.raises(MudroomError, match="so many layers"):
        mount_overlay(
            [os.fsencode(layer) for layer in layers[1:]],
            os.fsencode(layers[0]),
            None,
            b"",
            os.fsencode(tmp_path / "mount"),
        )
