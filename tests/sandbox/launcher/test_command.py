"""What a command finds in its sandbox, whichever process has made it: the launcher, a template's spare, a spare of a
standing template, the first process of a sandbox that several share; with a terminal, and without namespaces."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from box import ENVIRONMENT, KINDS, NAMESPACES, Box, Conversation, if_namespaces, tree
from clocks import give_way
from mudroom.core.confinement.plan import Plan
from mudroom.errors import CommandNotStarted
from mudroom.sandbox.client import template
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.held import hold
from mudroom.sandbox.client.invocation import Exit, Invocation, RunOptions
from mudroom.sandbox.client.launcher_client import LaunchedCommand, LauncherClient, SpawnedLauncher
from mudroom.sandbox.linux.syscall import number_of

pytestmark = [pytest.mark.both_users, pytest.mark.root]

WAYS = ("first", "prepared", "standing") if NAMESPACES else ()
OF_LIBC = 3 << 31
"""Signals 32 and 33, which posix_spawn(3) of glibc ignores in each program that it starts."""
FAULTS = 130
"""Page faults of all processes of a sandbox, the command's 50 among them. A cloned interpreter alone would take 500."""


@pytest.fixture
def launcher() -> Iterator[LauncherClient]:
    """A client of its own, whose first command is the first."""
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield client
    client.close()


def in_turn(box: Box, way: str) -> Callable[[], Plan]:
    """Return plans for commands that follow each other in one way. Of the first way there is one command."""
    if way == "standing":
        plan = box.plan()
        box.stand(plan)
        return lambda: plan
    for _number in range(2 if way == "prepared" else 0):
        assert box.run("true", box.plan())[0].status == 0
    return box.plan


# --- a command's surroundings ---

ASKED = r"""
import ctypes, os
print([ctypes.CDLL(None).prctl(n, 0, 0, 0, 0) for n in (3, 7, 27, 30, 37, 39)])
signals = ctypes.c_int(-1)
ctypes.CDLL(None).prctl(2, ctypes.byref(signals))
print(signals.value, os.getpriority(0, 0), os.sched_getaffinity(0))
print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.getppid() == 1)
"""
LOOK = rf"""
exec 2>&1
echo == asked
{shlex.quote(sys.executable)} -I -S -c {shlex.quote(ASKED)}
cat /proc/self/cgroup /proc/self/timerslack_ns
echo == status
grep -E '^(Uid|Gid|Groups|SigBlk|SigIgn|Shd|Cap|NoNew|Seccomp|Umask|CoreDumping)' /proc/self/status
echo == descriptors
for fd in /proc/self/fd/*; do [ -e $fd ] && echo "${{fd##*/}} $(readlink -f "$fd" | sed 's/:\[.*//')"; done
echo == mounts
sed -e 's/^[0-9]* [0-9]* [0-9:]* //; s/ master:[0-9]*\| shared:[0-9]*//g; s/works.[0-9]*/work/g; s/fd.[0-9]*/fd/g' \
    -e 's/uuid=on,//' /proc/self/mountinfo | sort
echo == limits
cat /proc/self/limits /proc/self/oom_score_adj
echo == network
cat /proc/net/tcp /proc/net/udp /proc/net/tcp6 | sed 's/ [0-9a-f]*0 *1000*.*//'
echo == files
ls -la / /dev /proc/sys /dev/pts | sed -E 's/^(d[^ ]*) +[0-9]+ /\1 /; s/ [A-Z][a-z]{{2}} +[0-9]+ +[0-9:]+ / /'
echo == init
cat /proc/keys; readlink /proc/1/fd/* /proc/1/exe /proc/1/cwd /proc/1/ns/*; cat /proc/1/environ /proc/1/comm
echo == acts
echo x > /proc/sys/kernel/hostname; hostname
mount -t tmpfs none /tmp; unshare -r true
echo == environment
env | sort; pwd; ulimit -a; stat -f / | grep -v ID
exit 7
"""


def parts_of(said: str) -> dict[str, list[str]]:
    return {part.partition("\n")[0]: part.splitlines()[1:] for part in said.split("== ")[1:]}


def seen(directory: Path, way: str) -> tuple[Exit, dict[str, list[str]]]:
    """Return the end of a command that looks around, and what it has seen."""
    client = LauncherClient(SpawnedLauncher())
    client.start()
    try:
        box = Box(directory, client)
        if way == "held":
            return held(box)
        if way == "terminal":
            return on_terminal(box)
        ended, said = box.run(LOOK, box.bare() if way == "bare" else in_turn(box, way)())
        return ended, parts_of(said)
    finally:
        client.close()


def held(box: Box) -> tuple[Exit, dict[str, list[str]]]:
    sandbox = hold(box.client, box.plan())
    with CapturedOutput(None, None, None, 1 << 20) as output:
        words = [b"sh", b"-c", LOOK.encode()]
        running = sandbox.run(Invocation(words, ENVIRONMENT, output.descriptors), os.fsencode(box.project))
        for stream in output.streams:
            stream.close_theirs()
        ended, _timed_out = attend(running, output, None, lambda: None)
        running.wait_gone()
        sandbox.end()
        return ended, parts_of("".join(stream.data.decode() for stream in output.streams))


def on_terminal(box: Box) -> tuple[Exit, dict[str, list[str]]]:
    ended, said = run_on_terminal(box, LOOK)
    return ended, parts_of(said.replace("\r\n", "\n"))


def run_on_terminal(box: Box, script: str) -> tuple[Exit, str]:
    null = os.open(os.devnull, os.O_RDWR)
    words = [b"sh", b"-c", script.encode()]
    running = box.client.run(box.plan(), Invocation(words, ENVIRONMENT, (null, null, null), (0, 1, 2)))
    os.close(null)
    assert isinstance(running, LaunchedCommand)
    found = running.terminal()
    assert found is not None
    master, channel = found
    channel.send(b"g")
    said = b""
    try:
        while part := os.read(master, 65536):
            said += part
    except OSError as error:
        assert error.errno == errno.EIO  # the end of a terminal
    ended = running.wait()
    running.wait_gone()
    channel.close()
    os.close(master)
    return ended, said.decode()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Exit, dict[str, list[str]]]]:
    """What commands see, by the way that their sandbox is made, in the same place."""
    root = tmp_path_factory.mktemp("found")
    seen_by = {}
    for way in (*WAYS, *(("held", "terminal") if NAMESPACES else ()), *(("bare",) if "bare" in KINDS else ())):
        (root / "place").mkdir()
        seen_by[way] = seen(root / "place", way)
        (root / "place").rename(root / way)
    return seen_by


@if_namespaces
@pytest.mark.parametrize("way", ["prepared", "standing"])
def test_each_way_leads_to_the_same(found: dict[str, tuple[Exit, dict[str, list[str]]]], way: str) -> None:
    (first, said), (ended, other) = found["first"], found[way]
    for name, lines in said.items():
        assert other[name] == lines, name
    assert (ended.status, sorted(ended.refused)) == (first.status, sorted(first.refused))


@if_namespaces
@pytest.mark.parametrize("way", ["held", "terminal"])
def test_the_others_differ_where_they_have_to(found: dict[str, tuple[Exit, dict[str, list[str]]]], way: str) -> None:
    said, other = found["first"][1], found[way][1]
    differ = {"asked", "descriptors"} | ({"files", "environment"} if way == "terminal" else set())
    assert {name: lines for name, lines in other.items() if lines != said[name] and name not in differ} == {}


def test_what_no_command_has(found: dict[str, tuple[Exit, dict[str, list[str]]]]) -> None:
    for way, (ended, said) in found.items():
        assert ended.status == 7 << 8, way
        status = dict(line.split(":\t") for line in said["status"])
        assert {status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Amb")} == {"0" * 16}, way
        if way != "bare" or os.geteuid() == 0:
            assert status["CapBnd"] == "0" * 16, way
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), way
        assert status["SigBlk"] == "0" * 16, way
        assert int(status["SigIgn"], 16) & ~OF_LIBC == 0, way
        assert [line.split()[0] for line in said["descriptors"]] == ["0", "1", "2"], way
        assert not [line for line in said["init"] if line.startswith(("pipe:", "socket:", "/"))], way


def test_how_a_command_is_started(found: dict[str, tuple[Exit, dict[str, list[str]]]]) -> None:
    """Dumpable, of default timing and priority, and no subreaper; its parent's end sends it no signal."""
    for way, (_ended, said) in found.items():
        prctls, parent_s_end, place = said["asked"][:3]
        assert re.match(r"\[1, 0, 0, [0-9]+, -?[0-9]+, 1\]$", prctls), (way, prctls)
        assert parent_s_end.startswith("0 "), way
        leads, leads_group, is_init_s = place.split()
        assert (leads, leads_group) == ("False", "False"), "the shell before it does"
        assert is_init_s == "False", way


@if_namespaces
def test_a_command_s_first_process(tmp_path: Path, launcher: LauncherClient) -> None:
    """It leads a session; on a terminal, a process group in the foreground."""
    box = Box(tmp_path, launcher)
    say = f"exec {shlex.quote(sys.executable)} -I -S -c " + shlex.quote(
        "import os; print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.getppid(), os.isatty(0) and "
        "os.tcgetpgrp(0) == os.getpid())"
    )
    assert box.run(say, box.plan())[1].strip() == "True True 1 False"
    assert run_on_terminal(box, say)[1].strip() == "False True 1 True"


# --- its cost ---


@if_namespaces
@pytest.mark.parametrize("way", ["prepared", "standing"])
def test_few_pages_are_copied(tmp_path: Path, launcher: LauncherClient, way: str) -> None:
    box = Box(tmp_path, launcher)
    plans = in_turn(box, way)
    assert box.run("cat /proc/1/comm", plans())[1] == "mudroom-init\n"
    before, commands = faults_of(launcher), 20
    for _number in range(commands):
        assert box.run(":", plans())[0].status == 0
    assert (faults_of(launcher) - before) / commands < FAULTS


def faults_of(client: LauncherClient) -> int:
    """Return the page faults of the launcher and of all that it has started (proc_pid_stat(5))."""
    found = 0
    for pid in tree(client.launcher.require_pid()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found += int(fields[7]) + int(fields[8])
    return found


# --- its start and its end ---


def started_as(box: Box, plan: Plan, words: list[bytes]) -> str:
    environment = {b"PATH": b"/nowhere:/bin/true:/usr/bin:/bin", b"A": b"b=c"}
    with CapturedOutput(None, None, None, 1 << 20) as output:
        standing = template.StandingPlace(box.standing, refresh=True) if box._standing is not None else None
        running = box.client.run(
            plan, Invocation(words, environment, output.descriptors), RunOptions(standing=standing)
        )
        for stream in output.streams:
            stream.close_theirs()
        attend(running, output, None, lambda: None)
        running.wait_gone()
        return "".join(stream.data.decode() for stream in output.streams)


@pytest.mark.parametrize("way", WAYS)
def test_ends_are_told(tmp_path: Path, launcher: LauncherClient, way: str) -> None:
    box = Box(tmp_path, launcher)
    plans = in_turn(box, way)
    assert box.run("exit 3", plans())[0].status == 3 << 8
    assert box.run("kill -9 $$", plans())[0].status == 9
    assert box.run("sleep 100 & exit 4", plans())[0].status == 4 << 8  # an orphan ends with its init
    ended, _said = box.run("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done", plans())
    assert ended.user + ended.system > 0 and ended.max_rss > 500
    script = box.project / "script"
    script.write_text("echo by the shell $1\n")
    script.chmod(0o755)
    assert started_as(box, plans(), [b"./script", b"word"]) == "by the shell word\n"
    for words, number in (([b"no-such-program"], 127), ([b"./no-such"], 127), ([b""], 127), ([b"/etc"], 126)):
        with pytest.raises(CommandNotStarted) as caught:
            started_as(box, plans(), words)
        assert caught.value.exit_code == number
    with pytest.raises(CommandNotStarted, match="at most 128 KiB"):
        started_as(box, plans(), [b"echo", b"x" * (1 << 20)])


@pytest.mark.parametrize("kind", KINDS)
def test_no_program_is_one_that_cannot_be_looked_at(tmp_path: Path, launcher: LauncherClient, kind: str) -> None:
    """A chain of scripts that ends nowhere, a directory and a fifo, which execve(2) refuses, too; and a file under a
    lease, for which it waits."""
    box = Box(tmp_path, launcher)
    place = box.project if kind.startswith("overlay") else box.copy
    for name, text in (("round", "#!./round\n"), ("leased", "#!/bin/true\n"), ("second", "#! ./leased x\n")):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    (place / "directory").mkdir()
    os.mkfifo(place / "fifo", 0o755)
    plans = of_kind(box, kind)
    assert started_as(box, plans(), [b"./second"]) == ""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with (place / "leased").open() as held:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        for word, why in (
            (b"./round", errno.ELOOP),
            (b"./directory", errno.EACCES),
            (b"./fifo", errno.EACCES),
            (b"./leased", errno.EAGAIN),
            (b"./second", errno.EAGAIN),
        ):
            with pytest.raises(CommandNotStarted, match=os.strerror(why).lower()) as caught:
                started_as(box, plans(), [word])
            assert caught.value.exit_code == 126, word
    signal.signal(signal.SIGIO, before)


def of_kind(box: Box, kind: str) -> Callable[[], Plan]:
    """Return plans for commands of one of ``KINDS``."""
    first = [box.prepared(kind)]
    if kind == "overlay standing":
        return lambda: first[0]
    name = kind.partition(" ")[0]
    return lambda: first.pop() if first else box.prepared(name)


@pytest.mark.parametrize("way", WAYS)
def test_signals_are_forwarded(tmp_path: Path, launcher: LauncherClient, way: str) -> None:
    box = Box(tmp_path, launcher)
    plans = in_turn(box, way)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        with CapturedOutput(None, None, None, 1 << 20) as output:
            script = f"trap 'echo got; exit 5' {number}; echo ready; while :; do sleep 0.01; done"
            running = box.start(script, output, plans())
            assert os.read(output.streams[0].read, 64) == b"ready\n"
            running.signal(number)
            ended, _timed_out = attend(running, output, None, lambda: None)
            running.wait_gone()
        assert ended.status == 5 << 8, number


# --- its init ---


@pytest.mark.parametrize("way", WAYS)
def test_the_limits_of_init_are_out_of_reach(tmp_path: Path, launcher: LauncherClient, way: str) -> None:
    """prlimit(2) asks only for the same user. The kernel takes the lower half of the number. A command's own are its
    own, by 0 and by its number."""
    plans = in_turn(box := Box(tmp_path, launcher), way)
    tried = (
        "import ctypes, os, resource\n"
        "few = ctypes.create_string_buffer(16)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for pid in (1, 1 << 32 | 1):\n"
        f"    print(libc.syscall({number_of('prlimit64', os.uname().machine)}, ctypes.c_long(pid), 7, few, 0),"
        " ctypes.get_errno())\n"
        "for pid in (0, os.getpid()):\n"
        "    resource.prlimit(pid, resource.RLIMIT_NOFILE, (40, 40))\n"
    )
    ended, said = box.run(f"exec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(tried)}", plans())
    assert (ended.status, said) == (0, f"-1 {errno.EPERM}\n" * 2), said


@pytest.mark.parametrize("way", WAYS)
def test_init_cannot_be_slowed(tmp_path: Path, launcher: LauncherClient, way: str) -> None:
    """It serves the later commands of a fork, too. A command's own priority is its own."""
    plans = in_turn(box := Box(tmp_path, launcher), way)
    tried = (
        "import os\n"
        "def say(set, *words):\n"
        "    try: print(set(*words))\n"
        "    except OSError as error: print(error.errno)\n"
        "for which in (os.PRIO_PROCESS, os.PRIO_PGRP): say(os.setpriority, which, 1, 19)\n"
        "say(os.setpriority, os.PRIO_USER, 0, 19)\n"
        "say(os.sched_setaffinity, 1, [0])\n"
        "say(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))\n"
        "say(os.sched_setparam, 1, os.sched_param(0))\n"
        "before = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "say(os.setpriority, os.PRIO_PROCESS, 0, 19)\n"
        "say(os.sched_setaffinity, os.getpid(), os.sched_getaffinity(0))\n"
        "print(os.getpriority(os.PRIO_PROCESS, 1) == before, os.getpriority(os.PRIO_PROCESS, 0))\n"
    )
    ended, said = box.run(f"exec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(tried)}", plans())
    assert (ended.status, said) == (0, f"{errno.EPERM}\n" * 6 + "None\nNone\nTrue 19\n"), said


@if_namespaces
def test_the_limits_of_init_do_not_end_its_work(tmp_path: Path, launcher: LauncherClient) -> None:
    """Another process of the user may set them, outside (prlimit(2))."""
    plans = in_turn(box := Box(tmp_path, launcher), "prepared")
    tried = (
        "import socket\n"
        "for _call in range(3):\n"
        "    try: socket.socket(40, 1)\n"
        "    except OSError as error: print(error.errno, flush=True)\n"
    )
    talk = Conversation(
        box, plans(), f"echo $$; read go; exec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(tried)}"
    )
    assert int(talk.hear()) > 1
    found = inits(launcher.launcher.require_pid())
    assert found
    for pid in found:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
    talk.say()
    assert [talk.hear() for _call in range(3)] == [str(errno.EAFNOSUPPORT)] * 3
    assert talk.end() == 0


def inits(launcher: int) -> list[int]:
    """Return the first processes of a launcher's sandboxes."""
    found = []
    for pid in tree(launcher):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError:
            continue  # it has ended
        numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
        if len(numbers) > 1 and numbers[-1] == "1":
            found.append(pid)
    return found


@if_namespaces
def test_commands_run_on_when_a_spare_is_killed(tmp_path: Path, launcher: LauncherClient) -> None:
    box = Box(tmp_path, launcher)
    plans = in_turn(box, "prepared")
    for pid in spares(launcher):
        os.kill(pid, signal.SIGKILL)
        while os.path.exists(f"/proc/{pid}"):
            give_way()
    for _number in range(3):
        assert box.run("exit 3", plans())[0].status == 3 << 8


@if_namespaces
def test_nothing_is_left_of_a_template(tmp_path: Path) -> None:
    """Nor of its spare."""
    client = LauncherClient(SpawnedLauncher())
    client.start()
    in_turn(Box(tmp_path, client), "prepared")
    spares(client)
    processes = tree(client.launcher.require_pid())[1:]
    client.close()
    assert [pid for pid in processes if os.path.exists(f"/proc/{pid}")] == []


def spares(client: LauncherClient) -> list[int]:
    """Wait for an init that waits for a command. Return all."""
    while not (found := inits(client.launcher.require_pid())):
        give_way()
    return found
