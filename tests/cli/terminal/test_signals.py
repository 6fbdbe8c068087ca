"""A signal is heeded, whatever the main thread waits for: also one of which the kernel does not tell that thread."""

from __future__ import annotations

import _thread
import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from clocks import give_way
from mudroom.cli.terminal.command_signals import Terminated, command_signals
from mudroom.cli.terminal.signals import handling, wake_for_signals
from mudroom.cli.terminal.terminal import Terminal
from mudroom.errors import MudroomError
from mudroom.session import Session

HEEDED = (signal.SIGTERM, signal.SIGUSR1)


class HeededError(Exception):
    """By a handler."""


def heed(number: int, _frame: object) -> NoReturn:
    raise HeededError(number)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.signal(number, heed) for number in HEEDED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def unheard(number: int) -> Iterator[None]:
    """A signal that does not wake the main thread: another one takes it, when that sleeps (proc_pid_stat(5))."""
    place = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
    begun = threading.Event()

    def take() -> None:
        begun.wait()
        while place.read_text().rpartition(")")[2].split()[0] != "S":
            give_way()
        signal.pthread_kill(threading.get_ident(), number)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        begun.set()
        yield
    finally:
        thread.join()


def at_a_pipe() -> None:
    read, write = os.pipe()
    try:
        os.read(read, 1)
    finally:
        os.close(read)
        os.close(write)


def at_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def for_a_child() -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        try:
            os.waitpid(child.pid, 0)
        finally:
            child.kill()


def for_a_file() -> None:
    one, other = (os.open(__file__, os.O_RDONLY) for _ in range(2))
    try:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX)
    finally:
        os.close(one)
        os.close(other)


@pytest.mark.parametrize("wait", [at_a_pipe, at_a_lock, for_a_child, for_a_file])
def test_a_wait_is_ended(wait: Callable[[], None]) -> None:
    with wake_for_signals(), pytest.raises(HeededError), unheard(signal.SIGTERM):
        wait()


def test_one_that_is_heeded_leaves_the_next_to_be_heeded() -> None:
    with wake_for_signals():
        for number in (*HEEDED, *HEEDED):
            with pytest.raises(HeededError, match=str(int(number))), unheard(number):
                at_a_pipe()


class Waited:
    """A session whose command is waited for, until it is told to end."""

    def __init__(self) -> None:
        self.over, self.told = threading.Lock(), list[int]()

    def interrupt(self, number: int = signal.SIGTERM) -> bool:
        self.told.append(number)
        self.over.release()
        return True

    def wait(self) -> None:
        for _time in range(2):
            self.over.acquire()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGTERM),
        (signal.SIGINT, signal.SIGTERM),
        (signal.SIGQUIT, signal.SIGQUIT),
    ],
)
def test_a_command_is_told_to_end(number: int, told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.cli.terminal.command_signals.replace_by_null", lambda _terminals: None)
    session = Waited()
    with command_signals(cast(Session, session)) as signals, unheard(number):
        session.wait()
    assert (signals.received, session.told) == ([number], [told])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_before_a_command_a_signal_ends_mudroom(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.cli.terminal.command_signals.replace_by_null", lambda _terminals: None)
    before = signal.getsignal(number)
    session = SimpleNamespace(interrupt=lambda _number: False, sandboxes=SimpleNamespace(has_run=False))
    with pytest.raises(Terminated) as told, command_signals(cast(Session, session)):
        signal.raise_signal(number)
    assert told.value.exit_code == 128 + number and signal.getsignal(number) is before


def test_where_the_launcher_has_gone_a_signal_is_still_handled() -> None:
    def gone(_number: int) -> bool:
        raise MudroomError("the sandbox launcher is gone")

    with command_signals(cast(Session, SimpleNamespace(interrupt=gone))) as signals:
        signal.raise_signal(signal.SIGTERM)
    assert signals.received == [signal.SIGTERM]


@contextmanager
def nothing_left() -> Iterator[None]:
    descriptors = os.listdir("/proc/self/fd")
    handler, threads = signal.getsignal(signal.SIGURG), os.listdir("/proc/self/task")
    yield
    assert signal.getsignal(signal.SIGURG) == handler
    assert os.listdir("/proc/self/fd") == descriptors
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    while set(os.listdir("/proc/self/task")) - set(threads):
        give_way()  # it has said that it ends


def test_everything_is_as_it_was() -> None:
    handler = signal.getsignal(signal.SIGURG)
    with nothing_left(), wake_for_signals():
        assert signal.getsignal(signal.SIGURG) != handler


def test_a_handler_that_raises_when_it_has_just_begun_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    start = _thread.start_new_thread

    def told(run: Callable[[], None], arguments: tuple[()]) -> None:
        start(run, arguments)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(_thread, "start_new_thread", told)
    with nothing_left(), pytest.raises(HeededError), wake_for_signals():
        pytest.fail("it was told before")


def test_a_handler_that_raises_while_it_ends_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def told(descriptor: int, data: bytes) -> int:
        signal.raise_signal(signal.SIGTERM)
        return write(descriptor, data)

    with nothing_left(), pytest.raises(HeededError), wake_for_signals():
        monkeypatch.setattr(os, "write", told)
    monkeypatch.undo()


def test_where_no_thread_can_be_started_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    handler = signal.getsignal(signal.SIGURG)
    with nothing_left(), wake_for_signals():
        assert signal.getsignal(signal.SIGURG) == handler


def test_in_another_thread_nothing_is_done() -> None:
    def enter() -> None:
        with wake_for_signals():
            found.append(signal.getsignal(signal.SIGURG))

    found: list[object] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGURG)] and signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("fails", ["before its first line", "while it waits"])
def test_a_watch_that_fails_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """As without memory: the command ends, and the next one is watched again."""
    from mudroom.cli.terminal import signals

    def fail(*_arguments: object) -> NoReturn:
        raise MemoryError

    def begin(_function: object, _arguments: object) -> int:
        return 0

    handler = signal.getsignal(signal.SIGURG)
    with monkeypatch.context() as patch:
        patch.setattr(signals, "PATIENCE", 0.01)
        if fails == "while it waits":
            patch.setattr(select, "poll", fail)
        else:
            patch.setattr(_thread, "start_new_thread", begin)
        with wake_for_signals():
            pass
    assert signal.getsignal(signal.SIGURG) is handler
    with wake_for_signals():
        assert signal.getsignal(signal.SIGURG) is not handler


def test_a_question_is_given_up_by_a_signal_just_before_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(HeededError), unheard(signal.SIGUSR1):
            Terminal({}).ask("? ")


def test_signals_are_ignored_within_a_block() -> None:
    """``signal.SIG_IGN`` is a member of an enumeration."""
    with handling({signal.SIGUSR2: signal.SIG_IGN}):
        os.kill(os.getpid(), signal.SIGUSR2)
        with handling({signal.SIGUSR2: lambda *_given: None}):
            assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR2) == signal.Handlers.SIG_DFL
