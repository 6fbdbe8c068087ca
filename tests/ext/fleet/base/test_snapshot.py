"""Snapshots: bases as trees on disk, whole or not there, with unchanged files from earlier ones."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from base_transfer import NOTHING, Worker, listing, make, scanned

from conftest import tick
from mudroom.core.settings import Settings
from mudroom.ext.fleet.base import snapshot as building
from mudroom.ext.fleet.base.manifest import (
    FILE,
    RefusedBase,
    Row,
    base_id,
    digest_of_content,
    digest_of_node,
    encode_node,
)
from mudroom.ext.fleet.base.objects import ObjectStore, StoreFull
from mudroom.ext.fleet.base.scan import Scanned
from mudroom.ext.fleet.base.snapshot import Incomplete, SnapshotStore, differences


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make(tmp_path / "p", {"a.py": b"a\n", "src/b.py": b"b\n", "src/deep/c.py": b"c\n", "src/empty": b""})


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path / "w")
    yield made
    made.close()


def snapshots_in(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "w/grounds").iterdir() if not path.name.endswith(".lock"))


def test_a_snapshot_is_the_project(project: Path, worker: Worker) -> None:
    (project / "link").symlink_to("src/b.py")
    (project / "out").symlink_to("/etc/passwd")
    (project / "up").symlink_to("../../../../../etc/passwd")
    (project / os.fsdecode(b"\xff \n")).write_bytes(b"name")
    (project / "a.py").chmod(0o755)
    (project / "src/b.py").chmod(0o400)
    (project / "src/deep").chmod(0o500)
    os.utime(project / "a.py", ns=(1, 1_234_567_891_234_567_891))
    os.utime(project / "src/b.py", ns=(1, -5_000_000_001))
    sent = worker.fetch(scanned(project))
    assert listing(sent.tree) == listing(project)
    (project / "src/deep").chmod(0o700)


def test_secrets_are_empty_files(project: Path, worker: Worker) -> None:
    make(project, {".env": b"TOKEN=abc"}).joinpath(".env").chmod(0o600)
    tree = worker.fetch(scanned(project)).tree
    assert (tree / ".env").read_bytes() == b"" and (tree / ".env").stat().st_mode & 0o777 == 0o600


def test_hard_links_of_one_content_are_files_of_their_own(project: Path, worker: Worker) -> None:
    os.link(project / "a.py", project / "b.py")
    tree = worker.fetch(scanned(project)).tree
    assert (tree / "a.py").stat().st_nlink == 1
    (tree / "a.py").write_bytes(b"x")
    assert (tree / "b.py").read_bytes() == b"a\n"


def test_an_unchanged_base_costs_nothing(project: Path, worker: Worker) -> None:
    base = scanned(project)
    first = worker.fetch(base)
    again = worker.fetch(base)
    assert (again.tree, again.size, again.rounds) == (first.tree, 0, 0)


def test_only_what_changed_is_sent(tmp_path: Path, project: Path, worker: Worker) -> None:
    make(project, {f"many/d{i}/f{j}": os.urandom(500) for i in range(20) for j in range(20)})
    first = worker.fetch(scanned(project))
    worker.store.evict(0)  # nothing is taken from there
    (project / "src/deep/c.py").write_bytes(b"changed\n")
    (project / "many/d3/f4").rename(project / "moved")
    (project / "a.py").chmod(0o700)
    second = worker.fetch(scanned(project))
    assert listing(second.tree) == listing(project)
    assert first.size > 200_000 and second.size < 4_000
    assert len(snapshots_in(tmp_path)) == 2
    assert (first.tree / "src/deep/c.py").read_bytes() == b"c\n"  # the earlier generation is as it was
    (second.tree / "src/b.py").write_bytes(b"x")
    assert (first.tree / "src/b.py").read_bytes() == b"b\n"


def test_a_large_file_arrives_and_is_taken_from_the_last_snapshot(project: Path, worker: Worker) -> None:
    make(project, {"large": os.urandom(9 << 20)})
    worker.fetch(scanned(project))
    worker.store.evict(0)
    (project / "a.py").write_bytes(b"A\n")
    second = worker.fetch(scanned(project))
    assert listing(second.tree) == listing(project)
    assert second.size < 2_000


@pytest.mark.parametrize("edit", ["content", "times restored", "gone", "link", "another file"])
def test_nothing_is_taken_from_a_file_that_was_changed(project: Path, worker: Worker, edit: str) -> None:
    first = worker.fetch(scanned(project)).tree
    worker.close()
    file, info = first / "src/b.py", (first / "src/b.py").stat()
    tick()
    if edit in ("content", "times restored"):
        file.write_bytes(b"X\n")
        if edit == "times restored":
            os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    else:
        file.unlink()
        if edit == "link":
            file.symlink_to("/etc/passwd")
        elif edit == "another file":
            file.write_bytes(b"X\n")
    (project / "a.py").write_bytes(b"A\n")
    again = Worker(first.parents[2])
    again.store.evict(0)
    assert listing(again.fetch(scanned(project)).tree) == listing(project)
    again.close()


# --- whole or not there ---


def objects_of(base: Scanned, worker: Worker) -> None:
    """Store a base's objects, and make no snapshot."""
    worker.receive(base)


def test_a_snapshot_without_its_objects_is_incomplete(tmp_path: Path, project: Path, worker: Worker) -> None:
    base = scanned(project)
    with pytest.raises(Incomplete):
        worker.snapshots.acquire(base.base)
    objects_of(base, worker)
    worker.store._forget(worker.store._index[digest_of_content(b"c\n")].pack)
    with pytest.raises(Incomplete):
        worker.snapshots.acquire(base.base)
    assert snapshots_in(tmp_path) == []
    assert listing(worker.fetch(base).tree) == listing(project)


@pytest.mark.parametrize("call", ["write", "mkdir", "symlink", "utime", "rename"])
def test_a_full_disk_leaves_no_half_snapshot(
    tmp_path: Path, project: Path, worker: Worker, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "link").symlink_to("a.py")
    base = scanned(project)
    objects_of(base, worker)

    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StoreFull, match="its disk is full"):
        worker.snapshots.acquire(base.base)
    monkeypatch.undo()
    assert snapshots_in(tmp_path) == []
    assert listing(worker.fetch(base).tree) == listing(project)


def test_a_base_that_does_not_fit_is_refused_before_a_file_is_made(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Worker(tmp_path / "w")
    base = scanned(project)
    objects_of(base, small)
    snapshots = SnapshotStore(os.fsencode(tmp_path / "w/grounds"), small.store, quota=10_000)
    with pytest.raises(StoreFull, match="keeps 10,000"):
        snapshots.acquire(base.base)
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    with pytest.raises(StoreFull, match="no room"):
        small.snapshots.acquire(base.base)
    assert snapshots_in(tmp_path) == []


def make_and_die(state: Path, base: Scanned) -> None:
    """Make a snapshot, and be killed before it is whole."""
    worker = Worker(state)

    def die(*_arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mudroom.ext.fleet.base.snapshot.write_pack", die)
        worker.fetch(base)


def test_a_killed_maker_leaves_nothing_that_counts(tmp_path: Path, project: Path) -> None:
    base = scanned(project)
    process = multiprocessing.get_context("fork").Process(target=make_and_die, args=(tmp_path / "w", base))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [name.partition("-")[0] for name in snapshots_in(tmp_path)] == [".new"]
    worker = Worker(tmp_path / "w")
    tree = worker.fetch(base).tree
    assert listing(tree) == listing(project)
    assert snapshots_in(tmp_path) == [tree.parent.name]
    worker.close()


def test_two_processes_and_two_threads_make_one_snapshot(tmp_path: Path, project: Path) -> None:
    make(project, {f"d{i}/f{j}": b"%d %d" % (i, j) for i in range(10) for j in range(10)})
    base = scanned(project)
    first = Worker(tmp_path / "w")
    objects_of(base, first)
    script = (
        "import os, sys, msgspec\n"
        "from mudroom.ext.fleet.base.snapshot import SnapshotStore\n"
        "from mudroom.ext.fleet.base.objects import ObjectStore\n"
        "from mudroom.ext.fleet.wire.message import Base\n"
        "store = ObjectStore(os.fsencode(sys.argv[1] + '/objects'))\n"
        "sys.stdin.readline()\n"
        "base = msgspec.msgpack.decode(bytes.fromhex(sys.argv[2]), type=Base)\n"
        "print(SnapshotStore(os.fsencode(sys.argv[1] + '/grounds'), store).acquire(base).decode())\n"
    )
    argument = msgspec.msgpack.encode(base.base).hex()
    command = [sys.executable, "-c", script, str(tmp_path / "w"), argument]
    others = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _number in range(2)
    ]
    trees: list[str] = []

    def make_here() -> None:
        snapshots = SnapshotStore(os.fsencode(tmp_path / "w/grounds"), first.store)
        trees.append(os.fsdecode(snapshots.acquire(base.base)))
        snapshots.close()

    threads = [threading.Thread(target=make_here) for _number in range(2)]
    for thread in threads:
        thread.start()
    for other in others:
        trees.append(other.communicate("\n")[0].strip())
        assert other.returncode == 0
    for thread in threads:
        thread.join()
    assert len(trees) == 4 and len(set(trees)) == 1
    assert snapshots_in(tmp_path) == [Path(trees[0]).parent.name]
    assert listing(Path(trees[0])) == listing(project)
    first.close()


def test_a_snapshot_that_another_has_made_meanwhile_is_used_beside_it(
    tmp_path: Path, project: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was about to make it does not wait until the other's commands have ended."""
    base = scanned(project).base
    tree = worker.fetch(scanned(project)).tree  # in use from now on
    other, try_acquire = SnapshotStore(os.fsencode(tmp_path / "w/grounds"), worker.store), SnapshotStore._try_acquire
    answers = [False]  # as it was when the other worker looked
    monkeypatch.setattr(SnapshotStore, "_try_acquire", lambda *words: answers.pop() if answers else try_acquire(*words))
    assert other.acquire(base) == os.fsencode(tree)
    assert answers == []
    other.close()


# --- use and eviction ---


def test_a_snapshot_in_use_stays_and_the_oldest_goes_first(tmp_path: Path, project: Path, worker: Worker) -> None:
    bases = []
    for number in range(3):
        (project / "a.py").write_bytes(b"%d" % number)
        bases.append(scanned(project))
        worker.fetch(bases[-1])
        os.utime(tmp_path / "w/grounds" / (base_id(bases[-1].base).hex() + ".lock"), (number, number))
    worker.snapshots.release(bases[0].base)
    worker.snapshots.release(bases[2].base)
    other = SnapshotStore(os.fsencode(tmp_path / "w/grounds"), worker.store)
    one = max(size for _time, size, _name in other._entries())
    other.evict(2 * one)
    assert [other.has(base.base) for base in bases] == [False, True, True]
    other.evict(0)
    assert [other.has(base.base) for base in bases] == [False, True, False]
    worker.snapshots.release(bases[1].base)
    other.evict(0)
    assert snapshots_in(tmp_path) == []
    other.close()


def test_a_new_snapshot_takes_the_room_of_old_ones(tmp_path: Path, project: Path, worker: Worker) -> None:
    first = scanned(project)
    worker.fetch(first)
    worker.snapshots.release(first.base)
    size = max(size for _time, size, _name in worker.snapshots._entries())
    (project / "a.py").write_bytes(b"other")
    second = scanned(project)
    snapshots = SnapshotStore(os.fsencode(tmp_path / "w/grounds"), worker.store, quota=size + 100)
    worker.snapshots.close()
    worker.snapshots = snapshots
    worker.fetch(second)
    assert not snapshots.has(first.base) and snapshots.has(second.base)


def test_after_a_boot_a_snapshot_is_read_before_it_is_used(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = scanned(project)
    first = Worker(tmp_path / "w")
    tree = first.fetch(base).tree
    first.close()
    (tree / "src/deep/c.py").write_bytes(b"?\n")  # as a power loss may leave it
    for module in (building, sys.modules[ObjectStore.__module__]):
        monkeypatch.setattr(module, "boot_id", lambda: b"the next boot")
    second = Worker(tmp_path / "w")
    again = second.fetch(base)
    assert listing(again.tree) == listing(project)
    assert again.size > 0
    second.close()
    third = Worker(tmp_path / "w")
    monkeypatch.setattr(building, "differences", None)  # it is not read a second time
    assert third.fetch(base).size == 0
    third.close()


@pytest.mark.parametrize("damage", ["seal", "nodes", "empty seal", "no tree"])
def test_a_damaged_snapshot_is_made_again(tmp_path: Path, project: Path, damage: str) -> None:
    base = scanned(project)
    first = Worker(tmp_path / "w")
    path = first.fetch(base).tree.parent
    first.close()
    edits: dict[str, Callable[[], object]] = {
        "seal": (path / "seal").unlink,
        "nodes": (path / "nodes").unlink,
        "empty seal": lambda: (path / "seal").write_bytes(b""),
        "no tree": lambda: (path / "tree").rename(path / "gone"),
    }
    edits[damage]()
    second = Worker(tmp_path / "w")
    (project / "a.py").write_bytes(b"next\n")
    following = scanned(project)
    assert listing(second.fetch(following).tree) == listing(project)
    if damage != "nodes":  # they are needed for the next snapshot only
        (project / "a.py").write_bytes(b"a\n")
        os.utime(project / "a.py", ns=(0, _mtime(base, b"a.py")))
        assert listing(second.fetch(base).tree) == listing(project)
    second.close()


def _mtime(base: Scanned, name: bytes) -> int:
    from mudroom.ext.fleet.base.manifest import decode_node

    return next(row.mtime_ns for row in decode_node(base.nodes[base.base.root]) if row.name == name)


# --- hostile bases ---


def test_a_size_that_is_not_that_of_the_content_is_refused(tmp_path: Path, worker: Worker, project: Path) -> None:
    node = encode_node([Row(b"f", FILE, 0o644, 0, 5, digest_of_content(b"four"))])
    worker.store.put(digest_of_node(node), node, is_node=True)
    worker.store.put(digest_of_content(b"four"), b"four")
    base = scanned(project).base._replace(root=digest_of_node(node))
    assert worker.snapshots.missing(base) == NOTHING
    with pytest.raises(RefusedBase, match="another size"):
        worker.snapshots.acquire(base)
    assert snapshots_in(tmp_path) == []


def test_an_impossible_base_is_refused_before_anything_is_asked_for(worker: Worker, project: Path) -> None:
    base = scanned(project).base
    for wrong in (base._replace(masked=(b"../x",)), base._replace(project=b"p"), base._replace(root=b"")):
        with pytest.raises(RefusedBase):
            worker.snapshots.missing(wrong)
        with pytest.raises(RefusedBase):
            worker.snapshots.acquire(wrong)


def test_the_comparison_finds_every_difference(project: Path, worker: Worker) -> None:
    (project / "link").symlink_to("a.py")
    base = scanned(project)
    tree = worker.fetch(base).tree
    assert list(differences(os.fsencode(tree), base.base.root, base.nodes)) == []
    (tree / "a.py").write_bytes(b"A\n")
    (tree / "src/b.py").chmod(0o600)
    (tree / "src/deep/c.py").unlink()
    (tree / "src/new").write_bytes(b"")
    (tree / "link").unlink()
    (tree / "link").symlink_to("b.py")
    found = sorted(differences(os.fsencode(tree), base.base.root, base.nodes))
    assert found == [b"a.py", b"link", b"src/b.py", b"src/deep/c.py", b"src/new"]


def test_what_the_policy_leaves_out_is_not_in_a_snapshot(project: Path, worker: Worker) -> None:
    make(project, {"big/data": b"x"})
    tree = worker.fetch(scanned(project, Settings(copy_exclude=(b"big",)))).tree
    assert not (tree / "big").exists()
