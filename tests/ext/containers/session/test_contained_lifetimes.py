"""Containers and what is done in them live apart: recycled, killed, orphaned, many at once. With real engines."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from conftest import Place
from engines import PATIENCE, SOURCE, EngineHere
from mudroom.core.confinement.limit import LimitReached, Limits
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import ContainerEnded, MudroomError, Unsupported
from mudroom.ext.containers.engine import box
from mudroom.ext.containers.engine.owner import this_process
from mudroom.ext.containers.engine.pool import Rules
from mudroom.ext.containers.session.containers import Containers
from mudroom.session import Session, Stdio

MB = 1_000_000
MANY = int(os.environ.get("MUDROOM_TEST_CONTAINERS", "12"))
"""50 by hand, with more MUDROOM_TEST_SECONDS on a busy machine."""
PYTHON = "/usr/bin/python3"


def script(session: Session, line: str, fork: str = "f", **options: object) -> Result:
    return session.run([b"sh", b"-c", line.encode()], fork=fork, **options)  # type: ignore[arg-type]


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it does not come"


def staged(place: Place, name: str) -> list[Path]:
    """Where a file is that a command has just written."""
    done = subprocess.run(["find", str(place.state), "-name", name], capture_output=True, text=True, check=False)
    return [Path(line) for line in done.stdout.splitlines()]


# --- from one command to the next ---

LEAVE = f"""{PYTHON} - <<'.'
import ctypes, os, socket, subprocess
for place in ("/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/mqueue", "/dev", "/", os.environ["HOME"], "/.mudroom"):
    try:
        open(place + "/left", "w").close()
    except OSError:
        pass
socket.socket(socket.AF_UNIX).bind("\\0left")
libc = ctypes.CDLL(None)
libc.shmget(0x1234, 4096, 0o1777), libc.msgget(0x1234, 0o1777), libc.semget(0x1234, 1, 0o1777)
libc.syscall(248, b"user", b"left", b"x", 1, -3)  # add_key(2)
subprocess.Popen(["setsid", "sleep", "1000"], stdin=-3, stdout=-3, stderr=-3)
.
"""
LOOK = f"""{PYTHON} - <<'.'
import ctypes, os
found = []
for place in ("/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/mqueue", "/dev", "/", os.environ["HOME"], "/.mudroom"):
    if os.path.exists(place + "/left"):
        found.append(place)
if "left" in open("/proc/net/unix").read():
    found.append("an abstract socket")
for pid in filter(str.isdecimal, os.listdir("/proc")):
    if open(f"/proc/{{pid}}/cmdline").read().split("\\0")[0] == "sleep":
        found.append("a process")
libc = ctypes.CDLL(None)
found += [name for name, there in (
    ("shared memory", libc.shmget(0x1234, 0, 0)), ("messages", libc.msgget(0x1234, 0)),
    ("semaphores", libc.semget(0x1234, 0, 0)), ("a key", libc.syscall(249, b"user", b"left", None, -3)),
) if there != -1]
print(*found, sep="\\n")
.
"""


def test_nothing_passes_from_one_fork_to_another(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    for _number in range(4):  # by the launcher itself, then by a template, then by a spare
        assert script(session, LEAVE, "a").exit_code == 0
        seen = script(session, LOOK, "b")
        assert (seen.stdout.strip(), seen.stderr) == (b"", b"")


def test_of_a_command_in_the_same_fork_only_files_are_found(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    for _number in range(4):
        assert script(session, LEAVE).exit_code == 0
        seen = script(session, LOOK).stdout.decode().split("\n")
        assert {one for one in seen if one and not one.startswith("/")} == set()


def test_commands_of_a_fork_share_a_container_and_forks_do_not(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    for fork in ("a", "b", "a", "b"):
        assert script(session, "true", fork).exit_code == 0
    assert len(engine.containers(place.root)) in (0, 2)  # none where commands have no namespaces: those are used once
    session.forks.discard("a")
    session.forks.discard("b")
    assert engine.left(place.root) == []


def test_eight_commands_at_once_in_eight_forks(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    codes: dict[str, bytes] = {}

    def run(fork: str) -> None:
        codes[fork] = script(session, f"echo {fork} >f; {PYTHON} -c 'print(sum(range(10**5)))'; cat f", fork).stdout

    threads = [threading.Thread(target=run, args=(f"f{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == {f"f{number}": f"4999950000\nf{number}\n".encode() for number in range(8)}


def test_many_containers_one_after_another_leave_nothing(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    script(session, "true")

    def things() -> dict[str, str]:
        found = {name: engine.ask(name, "ls", "--quiet") for name in ("volume", "network")}
        found["image"] = engine.ask("images", "--quiet", "mudroom-host")  # others are of tests beside this one
        found["groups"] = str(len(groups()))
        found["mounts"] = str(Path("/proc/self/mountinfo").read_text().count("mudroom-"))
        return found

    cast(Containers, session.machine.containers)._pool.rules = Rules(uses=1)
    script(session, "true")
    assert engine.left(place.root) == []
    before = things()
    for number in range(MANY):
        assert script(session, "echo x >>f; wc -l <f").stdout.split() == [str(number + 1).encode()]
    assert engine.left(place.root) == []
    until(lambda: things() == before)
    assert list((place.state / "doors").iterdir()) == []


def groups() -> list[str]:
    """Control groups of containers."""
    line = "find /sys/fs/cgroup -maxdepth 4 -type d ( -path '*/docker/*' -o -name 'libpod-*' ) 2>/dev/null"
    return subprocess.run(shlex.split(line)[:-1], capture_output=True, text=True, check=False).stdout.split()


# --- ended from outside ---


def during(session: Session, line: str, meanwhile: Callable[[], object], fork: str = "f") -> BaseException | Result:
    """What becomes of a command while something is done to it. The engine was looked at before: that may take long."""
    assert session.machine.containers.engine
    ended: list[BaseException | Result] = []

    def run() -> None:
        try:
            ended.append(script(session, line, fork))
        except ContainerEnded as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        meanwhile()
    finally:
        thread.join()
    return ended[0]


@pytest.mark.parametrize("how", [("kill",), ("rm", "--force"), ("stop", "--time", "1")], ids=" ".join)
def test_a_container_that_is_killed_is_told_from_a_command_that_fails(
    place: Place, engine: EngineHere, how: tuple[str, ...]
) -> None:
    session = engine.session(place)

    def kill() -> None:
        until(lambda: bool(staged(place, "new")))
        engine.ask(*how, *engine.containers(place.root), check=False)

    found = during(session, "echo before >new; sleep 1000", kill)
    assert isinstance(found, ContainerEnded), found
    assert found.exit_code == 125
    assert "was ended with its container" in found.message
    after = script(session, "cat new; echo after >>new")
    assert (after.stdout, after.exit_code) == (b"before\n", 0), "what it had changed is in its fork"
    assert [change.path for change in session.changes.of("f").changes] == [b"new"]


def test_a_command_that_kills_itself_is_a_result(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    for _number in range(3):
        assert script(session, "kill -9 $$").signal == 9


def test_an_idle_container_that_was_killed_is_replaced(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    assert script(session, "true").exit_code == 0
    for name in engine.containers(place.root):
        engine.ask("kill", name)
    assert script(session, "echo again").stdout == b"again\n"


# --- mudroom killed ---


def killed(engine: EngineHere, place: Place, when: Callable[[], bool], line: str) -> None:
    """Run a command by the command line, and kill mudroom at once when that is so."""
    more = {
        "HOME": str(place.home),
        "MUDROOM_KEEPER": "0",
        "MUDROOM_STATE": str(place.state),
        "PYTHONPATH": str(SOURCE),
    }
    words = [sys.executable, "-m", "mudroom", "exec", "--level", "2", "--fork", "f", "--", "sh", "-c", line]
    child = subprocess.Popen(
        words, cwd=place.project, env={**engine.environ, **more}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(when)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


STAGES = ("door", "container", "command")


@pytest.mark.parametrize("stage", STAGES)
def test_when_mudroom_is_killed_nothing_is_left_after_the_next_start(
    place: Place, engine: EngineHere, stage: str
) -> None:
    with engine.session(place) as session:
        assert script(session, "echo first >first").exit_code == 0
    assert engine.left(place.root) == []
    doors = place.state / "doors"
    when: dict[str, Callable[[], bool]] = {
        "door": lambda: any(doors.iterdir()),
        "container": lambda: bool(engine.containers(place.root)),
        "command": lambda: bool(staged(place, "second")),
    }
    killed(engine, place, when[stage], "cat first; echo x >second; sleep 1000")
    session = engine.session(place)
    assert script(session, "cat first").stdout == b"first\n"
    if stage == "command":
        assert {change.path for change in session.changes.of("f").changes} == {b"first", b"second"}
    session.close()
    assert engine.left(place.root) == []
    assert list(doors.iterdir()) == []


def test_an_orphan_is_removed_and_who_lives_is_not(place: Place, engine: EngineHere) -> None:
    with engine.session(place) as session:
        assert script(session, "true").exit_code == 0
        image = cast(Containers, session.machine.containers)._host_image
    here = this_process()
    owners = {
        "gone": here._replace(started=1),
        "lives": here,
        "foreign": here._replace(started=1, namespaces="1-1"),
    }
    names = {f"mudroom-test-{os.getpid()}-{key}": owner for key, owner in owners.items()}
    try:
        for name, owner in names.items():
            engine.ask("create", f"--name={name}", "--label=mudroom=1", f"--label=mudroom.owner={owner}",
                       "--network=none", image, "/nothing")  # fmt: skip
        with engine.session(place) as session:
            assert script(session, "true").exit_code == 0
        listed = engine.ask("ps", "--all", "--format={{.Names}}").split()
        assert [name.rpartition("-")[2] for name in sorted(names) if name in listed] == ["foreign", "lives"]
    finally:
        for name in names:
            engine.ask("rm", "--force", name, check=False)


# --- limits ---


def limited(engine: EngineHere, place: Place, limits: Limits) -> Session:
    session = engine.session(place, Settings(limits=limits))
    try:
        session.machine.containers.allowed(limits)
    except Unsupported as error:
        pytest.skip(f"{engine.kind} holds no such limit here: {error.found}")
    return session


@pytest.mark.parametrize("before", [0, 3])
def test_a_memory_bomb_is_killed_and_told_and_its_container_is_not_used_again(
    place: Place, engine: EngineHere, before: int
) -> None:
    session = limited(engine, place, Limits(memory=64 * MB))
    for _number in range(before):
        assert script(session, "true").reached == ()
    result = script(session, f"{PYTHON} -c 'x = bytearray(200_000_000)'; echo $?")
    assert result.stdout == b"137\n"
    assert result.reached == (LimitReached("memory", "killed", 64 * MB, amount=1),)
    assert result.use is not None
    assert result.use.memory_kills == 1
    assert engine.left(place.root) == []
    assert script(session, "echo fine").reached == ()


@pytest.mark.parametrize(("size", "fits"), [(44, True), (72, False)])
def test_a_memory_limit_is_of_the_command_alone(place: Place, engine: EngineHere, size: int, *, fits: bool) -> None:
    """The launcher's processes are in the same control group: they take nothing, and lend next to nothing."""
    session = limited(engine, place, Limits(memory=64 * MB))
    for _number in range(3):  # a template and its spare stand, too
        script(session, "true")
    result = script(session, f"{PYTHON} -c 'x = bytearray(b\"x\") * ({size} << 20)'; echo $?")
    assert result.stdout == (b"0\n" if fits else b"137\n")


@pytest.mark.parametrize("before", [0, 3])
def test_a_fork_bomb_is_stopped_and_told(place: Place, engine: EngineHere, before: int) -> None:
    session = limited(engine, place, Limits(processes=30))
    for _number in range(before):
        assert script(session, "true").reached == ()
    result = script(session, BOMB)
    assert 26 <= int(result.stdout) <= 33
    (one,) = result.reached
    assert (one.kind, one.action, one.limit) == ("processes", "refused", 30)
    assert script(session, "echo fine").reached == ()


BOMB = f"""{PYTHON} - <<'.'
import os, signal
made = []
while True:
    try:
        made.append(os.fork())
    except OSError:
        break
    if not made[-1]:
        signal.pause()
print(len(made))
for pid in made:
    os.kill(pid, 9)
.
"""


def test_what_wants_more_processors_is_slowed_and_told(place: Place, engine: EngineHere) -> None:
    session = limited(engine, place, Limits(cpus=0.3))
    result = script(session, f"{PYTHON} -c 'sum(range(10**7))'")
    assert [one.kind for one in result.reached] == ["cpus"]
    assert result.use is not None
    assert result.use.throttled > 0


def test_what_no_container_limits_is_refused(place: Place, engine: EngineHere) -> None:
    with pytest.raises(Unsupported, match="at level 2 a limit of io"):
        script(engine.session(place, Settings(limits=Limits(io=MB))), "true")
    lax = engine.session(place, Settings(limits=Limits(io=MB, missing="degrade")))
    assert any("not enforced" in note for note in script(lax, "true").notes)


def test_the_hosts_network_is_refused(place: Place, engine: EngineHere) -> None:
    with pytest.raises(Unsupported, match="the host's network needs level 1"):
        script(engine.session(place, Settings(network="open")), "true")


# --- as at level 1 ---


def test_one_that_ends_at_once_is_not_waited_for(
    place: Place, engine: EngineHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine.kind == "podman":
        pytest.skip("what Podman says of a container's end is not read: it is waited for")
    session = engine.session(place)
    session.run([b"true"], fork="f")
    session.close()
    monkeypatch.setattr(box, "_START", "raise SystemExit(3)")
    session, began = engine.session(place), time.monotonic()
    with pytest.raises(MudroomError, match=r"ended before its launcher came up: .*exit code 3") as caught:
        session.run([b"true"])
    assert time.monotonic() - began < box.ARRIVAL / 2
    assert "\n" not in str(caught.value)


def test_a_timeout_ends_everything_that_was_started(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    result = script(session, "setsid sleep 1000 & sleep 1000", timeout=0.5)
    assert result.timed_out
    assert [one.kind for one in result.reached] == ["time"]
    assert script(session, f"{PYTHON} -c 'import os; print(len([p for p in os.listdir(\"/proc\") if p.isdigit()]))'",
                  ).stdout.strip() in (b"2", b"3", b"4")  # fmt: skip


def test_a_command_is_interrupted(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)

    def interrupt() -> None:
        until(lambda: bool(staged(place, "on")))
        assert session.interrupt(signal.SIGINT)

    found = during(session, "echo >on; sleep 1000", interrupt)
    assert isinstance(found, Result)
    assert found.signal == signal.SIGINT or found.exit_code == 130


def test_a_terminal(place: Place, engine: EngineHere) -> None:
    code = engine.mudroom(place, "exec", "--level", "2", "--fork", "f", "--", "sh", "-c", "tty")
    assert code.stdout.startswith("not a tty")
    master, slave = os.openpty()
    try:
        session = engine.session(place)
        result = session.run([b"tty"], fork="f", stdio=Stdio(slave, slave, slave, terminal=True))
        assert result.exit_code == 0
        assert b"/dev/pts/" in os.read(master, 4096)
    finally:
        os.close(master)
        os.close(slave)


def test_file_tools_work_while_a_command_runs_and_it_is_paused_by_an_apply(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    script(session, "echo other >other", "other")
    seen: list[bytes] = []
    session.forks.new("f")
    files = session.forks.files("f")
    files.write("early", "by a tool")

    def look() -> None:
        until(lambda: bool(staged(place, "on")))
        seen.append(files.read("on"))
        session.changes.apply("other")  # stops the command meanwhile
        files.write("told", "by a tool, too")

    found = during(session, "echo now >on; while [ ! -e told ]; do :; done; cat early told", look)
    assert isinstance(found, Result)
    assert (found.stdout, seen) == (b"by a toolby a tool, too", [b"now\n"])


def test_commands_in_the_background(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    started = session.start([b"sh", b"-c", b"echo on >on; exec sleep 1000"], fork="f")
    until(lambda: started.id in session.sandboxes.usages())  # there, in a container that descends from somebody else
    assert script(session, "cat on").stdout == b"on\n"
    session.sandboxes.end("f")
    assert script(session, "cat on").stdout == b"on\n"


def test_containers_are_kept_ready_if_the_policy_says_so(place: Place, engine: EngineHere) -> None:
    session = engine.session(place, Settings(warm=1))
    assert script(session, "true", "a").exit_code == 0
    ready: list[str] = []

    def two() -> bool:
        ready[:] = engine.containers(place.root)
        return len(ready) == 2

    until(two)
    assert script(session, "echo in the spare", "b").stdout == b"in the spare\n"
    session.close()
    assert engine.left(place.root) == []
