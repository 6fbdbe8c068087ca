"""The line of progress: shown for work that takes a while, by a thread that ends with the work."""

from __future__ import annotations

import contextlib
import os
import pty
import queue
import select
from collections.abc import Iterator
from typing import Any

import pytest

from mudroom.cli.terminal import terminal
from mudroom.cli.terminal.terminal import Terminal

PATIENCE = 20.0


@contextlib.contextmanager
def stderr_is_a_terminal() -> Iterator[int]:
    """Yield the other side of a terminal. Not a fixture: each phase of a test has a stderr of its own."""
    master, side = pty.openpty()
    kept = os.dup(2)
    os.dup2(side, 2)
    try:
        yield master
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, side, master):
            os.close(descriptor)


def read(master: int) -> bytes:
    assert select.select([master], [], [], PATIENCE)[0]
    return os.read(master, 1 << 10)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[None]:
    """Each thread that has ended puts an item."""
    ended, show_late = queue.SimpleQueue[None](), Terminal._show_late

    def shown(*arguments: Any) -> None:
        show_late(*arguments)
        ended.put(None)

    monkeypatch.setattr(Terminal, "_show_late", shown)
    return ended


def test_the_thread_that_shows_it_late_ends_with_the_work(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], ended: queue.SimpleQueue[None]
) -> None:
    monkeypatch.setattr(terminal, "_PROGRESS_AFTER", 600.0)
    with capfd.disabled(), stderr_is_a_terminal():
        tty = Terminal({b"TERM": b"xterm"})
        for _number in range(20):
            tty.progress("packing", 0, 0)
            tty.progress("packing", 1, 0)
            tty.clear()
            ended.get(timeout=PATIENCE)
    assert ended.empty()


def test_work_that_tells_nothing_more_is_shown_in_a_while(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], ended: queue.SimpleQueue[None]
) -> None:
    monkeypatch.setattr(terminal, "_PROGRESS_AFTER", 0.01)
    with capfd.disabled(), stderr_is_a_terminal() as master:
        tty = Terminal({b"TERM": b"xterm"})
        tty.progress("packing", 0, 0)
        assert b"packing" in read(master)
        ended.get(timeout=PATIENCE)
        tty.clear()
        assert read(master) == b"\r\x1b[K"
