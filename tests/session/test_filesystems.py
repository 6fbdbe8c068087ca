"""Projects and state on all sorts of file systems: another one than the project's, one that is full, ones on which no
overlay can be laid, one with something mounted inside."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from conftest import Place, listing, tick
from mudroom.core.settings import Settings
from mudroom.core.tree.entry import from_stat
from mudroom.errors import MudroomError, RunUnwritten, Unsupported
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from mudroom.stage import beneath
from mudroom.vault.apply.execution import Executor
from mudroom.vault.store.store import open_vault, spread_layers

pytestmark = [pytest.mark.both_users, pytest.mark.root]

SHM = Path("/dev/shm")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting file systems needs root")


class Split:
    """A project in one place, its state in another."""

    def __init__(self, project: Path, state: Path, home: Path, client: Client) -> None:
        self.project, self.state, self.home, self.client = project, state, home, client

    def open(self, settings: Settings | None = None) -> Session:
        tick()
        return Session.open(
            os.fsencode(self.project),
            state=os.fsencode(self.state),
            home=os.fsencode(self.home),
            environ=os.environb,
            settings=settings or Settings(),
            client=self.client,
        )


@pytest.fixture
def elsewhere(tmp_path: Path, client: Client) -> Iterator[Split]:
    """The project on a tmpfs, the state on the disk."""
    if not os.access(SHM, os.W_OK) or SHM.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is not a writable file system of its own")
    project = Path(tempfile.mkdtemp(prefix="mudroom-test-", dir=SHM))
    home = tmp_path / "home"
    home.mkdir()
    yield Split(project, tmp_path / "state", home, client)
    subprocess.run(["chmod", "-R", "u+rwX", str(project)], check=True)
    shutil.rmtree(project)


def fill(project: Path) -> None:
    (project / "edit").write_text("one\n")
    (project / "gone").mkdir()
    (project / "gone/f").write_text("x\n")


SCRIPT = (
    b"echo two >> edit; rm -r gone; mkdir -p new/deep; echo n > new/deep/n; ln new/deep/n new/hard; echo s > single"
)


def check_apply_and_undo(split: Split, settings: Settings | None = None) -> None:
    fill(split.project)
    before = listing(split.project)
    with split.open(settings) as session:
        result = session.run([b"sh", b"-c", SCRIPT])
        assert result.exit_code == 0, result.stderr
        assert listing(split.project) == before
        landed = session.changes.apply(result.fork)
        assert landed.conflicts == ()
        assert (split.project / "edit").read_text() == "one\ntwo\n"
        assert (split.project / "new/deep/n").read_text() == "n\n"
        assert (split.project / "new/hard").stat().st_ino == (split.project / "new/deep/n").stat().st_ino
        assert not (split.project / "gone").exists()
        undone = session.changes.undo()
        assert undone.conflicts == ()
    after = {name: entry for name, entry in listing(split.project).items() if not name.startswith(".mudroom")}
    assert after == before


def test_state_on_another_file_system(elsewhere: Split) -> None:
    check_apply_and_undo(elsewhere)


def test_a_staged_copy_of_layers_on_another_file_system_is_whole(elsewhere: Split) -> None:
    """Entries of the base have the project's device, those of layers the device of the state."""
    fill(elsewhere.project)
    with elsewhere.open(Settings(view="copy")) as session:
        session.run([b"sh", b"-c", b"echo n > new"], fork="f")
        session.forks.checkpoint("f", "p")
        result = session.run([b"sh", b"-c", b"rm -r gone"], fork="f")
        assert [change.path for change in result.changeset.changes] == [b"gone", b"gone/f", b"new"]
        session.forks.rollback("f", "p")
        result = session.run([b"cat", b"gone/f", b"new"], fork="f")
        assert (result.stdout, result.stderr) == (b"x\nn\n", b"")
        assert [change.path for change in result.changeset.changes] == [b"new"]


def test_layers_below_a_staged_copy_are_set_apart_before_the_review(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no overlay can be laid over the state, nobody can tell whether something leads into a layer."""
    monkeypatch.setattr("mudroom.vault.forks.apart.released", lambda trees, _scratch: [False] * len(trees))
    place.write("f", "1\n")
    session = place.session(Settings(view="copy"))
    session.run([b"sh", b"-c", b"echo 2 >> f"], fork="c")
    session.forks.checkpoint("c", "p")
    session.run([b"true"], fork="c")
    session.changes.review("c")
    assert session.changes.apply("c").conflicts == ()
    assert (place.project / "f").read_text() == "1\n2\n"


def test_a_copy_view_works_the_same(place: Place) -> None:
    split = Split(place.project, place.state, place.home, place._client)
    check_apply_and_undo(split, Settings(view="copy"))


def test_a_copy_view_is_at_the_projects_own_path_and_adds_up(place: Place) -> None:
    place.write("f", "1\n")
    session = place.session(Settings(view="copy"))
    assert session.run([b"pwd"], fork="c").stdout == os.fsencode(place.project) + b"\n"
    session.run([b"sh", b"-c", b"echo 2 >> f; echo a > a"], fork="c")
    result = session.run([b"sh", b"-c", b"cat f a; rm a; echo b > b"], fork="c")
    assert result.stdout == b"1\n2\na\n"
    assert {change.path for change in result.changeset.changes} == {b"f", b"b"}
    assert session.changes.apply("c").conflicts == ()
    assert sorted(os.listdir(place.project)) == ["b", "f"]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A directory that tests mount on; unmounted at the end."""
    target = tmp_path / "mounted"
    target.mkdir()
    yield target
    subprocess.run(["umount", "--lazy", str(target)], check=False, capture_output=True)


def make_filesystem(kind: str, size: str, image: Path, target: Path, *options: str) -> None:
    if kind in ("tmpfs", "ramfs"):
        subprocess.run(["mount", "-t", kind, "-o", f"size={size}", kind, str(target)], check=True)
        return
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"mkfs.{kind} is not installed")
    subprocess.run(["truncate", "-s", size, str(image)], check=True)
    subprocess.run([f"mkfs.{kind}", *options, str(image)], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(target)], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{kind} cannot be mounted here: {done.stderr.strip()}")


@root_only
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("xfs", "400M"), ("btrfs", "200M"), ("ext4", "50M"), ("tmpfs", "50M")])
def test_everything_on_one_file_system_of_a_kind(
    tmp_path: Path, mounted: Path, client: Client, kind: str, size: str
) -> None:
    make_filesystem(kind, size, tmp_path / "image", mounted)
    for name in ("project", "home"):
        (mounted / name).mkdir()
    check_apply_and_undo(Split(mounted / "project", mounted / "state", mounted / "home", client))


RENAMES = b"""set -e
/usr/bin/python3 -c "import os; os.rename('d', 'renamed')"
mv renamed/sub renamed/moved
echo more >> renamed/moved/f
mv sv/inner sv/other
mkdir -p e && mv renamed/moved e/sub
"""


@root_only
@pytest.mark.slow
@pytest.mark.parametrize("beside", [True, False], ids=["state beside", "state elsewhere"])
def test_directories_are_renamed_on_btrfs(tmp_path: Path, mounted: Path, client: Client, beside: bool) -> None:
    """A subvolume has a device of its own, and inode numbers that others have, too. An apply puts nothing there, and
    says so: no rename crosses its border."""
    make_filesystem("btrfs", "200M", tmp_path / "image", mounted)
    project = mounted / "project"
    (project / "d/sub/deep").mkdir(parents=True)
    subprocess.run(["btrfs", "subvolume", "create", project / "sv"], check=True, capture_output=True)
    (project / "sv/inner").mkdir()
    for name in ("d/a", "d/sub/f", "d/sub/deep/g", "sv/inner/h"):
        (project / name).write_text(f"{name}\n")
    (tmp_path / "home").mkdir()
    bare = tmp_path / "bare"
    shutil.copytree(project, bare)
    subprocess.run(["sh", "-c", RENAMES], cwd=bare, check=True)
    before = listing(project)
    split = Split(project, (mounted if beside else tmp_path) / "state", tmp_path / "home", client)
    with split.open() as session:
        result = session.run([b"sh", b"-c", RENAMES])
        assert (result.exit_code, result.denials) == (0, ()), result.stderr
        assert not [note for note in result.notes if "copy" in note]
        assert listing(project) == before
        landed = session.changes.apply(result.fork)
        reasons = {conflict.path: conflict.reason.partition(",")[0] for conflict in landed.conflicts}
        assert reasons == dict.fromkeys((b"sv/inner", b"sv/other"), "is on another mount than the project")
        (bare / "sv/other").rename(bare / "sv/inner")
        names = {path.relative_to(project): path.is_dir() or path.read_text() for path in project.rglob("*")}
        names = {name: what for name, what in names.items() if name.parts[0] != ".mudroom"}
        assert names == {path.relative_to(bare): path.is_dir() or path.read_text() for path in bare.rglob("*")}
        assert session.changes.undo().conflicts == ()
    assert {name: entry for name, entry in listing(project).items() if not name.startswith(".mudroom")} == before


LOOK = b"""find . -printf '%p %y %m %l\\n' | sort
find . -type f | sort | xargs head -v
cp d/a copied && cat copied; rm copied
"""
EDITS = (
    "echo more >> d/a", "echo saved > d/b && mv d/b d/a", "touch gone", "rm gone", "touch passing && rm passing",
    "chmod 600 d/a", "ln d/a d/linked && echo linked >> d/linked && rm d/linked", "truncate -s 1 d/a",
    "cp --reflink=auto --remove-destination f d/a", "cp --reflink=auto --no-clobber f d/c",
    "mv d e && mkdir d && echo other > d/a", "rm -r e && mkdir -p e/e && echo new > e/e/a",
)  # fmt: skip


@root_only
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "size", "beside"),
    [("xfs", "400M", True), ("xfs", "400M", False), ("btrfs", "200M", True), ("btrfs", "200M", False)],
)
def test_a_mount_that_stands_follows_the_project(
    tmp_path: Path, mounted: Path, client: Client, kind: str, size: str, beside: bool
) -> None:
    """It shows what a new one shows, whatever the user does between two commands."""
    make_filesystem(kind, size, tmp_path / "image", mounted)
    project = mounted / "project"
    if kind == "btrfs":  # a device of its own inside of the project
        project.mkdir()
        subprocess.run(["btrfs", "subvolume", "create", project / "d"], check=True, capture_output=True)
    for path in (project / "d", tmp_path / "home"):
        path.mkdir(parents=True, exist_ok=True)
    (project / "d/a").write_text("1\n")
    (project / "f").write_text("a file\n")
    split = Split(project, (mounted if beside else tmp_path) / "state", tmp_path / "home", client)
    with split.open() as session:

        def seen(fork: str | None) -> tuple[bytes, list[str]]:
            result = session.run([b"sh", b"-c", LOOK], fork=fork)
            assert result.exit_code == 0, result.stderr
            return result.stdout, [note for note in result.notes if "earlier" not in note]

        for _command in range(8):
            seen("f")
        for edit in EDITS:
            subprocess.run(["sh", "-c", edit], cwd=project, check=True)
            assert seen("f") == seen(None), edit
            assert seen("f") == seen(None), edit


SPREAD = (
    ("ext4", "50M", (), True),
    ("ext4", "50M", ("-O", "^has_journal"), True),
    ("xfs", "400M", (), False),
    ("btrfs", "200M", (), False),
    ("tmpfs", "50M", (), False),
)


@root_only
@pytest.mark.parametrize(
    ("kind", "size", "options", "has_flag"), SPREAD, ids=("journal", "bare", "xfs", "btrfs", "tmpfs")
)
def test_a_vault_spreads_its_layers_where_the_file_system_can(
    tmp_path: Path, mounted: Path, kind: str, size: str, options: tuple[str, ...], has_flag: bool
) -> None:
    make_filesystem(kind, size, tmp_path / "image", mounted, *options)
    made = open_vault(os.fsencode(mounted), b"/p")
    assert spread_layers(made) == has_flag
    assert is_spread(made.path + b"/layers") == has_flag
    layer = made.layer(made.new_layer())
    os.mkdir(layer + b"/tree")
    assert not is_spread(layer)
    assert not is_spread(layer + b"/tree")


@root_only
def test_forks_of_a_spread_vault_lie_apart(tmp_path: Path, mounted: Path) -> None:
    """In different flexible block groups, of which this disk has 32: a fork with its layer, whose directory it was made
    in. Without the flag all are in one."""
    make_filesystem("ext4", "1G", tmp_path / "image", mounted, "-g", "1024", "-G", "8", "-N", "65536")
    vault = open_vault(os.fsencode(mounted), b"/p")
    inodes = 65536 // (1024 * 1024 * 1024 // 4096 // 1024) * 8
    forks = [vault.new_fork(f"f{number}") for number in range(12)]
    places = [
        (os.stat(fork.path).st_ino // inodes, os.stat(fork.layer(fork.state.upper)).st_ino // inodes) for fork in forks
    ]
    assert len(set(places)) > 6
    assert all(fork == layer for fork, layer in places), places


def is_spread(directory: bytes) -> bool:
    """Whether lsattr(1) shows the flag ``T``."""
    done = subprocess.run(["lsattr", "-d", directory], capture_output=True, check=False)
    return b"T" in done.stdout.partition(b" ")[0]


@root_only
@pytest.mark.slow
def test_a_project_on_vfat_is_staged_as_a_copy(tmp_path: Path, mounted: Path, client: Client) -> None:
    make_filesystem("vfat", "50M", tmp_path / "image", mounted)
    (mounted / "f.txt").write_text("one\n")
    (tmp_path / "home").mkdir()
    with Split(mounted, tmp_path / "state", tmp_path / "home", client).open() as session:
        result = session.run([b"sh", b"-c", b"echo two >> f.txt; mkdir d; echo n > d/n"])
        assert any("working in a copy" in note and "vfat" in note for note in result.notes)
        assert (mounted / "f.txt").read_text() == "one\n"
        landed = session.changes.apply(result.fork)
        assert landed.conflicts == ()
        assert (mounted / "f.txt").read_text() == "one\ntwo\n"
        assert (mounted / "d/n").read_text() == "n\n"
        assert session.changes.undo().conflicts == ()
        assert (mounted / "f.txt").read_text() == "one\n"


@root_only
def test_state_without_xattrs_is_for_copies(tmp_path: Path, mounted: Path, client: Client) -> None:
    """An overlay can be mounted there, and then no directory of the project can be removed in it: EIO."""
    make_filesystem("ramfs", "20M", tmp_path / "image", mounted)
    project, home = tmp_path / "project", tmp_path / "home"
    home.mkdir()
    project.mkdir()
    split = Split(project, mounted / "state", home, client)
    check_apply_and_undo(split)
    with split.open(Settings(view="overlay")) as session, pytest.raises(Unsupported, match="on ramfs"):
        session.run([b"true"])
    with split.open() as session:
        notes = session.run([b"true"]).notes
        assert [note for note in notes if "has no xattrs" in note and "working in a copy" in note], notes


def test_state_without_permissions_is_refused(tmp_path: Path, client: Client) -> None:
    for name in ("below", "mounted", "project", "home"):
        (tmp_path / name).mkdir()
    words = ["bindfs", "--perms=0777", str(tmp_path / "below"), str(tmp_path / "mounted")]  # as FAT, NTFS, WSL
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"FUSE cannot be mounted here: {done.stderr.strip()}")
    try:
        with pytest.raises(MudroomError, match=r"does not keep permissions .*set MUDROOM_STATE"):
            Split(tmp_path / "project", tmp_path / "mounted/state", tmp_path / "home", client).open()
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(tmp_path / "mounted")], check=True)


def test_undo_where_the_project_keeps_no_modes(tmp_path: Path, client: Client) -> None:
    """A new file has another mode there than it was given."""
    for name in ("below", "mounted", "home"):
        (tmp_path / name).mkdir()
    words = ["bindfs", "--perms=0755", "--chmod-ignore", str(tmp_path / "below"), str(tmp_path / "mounted")]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"FUSE cannot be mounted here: {done.stderr.strip()}")
    project = tmp_path / "mounted/project"
    project.mkdir()
    fill(project)
    before = listing(project)
    try:
        with Split(project, tmp_path / "state", tmp_path / "home", client).open() as session:
            result = session.run([b"sh", b"-c", b"echo n > n; chmod 600 n; mkdir -m 700 d; echo e > d/e; rm -r gone"])
            assert session.changes.apply(result.fork).conflicts == ()
            assert session.changes.undo().conflicts == ()
        assert without_slots(project) == before
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(tmp_path / "mounted")], check=True)


def test_an_edit_where_the_ctime_is_the_mtime(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT and exFAT: a tool that keeps size and mtime keeps all times. The content decides."""
    monkeypatch.setattr(beneath, "from_stat", lambda *stat: (entry := from_stat(*stat))._replace(ctime=entry.mtime))
    for module in ("conflict.reconciliation", "apply.imprint"):
        monkeypatch.setattr(f"mudroom.vault.{module}.has_weak_ctime", lambda _path: True)
    place.write("f", "one\n")
    session = place.session()
    result = session.run([b"sh", b"-c", b"echo fork > f; echo new > n"])
    _edit_with_stamp_kept(place.project / "f", "two\n")
    assert [conflict.path for conflict in session.changes.apply(result.fork).conflicts] == [b"f"]
    assert (place.project / "f").read_text() == "two\n"
    _edit_with_stamp_kept(place.project / "n", "NEW\n")
    assert [conflict.path for conflict in session.changes.undo().conflicts] == [b"n"]
    assert (place.project / "n").read_text() == "NEW\n"


def _edit_with_stamp_kept(path: Path, content: str) -> None:
    info = path.stat()
    path.write_text(content)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


@root_only
def test_an_edit_in_the_second_of_an_apply_is_not_undone(tmp_path: Path, mounted: Path, client: Client) -> None:
    """Small inodes have no room for nanoseconds: size, mtime and ctime of the edited file are those of the apply."""
    make_filesystem("ext4", "20M", tmp_path / "image", mounted, "-q", "-I", "128")
    project, home = mounted / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    with Split(project, mounted / "state", home, client).open() as session:
        while time.time() % 1 > 0.3:  # all in one second, unless the machine is busy
            pass
        result = session.run([b"sh", b"-c", b"echo one > new; mkdir d; echo one > d/new"])
        names = (project / "new", project / "d/new")
        assert session.changes.apply(result.fork).conflicts == ()
        for path in names:
            _edit_with_stamp_kept(path, "two\n")
        assert {conflict.path for conflict in session.changes.undo().conflicts} >= {b"new", b"d/new"}
        assert [path.read_text() for path in names] == ["two\n", "two\n"]


@root_only
def test_a_full_disk_while_staging_harms_nothing(tmp_path: Path, mounted: Path, client: Client) -> None:
    make_filesystem("tmpfs", "1M", tmp_path / "image", mounted)
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    (project / "f").write_text("precious\n")
    session = Split(project, mounted / "state", home, client).open()
    # nor is there room to write down what it changed, or that it has run
    with session, pytest.raises((OSError, RunUnwritten), match=r"No space left|make room on that file system"):
        session.run([b"sh", b"-c", b"head -c 5000000 /dev/zero > big; echo more >> f"])
    assert listing(project) == {"f": ("file", (project / "f").stat().st_mode & 0o777, b"precious\n")}


@root_only
def test_a_full_disk_while_applying_loses_nothing(tmp_path: Path, mounted: Path, client: Client) -> None:
    """State and project on different file systems, so that applying has to copy, and there is no room for it."""
    make_filesystem("tmpfs", "300k", tmp_path / "image", mounted)
    project, home = mounted / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    (project / "f").write_text("precious\n")
    with Split(project, tmp_path / "state", home, client).open() as session:
        result = session.run([b"sh", b"-c", b"head -c 2000000 /dev/zero > big; echo more >> f"])
        assert result.exit_code == 0
        with pytest.raises(MudroomError, match=r"no room on the file system of .*/project"):
            session.changes.apply(result.fork)
        assert (project / "f").read_text() == "precious\n"
        assert not (project / "big").exists()
        assert os.listdir(project) == ["f"]
        assert session.changes.recover() == []
        landed = session.changes.apply(result.fork, [b"f"])
        assert landed.conflicts == ()
        assert (project / "f").read_text() == "precious\nmore\n"
        assert landed.remaining == 1


# --- a project on overlayfs: any container without a volume ---


@pytest.fixture
def layered(tmp_path: Path, mounted: Path, client: Client) -> Iterator[Split]:
    """A project in the lower layer of an overlay, as an image has it; the state is on the disk."""
    for name in ("lower/project", "upper", "work", "home"):
        (tmp_path / name).mkdir(parents=True)
    project = tmp_path / "lower/project"
    fill(project)
    for name in ("d/a", "d/sub/b", "d/sub/deeper/c", "kept/f"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    layers = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", str(mounted)], check=True)
    yield Split(mounted / "project", tmp_path / "state", tmp_path / "home", client)


@root_only
@pytest.mark.parametrize("view", ["overlay", "copy"])
@pytest.mark.parametrize(
    "script",
    [
        "rm -r d; ln -s ../elsewhere d",  # npm link, workspaces, pnpm
        "rm -r d; echo file > d",
        "rm -r d/sub; ln -s /nowhere d/sub; rm -r gone; echo x > gone",
        "mv d e; ln -s e d",
        "rm edit; mkdir -p edit/in; echo x > edit/in/f",
    ],
)
def test_a_directory_of_a_lower_layer_becomes_something_else(
    layered: Split, script: str, view: Literal["overlay", "copy"]
) -> None:
    before = listing(layered.project)
    with layered.open(Settings(view=view)) as session:
        result = session.run([b"sh", b"-c", script.encode()])
        assert result.exit_code == 0, result.stderr
        wanted = layered.home / "wanted"
        subprocess.run(["cp", "-a", layered.project, wanted], check=True)
        subprocess.run(["sh", "-c", script], cwd=wanted, check=True)
        assert session.changes.apply(result.fork).conflicts == ()
        assert without_slots(layered.project) == listing(wanted)
        assert session.changes.undo().conflicts == ()
        assert without_slots(layered.project) == before
        assert session.changes.redo().conflicts == ()
        assert without_slots(layered.project) == listing(wanted)


@root_only
@pytest.mark.parametrize("script", ["rm -r d; echo file > d", "rm -r d; ln -s kept d"])
def test_an_apply_in_parts_that_was_cut_off_is_finished(
    layered: Split, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery comes by a directory that is a file or a link by now."""
    before = listing(layered.project)
    with layered.open() as session:
        result = session.run([b"sh", b"-c", script.encode()])
        if not (pid := os.fork()):
            monkeypatch.setattr(Executor, "_sync", lambda _executor: os._exit(7))
            try:
                session.changes.apply(result.fork)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with layered.open() as session:
        assert [outcome.applied.conflicts for outcome in session.changes.recover()] == [()]
        assert without_slots(layered.project)["d"][0] == ("file" if "file" in script else "symlink")
        assert session.changes.undo().conflicts == ()
        assert without_slots(layered.project) == before


@pytest.fixture
def layered_by_fuse(tmp_path: Path, client: Client) -> Iterator[Split]:
    """As ``layered``, by fuse-overlayfs: a rootless container."""
    for name in ("lower/project", "upper", "work", "home", "mounted"):
        (tmp_path / name).mkdir(parents=True)
    fill(tmp_path / "lower/project")
    (tmp_path / "lower/project/d").mkdir()
    (tmp_path / "lower/project/d/f").write_text("f")
    layers = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
    words = ["fuse-overlayfs", "-o", layers, str(tmp_path / "mounted")]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"FUSE cannot be mounted here: {done.stderr.strip()}")
    yield Split(tmp_path / "mounted/project", tmp_path / "state", tmp_path / "home", client)
    subprocess.run(["fusermount3", "-u", "-z", str(tmp_path / "mounted")], check=True)


def test_what_fuse_overlayfs_cannot_rename_is_changed_in_parts(layered_by_fuse: Split) -> None:
    """It renames no directory of a lower layer, and exchanges no file of one with a directory."""
    project = layered_by_fuse.project
    before = listing(project)
    with layered_by_fuse.open() as session:
        result = session.run([b"sh", b"-c", b"rm -r gone d; ln -s /nowhere d; rm edit; mkdir edit; echo e > edit/e"])
        assert result.exit_code == 0, result.stderr
        assert session.changes.apply(result.fork).conflicts == ()
        after = without_slots(project)
        assert after == {
            "d": ("symlink", 0, b"/nowhere"),
            "edit": ("directory", 0o755, b""),
            "edit/e": ("file", 0o644, b"e\n"),
        }
        assert session.changes.undo().conflicts == ()
        assert without_slots(project) == before
        assert session.changes.redo().conflicts == ()
        assert without_slots(project) == after


@root_only
def test_a_directory_with_an_edit_stays_on_overlayfs(layered: Split) -> None:
    with layered.open() as session:
        result = session.run([b"sh", b"-c", b"rm -r d; echo file > d"])
        (layered.project / "d/sub/b").write_text("mine")
        (layered.project / "d/new").write_text("new")
        assert {conflict.path for conflict in session.changes.apply(result.fork).conflicts} >= {b"d", b"d/sub/b"}
        assert (layered.project / "d/sub/b").read_text() == "mine"
        assert (layered.project / "d/a").read_text() == "d/a"


def without_slots(project: Path) -> dict[str, tuple[str, int, bytes]]:
    return {name: entry for name, entry in listing(project).items() if not name.startswith(".mudroom")}
