"""A command that a keeper runs is as in-process: outputs, exit code, environment, directory, limits, signals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import resource
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kept import LEFT, Kept, kept, shared

from box import children
from mudroom.ext.keeper.caller import identity
from mudroom.ext.keeper.command import serve
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from tiers import half, pairs

__all__ = ["kept", "shared"]  # fixtures

pytestmark = pytest.mark.both_users

NUMBERED = re.compile(rb"run-[0-9a-f]{8}|exec-[0-9a-f]{8}|[a-z]+-[0-9a-f]{8}\b")


def told(done: subprocess.CompletedProcess[bytes]) -> tuple[int, bytes | None, bytes | None]:
    """Exit code and outputs, without the names of forks that are made."""
    out, err = (None if text is None else NUMBERED.sub(b"FORK", text) for text in (done.stdout, done.stderr))
    return done.returncode, out, err


@pytest.mark.parametrize(
    "words",
    half(
        [
            ["run", "--explain", "--", "true"],
            ["run"],
            ["run", "--nonsense"],
            ["status"],
            ["ls"],
            ["ls", "--json"],
            ["log"],
            ["diff", "no-such-fork"],
            ["discard", "no-such-fork"],
            ["undo"],
            ["policy", "show"],
            ["run", "--yes", "--", "true"],
            ["run", "--yes", "--", "sh", "-c", "echo out; echo err >&2; exit 7"],
            ["run", "--no", "--", "sh", "-c", "echo new > new; rm f"],
            ["run", "--keep", "--", "sh", "-c", "echo new > new; rm f"],
            ["run", "--yes", "--", "sh", "-c", "kill -9 $$"],
            ["run", "--yes", "--", "no-such-program"],
            ["run", "--yes", "--timeout", "0.2s", "--", "sleep", "60"],
            ["run", "--yes", "--", "sh", "-c", "umask; ulimit -a; pwd; env; cat"],
            ["run", "--yes", "--", "seq", "200000"],
            [
                "run",
                "--yes",
                "--memory",
                "200M",
                "--processes",
                "50",
                "--",
                "sh",
                "-c",
                "cat /proc/self/cgroup | wc -l",
            ],
            ["run", "--no", "--level", "0", "--", "sh", "-c", "echo new > new; echo out"],
            ["run", "--no", "--view", "copy", "--", "sh", "-c", "echo new > new; echo out"],
            ["exec", "--", "cat"],
            ["exec", "--", "rm", "-rf", "/"],
        ]
    ),
    ids=" ".join,
)
def test_outputs_and_exit_codes(shared: Kept, words: list[str]) -> None:
    assert told(shared(*words)) == told(shared(*words, kept=False))


def test_json(shared: Kept) -> None:
    words = ["exec", "--json", "--", "sh", "-c", "echo new > new; echo out"]
    both = [json.loads(shared(*words, kept=way).stdout) for way in (True, False)]
    for row in both:
        for name in ("fork", "duration", "seconds", "cpu", "usage", "resources", "flows", "started", "ended"):
            row.pop(name, None)
    assert both[0].keys() == both[1].keys()
    assert [row["exit_code"] for row in both] == [0, 0]
    assert both[0]["changes"] == both[1]["changes"]


def planted(directory: Path, name: str) -> socket.socket:
    """Return a socket of this name in a directory, on which this process listens. The path may be too long for
    unix(7)."""
    listener = socket.socket(socket.AF_UNIX)
    here = os.open(directory, os.O_PATH)
    listener.bind(f"/proc/self/fd/{here}/{name}")
    os.close(here)
    listener.listen()
    return listener


def both_ways(kept: Kept, *words: str | bytes, **options: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [told(kept(*words, kept=way, **options)) for way in (True, False)]


def test_words_and_variables_that_are_no_text(shared: Kept) -> None:
    script = b'printf \'%s.\' "$1" "$SHOWN" | od -c'
    words = ["run", "--yes", "--env", "SHOWN", "--", "sh", "-c"]
    first, second = both_ways(shared, *words, script, b"sh", b"\xff\xfe\n\x80", more={"SHOWN": b"\xe4 \x80"})
    assert first == second
    assert b"377 376" in (first[1] or b"") and b"344" in (first[1] or b"")


def test_only_the_own_environment(kept: Kept) -> None:
    """Neither the variables of the keeper's starter nor those of the command before."""
    kept.environment["FIRST"] = "1"
    kept.start()
    del kept.environment["FIRST"]
    words = ["--", "sh", "-c", "echo $FIRST$SECOND."]
    assert kept("run", "--yes", "--env", "SECOND", *words, more={"SECOND": "2"}).stdout == b"2.\n"
    assert kept("run", "--yes", *words).stdout == b".\n"
    for name in ("FIRST", "SECOND"):
        done = kept("run", "--yes", "--env", name, *words)
        assert (done.returncode, b"your environment has no such variable" in done.stderr) == (125, True)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_another_umask_is_not_kept(shared: Kept, umask: int) -> None:
    done = shared("run", "--yes", "--", "true", preexec_fn=lambda: os.umask(umask))
    assert (done.returncode, done.stderr) == (99, LEFT)


def _lower_limit() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))


def _nicer() -> None:
    os.nice(3)


def _batch() -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _one_processor() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _no_new_privileges() -> None:
    import ctypes

    assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS


def _blocked_signal() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


def _io_priority() -> None:
    import ctypes

    assert ctypes.CDLL(None).syscall(251 if os.uname().machine == "x86_64" else 30, 1, 0, 3 << 13) == 0  # idle


DIFFERENT = [_lower_limit, _nicer, _batch, _no_new_privileges, _blocked_signal, _io_priority]
if len(os.sched_getaffinity(0)) > 1:
    DIFFERENT.append(_one_processor)


@pytest.mark.parametrize("change", DIFFERENT)
def test_a_process_that_differs_is_not_kept(shared: Kept, change: Callable[[], None]) -> None:
    assert shared("status", preexec_fn=change).stderr == LEFT
    assert shared("status").returncode == 0


def test_another_namespace_is_not_kept(shared: Kept) -> None:
    first, environment = shared.way(True)
    within = ["unshare", "--user", "--net", first]
    done = subprocess.run(
        [*within, "status"], cwd=shared.place.project, env=environment, capture_output=True, check=False
    )
    assert done.stderr == LEFT


def test_a_directory_that_is_gone(shared: Kept, tmp_path: Path) -> None:
    results = []
    for way in (True, False):
        (tmp_path / "gone").mkdir()
        script = 'rmdir "$PWD"; exec "$@"'
        first, environment = shared.way(way)
        words = ["sh", "-c", script, "sh", first, "status"]
        results.append(
            told(subprocess.run(words, cwd=tmp_path / "gone", env=environment, capture_output=True, check=False))
        )
    assert results[0] == results[1]
    assert results[0][0] == 125 and b"does not exist any more" in (results[0][2] or b"")


def test_the_directory_is_the_callers(shared: Kept) -> None:
    shared.place.write("sub/f")
    first, second = both_ways(shared, "run", "--yes", "--", "pwd", cwd=shared.place.project / "sub")
    assert first == second
    assert first[1] == os.fsencode(shared.place.project / "sub") + b"\n"


def test_stdin_is_a_pipe(shared: Kept) -> None:
    results = []
    for way in (True, False):
        reader, writer = os.pipe()
        with open(reader, "rb") as stdin:
            os.write(writer, b"piped")
            os.close(writer)
            results.append(told(shared("run", "--yes", "--", "cat", kept=way, stdin=stdin)))
    assert results[0] == results[1]
    assert results[0][1] == b"piped"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_descriptor_is_not_kept(shared: Kept, number: int) -> None:
    done = shared("status", preexec_fn=lambda: os.close(number))
    assert done.returncode == 99


@pytest.mark.parametrize("words", [["status"], ["run", "--yes", "--", "seq", "100000"]], ids=["status", "run"])
def test_nobody_reads(shared: Kept, words: list[str]) -> None:
    results = []
    for way in (True, False):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as stdout:
            results.append(told(shared(*words, kept=way, stdout=stdout)))
    assert results[0] == results[1]


@pytest.mark.parametrize("words", [["status"], ["run", "--yes", "--", "echo", "x"]], ids=["status", "run"])
def test_a_full_disk(shared: Kept, words: list[str]) -> None:
    results = []
    for way in (True, False):
        with open("/dev/full", "wb") as stdout:
            results.append(told(shared(*words, kept=way, stdout=stdout)))
    assert results[0] == results[1]


WORK = "trap '' USR1; echo ready; sleep 1000; sleep 1000"


@pytest.mark.parametrize(
    ("number", "verb"),
    pairs([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], [["run", "--yes"], ["exec"]]),
)
def test_a_signal_during_a_command(shared: Kept, verb: list[str], number: int) -> None:
    results = []
    for way in (True, False):
        process = shared.popen(*verb, "--", "sh", "-c", WORK, kept=way, start_new_session=True)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
        results.append((process.returncode, out, NUMBERED.sub(b"FORK", err)))
    assert results[0] == results[1]
    assert results[0][0] == 128 + number


def test_an_ignored_signal_stays_ignored(shared: Kept) -> None:
    results = []
    for way in (True, False):
        process = shared.popen(
            "run", "--yes", "--", "sh", "-c", "echo ready; read word; echo $word", kept=way, stdin=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )  # fmt: skip
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        out, _err = process.communicate(b"word\n", timeout=60)
        results.append((process.returncode, out))
    assert results == [(0, b"word\n")] * 2


def test_a_signal_that_ends_a_verb_without_handlers(shared: Kept) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        process = shared.popen("log", "--json", stdout=subprocess.PIPE)
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode in (0, -number)


def test_the_client_is_killed(kept: Kept) -> None:
    """The command ends as after a hang-up, and is collected and journalled."""
    kept.start()
    with kept.popen("run", "--yes", "--", "sh", "-c", f"echo new > new; {WORK}", start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait()
        assert process.stdout.read() == b""  # until the last holder of it has gone
    (row,) = [json.loads(line) for line in kept("log", "-n", "0", "--json").stdout.splitlines() if b'"run"' in line]
    assert row["data"]["changed"] == 1
    assert not (kept.place.project / "new").exists()
    kept.wait_for_end()


def test_a_command_whose_process_is_killed_is_not_run_again(kept: Kept) -> None:
    kept.start()
    process = kept.popen("run", "--yes", "--", "sh", "-c", f"echo new > new; {WORK}")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    (runner,) = [child for child in children(kept.pid) if os.getsid(child) == child]
    os.kill(runner, signal.SIGKILL)
    _out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (
        125,
        b"mudroom: the process that ran the command was killed (the next mudroom collects its changes)\n",
    )
    assert b"collected: 1 change" in kept("status").stderr


def test_many_at_once(shared: Kept) -> None:
    processes = [shared.popen("exec", "--", "sh", "-c", f"echo {number}") for number in range(12)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    ran = [output for output in outputs if output]
    assert ran == [b"%d\n" % number for number, output in enumerate(outputs) if output]
    assert len(ran) >= 6


def on_terminal(kept: Kept, way: bool, *words: str) -> tuple[int, bytes]:
    """Run a command with a terminal of its own. Return the exit code and what appeared there."""
    kept.wait()
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.chdir(kept.place.project)
            first, environment = kept.way(way)
            os.execve(first, [first, *words], {**environment, "TERM": "xterm"})
        finally:
            os._exit(127)
    shown = b""
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:
        pass  # EIO: its other side is closed
    os.close(master)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


@pytest.mark.parametrize("words", [["status"], ["ls"]], ids=" ".join)
def test_what_only_writes_to_a_terminal(shared: Kept, words: list[str]) -> None:
    assert shared("run", "--keep", "--", "sh", "-c", "echo new > new; rm f").returncode == 0
    (code, here), there = on_terminal(shared, False, *words), on_terminal(shared, True, *words)
    ages = re.compile(rb" +\d+ (s|min)  ")  # of what waits
    assert (there[0], ages.sub(b"", there[1])) == (code, ages.sub(b"", here))
    assert code == 0 and b"run-" in here


@pytest.mark.parametrize("words", [["run", "--yes", "--", "true"], ["diff"], ["undo"]], ids=" ".join)
def test_what_uses_a_terminal_is_not_kept(shared: Kept, words: list[str]) -> None:
    assert on_terminal(shared, True, *words) == (99, LEFT.replace(b"\n", b"\r\n"))


def test_a_path_through_the_own_descriptors_is_not_kept(shared: Kept) -> None:
    """In the keeper's process the number is that of another file, which `log export -o` would overwrite."""
    for words in (["exec", "--card", "/dev/fd/63", "--", "true"], ["log", "export", "--output=/proc/self/fd/5"]):
        assert shared(*words).stderr == LEFT
    assert shared("run", "--yes", "--", "cat", "/proc/self/comm").stdout == b"cat\n"  # the command's own


@pytest.mark.parametrize("variable", ["LD_PRELOAD=libc.so.6", "LD_AUDIT=none.so", "PYTHONPATH=src", "PYTHONPATH=:/opt"])
def test_what_is_read_in_another_way_each_time_is_not_kept(shared: Kept, variable: str) -> None:
    """A preloaded library reads variables of its own; a relative path is another one in each directory."""
    name, value = variable.split("=")
    assert shared("status", more={name: value}).stderr.endswith(LEFT)


def test_nothing_of_the_caller_is_held_when_its_command_has_ended(kept: Kept) -> None:
    """A caller may unmount a file system at once, or wait for the end of an output."""
    place = kept.place
    directory = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)
    own = identity(directory)
    os.close(directory)
    assert own is not None
    control, other = socket.socketpair()
    reader, writer = os.pipe()
    socket_directory = Path(os.fsdecode(kept.directory))
    socket_directory.mkdir(parents=True, mode=0o700)
    listener = planted(socket_directory, kept.names()[-1])

    def run(*_words: object) -> int:
        os.open(place.project, os.O_PATH)  # left open
        return 7

    pid = os.fork()
    if pid == 0:
        try:
            other.close()
            os.close(reader)
            os.close(writer)
            os.environ.clear()
            connection, _address = listener.accept()
            client = LauncherClient(SpawnedLauncher())
            serve(connection, own, lambda: True, run, client, lambda _wanted: None, (control.fileno(),))
            control.recv(1)
        finally:
            os._exit(0)
    with other, control, listener, open(reader, "rb") as output:
        first, environment = kept.way(True)
        done = subprocess.run([first, "ls"], cwd=place.project, env=environment, stdout=writer, check=False)
        assert done.returncode == 7
        os.close(writer)
        assert output.read() == b""
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        files = []
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it closes its own meanwhile
                files.append(os.readlink(path))
        assert not [path for path in files if path.startswith(("pipe:", os.fspath(place.root)))]
        other.send(b"e")
        os.waitpid(pid, 0)
