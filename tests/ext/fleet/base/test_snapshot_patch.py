"""A new base made of the last snapshot's tree: equal to one that was written anew, whole or not there, and never of a
snapshot that somebody uses."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from base_transfer import Worker, listing, make, scanned

from conftest import tick
from mudroom.ext.fleet.base import snapshot as building
from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.base.scan import Scanned
from mudroom.ext.fleet.base.snapshot import differences
from mudroom.ext.fleet.wire.message import Errand
from mudroom.ext.fleet.worker.base_cache import BaseCache
from mudroom.ext.fleet.worker.folder import ErrandFolders
from tiers import half


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make(tmp_path / "p", {"a.py": b"a\n", "src/b.py": b"b\n", "src/deep/c.py": b"c\n", "src/empty": b""})


def names(top: Path) -> list[str]:
    return sorted(path.name for path in (top / "grounds").iterdir() if not path.name.endswith(".lock"))


def fetched(top: Path, base: Scanned, *, stored: bool = False) -> Path:
    """Return a base's tree, made by a worker of its own."""
    worker = Worker(top)
    if not stored:
        worker.store.evict(0)
    tree = worker.fetch(base).tree
    worker.close()
    return tree


def inodes(top: Path) -> dict[str, int]:
    return {str(path.relative_to(top)): path.lstat().st_ino for path in top.rglob("*")}


def test_only_what_changed_is_written(tmp_path: Path, project: Path) -> None:
    old = inodes(fetched(tmp_path / "w", scanned(project)))
    tick()
    (project / "a.py").write_bytes(b"A\n")
    (project / "src/b.py").chmod(0o755)
    tree = fetched(tmp_path / "w", scanned(project))
    new = inodes(tree)
    assert listing(tree) == listing(project)
    assert {name for name in new if new[name] != old[name]} == {"a.py"}
    assert names(tmp_path / "w") == [tree.parent.name]


def swap(top: Path) -> None:
    (top / "a.py").rename(top / "t")
    (top / "src/b.py").rename(top / "a.py")
    (top / "t").rename(top / "src/b.py")


def into_directory(top: Path) -> None:
    (top / "a.py").unlink()
    make(top, {"a.py/x": b"x", "a.py/deep/y": b"c\n"})


def into_file(top: Path) -> None:
    shutil.rmtree(top / "src")
    (top / "src").write_bytes(b"b\n")


def into_link(top: Path) -> None:
    shutil.rmtree(top / "src/deep")
    (top / "src/deep").symlink_to("..")
    (top / "a.py").unlink()
    (top / "a.py").symlink_to("/etc/passwd")


def closed_directories(top: Path) -> None:
    (top / "src/b.py").write_bytes(b"B\n")
    (top / "src/deep/c.py").unlink()
    (top / "src/deep").chmod(0o500)
    (top / "src").chmod(0o555)


def all_gone(top: Path) -> None:
    shutil.rmtree(top / "src")
    (top / "a.py").unlink()


@pytest.mark.parametrize("edit", [swap, into_directory, into_file, into_link, closed_directories, all_gone])
def test_a_patched_tree_is_the_project_there_and_back(
    tmp_path: Path, project: Path, edit: Callable[[Path], None]
) -> None:
    before = tmp_path / "before"
    shutil.copytree(project, before, symlinks=True)
    fetched(tmp_path / "w", scanned(project))
    edit(project)
    assert listing(fetched(tmp_path / "w", scanned(project))) == listing(project)
    for closed in ("src", "src/deep"):
        if (project / closed).is_dir() and not (project / closed).is_symlink():
            (project / closed).chmod(0o700)
    shutil.rmtree(project)
    shutil.copytree(before, project, symlinks=True)
    assert listing(fetched(tmp_path / "w", scanned(project))) == listing(project)


def edited(top: Path, dice: random.Random) -> None:
    """Change a tree at random: contents, kinds, modes, times, names."""
    paths = sorted(top.rglob("*"), reverse=True)
    for path in dice.sample(paths, min(len(paths), 6)):
        if not path.is_symlink() and not path.exists():
            continue  # it lay in one that is gone
        if dice.random() < 0.5:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            if dice.random() < 0.3:
                path.mkdir()
        elif path.is_symlink() or path.is_dir():
            path.rename(path.with_name(f"n{dice.randrange(1000)}"))
        elif dice.random() < 0.5:
            path.chmod(path.stat().st_mode | 0o200)
            path.write_bytes(dice.randbytes(dice.randrange(3)))
        else:
            path.chmod(dice.choice((0o600, 0o755, 0o444)))
            os.utime(path, ns=(1, dice.randrange(1 << 60)))
    places = [top, *(path for path in top.rglob("*") if path.is_dir() and not path.is_symlink())]
    for _number in range(4):
        place = dice.choice(places)
        new = place / f"n{dice.randrange(12)}"
        if not new.exists() and not new.is_symlink():
            if dice.random() < 0.2:
                new.symlink_to(dice.choice(("a", "../b", "/etc")))
            elif dice.random() < 0.3:
                new.mkdir()
            else:
                new.write_bytes(dice.randbytes(dice.randrange(3)))


@pytest.mark.parametrize("seed", half(range(12)))
def test_any_edit_is_patched_to_what_a_new_tree_would_be(tmp_path: Path, project: Path, seed: int) -> None:
    dice = random.Random(seed)
    for _round in range(6):
        edited(project, dice)
        assert listing(fetched(tmp_path / "w", scanned(project))) == listing(project)
        assert len(names(tmp_path / "w")) == 1


# --- when it is not to be changed ---


def test_a_snapshot_in_use_is_left_as_it_is(tmp_path: Path, project: Path) -> None:
    using = Worker(tmp_path / "w")
    old = using.fetch(scanned(project)).tree
    shown = listing(project)
    (project / "a.py").write_bytes(b"A\n")
    for _time in range(2):
        assert listing(fetched(tmp_path / "w", scanned(project))) == listing(project)
        assert listing(old) == shown
    using.close()
    assert len(names(tmp_path / "w")) == 2


def test_a_snapshot_with_a_foreign_name_in_it_is_left_as_it_is(tmp_path: Path, project: Path) -> None:
    old = fetched(tmp_path / "w", scanned(project))
    (old / "src/stranger").write_bytes(b"")
    (project / "a.py").write_bytes(b"A\n")
    assert listing(fetched(tmp_path / "w", scanned(project))) == listing(project)
    assert (old / "src/stranger").exists()


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_base_that_an_errand_needs_stays_until_the_origin_has_the_result(
    tmp_path: Path, project: Path, *, is_readable: bool
) -> None:
    top = tmp_path / "w"
    old = scanned(project)
    tree = fetched(top, old)
    errand = Errand("0123456789abcdef", 1, base_id(old.base), (b"true",), b"", (), None, b"", 0.0)
    folders = ErrandFolders(os.fsencode(top) + b"/node/errands")
    folder = folders.accept(errand)
    if not is_readable:
        Path(os.fsdecode(folder.path), "errand").write_bytes(b"\xff")
    folder.release()
    (project / "a.py").write_bytes(b"A\n")
    new = scanned(project)

    def acquired() -> None:
        cache = BaseCache(os.fsencode(top))
        worker = Worker.__new__(Worker)
        worker.store, worker.snapshots = cache._store, cache._snapshots
        worker.fetch(new)
        cache.close()

    acquired()
    assert tree.is_dir() and len(names(top)) == 2
    folders.mark_kept(folder)
    (project / "a.py").write_bytes(b"AA\n")
    new = scanned(project)
    acquired()
    assert len(names(top)) == 2


# --- whole or not there ---

CALLS = ("rename", "fchmod", "utime", "mkdir", "symlink", "unlink", "rmdir", "write")


def patch_and_die(top: Path, base: Scanned, number: int) -> None:
    """Patch the last snapshot, and be killed at the ``number``-th change of a file; exit with 0 if there are fewer."""
    worker = Worker(top)
    worker.receive(base)
    left = [number]

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **options: object) -> object:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counted(getattr(os, name)))
        worker.snapshots.acquire(base.base)
    os._exit(0)


def whole(top: Path) -> None:
    """Assert that every snapshot with a name is its base."""
    for name in names(top):
        if not name.startswith("."):
            path = os.fsencode(top / "grounds" / name)
            seal = msgspec.msgpack.decode(Path(os.fsdecode(path), "seal").read_bytes(), type=building.Seal)
            assert base_id(seal.base).hex() == name
            assert list(differences(path + b"/tree", seal.base.root, building._read_nodes(path))) == []


def test_a_killed_patch_is_no_base_and_the_next_worker_makes_it(tmp_path: Path, project: Path) -> None:
    shutil.copytree(project, tmp_path / "later")
    old, later, died = scanned(project), tmp_path / "later", 0
    swap(later)
    (later / "src/deep/c.py").write_bytes(b"C\n")
    make(later, {"new/d": b""})
    (later / "new/link").symlink_to("x")
    base, shown = scanned(later), listing(later)
    for number in range(1, 100):
        top = tmp_path / f"w{number}"
        fetched(top, old, stored=True)
        process = multiprocessing.get_context("fork").Process(target=patch_and_die, args=(top, base, number))
        process.start()
        process.join()
        whole(top)
        assert listing(fetched(top, base)) == shown
        whole(top)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        died += 1
    assert died > 20


def test_an_errand_that_is_being_accepted_is_left_alone_and_may_need_the_base(tmp_path: Path) -> None:
    """It has a name before it has a lock, and a lock before it can be read."""
    errands = tmp_path / "w/node/errands"
    folders = ErrandFolders(os.fsencode(errands))
    made, left = errands / f"new-{os.getpid()}-aa", errands / "new-4194305-bb"  # above the largest pid: proc_sys(5)
    made.mkdir()
    left.mkdir()
    cache = BaseCache(os.fsencode(tmp_path / "w"))
    assert cache._is_needed(b"\1" * 32) and left.exists()
    assert list(folders) == []
    assert made.exists() and not left.exists()
    made.rmdir()
    assert not cache._is_needed(b"\1" * 32)
    cache.close()
