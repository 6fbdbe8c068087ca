"""The host's end of a sandbox: the results and errors of a command, and their order."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from box import ENVIRONMENT, KINDS, Box, fresh, kill_with_descendants
from mudroom.errors import CommandNotStarted, MudroomError
from mudroom.sandbox.client.capture import CapturedOutput
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.client.report import StepFailed

__all__ = ["fresh"]  # a fixture

pytestmark = pytest.mark.both_users

_LIBC = ctypes.CDLL(None, use_errno=True)
SYS_fsopen, SYS_fsconfig, FSOPEN_CLOEXEC = 430, 431, 1
FSCONFIG_SET_FLAG, FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE = 0, 1, 6


def syscall(number: int, *words: int | bytes | None) -> int:
    done = int(_LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(w) if isinstance(w, int) else w for w in words)))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Box:
    return Box(tmp_path, client)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextmanager
def stopped(box: Box) -> Iterator[None]:
    """The launcher is stopped meanwhile and reads no request."""
    os.kill(box.client.launcher.require_pid(), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(box.client.launcher.require_pid(), signal.SIGCONT)


def in_use(box: Box, number: int) -> bool:
    """Whether an overlay with this upper directory is alive somewhere. With ``index=on`` that is an error and not
    only a line in the kernel's log (Documentation/filesystems/overlayfs.rst, "Sharing and copying layers"). The overlay
    that asks is mounted nowhere: a sandbox of another test, cloned meanwhile, would keep it."""
    work = box.root / f"other{number}"
    work.mkdir()
    opened = syscall(SYS_fsopen, b"overlay", FSOPEN_CLOEXEC)
    try:
        for key, path in (("lowerdir", box.project), ("upperdir", box.upper), ("workdir", work)):
            syscall(SYS_fsconfig, opened, FSCONFIG_SET_STRING, key.encode(), bytes(path), 0)
        syscall(SYS_fsconfig, opened, FSCONFIG_SET_STRING, b"index", b"on", 0)
        syscall(SYS_fsconfig, opened, FSCONFIG_SET_FLAG, b"userxattr", None, 0)
        syscall(SYS_fsconfig, opened, FSCONFIG_CMD_CREATE, None, None, 0)
    except OSError as error:
        assert error.errno == 16, error
        return True
    finally:
        os.close(opened)
    return False


@pytest.mark.root
@as_root
def test_when_a_sandbox_is_gone_its_mounts_are(fresh: Box) -> None:
    for number in range(30):
        with CapturedOutput(None, None, None, 100) as output:
            running = fresh.start("echo x > f", output, view=bool(number % 2))  # a view that is never taken
            running.wait()
            running.wait_gone()
        assert not in_use(fresh, number), f"run {number}"


@pytest.mark.root
@as_root
def test_a_sandbox_that_goes_on_is_not_gone(box: Box) -> None:
    read, write = os.pipe()
    with CapturedOutput(read, None, None, 100, own=(read,)) as output:
        running = box.start("echo; read go", output)
        os.read(output.streams[0].read, 1)
        assert in_use(box, 1)
        os.write(write, b"go\n")
        running.wait()
        running.wait_gone()
    os.close(read)
    os.close(write)


def test_nothing_stays_open(box: Box) -> None:
    box.run("true")
    box.run("true")
    before = descriptors()
    with CapturedOutput(None, None, None, 100) as output:
        for number in range(10):
            running = box.client.run(box.plan(), Invocation([b"true"], ENVIRONMENT, output.descriptors))
            running.wait()
            if number % 2:
                running.wait_gone()
                running.wait_gone()
                assert running.fileno() == -1
            del running
    assert descriptors() == before


@pytest.mark.parametrize("script", ["true", "sleep 1000 & true", "kill -9 $$"])
def test_gone_after_any_end(box: Box, script: str) -> None:
    with CapturedOutput(None, None, None, 100) as output:
        running = box.start(script, output)
        running.wait()
        running.wait_gone()
        assert running.fileno() == -1


def test_gone_after_a_failure(box: Box) -> None:
    with CapturedOutput(None, None, None, 100) as output:
        plan = box.plan()
        broken = plan._replace(steps=(*plan.steps[:-1], ("cwd", b"/nowhere")))
        running = box.start("true", output, broken)
        with pytest.raises(StepFailed, match="nowhere"):
            running.wait()
        running.wait_gone()
    with CapturedOutput(None, None, None, 100) as output:  # what the first command had is closed here
        missing = box.client.run(box.plan(), Invocation([b"no-such"], ENVIRONMENT, output.descriptors))
        with pytest.raises(CommandNotStarted):
            missing.wait()
        missing.wait_gone()


def test_a_command_that_cannot_be_sent_is_not_counted_as_running(box: Box) -> None:
    """Otherwise its process would keep its place, and work directories would wait for its end."""
    closed = 1 << 20
    with pytest.raises(MudroomError, match="Bad file descriptor"):
        box.client.run(box.plan(), Invocation([b"true"], ENVIRONMENT, (closed, closed, closed)))
    connections = (box.client.launcher.connection, *box.client.templates.connections())
    assert [sorted(one.active) for one in connections if one is not None and one.active] == []


def test_the_next_command_after_the_launcher_died_has_a_new_one(fresh: Box) -> None:
    for _time in range(2):
        assert fresh.run("exit 3")[0].status >> 8 == 3
        pid = fresh.client.launcher.require_pid()
        kill_with_descendants(pid)
        assert fresh.run("exit 4")[0].status >> 8 == 4
        with pytest.raises(ProcessLookupError):  # it was waited for, too
            os.kill(pid, 0)


def test_a_command_whose_launcher_has_a_successor_by_now(fresh: Box) -> None:
    """Another thread's command has seen the end first, and has started the new launcher."""
    with CapturedOutput(None, None, None, 100) as output:
        running = fresh.start("sleep 1000", output)
        kill_with_descendants(fresh.client.launcher.require_pid())
        assert fresh.run("exit 4")[0].status >> 8 == 4
        with pytest.raises(MudroomError, match="the sandbox launcher died"):
            running.wait()
        running.wait_gone()


def test_no_command_goes_on_without_its_launcher(tmp_path: Path) -> None:
    """It is killed at any moment: also just before the new process has arranged to end with it."""
    for number in range(40):
        (tmp_path / str(number)).mkdir()
        client = LauncherClient(SpawnedLauncher())
        client.start()
        box = Box(tmp_path / str(number), client)
        with CapturedOutput(None, None, None, 100) as output:
            running = box.start("sleep 1000", output)
            os.kill(client.launcher.require_pid(), signal.SIGKILL)
            with pytest.raises(MudroomError, match="the sandbox launcher died"):
                running.wait()
            running.wait_gone()
        client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT, signal.SIGQUIT])
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_that_comes_before_the_command_is_for_the_command(kind: str, number: signal.Signals, box: Box) -> None:
    """Both requests are there before the first is looked at: init hears of it before it has done anything."""
    plan = box.prepared(kind)
    with CapturedOutput(None, None, None, 1 << 10) as output, stopped(box):
        running = box.start("exec sleep 1000", output, plan)
        running.signal(number)
    assert running.wait().status & 0x7F == number
    running.wait_gone()
