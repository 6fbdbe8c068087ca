"""Signals to whoever keeps a background command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from mudroom.cli.command import background

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_two_signals_at_once_are_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes to all of the terminal, and the end of who has started us comes with it: nothing is said of that."""
    complaints: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: complaints.append(what.exc_value))
    for number in BOTH:
        signal.signal(number, background._interrupt)
    signal.pthread_sigmask(signal.SIG_BLOCK, BOTH)
    for number in BOTH:
        signal.pthread_kill(threading.get_ident(), number)  # to this thread: another one does not block it
    with pytest.raises(KeyboardInterrupt):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BOTH)
    for number in BOTH:
        signal.raise_signal(number)
    assert complaints == []
