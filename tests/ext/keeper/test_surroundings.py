"""A keeper serves each terminal of its user: other control groups, locales and limits are the caller's."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kept import LEFT, PATIENCE, Kept, kept

from box import children
from clocks import give_way
from mudroom.errors import MudroomError
from mudroom.ext.keeper import start
from mudroom.ext.keeper.caller import Elsewhere, surroundings, take_over
from mudroom.ext.keeper.server import KeptLauncher
from mudroom.ext.keeper.variables import may_share
from test_keeper_life import gone, mudroom
from test_kept_equal import both_ways
from tiers import pairs

__all__ = ["kept"]  # a fixture

pytestmark = pytest.mark.both_users

LOCALES: tuple[dict[str, str], ...] = (
    {},
    {"LANG": "C"},
    {"LANG": "POSIX"},
    {"LANG": "C.UTF-8"},
    {"LANG": "en_US.UTF-8"},
    {"LANG": "de_DE.UTF-8", "LC_MESSAGES": "C"},
    {"LANG": "tr_TR.UTF-8", "LC_TIME": "en_GB.UTF-8"},
    {"LC_CTYPE": "C.UTF-8"},
    {"LC_ALL": "C"},
    {"LC_ALL": "C.utf8"},
    {"LC_ALL": "xx_XX.ISO-8859-1"},
    {"LC_ALL": "", "LC_CTYPE": "", "LANG": "", "LANGUAGE": "de:en"},
)


def test_one_keeper_serves_all_locales(kept: Kept) -> None:
    """With the encoding, the variables and the treatment of bytes that are no text that an own interpreter has."""
    pid = kept.start()
    del kept.environment["LC_ALL"]
    for more, words in pairs(
        LOCALES, [(b"run", b"--yes", b"--", b"env"), (b"exec", b"--fork", b"\xff", b"--", b"true")]
    ):
        told = both_ways(kept, *words, more=more)
        assert told[0] == told[1], more
    assert [row.pid for row in kept.list()] == [pid]


def _open_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _first_to_go() -> None:
    Path("/proc/self/oom_score_adj").write_text("765")


def _variables(place: Path) -> Iterator[dict[str, str]]:
    (place / "lib").mkdir()
    (place / "src/app").mkdir(parents=True)
    (place / "src/app/__init__.py").touch()
    yield {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    yield {"PYTHONPATH": f"{place}/src:{place}/none"}
    yield {"VIRTUAL_ENV": "/opt/venv", "PYTHONHASHSEED": "0"}
    yield {"LD_LIBRARY_PATH": f"{place}/lib:{place}/none"}
    yield {"PYTHONIOENCODING": "latin-1:backslashreplace"}
    yield {"PYTHON_VERSION": "3.11", "PYTHON_PIP_VERSION": "24"}
    yield {"OPENSSL_CONF": "/etc/ssl/openssl.cnf"}
    yield {"MALLOC_ARENA_MAX": "2", "PYTHONUTF8": "1"}
    yield {"PYTHONWARNINGS": "ignore", "PYTHONFAULTHANDLER": "1", "PYTHONBREAKPOINT": "0"}


def test_one_keeper_serves_sets_of_variables(kept: Kept) -> None:
    """A shell's own, an editor's, a container image's: outputs are as in-process, of bytes that are no text, too."""
    pid = kept.start()
    words = ("exec", "--fork", b"\xc3\xa9\xff", "--", "true")
    for more in _variables(kept.place.root):
        first, second = both_ways(kept, *words, more=more)
        assert first == second, more
    assert [row.pid for row in kept.list()] == [pid]


@pytest.mark.parametrize(
    ("name", "file", "shared"),
    [
        ("PYTHONPATH", "app/__init__.py", True),
        ("PYTHONPATH", "json.py", False),
        ("PYTHONPATH", "mudroom/__init__.py", False),
        ("PYTHONPATH", "sitecustomize.py", False),
        ("LD_LIBRARY_PATH", "libown.so.1", True),
        ("LD_LIBRARY_PATH", "libc.so.6", False),
        ("LD_LIBRARY_PATH", "libssl.so.3", False),
        ("LD_LIBRARY_PATH", "glibc-hwcaps/x", False),
        ("LD_DEBUG", "x", False),
    ],
)
def test_what_replaces_a_file_of_the_interpreter_is_not_shared(
    tmp_path: Path, name: str, file: str, shared: bool
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    for value in (f"{tmp_path}", f"/no/such/directory:{tmp_path}"):
        assert may_share({name.encode(): os.fsencode(value)}) == shared
    assert may_share({name.encode(): b""})
    for unclear in ("relative", f"{tmp_path}/{file}", "", "$LIB"):
        assert not may_share({name.encode(): os.fsencode(f"/none:{unclear}")})


def test_variables_that_cannot_be_shared_have_a_keeper_of_their_own(kept: Kept) -> None:
    pid = kept.start()
    (kept.place.root / "src").mkdir()
    (kept.place.root / "src/json.py").write_text("raise SystemExit('trapped')\n")
    for more in ({"LD_X": "1"}, {"PYTHONPATH": str(kept.place.root / "src")}):
        assert kept("status", more=more).stderr == LEFT
    (lock,) = Path(os.fsdecode(kept.directory)).glob("*.lock")
    os.utime(lock, (0, 0))
    assert mudroom(kept, "status", LD_X="1").returncode == 0
    gone(pid)
    kept.adopt()
    assert kept("status", more={"LD_X": "1"}).returncode == 0


@pytest.mark.root
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_open_files, "ulimit -n; ulimit -Hn"),
        (_first_to_go, "cat /proc/self/oom_score_adj"),
    ],
)
def test_limits_are_the_callers(kept: Kept, change: Callable[[], None], words: str) -> None:
    kept.start()
    plain = kept("run", "--yes", "--", "sh", "-c", words)
    first, second = both_ways(kept, "run", "--yes", "--", "sh", "-c", words, preexec_fn=change)
    assert first == second
    assert first[0] == 0 and first[1] != plain.stdout
    assert kept("run", "--yes", "--", "sh", "-c", words).stdout == plain.stdout  # the next caller has its own


def test_surroundings_that_may_not_be_had() -> None:
    pid = os.getpid()
    own = surroundings(pid)
    take_over(own, pid)
    with pytest.raises(Elsewhere):
        take_over(own._replace(groups=own.groups.replace(":/", ":/none-of-this-name")), pid)
    stack = tuple(
        (4096, hard) if number == resource.RLIMIT_STACK else (soft, hard)
        for number, (soft, hard) in enumerate(own.limits)
    )
    with pytest.raises(Elsewhere):
        take_over(own._replace(limits=stack), pid)


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """Twelve control groups: of the controller ``pids`` where that has a hierarchy of its own, and of version 2."""
    parents = [Path(place) for place in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified") if os.path.isdir(place)]
    parents = parents or [Path("/sys/fs/cgroup")]
    if os.geteuid() != 0 or not os.access(parents[0], os.W_OK):
        pytest.skip("only root may make groups where it is, if anybody")
    made = [parents[at % len(parents)] / f"mudroom-test-{os.getpid()}-{at}" for at in range(12)]
    for group in made:
        group.mkdir()
    yield made
    for group in filter(Path.exists, made):
        while True:
            try:
                group.rmdir()
                break
            except OSError as error:  # a killed process leaves its group when it is reaped
                if error.errno != errno.EBUSY:
                    raise
                give_way()


def inside(group: Path) -> Callable[[], None]:
    def enter() -> None:
        (group / "cgroup.procs").write_text("0")

    return enter


@pytest.mark.root
def test_one_keeper_serves_all_control_groups(kept: Kept, groups: list[Path]) -> None:
    """Its command is in the caller's group, with all its processes; when it has ended, the group can be removed."""
    pid = kept.start()
    for group in groups:
        words = ("run", "--yes", "--", "sh", "-c", "echo ready; read word")
        process = kept.popen(*words, stdin=subprocess.PIPE, preexec_fn=inside(group))
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        members = [int(word) for path in group.rglob("cgroup.procs") for word in path.read_text().split()]
        words_of = [Path(f"/proc/{member}/cmdline").read_bytes().split(b"\0") for member in members]
        assert [b"sh", b"-c"] in [words[:2] for words in words_of], words_of
        own = [*children(pid), *(launcher for child in children(pid) for launcher in children(child))]
        assert set(own) & set(members), "the process of the command and its launcher"
        process.communicate(b"word\n", timeout=PATIENCE)
        group.rmdir()
    assert [row.pid for row in kept.list()] == [pid]
    assert kept("status").returncode == 0


def _hidden() -> None:
    """Give this process a mount namespace without control groups, so that none can be entered."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000) != 0:  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/sys/fs/cgroup"], check=True)


@pytest.mark.root
def test_groups_that_may_not_be_entered_have_keepers_of_their_own(kept: Kept, groups: list[Path]) -> None:
    """The second command of a group has one, if that of another group is idle, which then ends."""
    doors = [os.open(group / "cgroup.procs", os.O_WRONLY) for group in groups]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _hidden()
            pids = [kept.start()]
            for door in doors[:3]:

                def enter(door: int = door) -> None:
                    os.write(door, b"0")

                def run(more: dict[str, str], enter: Callable[[], None] = enter) -> subprocess.CompletedProcess[bytes]:
                    return subprocess.run(
                        [kept.program, "status"], cwd=kept.place.project, env=kept.environment | more,
                        capture_output=True, check=False, preexec_fn=enter, timeout=PATIENCE,
                    )  # fmt: skip

                (lock,) = Path(os.fsdecode(kept.directory)).glob("*.lock")
                kept.wait()
                while lock.exists():  # the last command's end may come late
                    os.utime(lock, (0, 0))  # half a minute ago: one in use is not ended
                    assert run({}).returncode == 0
                gone(kept.pid)
                kept.adopt()
                assert (run({"KEPT": "keeper"}).returncode, run({"KEPT": "keeper"}).stderr) == (0, b"")
                pids.append(kept.pid)
                gone(pids[-2])
            assert [row.pid for row in kept.list()] == pids[-1:]
            code = 0
        except BaseException:  # noqa: BLE001 - the parent tells
            sys.excepthook(*sys.exc_info())
        finally:
            kept.stop()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for door in doors:
        os.close(door)


def test_the_dead_are_not_counted(kept: Kept) -> None:
    """Lock files that killed keepers have left, of other terminals, are removed, and a keeper starts at once."""
    directory = Path(os.fsdecode(kept.directory))
    directory.mkdir(parents=True, mode=0o700)
    for number in range(6):
        (directory / f"{number:032}.lock").write_text("1 1 0 other pid:[1]")
        (directory / f"{number:032}.lock").chmod(0o600)
    assert mudroom(kept, "status").returncode == 0
    pid = kept.adopt()
    assert len(list(directory.glob("*.lock"))) == 1
    assert kept("status").returncode == 0
    assert [row.pid for row in kept.list()] == [pid]


def _stack() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (4 << 20, 4 << 20))


def test_a_caller_with_another_limit_takes_the_keeper_of_nobody(kept: Kept) -> None:
    """It gets one of its own once that is idle."""
    pid = kept.start()
    done = mudroom_with(kept, _stack)
    assert done.returncode == 0
    assert [row.pid for row in kept.list()] == [pid]  # in use
    (lock,) = Path(os.fsdecode(kept.directory)).glob("*.lock")
    os.utime(lock, (0, 0))
    assert mudroom_with(kept, _stack).returncode == 0
    gone(pid)
    kept.adopt()
    assert kept("status", preexec_fn=_stack).returncode == 0


def mudroom_with(kept: Kept, change: Callable[[], None]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [kept.program, "status"], cwd=kept.place.project, env=kept.environment, capture_output=True, check=False,
        preexec_fn=change,
    )  # fmt: skip


def test_a_keeper_that_is_starting_is_told(kept: Kept) -> None:
    """It has no pid yet: the next command starts no other."""
    (answer, apart, _own, name) = mudroom(kept, "ls", "--none", MUDROOM_KEEPER="only").stdout.split()
    assert answer == "none"
    directory = Path(os.fsdecode(kept.directory))
    directory.mkdir(parents=True, mode=0o700)
    (directory / f"{name}.lock").touch(0o600)
    said = mudroom(kept, "keeper").stdout.splitlines()[-1]
    assert said == "this shell has none: one is starting; if it cannot, a command after 30 s tries again"
    assert apart != name


def test_keepers_in_use_do_not_end_each_other(kept: Kept) -> None:
    """Of two sets of variables that cannot share one, the second starts none."""
    kept.place.state.mkdir(mode=0o700)
    assert mudroom(kept, "status", LD_X="1").returncode == 0
    pid = kept.adopt()
    assert mudroom(kept, "status", LD_X="2").returncode == 0
    assert [row.pid for row in kept.list()] == [pid]
    said = mudroom(kept, "keeper", LD_X="2").stdout.splitlines()[-1]
    assert said.startswith(f"this shell has none: process {pid} has another interpreter, or variables of its own; ")
    assert mudroom(kept, "keeper", LD_X="1").stdout.splitlines()[-1] == "this shell has one"


def test_a_living_keeper_keeps_its_lock_file_where_there_is_no_room(kept: Kept) -> None:
    """It has refused a command, which then looks for room for another one of its name."""
    kept.start()
    (lock,) = Path(os.fsdecode(kept.directory)).glob("*.lock")
    (lock.parent / f"{0:032}.lock").touch(0o600)  # of one that is starting
    directory = os.open(lock.parent, os.O_RDONLY)
    assert not start._make_room(kept.directory, directory, lock.stem)
    os.close(directory)
    assert lock.exists() and len(kept.list()) == 1


def test_asking_whether_there_is_one_changes_nothing(kept: Kept) -> None:
    """No vault is made, and SIGCHLD may be ignored."""
    kept.start()
    place = kept.place.state / "vaults"
    before = sorted(place.iterdir()) if place.exists() else []
    program = ["sh", "-c", 'trap "" CHLD; exec "$@"', "sh", kept.program, "keeper"]
    done = subprocess.run(
        program, cwd=kept.place.root, env=kept.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "this shell has one"), done.stderr
    assert (sorted(place.iterdir()) if place.exists() else []) == before


def test_a_launcher_that_may_not_follow_its_command_is_told() -> None:
    """A client that comes before a launcher was made ahead: the command has begun by then."""
    launcher = KeptLauncher()
    own = surroundings(os.getpid())
    launcher.surround(own._replace(groups=own.groups.replace(":/", ":/none-of-this-name")))
    with pytest.raises(MudroomError, match="the sandbox launcher may not enter this control group"):
        launcher.start()
    launcher.close()
    launcher.reap()
