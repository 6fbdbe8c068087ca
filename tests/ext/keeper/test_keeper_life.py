"""A keeper is started by a command, ends by itself, and can be killed at any time."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kept import LEFT, PATIENCE, Kept, kept

from box import children
from clocks import give_way
from conftest import tick
from mudroom.core.system.launcher import PROTOCOL
from mudroom.ext.keeper import start
from tiers import pairs

__all__ = ["kept"]  # a fixture

pytestmark = pytest.mark.both_users


def gone(pid: int) -> None:
    """Wait for the end of a process."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([pidfd], [], [], PATIENCE)[0]
    os.close(pidfd)


def mudroom(kept: Kept, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return kept.run([kept.program, *words], **more)


def test_a_command_starts_it_and_the_next_one_uses_it(kept: Kept) -> None:
    """It holds no descriptor of the command's caller: the outputs end with the command."""
    assert mudroom(kept, "run", "--yes", "--", "true").returncode == 0
    pid = kept.adopt()
    assert kept("status").returncode == 0
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid) == os.getpgid(pid) == pid
    standard = {os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)}
    assert standard == {"/dev/null"}
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"HOME=" not in environment and b"PATH=" not in environment
    assert kept.list()[0].memory < 60 << 20


def test_no_module_of_a_project_is_loaded(kept: Kept) -> None:
    """A keeper is started in the directory of a command, where an agent's files may be."""
    trap = "raise SystemExit('trapped')\n"
    for name in ("json.py", "mudroom/__init__.py", "sqlite3.py", "argparse.py"):
        kept.place.write(name, trap)
    kept.start()
    assert kept("status").returncode == 0


@pytest.mark.parametrize("variable", ["MUDROOM_KEEPER=0", "CI=true"])
def test_no_keeper_is_started(kept: Kept, variable: str) -> None:
    name, value = variable.split("=")
    assert mudroom(kept, "run", "--yes", "--", "true", **{name: value}).returncode == 0
    assert not os.path.lexists(kept.directory)


def test_one_of_a_kind(kept: Kept) -> None:
    """A second one ends at once; another is not even tried within half a minute."""
    pid = kept.start()
    again = f"start(PROGRAM, os.environb, b'{start.PROTOCOL} {kept.name} {kept.name}')"
    assert kept.ask(again) == "0"
    name = next(Path(os.fsdecode(kept.directory)).glob("*.lock"))
    os.utime(name, (0, 0))
    assert kept.ask(f"os.waitpid({again}, 0)[1]") == "0"
    assert [row.pid for row in kept.list()] == [pid]


def test_it_ends_when_it_is_idle(kept: Kept) -> None:
    pid = kept.start(idle=0.5)
    gone(pid)
    assert kept.list() == []
    assert [path.name for path in Path(os.fsdecode(kept.directory)).iterdir() if not path.name.endswith(".lock")] == []


def test_it_ends_with_its_directory(kept: Kept) -> None:
    pid = kept.start(look=0.2)
    os.rename(kept.place.state, kept.place.root / "other")
    gone(pid)


def test_stop_and_status(kept: Kept) -> None:
    shown = mudroom(kept, "keeper", "status").stdout
    assert shown == "no keeper\nthis shell has none: the next command starts one\n"
    pid = kept.start()
    done = mudroom(kept, "keeper", "status", "--json")
    answer = json.loads(done.stdout)
    (row,) = answer["keepers"]
    assert (done.returncode, answer["schema"]) == (0, "mudroom.keeper/1")
    assert (row["pid"], row["commands"], answer["not_here"]) == (pid, 0, "")
    assert 0 < row["memory"] < 60 << 20
    assert f"process {pid}  mudroom {row['version']}" in mudroom(kept, "keeper").stdout
    process = kept.popen("run", "--yes", "--", "sh", "-c", "echo ready; read word; echo $word", stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert kept.list()[0].commands == 1
    assert mudroom(kept, "keeper", "stop").stdout == f"process {pid} has ended\n"
    gone(pid)
    out, _err = process.communicate(b"word\n", timeout=PATIENCE)
    assert (process.returncode, out) == (0, b"word\n")  # commands go on
    assert mudroom(kept, "keeper", "stop").stdout == "no keeper\n"
    assert mudroom(kept, "keeper", "status").returncode == 1


@pytest.mark.deep
def test_the_doctor_says_whether_this_shell_has_one(kept: Kept) -> None:
    shown = mudroom(kept, "keeper", "status").stdout.splitlines()[-1]
    assert mudroom(kept, "doctor", "--all").stdout.splitlines()[-1] == f"keeper: {shown}"


def _stack() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))


WHEN = "a command starts another when that was idle for 30 s"
SHELLS: tuple[tuple[Callable[[], object] | None, dict[str, str], str], ...] = (
    (None, {}, "one"),
    (lambda: os.nice(1), {}, "none: it differs from process {pid} in priorities"),
    (lambda: os.umask(0o77), {}, "none: it differs from process {pid} in Umask"),
    (_stack, {}, "none: process {pid} may not have its control group or limits; " + WHEN),
    (None, {"MUDROOM_KEEPER": "0"}, "none: MUDROOM_KEEPER=0 is set"),
    (None, {"OPENSSL_CONF": "x"}, "one"),
    (None, {"LD_X": "1"}, "none: process {pid} cannot have its variables (PYTHONPATH, LD_…); " + WHEN),
)


def test_whether_this_shell_has_one_is_told(kept: Kept) -> None:
    pid = kept.start()
    for change, more, says in SHELLS:
        done = subprocess.run(
            [kept.program, "keeper"], cwd=kept.place.project, env=kept.environment | more, capture_output=True,
            text=True, check=True, preexec_fn=change,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == f"this shell has {says.format(pid=pid)}"


def until_one(waiting: int) -> int:
    """Return the launcher that the waiting process starts ahead."""
    while not (found := children(waiting)):
        give_way()
    return found[0]


@pytest.mark.parametrize("victim", ["keeper", "waiting", "launcher"])
def test_it_is_killed(kept: Kept, victim: str) -> None:
    """Whatever of it has been killed: a command runs, here or there. One that has asked a launcher for its sandbox
    while that one is dying is told so, and to try again."""
    pid = kept.start()
    (waiting,) = kept.waiting()
    launcher = until_one(waiting)
    killed = {"keeper": pid, "waiting": waiting, "launcher": launcher}[victim]
    pidfd = os.pidfd_open(killed)
    os.kill(killed, signal.SIGKILL)
    select.select([pidfd], [], [])
    os.close(pidfd)
    done = mudroom(kept, "run", "--yes", "--", "echo", "out", CI="true")
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr


def test_a_stale_socket_is_replaced(kept: Kept) -> None:
    pid = kept.start()
    os.kill(pid, signal.SIGKILL)
    gone(pid)
    assert mudroom(kept, "status", CI="true").returncode == 0
    (lock,) = Path(os.fsdecode(kept.directory)).glob("*.lock")
    os.utime(lock, (0, 0))
    kept.start()
    assert kept("status").returncode == 0


def written(module: Path) -> None:
    module.write_text(module.read_text() + "\n")


def replaced(module: Path) -> None:
    other = module.with_name("other")
    other.write_text(module.read_text() + "\n")
    other.rename(module)


def moved(module: Path) -> None:
    """The directory above its directory is another one."""
    above = module.parent.parent
    before = above.with_name(f"before-{time.monotonic_ns()}")
    above.rename(before)
    shutil.copytree(before, above)


def launcher(module: Path) -> None:
    """The program that confines commands: no module of Python."""
    program = module.parents[2] / "sandbox/client" / PROTOCOL
    other = program.with_name("other")
    shutil.copy2(program, other)
    os.utime(other)
    other.rename(program)


def table(module: Path) -> None:
    """A table, which is no module."""
    written(module.parents[2] / "data/presets.txt")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code. A test changes it further, before its keeper has ended and the next one's starts."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(Path(__file__).parents[3] / "src/mudroom", source / "mudroom")
    return source


@pytest.mark.parametrize(("change", "is_stopped"), pairs([written, replaced, moved, launcher, table], [True, False]))
def test_changed_code_is_not_used(kept: Kept, source: Path, change: Callable[[Path], None], is_stopped: bool) -> None:
    """The next command runs in-process, also before the keeper itself has heard of the change, and the keeper ends."""
    kept.environment["PYTHONPATH"] = str(source)
    kept.place.state.mkdir()
    tick()
    assert mudroom(kept, "status").returncode == 0
    pid = kept.adopt()
    assert kept("status").returncode == 0
    kept.wait()
    if is_stopped:
        os.kill(pid, signal.SIGSTOP)
    change(source / "mudroom/cli/fork/status.py")
    assert kept.run([kept.program, "status"], KEPT="keeper").stderr == LEFT.decode()
    os.kill(pid, signal.SIGCONT)
    gone(pid)


def test_a_file_in_place_of_its_directory(kept: Kept) -> None:
    kept.place.state.mkdir()
    Path(os.fsdecode(kept.directory)).write_text("")
    assert mudroom(kept, "run", "--yes", "--", "true").returncode == 0
    assert mudroom(kept, "keeper").stdout.startswith("no keeper\n")


def test_a_state_directory_with_a_long_path(kept: Kept) -> None:
    """A socket's path has at most 107 bytes (unix(7)); it is reached through a descriptor."""
    kept.place.state = kept.place.root / ("long" * 40)
    kept.environment["MUDROOM_STATE"] = str(kept.place.state)
    kept.directory = os.fsencode(kept.place.state) + b"/keeper"
    kept.start()
    assert kept("status").returncode == 0


@pytest.mark.parametrize(
    "wanted",
    [
        "",
        "{name}",
        "mudroom-native-4 {name} {name}",
        "{protocol} ../{name} {name}",
        "{protocol} {name}",
        "{protocol}  ",
    ],
)
def test_a_keeper_of_another_name_is_not_started(kept: Kept, wanted: str) -> None:
    """The code is newer than the program, or somebody has set the variable."""
    kept.place.state.mkdir(mode=0o700)
    given = wanted.format(protocol=start.PROTOCOL, name=kept.names()[-1])
    assert kept.ask(f"start(PROGRAM, os.environb, {given.encode()!r})") == "0"
    assert not os.path.lexists(kept.directory)


def test_commands_do_not_see_what_the_script_is_told(kept: Kept) -> None:
    done = mudroom(kept, "run", "--yes", "--level", "0", "--env", "MUDROOM_NO_KEEPER", "--", "true", CI="true")
    assert "your environment has no such variable" in done.stderr
    done = kept.run([kept.program, "run", "--yes", "--", "env"], MUDROOM_NO_KEEPER="x")
    assert "MUDROOM_NO_KEEPER" not in done.stdout


def test_one_that_starts_is_stopped(kept: Kept) -> None:
    """It has no pid in its lock file yet, which loses its name."""
    kept.place.state.mkdir(mode=0o700)
    stopped = "__import__('mudroom.ext.keeper.status').ext.keeper.status.stop"
    started = f"start(PROGRAM, os.environb, {kept.wanted()!r})"
    program = f"(lambda pid: ({stopped}({kept.directory!r}), os.waitpid(pid, 0)[1])[1])({started})"
    assert kept.ask(program) == "0"
    assert kept.list() == []
    assert os.listdir(kept.directory) == []
    assert kept.start()  # at once: no half minute is waited


def test_one_that_finds_another_mudroom_ends(kept: Kept) -> None:
    """Its interpreter has no HOME, below which the package of the command may be, or another one be hidden."""
    kept.place.state.mkdir(mode=0o700)
    other = kept.place.root / "elsewhere"
    (other / "mudroom").mkdir(parents=True)
    elsewhere = f"setattr(__import__('mudroom.ext.keeper.start').ext.keeper.start, 'own_root', lambda: {str(other)!r})"
    program = f"({elsewhere}, os.waitpid(start(PROGRAM, os.environb, {kept.wanted()!r}, idle=0.2), 0)[1])[1]"
    assert kept.ask(program) == "0"
    (lock,) = Path(os.fsdecode(kept.directory)).glob("*.lock")
    assert lock.read_bytes() == b""  # it has never served


@pytest.mark.parametrize("removed", ["its lock file", "its socket"])
def test_one_that_no_client_can_find_ends(kept: Kept, removed: str) -> None:
    pid = kept.start(look=0.2)
    (lock,) = Path(os.fsdecode(kept.directory)).glob("*.lock")
    (lock if removed == "its lock file" else lock.with_suffix("")).unlink()
    gone(pid)


def test_of_commands_at_once_one_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second looks while the first has looked, and has not noted its attempt."""
    first, second = (start.open_directory(os.fsencode(tmp_path / "keeper")) for _process in range(2))
    seconds: list[bool] = []
    lock = fcntl.flock

    def locked(directory: int, operation: int) -> None:
        lock(directory, operation)
        if directory == first:
            seconds.append(start._may_try(second, "name"))

    monkeypatch.setattr(fcntl, "flock", locked)
    assert start._may_try(first, "name")
    assert seconds == [False]
    os.close(first)
    os.close(second)
