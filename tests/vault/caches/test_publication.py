"""Publication of cache entries: whatever a fork's layer holds, a pool gets plain files and directories."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.confinement.cache_place import NAMES, NOWHERE, USER, pool_written, pools_read
from mudroom.vault.caches import publication
from mudroom.vault.caches.pool import SharedCache, shared_caches
from mudroom.vault.caches.publication import publish

pytestmark = [pytest.mark.both_users, pytest.mark.root]

SIZE = 1 << 20


class Caches:
    """A layer and a pool of their own."""

    def __init__(self, root: Path) -> None:
        self.layer, self.pool = root / "layer", root / "host/user"
        self.shared = SharedCache(os.fsencode(root / "host"), b"user")
        for name in NAMES:
            (self.pool / os.fsdecode(name)).mkdir(parents=True)
        (self.layer / "npm").mkdir(parents=True)

    def publish(self, limit: int = SIZE, *, keep: bool = False) -> list[str]:
        return publish(os.fsencode(self.layer), self.shared, limit, keep=keep)


@pytest.fixture
def caches(tmp_path: Path) -> Caches:
    return Caches(tmp_path)


names = st.sampled_from(["a", "b", "c.db", "c.db-wal", "d\n", "\udcff", "x" * 200])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
kinds = st.sampled_from(["file", "directory", "fifo", "symlink", "link"])
modes = st.integers(0, 0o7777)
targets = st.sampled_from(["a", "../a", "../../cache/a", "/etc/passwd", "../../../../etc", ".", "b/../../.."])
trees = st.lists(st.tuples(paths, kinds, modes, targets), max_size=15)


def grow(root: Path, tree: list[tuple[str, str, int, str]]) -> None:
    """Make what can be made of a tree, and nothing behind its links."""
    made = []
    for path, kind, mode, target in tree:
        place = root / path
        try:
            if not Path(os.path.realpath(place.parent)).is_relative_to(root.resolve()):  # resolve() raises for a loop
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                with open(place, "x", errors="surrogateescape") as stream:
                    stream.write(path)
            elif kind == "directory":
                place.mkdir()
            elif kind == "fifo":
                os.mkfifo(place)
            elif kind == "symlink":
                place.symlink_to(target)
            else:
                os.link(next(one for one in root.rglob("*") if one.is_file()), place)
        except (OSError, StopIteration):
            continue
        made.append((place, mode))
    for place, mode in reversed(made):
        if not place.is_symlink():
            place.chmod(mode)


def loosen(root: Path) -> None:
    for directory, below, _files in os.walk(root):
        for name in below:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)


@given(trees, trees)
def test_a_pool_holds_plain_files_and_directories_only(
    first: list[tuple[str, str, int, str]], second: list[tuple[str, str, int, str]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        caches = Caches(Path(directory))
        for tree in (first, second):
            grow(caches.layer / "npm", tree)
            assert caches.publish() == []
            for path in caches.pool.rglob("*"):
                status = path.lstat()
                if stat.S_ISLNK(status.st_mode):
                    above = os.path.normpath(path.parent / os.readlink(path))
                    assert above == str(caches.pool / "npm") or above.startswith(f"{caches.pool}/npm/")
                    continue
                assert stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
                assert not status.st_mode & 0o7022
                assert status.st_nlink == 1 or stat.S_ISDIR(status.st_mode)
                assert stat.S_ISDIR(status.st_mode) or not path.name.endswith("-wal")
            assert sorted(os.listdir(caches.pool.parent)) in (["user", "user.lock"], ["user", "user.lock", "user.size"])
        loosen(caches.layer)


def test_what_was_published_is_gone_from_the_fork(caches: Caches) -> None:
    (caches.layer / "npm/d").mkdir()
    (caches.layer / "npm/d/f").write_text("f")
    assert caches.publish() == []
    assert os.listdir(caches.layer) == []
    assert (caches.pool / "npm/d/f").read_text() == "f"
    assert caches.shared.size == 1


def test_a_kept_layer_is_compared(caches: Caches) -> None:
    entry = caches.layer / "npm/f"
    entry.write_text("f")
    assert caches.publish(keep=True) == []
    inode = (caches.pool / "npm/f").stat().st_ino
    assert caches.publish(keep=True) == []
    assert (caches.pool / "npm/f").stat().st_ino == inode
    entry.write_text("changed")
    assert caches.publish(keep=True) == []
    assert (caches.pool / "npm/f").read_text() == entry.read_text() == "changed"


def test_a_file_and_a_directory_of_one_name_stay_apart(caches: Caches) -> None:
    (caches.layer / "npm/x").write_text("file")
    (caches.layer / "npm/y").mkdir()
    (caches.layer / "npm/y/f").write_text("file")
    (caches.pool / "npm/x").mkdir()
    (caches.pool / "npm/y").write_text("pooled")
    assert caches.publish() == []
    assert (caches.pool / "npm/x").is_dir()
    assert (caches.pool / "npm/y").read_text() == "pooled"
    assert (caches.layer / "npm/x").read_text() == (caches.layer / "npm/y/f").read_text() == "file"


def test_a_directory_that_the_fork_replaced_stays(caches: Caches) -> None:
    (caches.pool / "npm/d").mkdir()
    (caches.pool / "npm/d/old").write_text("old")
    (caches.layer / "npm/d").mkdir()
    (caches.layer / "npm/d/new").write_text("new")
    os.setxattr(caches.layer / "npm/d", "user.overlay.opaque", b"y")
    assert caches.publish() == []
    assert os.listdir(caches.pool / "npm/d") == ["old"]


def test_depth_is_bounded(caches: Caches) -> None:
    place = os.open(caches.layer / "npm", os.O_RDONLY)
    for _level in range(600):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    assert caches.publish() == []
    deepest = max(path.relative_to(caches.pool).parts.count("d") for path in caches.pool.rglob("d"))
    assert deepest == publication.MOST_LEVELS - 1


def test_files_are_bounded(caches: Caches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "MOST_FILES", 3)
    for number in range(5):
        (caches.layer / f"npm/{number}").write_text("x")
    assert caches.publish() == ["the caches have more new entries than are kept: the rest stays in this fork"]
    assert len(list((caches.pool / "npm").iterdir())) == 3
    assert len(list((caches.layer / "npm").iterdir())) == 2


def test_what_a_crash_left_is_removed(caches: Caches) -> None:
    (caches.pool.parent / "user.new").mkdir()
    (caches.pool.parent / "user.new/new").write_text("half")
    (caches.layer / "npm/f").write_text("f")
    assert caches.publish() == []
    assert sorted(os.listdir(caches.pool.parent)) == ["user", "user.lock", "user.size"]


def test_the_oldest_cache_goes_first_and_old_ones_expire(caches: Caches) -> None:
    for name in ("npm", "go", "cache"):
        (caches.layer / name).mkdir(exist_ok=True)
        (caches.layer / name / "f").write_bytes(bytes(50_000))
        assert caches.publish(140_000) == [] or name == "cache"
        os.utime(caches.pool / name, ns=(1, {"npm": 3 * 10**9, "go": 2 * 10**9, "cache": 10**9}[name]))  # set back
    assert os.listdir(caches.pool / "npm") == []
    assert os.listdir(caches.pool / "go") == os.listdir(caches.pool / "cache") == ["f"]
    assert [shared.path for shared in shared_caches(os.fsencode(caches.pool.parent.parent))] == [caches.shared.path]
    assert caches.shared.expire(15 * 10**8) > 50_000
    assert os.listdir(caches.pool / "cache") == []
    assert os.listdir(caches.pool / "go") == ["f"]


def test_which_pools_are_read_and_written() -> None:
    assert pools_read(None, "agent") == (USER,)
    assert pools_read("a", "project") == (USER,)
    own, below = pools_read("a", "agent")
    assert below == USER != own
    assert pools_read("b", "agent")[0] not in (own, USER)
    assert pool_written(None, "agent") == USER
    assert pool_written("a", "agent") == own
    assert pool_written("a", "fork") == NOWHERE
    assert pool_written("a", "agent", USER) == pool_written(None, "agent", own) == NOWHERE
    assert pool_written("a", "agent", own) == own
    assert pool_written(None, "agent", NOWHERE) == NOWHERE
