"""Signals while a program of the user's has the terminal."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from mudroom.cli.terminal.command_signals import Terminated
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.foreground_program import ForegroundRunner, ignore_signal, signal_handlers
from mudroom.cli.terminal.pager import pager_words
from mudroom.cli.terminal.terminal import Terminal

SELF = os.getpid()


def tells(number: int) -> list[str]:
    """A program that tells whoever started it to end, and goes on."""
    return ["sh", "-c", f"kill -{number} $PPID; exit 0"]


def test_a_signal_means_what_is_said_and_then_what_it_did() -> None:
    heard: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    with signal_handlers({signal.SIGINT: lambda number, _frame: heard.append(number)}):
        signal.raise_signal(signal.SIGINT)
    assert heard == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is before


def test_a_program_is_not_one_of_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may be a stranger's project, with a ``less`` of its own."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for place in (theirs, ours):
        place.mkdir()
        (place / "less").write_text("#!/bin/sh\n")
        (place / "less").chmod(0o755)
    monkeypatch.chdir(theirs)
    search = f".::bin:../theirs:{ours}:{os.defpath}"
    monkeypatch.setenv("PATH", search)
    monkeypatch.delenv("PAGER", raising=False)
    assert shutil.which("less") != str(ours / "less")
    environ = {b"PATH": os.fsencode(search)}
    assert pager_words(Context(environ, Terminal(environ), False, None)) == [str(ours / "less")]
    environ[b"PAGER"] = b"./less -X"  # so the user wants it
    assert pager_words(Context(environ, Terminal(environ), False, None)) == ["./less", "-X"]
    for none in (b"", b"less 'X"):
        environ[b"PAGER"] = none
        assert pager_words(Context(environ, Terminal(environ), False, None)) == [shutil.which("cat")]


def test_an_event_loop_hears_nothing_of_what_is_typed(tmp_path: Path) -> None:
    async def heard() -> list[int]:
        told: list[int] = []
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGUSR1):
            loop.add_signal_handler(number, told.append, number)
        with ForegroundRunner() as lent:
            assert lent.run(tells(signal.SIGINT), tmp_path, is_typed_in=True) == 0
        signal.raise_signal(signal.SIGUSR1)
        while signal.SIGUSR1 not in told:
            await asyncio.sleep(0)
        return told

    assert asyncio.run(heard()) == [signal.SIGUSR1]


def test_an_event_loop_hears_afterwards_of_what_ends_it(tmp_path: Path) -> None:
    async def heard() -> list[int]:
        told: list[int] = []
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.append, signal.SIGTERM)
        with pytest.raises(Terminated, match="told to end by SIGTERM"), ForegroundRunner() as lent:
            lent.run(tells(signal.SIGTERM), tmp_path, is_typed_in=True)
        assert told == []
        while not told:
            await asyncio.sleep(0)
        return told

    assert asyncio.run(heard()) == [signal.SIGTERM]


def test_what_is_begun_is_finished(tmp_path: Path) -> None:
    """Between two steps it is said that this is the end; no program is started any more."""
    done: list[str] = []
    with pytest.raises(Terminated) as told, ForegroundRunner():
        signal.raise_signal(signal.SIGHUP)
        done.append("decided")
    assert done == ["decided"] and told.value.exit_code == 128 + signal.SIGHUP
    with pytest.raises(Terminated), ForegroundRunner() as lent:
        signal.raise_signal(signal.SIGTERM)
        lent.run(["touch", "started"], tmp_path, is_typed_in=True)
    assert list(tmp_path.iterdir()) == []


def test_told_twice_a_program_is_ended_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.cli.terminal.foreground_program.GRACE", 1000.0)
    wait = f"import signal; signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN); import os; " \
        f"os.kill({SELF}, 15); os.kill({SELF}, 1); signal.pause()"  # fmt: skip
    with pytest.raises(Terminated) as told, ForegroundRunner() as lent:
        lent.run([sys.executable, "-c", wait], tmp_path, is_typed_in=True)
    assert told.value.number in (signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("heeds", ["", "trap '' TERM; "], ids=["heeds it", "does not"])
def test_a_signal_that_comes_just_before_we_wait_is_heeded(
    heeds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No handler runs during a wait, and it does not wake one that has not begun: signal(7)."""
    waited: list[float | None] = []

    def wait(read: list[int], write: list[int], error: list[int], seconds: float | None) -> object:
        if not waited:
            begun.read_text()
            signal.raise_signal(signal.SIGTERM)
        waited.append(seconds)
        return select.select(read, write, error, seconds)

    begun = tmp_path / "begun"
    os.mkfifo(begun)
    monkeypatch.setattr("mudroom.cli.terminal.foreground_program.select", SimpleNamespace(select=wait))
    with pytest.raises(Terminated), ForegroundRunner() as lent:
        lent.run(["sh", "-c", f"{heeds}echo > begun; exec sleep 60"], tmp_path, is_typed_in=True)
    assert waited[0] is None and all(seconds is not None for seconds in waited[1:2])


def test_a_program_is_waited_for_where_the_end_of_children_is_not_heard_of(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with ForegroundRunner() as lent:
            assert lent.run(["sh", "-c", "exit 7"], tmp_path, is_typed_in=True) == 7
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_in_a_thread_signals_are_somebody_elses_business(tmp_path: Path) -> None:
    codes: list[int] = []

    def run() -> None:
        with ForegroundRunner() as lent:
            codes.append(lent.run(["sh", "-c", "exit 7"], tmp_path, is_typed_in=True))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert codes == [7] and signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_program_is_ended_by_what_is_not_heeded_here(number: int, tmp_path: Path) -> None:
    with signal_handlers({number: ignore_signal}), ForegroundRunner() as lent:
        assert lent.run(["sh", "-c", f"kill -{number} $$"], tmp_path, is_typed_in=True) == -number
