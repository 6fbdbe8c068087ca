"""A snapshot that is brought up to date is the same as a new one."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import tick
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.originals.renewal import renew
from mudroom.stage.originals.snapshot import SnapshotSource, chooser, take

pytestmark = pytest.mark.both_users

Tree = dict[str, tuple[object, ...]]


def tree(top: Path) -> Tree:
    """Return kind, mode, content, time and the names of the same file, of every entry."""
    rows: Tree = {}
    names: dict[tuple[int, int], list[str]] = {}
    for path in sorted(top.rglob("*")):
        info, at = path.lstat(), str(path.relative_to(top))
        if path.is_symlink():
            rows[at] = ("link", os.readlink(path))
        elif path.is_dir():
            rows[at] = ("directory", info.st_mode)
        else:
            names.setdefault((info.st_dev, info.st_ino), []).append(at)
            rows[at] = ("file", info.st_mode, info.st_mtime_ns, path.read_bytes())
    return rows | {"same " + same[0]: tuple(same) for same in names.values() if len(same) > 1}


class Ground:
    def __init__(self, root: Path) -> None:
        self.project, self.place = root / "project", root / "snapshot"
        self.project.mkdir()
        self._fresh = root / "fresh"

    def write(self, name: str, text: str = "text\n") -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def take(self, masked: tuple[bytes, ...] = ()) -> None:
        tick()
        where = os.fsencode(self.project), os.fsencode(self.place)
        take(*where, choose=chooser(Settings()), masked=masked)

    def renew(self, masked: tuple[bytes, ...] = (), limit: int | None = None) -> None:
        tick()
        where = os.fsencode(self.project), os.fsencode(self.place)
        renew(*where, choose=chooser(Settings()), limit=limit, masked=masked)

    def require_as_new(self, masked: tuple[bytes, ...] = ()) -> None:
        """The renewed snapshot has the files, and the entries, of one that is taken now."""
        fresh = os.fsencode(self._fresh)
        take(os.fsencode(self.project), fresh, choose=chooser(Settings()), masked=masked)
        assert tree(self.place / "source") == tree(self._fresh / "source")
        assert sorted(os.listdir(self.place)) == sorted(os.listdir(self._fresh))
        renewed, new = SnapshotSource(os.fsencode(self.place)), SnapshotSource(fresh)
        for path in [b"", *(os.fsencode(p.relative_to(self.project)) for p in self.project.rglob("*"))]:
            one, other = renewed.look(path), new.look(path)
            assert one is other is None or (one is not None and other is not None)
            if one is not None and other is not None:
                assert one._replace(ctime=0) == other._replace(ctime=0), path
        renewed.close()
        new.close()
        remove_tree(fresh)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_an_unchanged_file_is_not_copied_again(ground: Ground) -> None:
    ground.write("d/same")
    ground.write("d/edited")
    ground.write("d/gone")
    ground.take()
    copies = {name: (ground.place / "source/d" / name).stat().st_ino for name in ("same", "edited")}
    keeper = os.open(ground.place / "source/d/edited", os.O_RDONLY)  # so that its inode is not used again
    ground.write("d/edited", "other\n")
    (ground.project / "d/gone").unlink()
    ground.write("d/new")
    ground.renew()
    ground.require_as_new()
    assert (ground.place / "source/d/same").stat().st_ino == copies["same"]
    assert (ground.place / "source/d/edited").stat().st_ino != copies["edited"]
    os.close(keeper)


def _swap_kinds(ground: Ground) -> None:
    (ground.project / "a/f").unlink()
    ground.write("a/f/inner")
    shutil.rmtree(ground.project / "b")
    (ground.project / "b").symlink_to("a")


def _edit_with_times_kept(ground: Ground) -> None:
    path = ground.project / "a/f"
    info = path.stat()
    path.write_text("TEXT\n")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def _rename_directory(ground: Ground) -> None:
    (ground.project / "a").rename(ground.project / "z")


def _close_directory(ground: Ground) -> None:
    ground.write("b/new")
    (ground.project / "b").chmod(0o555)
    (ground.project / "a").chmod(0o700)


def _replace_directory(ground: Ground) -> None:
    """Another directory with the same files: they are untouched, it is not."""
    (ground.project / "a").rename(ground.project / "old")
    (ground.project / "a").mkdir()
    (ground.project / "old/f").rename(ground.project / "a/f")
    shutil.rmtree(ground.project / "old")


def _break_link(ground: Ground) -> None:
    (ground.project / "b/one").unlink()
    ground.write("b/one", "its own\n")


def _move_link(ground: Ground) -> None:
    (ground.project / "b/one").rename(ground.project / "b/elsewhere")


def _add_link(ground: Ground) -> None:
    os.link(ground.project / "a/f", ground.project / "b/third")


@pytest.mark.parametrize(
    "change",
    [
        _swap_kinds, _edit_with_times_kept, _rename_directory, _close_directory, _replace_directory, _break_link,
        _move_link, _add_link,
    ],
)  # fmt: skip
def test_a_renewed_snapshot_is_as_a_new_one(ground: Ground, change: Callable[[Ground], None]) -> None:
    for name in ("a/f", "a/deep/er/g", "b/one", "b/h"):
        ground.write(name)
    os.link(ground.project / "b/one", ground.project / "b/two")
    (ground.project / "a/link").symlink_to("f")
    ground.take()
    change(ground)
    ground.renew()
    ground.require_as_new()
    if not (ground.project / "b").is_symlink():
        (ground.project / "b").chmod(0o755)


def test_many_changes_after_each_other(ground: Ground) -> None:
    chance = random.Random(7)
    names = [f"{top}/{middle}/{name}" for top in "ab" for middle in "xy" for name in "123"]
    for name in names:
        ground.write(name)
    ground.take()
    for _round in range(12):
        for name in chance.sample(names, 4):
            path = ground.project / name
            if path.exists() and chance.random() < 0.5:
                path.unlink()
            elif chance.random() < 0.2 and path.parent.exists():
                shutil.rmtree(path.parent)
            else:
                ground.write(name, str(chance.random()))
        ground.renew()
        ground.require_as_new()


def test_what_is_masked_since_is_gone(ground: Ground) -> None:
    ground.write(".env", "SECRET=1\n")
    ground.write("f")
    ground.take()
    (ground.place / "git-old").mkdir()
    ground.renew((b".env",))
    assert sorted(os.listdir(ground.place)) == ["manifest", "masked", "source"]
    assert not (ground.place / "source/.env").exists()
    ground.require_as_new((b".env",))
    ground.renew()
    ground.require_as_new()


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        ("manifest", MudroomError, "is damaged"),
        ("closed", MudroomError, "a directory of the earlier snapshot is closed to its owner"),
        ("limit", UsageError, "that may be copied"),
    ],
)
def test_what_cannot_be_renewed_is_removed(ground: Ground, damage: str, error: type[MudroomError], words: str) -> None:
    ground.write("d/f")
    if damage == "closed":
        (ground.project / "d").chmod(0o555)
    ground.take()
    (ground.project / "d").chmod(0o755)
    if damage == "manifest":
        (ground.place / "manifest").write_bytes(b"\xc1")
    with pytest.raises(error, match=words):
        ground.renew(limit=1 if damage == "limit" else None)
    assert not ground.place.exists()
