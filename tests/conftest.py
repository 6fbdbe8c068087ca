"""What tests share: a project, a home and a state directory of their own, and sessions on them."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import sleep  # tests replace time.sleep
from typing import Any, Protocol

import pytest

from inner_path import inner
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Session
from mudroom.stage.private_directory import answers_directory

pytest_plugins = ["left_out", "once_more", "skip_budget", "tiers"]
pytest_plugins += [name for name in ("browser", "engines") if find_spec(name)]  # of satellites

for name, action in (("SIGHUP", signal.SIG_DFL), ("SIGQUIT", signal.SIG_DFL), ("SIGINT", signal.default_int_handler)):
    # nohup(1), or the background of a shell script: programs under test would inherit the ignored signal
    if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) == signal.SIG_IGN:
        signal.signal(getattr(signal, name), action)

os.environ["MUDROOM_KEEPER"] = "0"  # a command under test leaves no process behind; tests/ext/keeper has its own

CLOCK_REALTIME_COARSE = 5
LIMIT = int(os.environ.get("MUDROOM_TEST_SECONDS", "90"))
"""For any one test; more for long runs by hand."""


def tick() -> None:
    """Wait until file systems stamp a later time than now: a file written before is then certainly older than what
    starts after: at most one timer tick (4 ms)."""
    now = time.time_ns()
    while (time.clock_gettime_ns(CLOCK_REALTIME_COARSE) if sys.platform != "win32" else time.time_ns()) <= now:
        sleep(0.0005)  # others work meanwhile


@pytest.fixture(autouse=True)
def no_test_hangs(request: pytest.FixtureRequest) -> Iterator[None]:
    """A minute and a half for any test: one that waits for ever must fail, not stop the run. ``limit(SECONDS)`` gives
    more to one that is long on a quiet machine already. On a machine with more to do than it has processors it is given
    anew, up to three times: the limit is of a hang, not of a slow machine."""
    if sys.platform == "win32":  # it has no alarm; dev/wine ends the run
        yield
        return
    marker = request.node.get_closest_marker("limit")
    limit = max(LIMIT, *marker.args) if marker is not None else LIMIT

    spent = itertools.count(limit, limit)

    def give_up(_number: int, _frame: object) -> None:
        seconds = next(spent)
        if seconds == 4 * limit or os.getloadavg()[0] <= (os.cpu_count() or 1):
            raise TimeoutError(f"the test took more than {seconds} s")
        signal.alarm(limit)

    previous, blocked = signal.signal(signal.SIGALRM, give_up), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.alarm(limit)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
    # A program that is started later inherits them (signal(7)), and may wait for ever for SIGCHLD.
    left = signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert left == blocked, "signals are blocked still"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """The monotonic clock of this process goes on by so many seconds at once: nobody has to be quicker than a limit of
    time, and nobody waits for it."""
    clock, ahead = time.monotonic, [0.0]

    def skip(seconds: float) -> None:
        ahead[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: clock() + ahead[0])
    return skip


@pytest.fixture(autouse=True)
def the_working_directory_stays() -> Iterator[None]:
    """A passed test's directory is removed: the next tests of its process would work in one that is gone."""
    before = os.getcwd()
    yield
    after = os.path.realpath("/proc/self/cwd") if sys.platform == "linux" else os.getcwd()
    os.chdir(before)  # only the test that left it fails
    assert after == before


@pytest.fixture(autouse=True, scope="session")
def no_keeper_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that starts a keeper ends it: one would live for ten minutes."""
    yield
    here = os.fsencode(tmp_path_factory.getbasetemp()) + b"/"
    left = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue  # it has ended
        if b"keeper_process" in words and here in words:
            left.append(words)
    assert left == []


def act_as(session: Session, **changes: Any) -> None:
    """The next commands of a session are another actor's: with other settings, card, level or agent."""
    session.approval.actor = session.actor._replace(**changes)


class Around(Protocol):
    """Where ``mudroom`` is started as a process."""

    @property
    def home(self) -> Path: ...
    @property
    def state(self) -> Path: ...


def environment(place: Around, **more: str) -> dict[str, str]:
    """Return the variables of a whole process: without a keeper, and trusting policies, which tests write as their own
    user would."""
    own = {"HOME": str(place.home), "MUDROOM_STATE": str(place.state), "MUDROOM_KEEPER": "0"}
    return {"PATH": os.environ["PATH"], **own, "LC_ALL": "C.UTF-8", "MUDROOM_TRUST_POLICY": "1", **more}


class Place:
    """A project in a directory of its own, with everything mudroom needs around it."""

    def __init__(self, root: Path, client: Client) -> None:
        self.root = root
        self.project = root / "project"
        self.home = root / "home"
        self.state = root / "state"
        for path in (self.project, self.home):
            path.mkdir()
        self._client = client
        self._open: list[Session] = []

    def write(self, name: str, content: str | bytes = "", mode: int = 0o644) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    @property
    def answers(self) -> Path:
        """The directory with the answers about this project."""
        return Path(os.fsdecode(answers_directory(os.fsencode(self.project), os.fsencode(self.state))))

    def session(self, settings: Settings | None = None, **options: Any) -> Session:
        tick()
        session = Session.open(
            os.fsencode(self.project),
            state=os.fsencode(self.state),
            home=os.fsencode(self.home),
            environ={**os.environb, b"LC_ALL": b"C"},
            settings=settings or Settings(),
            client=self._client,
            **options,
        )
        self._open.append(session)
        return session

    def sh(self, script: str, settings: Settings | None = None) -> tuple[Session, Result]:
        """Run a shell script in a fresh fork of a fresh session."""
        session = self.session(settings)
        return session, session.run([b"sh", b"-c", script.encode()])

    def close(self) -> None:
        for session in self._open:
            session.close()


@pytest.fixture(scope="session")
def client() -> Iterator[LauncherClient]:
    if sys.platform == "win32":
        pytest.skip("commands of a shell in a sandbox of Linux; tests/ext/windows has the sessions of Windows")
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield client
    client.close()


def is_shared(request: pytest.FixtureRequest) -> bool:
    """Whether a test uses the server that the tests of its file share (``ext/web/browser.py``)."""
    names = request.fixturenames
    return "shared" in names or ("open_page" in names and "own_site" not in names)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, client: LauncherClient) -> Iterator[Place]:
    place = Place(tmp_path, client)
    lender = request.getfixturevalue("shared") if is_shared(request) else None
    if lender:
        lender.lend(place)
    yield place
    place.close()
    if lender:
        lender.take_back(place)


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Remove the test's directory at its end, also after a failure: pytest calls itself for each level of a tree that
    it removes in a later session, and that session ends with RecursionError. Name this fixture before ``place``."""
    yield
    from mudroom.stage.layers.layer import remove_tree

    remove_tree(inner(tmp_path))


Listing = dict[str, tuple[str, int, bytes]]


def listing(root: Path) -> Listing:
    """Every name below a directory with its kind, permission bits, and content or link target."""
    found: Listing = {}
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(directory) / name
            info = path.lstat()
            mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                entry = ("symlink", 0, os.fsencode(os.readlink(path)))
            elif stat.S_ISDIR(info.st_mode):
                entry = ("directory", mode, b"")
            elif stat.S_ISREG(info.st_mode):
                entry = ("file", mode, path.read_bytes())
            else:
                entry = ("special", mode, b"")
            found[os.path.relpath(path, root)] = entry
    return found


def paths_below(root: Path) -> Iterator[Path]:
    """Return every path below a directory, as rglob does. What goes meanwhile is no error in the work directory of an
    overlay: the launcher removes that beside the session."""

    def unless_closed_or_gone(error: OSError) -> None:
        gone = isinstance(error, FileNotFoundError) and "work" in Path(error.filename).relative_to(root).parts
        if not gone and not isinstance(error, PermissionError):
            raise error

    for directory, directories, files in os.walk(root, onerror=unless_closed_or_gone):
        yield from (Path(directory, name) for name in (*directories, *files))


def contents_below(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Return every regular file below a directory, and its bytes."""
    for path in paths_below(root):
        try:
            if stat.S_ISREG(path.lstat().st_mode):
                yield path, path.read_bytes()
        except FileNotFoundError:
            if "work" not in path.relative_to(root).parts:
                raise


def full_listing(root: Path) -> dict[str, tuple[int, int, int, int]]:
    """Names with mode, size, mtime and inode: what must not change before an apply. Directories keep their mtime."""
    found = {}
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            info = (Path(directory) / name).lstat()
            key = os.path.relpath(Path(directory) / name, root)
            found[key] = (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino)
    return found
