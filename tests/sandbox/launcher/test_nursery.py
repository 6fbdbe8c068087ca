"""The native init: a command finds in its sandbox what it finds behind an init of Python, and no page of an interpreter
is copied for it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from box import Box, Conversation, if_namespaces
from clocks import give_way
from conftest import Place
from mudroom.core.confinement.plan import Plan
from mudroom.errors import CommandNotStarted
from mudroom.sandbox.client import template
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.invocation import Invocation, RunOptions
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.launcher import wire
from mudroom.sandbox.launcher.step import STEPS
from mudroom.sandbox.launcher.wire import NATIVE_STEPS
from mudroom.sandbox.linux.syscall import number_of
from native_init import COMPILERS, compile_init

pytestmark = [pytest.mark.both_users, if_namespaces]

ROOT = Path(__file__).parents[3]
WAYS = ("prepared", "standing")
"""An init with a root of its own, and one whose privileges are gone before its command is known."""
FAULTS = 130
"""Page faults of all processes of a sandbox, the command's 50 among them. With an init of Python they are 550."""


@pytest.fixture(scope="session")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    if getattr(request, "param", "native") == "python":
        return b""
    if not COMPILERS:
        pytest.skip("no C compiler")
    return compile_init(tmp_path_factory.mktemp("init"))


@pytest.fixture
def native(program: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[LauncherClient]:
    """A client of whose sandboxes the inits are native."""
    monkeypatch.setattr(wire, "NATIVE_INIT", program)
    yield from started()


def started() -> Iterator[LauncherClient]:
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield client
    client.close()


def box_of(directory: Path, client: LauncherClient) -> Box:
    directory.mkdir(exist_ok=True)
    return Box(directory, client)


def in_turn(box: Box, way: str, **changes: Any) -> Callable[[], Plan]:
    """Return plans for commands that follow each other in one way."""
    if way == "standing":
        plan = box.plan(**changes)
        box.stand(plan)
        return lambda: plan
    for _number in range(2):
        assert box.run("true", box.plan(**changes))[0].status == 0
    return lambda: box.plan(**changes)


def init_of(box: Box, plan: Plan) -> str:
    """Return the name of pid 1, which shows that the init is the one that is meant."""
    return box.run("cat /proc/1/comm", plan)[1].strip()


LOOK = r"""
exec 2>&1
PYTHON -c 'import ctypes, os; print([ctypes.CDLL(None).prctl(n, 0, 0, 0, 0) for n in (2, 3, 7, 27, 30, 37, 39)])
print(os.getsid(0), os.getpgrp(), os.getppid(), os.getpriority(0, 0), os.sched_getaffinity(0))'
cat /proc/self/cgroup /proc/self/timerslack_ns
grep -E '^(Uid|Gid|Groups|Sig|Shd|Cap|NoNew|Seccomp|Umask|NSpid|NSsid|NSpgid)' /proc/self/status
for fd in /proc/self/fd/*; do echo "${fd##*/} $(readlink -f "$fd" | sed 's/:\[.*//')"; done
sed 's/^[0-9]* [0-9]* [0-9:]* //; s/ master:[0-9]*\| shared:[0-9]*//g; s/works.[0-9]*/work/g; s/fd.[0-9]*/fd/g' \
    /proc/self/mountinfo
cat /proc/self/limits /proc/self/oom_score_adj /proc/net/tcp /proc/net/udp /proc/net/tcp6 |
    sed 's/ [0-9a-f]*0 *1000*.*//'
ls -la / /dev /proc/sys /dev/pts | sed -E 's/^(d[^ ]*) +[0-9]+ /\1 /; s/ [A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / /'
cat /proc/keys; readlink /proc/1/fd/* /proc/1/exe /proc/1/cwd /proc/1/ns/*; cat /proc/1/environ
echo x > /proc/sys/kernel/hostname; hostname
env | sort; pwd; ulimit -a; stat -f / | grep -v ID; ip route show table local
PYTHON -c 'import socket; socket.socket(40, 1)'; mount -t tmpfs none /tmp; unshare -r true; exit 7
""".replace("PYTHON", f"{shlex.quote(sys.executable)} -I -S")


@pytest.mark.parametrize("way", WAYS)
def test_a_command_finds_the_same(tmp_path: Path, program: bytes, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {}
    for name, path in (("native", program), ("python", b"/nowhere/mudroom-init")):
        monkeypatch.setattr(wire, "NATIVE_INIT", path)
        place_of = tmp_path / "place"
        for client in started():
            box = box_of(place_of, client)
            plans = in_turn(box, way)
            assert init_of(box, plans()).startswith("mudroom-init" if name == "native" else "python")
            ended, words = box.run(LOOK, plans())
            said[name] = (ended.status, sorted(ended.refused), words.splitlines())
        place_of.rename(tmp_path / name)
    assert said["native"][2] == said["python"][2]
    assert said["native"] == said["python"]
    assert said["native"][0] == 7 << 8
    text = "\n".join(said["native"][2])
    assert re.search(r"^\[-1, 1, 0, 0, [0-9]+, -1, 1\]$", text, re.MULTILINE), text  # the interpreter has looked, too
    assert re.search(r"CapEff:\s+0{16}", text) and re.search(r"CapBnd:\s+0{16}", text), text
    assert re.search(r"CapAmb:\s+0{16}", text) and re.search(r"NoNewPrivs:\s+1", text), text
    assert re.search(r"Seccomp:\s+2", text), text


@pytest.mark.parametrize("way", WAYS)
def test_no_interpreter_is_copied(tmp_path: Path, native: LauncherClient, way: str) -> None:
    box = box_of(tmp_path, native)
    plans = in_turn(box, way)
    assert init_of(box, plans()) == "mudroom-init"
    before, commands = faults_of(native), 20
    for _number in range(commands):
        assert box.run(":", plans())[0].status == 0
    assert (faults_of(native) - before) / commands < FAULTS


def faults_of(client: LauncherClient) -> int:
    """Return the page faults of the launcher and of all that it has started (proc_pid_stat(5))."""
    found, waiting = 0, [client.launcher.require_pid()]
    while waiting:
        pid = waiting.pop()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found += int(fields[7]) + int(fields[8])
        waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return found


def test_its_steps_are_those_of_the_program() -> None:
    """The same table on both sides, each step one of Python's."""
    source = (ROOT / "src/native/init/step.c").read_text()
    table = re.findall(r'^    \{"(\w+)", "[^"]*", step_\w+\},$', source, re.MULTILINE)
    assert set(table) == NATIVE_STEPS and table == sorted(table)
    assert set(STEPS) >= NATIVE_STEPS
    assert {"mediate", "image", "host", "private", "root"} & NATIVE_STEPS == set()


@pytest.mark.parametrize("way", WAYS)
def test_ends_are_told_alike(tmp_path: Path, native: LauncherClient, way: str) -> None:
    box = box_of(tmp_path, native)
    plans = in_turn(box, way)
    assert init_of(box, plans()) == "mudroom-init"
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


def test_a_failed_start_is_told_whatever_vfork_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In musl on some machines it is fork(2)."""
    if not COMPILERS:
        pytest.skip("no C compiler")
    monkeypatch.setattr(wire, "NATIVE_INIT", compile_init(tmp_path, "-O2", "-Dvfork=fork"))
    for client in started():
        test_ends_are_told_alike(tmp_path / "place", client, "prepared")


@pytest.mark.parametrize("program", ["native", "python"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_the_limits_of_init_are_out_of_reach(tmp_path: Path, native: LauncherClient, way: str) -> None:
    """prlimit(2) asks only for the same user. The kernel takes the lower half of the number. A command's own are its
    own, by 0 and by its number."""
    plans = in_turn(box := box_of(tmp_path, native), way)
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


@pytest.mark.parametrize("program", ["native", "python"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_init_cannot_be_slowed(tmp_path: Path, native: LauncherClient, way: str) -> None:
    """It serves the later commands of a fork, too. A command's own priority is its own."""
    plans = in_turn(box := box_of(tmp_path, native), way)
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


@pytest.mark.parametrize("program", ["native", "python"], indirect=True)
def test_the_limits_of_init_do_not_end_its_work(tmp_path: Path, native: LauncherClient) -> None:
    """Another process of the user may set them, outside (prlimit(2))."""
    plans = in_turn(box := box_of(tmp_path, native), "prepared")
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
    found = inits(native.launcher.require_pid())
    assert found
    for pid in found:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
    talk.say()
    assert [talk.hear() for _call in range(3)] == [str(errno.EAFNOSUPPORT)] * 3
    assert talk.end() == 0


def inits(launcher: int) -> list[int]:
    """Return the first processes of a launcher's sandboxes."""
    found, pending = [], [launcher]
    while pending:
        pid = pending.pop()
        try:
            pending += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            status = Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError:
            continue  # it has ended
        numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
        if len(numbers) > 1 and numbers[-1] == "1":
            found.append(pid)
    return found


@pytest.mark.parametrize("program", ["native", "python"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_no_program_is_init_s_own(tmp_path: Path, native: LauncherClient, way: str) -> None:
    """Until its exec a command's process has the launcher's program in /proc/self/exe, on a mount of the host: run from
    there, it could change the mode of the host's interpreter, as its owner (compare CVE-2019-5736)."""
    box = box_of(tmp_path, native)
    plans = in_turn(box, way)
    for name, content, mode in (
        ("script", "#!/proc/self/exe -IS\nprint('ran')\n", 0o755),
        ("unreadable", "#!/proc/self/exe -IS\nprint('ran')\n", 0o111),
        ("second", "#! \tscript\n", 0o755),
    ):
        (box.project / name).write_text(content)
        (box.project / name).chmod(mode)
    (box.project / "link").symlink_to("/proc/self/exe")
    (box.project / "python").symlink_to(sys.executable)
    links = (b"/proc/self/exe", b"/proc/1/exe", b"/proc/thread-self/exe", b"./link")
    for word in (*links, b"./script", b"./second", b"./unreadable"):
        with pytest.raises(CommandNotStarted) as caught:
            started_as(box, plans(), [word, b"-c", b"print('ran')"])
        assert caught.value.exit_code == 126, word
    assert started_as(box, plans(), [b"./python", b"-IS", b"-c", b"print('ran')"]) == "ran\n"


@pytest.mark.parametrize("program", ["native", "python"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_no_program_is_one_that_cannot_be_looked_at(tmp_path: Path, native: LauncherClient, way: str) -> None:
    """A chain of scripts that ends nowhere, and a directory, which execve(2) refuses, too; and a file under a lease,
    for which it waits."""
    box = box_of(tmp_path, native)
    plans = in_turn(box, way)
    (box.project / "round").write_text("#!./round\n")
    (box.project / "round").chmod(0o755)
    (box.project / "directory").mkdir()
    (box.project / "leased").write_text("#!/bin/true\n")
    (box.project / "leased").chmod(0o755)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with (box.project / "leased").open() as held:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        for word, why in ((b"./round", errno.ELOOP), (b"./directory", errno.EACCES), (b"./leased", errno.EAGAIN)):
            with pytest.raises(CommandNotStarted, match=os.strerror(why).lower()) as caught:
                started_as(box, plans(), [word])
            assert caught.value.exit_code == 126, word
    signal.signal(signal.SIGIO, before)


def started_as(box: Box, plan: Plan, words: list[bytes]) -> str:
    environment = {b"PATH": b"/nowhere:/bin/true:/usr/bin:/bin", b"A": b"b=c"}
    with CapturedOutput(None, None, None, 1 << 20) as output:
        standing = template.StandingPlace(box.standing, refresh=True) if box._standing is not None else None
        running = native_run(box, plan, words, environment, output, standing)
        for stream in output.streams:
            stream.close_theirs()
        attend(running, output, None, lambda: None)
        running.wait_gone()
        return "".join(stream.data.decode() for stream in output.streams)


def native_run(
    box: Box, plan: Plan, words: list[bytes], environment: dict[bytes, bytes], output: Any, standing: Any
) -> Any:
    return box.client.run(plan, Invocation(words, environment, output.descriptors), RunOptions(standing=standing))


@pytest.mark.parametrize("way", WAYS)
def test_signals_are_forwarded(tmp_path: Path, native: LauncherClient, way: str) -> None:
    box = box_of(tmp_path, native)
    plans = in_turn(box, way)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        with CapturedOutput(None, None, None, 1 << 20) as output:
            script = f"trap 'echo got; exit 5' {number}; echo ready; while :; do sleep 0.01; done"
            running = box.start(script, output, plans())
            assert os.read(output.streams[0].read, 64) == b"ready\n"
            running.signal(number)
            ended, _timed_out = attend(running, output, None, lambda: None)
            running.wait_gone()
        assert ended.status == 5 << 8, number


def test_a_failing_step_is_told_with_its_number(tmp_path: Path, native: LauncherClient) -> None:
    box = box_of(tmp_path, native)
    plans = in_turn(box, "prepared")
    assert init_of(box, plans()) == "mudroom-init"
    plan = plans()
    box.upper.rename(box.root / "elsewhere")
    with pytest.raises(StepFailed, match="staged view") as caught:
        box.run("true", plan)
    assert (caught.value.op, caught.value.number) == ("overlay", 2)
    (box.root / "elsewhere").rename(box.upper)
    with pytest.raises(StepFailed, match="cannot work in") as caught:
        box.run("true", box.plan(cwd=os.fsencode(box.project / "missing")))
    assert caught.value.op == "cwd"
    with pytest.raises(StepFailed, match="cannot work in"):  # a name that is no UTF-8, of bytes that a report escapes
        box.run("true", box.plan(cwd=os.fsencode(box.project) + b"/\xff\x1b" * 200))
    assert init_of(box, plans()) == "mudroom-init"


def test_what_it_does_not_serve_has_an_init_of_python(tmp_path: Path, native: LauncherClient) -> None:
    """A held sandbox, and one with a terminal."""
    box = box_of(tmp_path, native)
    plans = in_turn(box, "prepared")
    with CapturedOutput(None, None, None, 1 << 20) as output:
        running = box.start("", output, plans(), held=True)
        door = running.door()  # it is ready for commands
        init = children_of(template_of(native))
        assert any(name.startswith("python") for name in init.values()), init
        door.close()
        running.wait_gone()
    assert init_of(box, plans()) == "mudroom-init"


def template_of(client: LauncherClient) -> int:
    """Return the template that was made last."""
    return max(children_of(client.launcher.require_pid()))


def children_of(pid: int) -> dict[int, str]:
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return {child: Path(f"/proc/{child}/comm").read_text().strip() for child in children}


def test_commands_run_on_when_the_nursery_is_killed(tmp_path: Path, native: LauncherClient) -> None:
    box = box_of(tmp_path, native)
    plans = in_turn(box, "prepared")
    assert init_of(box, plans()) == "mudroom-init"
    for pid in children_of(template_of(native)):
        os.kill(pid, signal.SIGKILL)
    names = [init_of(box, plans()) for _number in range(3)]
    assert names[-1].startswith("python"), names


@pytest.mark.parametrize("content", ["#!/bin/false\n", "no program"])
def test_a_program_that_does_not_work(tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "mudroom-init"
    broken.write_text(content)
    broken.chmod(0o755)
    monkeypatch.setattr(wire, "NATIVE_INIT", bytes(broken) if content == "no program" else b"")
    for client in started():
        monkeypatch.setattr(wire, "NATIVE_INIT", bytes(broken))  # that ends at once is a launcher that has died
        box = box_of(tmp_path / "place", client)
        plans = in_turn(box, "prepared")
        assert [init_of(box, plans()).startswith("python") for _number in range(3)] == [True] * 3


def test_no_program_is_started_where_it_is_forgone(tmp_path: Path, native: LauncherClient) -> None:
    """As in a container: its path may lead there to a file that a command has written."""
    native.templates.forgo_native()
    box = box_of(tmp_path, native)
    plans = in_turn(box, "prepared")
    assert init_of(box, plans()).startswith("python")


def test_a_session_without_it(
    place: Place, client: LauncherClient, program: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "NATIVE_INIT", program)
    monkeypatch.setattr(client.templates, "_native", True)
    monkeypatch.setenv("MUDROOM_NATIVE", "0")
    session = place.session()
    names = [session.run([b"cat", b"/proc/1/comm"]).stdout for _number in range(3)]
    assert all(name.startswith(b"python") for name in names), names


def test_nothing_is_left_of_it(tmp_path: Path, native: LauncherClient) -> None:
    """The nursery ends with its template."""
    box = box_of(tmp_path, native)
    in_turn(box, "prepared")
    nurseries = [pid for pid, name in children_of(template_of(native)).items() if name == "mudroom-init"]
    assert nurseries
    native.close()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in nurseries) and time.monotonic() < deadline:
        give_way()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in nurseries)


def test_it_takes_no_other_protocol(program: bytes) -> None:
    """Alone, and with garbage on its socket, it ends."""
    for said in (b"", b"\xff" * 99, b"\x05\0\0\0(\xff\xff\xff\x7f", b"\x01\0\0\0N", b"\x01\0\0\0x"):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            child = os.posix_spawn(program, [program], {}, file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)])
            ours.send(said)
            ours.shutdown(socket.SHUT_WR)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 125


def test_a_program_of_an_older_tree_is_not_found() -> None:
    """It would end at once in place of the launcher: no command would start. So its file has the protocol's name, in a
    wheel and in a tree."""
    source = ROOT / "src/native"
    assert f'#define PROTOCOL "{wire.PROTOCOL}"' in (source / "init/init.h").read_text()
    assert f'"mudroom/sandbox/launcher/{wire.PROTOCOL}"' in (source / "hatch_build.py").read_text()
    assert "mudroom/sandbox/launcher/$(sed" in (ROOT / "dev/native").read_text(), "it takes the name from init.h"
    assert os.path.basename(wire.NATIVE_INIT or wire.PROTOCOL.encode()) == wire.PROTOCOL.encode()


@pytest.mark.parametrize("program", ["native", "python"], indirect=True)
@pytest.mark.parametrize("above", [True, False])
def test_a_mount_follows_no_link_of_a_command(tmp_path: Path, native: LauncherClient, above: bool) -> None:
    """A command may put a link where a later one in its fork has a mount, or above it."""
    box = box_of(tmp_path, native)
    place, link = ("linked/deep", "linked") if above else ("linked", "linked")
    assert box.run(f"mkdir other && ln -s other {link}", box.plan())[0].status == 0
    (box.home / "shown").mkdir()
    assert init_of(box, box.plan()).startswith("mudroom-init" if wire.NATIVE_INIT else "python")
    source, path = os.fsencode(box.home / "shown"), os.fsencode(box.project / place)[1:]
    steps = [
        ("bind", source, path, 1, False),
        ("inside", source, path, 1),
        ("directory", path, 0o700),
        ("tmpfs", path, (), 1),
    ]
    if above:  # else the name is there
        steps += [("file", path, b"x", 0o600), ("symlink", b"x", path)]
    for step in steps:
        plan = box.plan()
        at = next(index for index, step in enumerate(plan.steps) if step[0] == "view")
        with pytest.raises(StepFailed) as caught:
            box.run("true", plan._replace(steps=(*plan.steps[:at], step, *plan.steps[at:])))
        assert (caught.value.op, caught.value.number) == (step[0], errno.ELOOP)
    assert list((box.upper / "other").iterdir()) == []
