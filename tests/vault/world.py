"""A project, a fork that changes it in every way there is, and what must be true of both whatever happens to an apply.

Used by the tests that cut applies off (``test_faults.py``, ``test_power_loss.py``) and of bad places.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from clocks import let_pass
from conftest import Place
from mudroom.core.retention import DAY
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.session.upkeep import problems, retention_limits
from mudroom.stage import disk
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.apply.transaction import Recovery
from mudroom.vault.retention.prune import collect_garbage

SHM = Path("/dev/shm")


_ELSEWHERE: set[Path] = set()
"""State directories on another file system, of worlds that were not removed: a test that fails leaves them."""


class Way(NamedTuple):
    """How project, fork and vault lie to each other."""

    name: str
    view: Literal["overlay", "copy"] = "overlay"
    apart: bool = False
    """The vault on another file system than the project, so that the slots are in the project."""
    plain: bool = False
    """A file system that has only rename(2): NFS, some FUSE. Files cannot be swapped in one act there."""


TOGETHER, APART, PLAIN = Way("together"), Way("apart", apart=True), Way("plain", plain=True)
WAYS = (TOGETHER, APART, PLAIN, Way("copy", "copy"), Way("copy-apart", "copy", True))

MTIME = "@1700000000"

_READ_ONLY = (
    "chmod u+w ro; echo x >> ro/x; rm ro/y; chmod u-w ro" if disk.user() == 0 else "chmod u+w ro; echo x >> ro/x"
)
"""Only root may write into a directory that is closed to its owner; for others such an edit is a conflict."""
SCRIPT = f"""
set -e
echo more >> edited; echo more >> big; echo more >> 'odd name'
rm -r gone removed part/a part/sub linkgone
mkdir -p new/sub new/empty; echo n > new/sub/f; ln new/sub/f new/twin; ln new/sub/f twin-outside
ln -s ../edited new/link
chmod 755 mode; chmod 700 dirmode; chmod 700 dirmode/f
rm kind; mkdir kind; echo k > kind/k
rm -r tree; echo now a file > tree
mv moved there; mv olddir newdir
ln -sfn target2 link; rm tolink; ln -s edited tolink; rm fromlink; echo f > fromlink
{_READ_ONLY}
mkdir closed; echo c > closed/c; chmod 555 closed
echo h >> h1
echo t >> tagged; setfattr -n user.a -v 2 tagged; setfattr -n user.new -v v edited
mkfifo pipe
echo s > single; chmod 400 single
echo deep >> nested/deep/deeper/f
touch -d {MTIME} edited big 'odd name' new/sub/f
touch -d {MTIME} there tree kind/k fromlink ro/x closed/c h1 tagged single nested/deep/deeper/f
"""
"""Everything that an apply knows to do. Times are set so that one run of it gives what another does."""

SMALL = f"echo more >> edited; rm removed; mkdir new; echo n > new/f; touch -d {MTIME} edited new/f"


def fill(project: Path) -> None:
    """What ``SCRIPT`` and ``SMALL`` expect."""

    def write(name: str, mode: int = 0o644) -> None:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name + "\n")
        path.chmod(mode)

    for name in ("edited", "odd name", "gone/a", "gone/b/c", "removed", "part/a", "part/b", "part/sub/c", "mode"):
        write(name)
    for name in ("dirmode/f", "kind", "tree/x", "tree/y/z", "moved", "olddir/f", "olddir/g/h", "tolink"):
        write(name)
    for name in (
        "ro/x",
        "ro/y",
        "h1",
        "tagged",
        "nested/deep/deeper/f",
        "nested/deep/other",
        "untouched/f",
        "untouched/g",
    ):
        write(name)
    (project / "big").write_bytes(b"0123456789abcdef" * (3 << 16))
    for name, target in (("link", "target1"), ("linkgone", "gone/a"), ("fromlink", "edited")):
        os.symlink(target, project / name)
    os.link(project / "h1", project / "h2")
    os.setxattr(project / "tagged", "user.a", b"1")
    for directory, _directories, files in os.walk(project):
        for name in files:
            os.utime(os.path.join(directory, name), (1_600_000_000, 1_600_000_000), follow_symlinks=False)
    (project / "ro").chmod(0o555)


class Portrait(NamedTuple):
    kind: str
    mode: int
    content: str
    """A digest, or the target of a link."""
    mtime: int
    """Of files only."""
    xattrs: tuple[tuple[str, bytes], ...]
    same_as: str
    """The first name that is the same file; its own if there is no other."""


Portraits = dict[str, Portrait]


def portraits(project: Path) -> Portraits:
    """Everything that can be told of a project by reading it, but for mudroom's own directory."""
    found: Portraits = {}
    first: dict[int, str] = {}
    for directory, directories, files in os.walk(project):
        if Path(directory) == project and ".mudroom" in directories:
            directories.remove(".mudroom")
        for name in sorted((*directories, *files)):
            path = Path(directory) / name
            info = path.lstat()
            relative = os.path.relpath(path, project)
            content, mtime, same_as = "", 0, ""
            xattrs: tuple[tuple[str, bytes], ...] = ()
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                content, mtime = hashlib.sha256(_read(path)).hexdigest(), info.st_mtime_ns
                same_as = first.setdefault(info.st_ino, relative)
                names = (key for key in os.listxattr(path) if key.startswith("user."))
                xattrs = tuple((key, os.getxattr(path, key)) for key in sorted(names))
            kind = stat.filemode(info.st_mode)[0]
            found[relative] = Portrait(kind, stat.S_IMODE(info.st_mode), content, mtime, xattrs, same_as)
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError:
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode | 0o400)
        try:
            return path.read_bytes()
        finally:
            path.chmod(mode)


def inodes(project: Path) -> dict[str, int]:
    """Which file each name is: what is brought back must be the very file that was there."""
    return {
        os.path.relpath(os.path.join(directory, name), project): os.lstat(os.path.join(directory, name)).st_ino
        for directory, directories, files in os.walk(project)
        for name in (*directories, *files)
        if ".mudroom" not in Path(directory, name).parts
    }


class World(Place):
    """A project that ``make`` has made, with a fork of it that has run ``script``, and then ``meanwhile`` in itself."""

    def __init__(
        self,
        root: Path,
        client: Client,
        way: Way,
        script: str = SCRIPT,
        meanwhile: str = "",
        make: Callable[[Path], None] = fill,
    ) -> None:
        root.mkdir()
        super().__init__(root, client)
        self.way = way
        self.settings = Settings(view=way.view)
        if way.apart:
            elsewhere = None if root.is_relative_to(SHM) else SHM
            self.state = Path(tempfile.mkdtemp(prefix="mudroom-test-", dir=elsewhere))
            _ELSEWHERE.add(self.state)
        make(self.project)
        with self.session(self.settings) as session:
            result = session.run([b"sh", b"-c", script.encode()])
            assert result.exit_code == 0, result.stderr
            self.fork = result.fork
            session.changes.of(self.fork)  # as the review does: no process is started when faults are injected
        if meanwhile:
            subprocess.run(["sh", "-ec", meanwhile], cwd=self.project, check=True)
        self.before, self.inodes = portraits(self.project), inodes(self.project)

    def remove(self) -> None:
        """All of it, whatever modes it has."""
        self.close()
        self._open.clear()
        remove_tree(os.fsencode(self.root))
        if self.way.apart:
            remove_tree(os.fsencode(self.state))
            _ELSEWHERE.discard(self.state)

    # --- what people do, each as a command of its own ---

    def apply(self) -> tuple[int, int]:
        """As ``mudroom apply`` does. Returns how many conflicts there were and how many changes are left."""
        with self.session(self.settings) as session, session.alone("apply"):
            landed = session.changes.apply(self.fork)
            return len(landed.conflicts), landed.remaining

    def undo(self) -> int:
        """As ``mudroom undo`` does. Returns how many conflicts there were."""
        with self.session(self.settings) as session, session.alone("undo"):
            return len(session.changes.undo().conflicts)

    def redo(self) -> int:
        """As ``mudroom redo`` does. Returns how many conflicts there were."""
        with self.session(self.settings) as session, session.alone("redo"):
            return len(session.changes.redo().conflicts)

    def recover(self) -> list[Recovery]:
        """What any next command does first."""
        with self.session(self.settings) as session, session.alone("recover") as recovered:
            return recovered

    # --- what must be true ---

    def is_as_before(self) -> bool:
        return portraits(self.project) == self.before and inodes(self.project) == self.inodes

    def still_there(self) -> bool:
        """Whether the fork has something to apply."""
        return bool(self.changed())

    def changed(self) -> list[bytes]:
        """The paths of what the fork has to apply."""
        with self.session(self.settings) as session:
            try:
                return [change.path for change in session.changes.of(self.fork).changes]
            except UsageError:
                return []

    def is_applied(self) -> bool:
        """Whether there is something to undo."""
        with self.session(self.settings) as session:
            return any(apply["state"] == "applied" for apply in session.changes.applies())

    def unfinished(self) -> list[str]:
        """What recovery should have dealt with, and anything in the project or vault that is not whole."""
        vault = next((self.state / "vaults").iterdir())
        found = [str(path) for path in (vault / "applies/pending",) if path.exists()]
        with self.session(self.settings) as session:
            found += [f"{problem.subject}: {problem.text}" for problem in problems(session)]
            done = {apply["apply"] for apply in session.changes.applies() if apply["state"] in ("applied", "undone")}
        mine = self.project / ".mudroom"
        if mine.exists():
            slots = {path.name for path in (mine / "apply").iterdir()} - {".gitignore"}
            found += [f"{mine}/apply/{name} is no finished apply's" for name in slots - done]
            found += [str(path) for path in mine.rglob("*.part")]
            if not slots:
                found.append(f"{mine} is there for nothing")
        return found

    def leftovers(self) -> list[str]:
        """After everything was applied and undone and old things were cleared away: what is there for nobody."""
        with self.session(self.settings) as session, session.alone("gc"):
            now = let_pass(session.vault, session.forks.clock() + DAY)
            collect_garbage(session.vault, retention_limits(self.settings), now)
            vault = Path(os.fsdecode(session.vault.path))
        found = [str(path) for name in ("forks", "layers", "bases", "merged", "trash") for path in _below(vault / name)]
        found += [str(path) for ending in (".new", ".part", ".swap") for path in vault.rglob("*" + ending)]
        return found + [str(path) for path in self.project.rglob("*") if path.suffix in (".part", ".new", ".swap")]


def _below(place: Path) -> list[Path]:
    return list(place.iterdir()) if place.is_dir() else []


def oracle(root: Path, script: str = SCRIPT) -> Portraits:
    """What the script makes of the project where it runs without mudroom."""
    project = root / "oracle"
    project.mkdir(parents=True)
    fill(project)
    subprocess.run(["sh", "-ec", script], cwd=project, check=True)
    try:
        return portraits(project)
    finally:
        remove_tree(os.fsencode(project))


@functools.cache
def load_modules(client: LauncherClient) -> None:
    """Load what applies, undoes and redoes, once: each child that is watched would load it again."""
    with tempfile.TemporaryDirectory(dir=SHM if os.access(SHM, os.W_OK) else None) as place:
        world = World(Path(place, "world"), client, TOGETHER, SMALL)
        world.apply()
        world.undo()
        world.redo()
        world.remove()


@contextmanager
def fast_place(usual: Path) -> Iterator[Path]:
    """Where worlds that lie on one file system are made quickest: in memory, if there is such a place."""
    if not os.access(SHM, os.W_OK):
        yield usual
        return
    place = Path(tempfile.mkdtemp(prefix="mudroom-test-", dir=SHM))
    try:
        yield place
    finally:
        remove_tree(os.fsencode(place))
        while _ELSEWHERE:
            remove_tree(os.fsencode(_ELSEWHERE.pop()))


def why_impossible(way: Way) -> str:
    """Why a world of this kind cannot be had here; empty if it can."""
    if shutil.which("setfattr") is None:
        return "needs setfattr (./check installs attr)"
    if way.apart and (not os.access(SHM, os.W_OK) or SHM.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev):
        return "/dev/shm is not a writable file system of its own"
    return ""
