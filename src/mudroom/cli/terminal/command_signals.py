"""Signals to mudroom while it runs a command. If a signal other than SIGKILL ends mudroom, the command ends first, and
its changes are collected and journalled.

    signal             sent to the command      mudroom then
    SIGINT, SIGQUIT    SIGTERM, SIGQUIT         ends with 128 + N if a signal ends the command, too; else goes on
    SIGTERM, SIGHUP    SIGTERM                  ends with 128 + N
    a second signal    SIGKILL                  as for the first
    after ``GRACE``    SIGKILL

If the command has a terminal, or mudroom's pipe instead, SIGINT and SIGQUIT are keys and go only to the command
(``sandbox/client/terminal.py``). A signal that mudroom ignored from its start (nohup, a shell's ``&``) stays ignored.
Before there is a command, a signal ends mudroom; only SIGINT is left to an open question. The launcher is in its own
session, so signals to mudroom's process group do not reach it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.cli.terminal.signals import Handler, handling, wake_for_signals
from mudroom.cli.terminal.terminal import is_terminal, replace_by_null
from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal

    from mudroom.core.result import Result
    from mudroom.session import Session
else:
    import _signal as signal  # importing signal builds enumerations

GRACE = 5
"""Seconds between the first signal and SIGKILL for the command."""
_SIGHUP, _SIGKILL = 1, 9
_TOLD: dict[int, int]
"""Signal to mudroom, and the first signal to the command."""
if sys.platform == "win32":
    _TOLD = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGBREAK), signal.SIGTERM)
    TYPED: tuple[int, ...] = (signal.SIGINT, signal.SIGBREAK)
else:
    _TOLD = {
        signal.SIGINT: signal.SIGTERM,
        signal.SIGQUIT: signal.SIGQUIT,
        signal.SIGTERM: signal.SIGTERM,
        signal.SIGHUP: signal.SIGTERM,
    }
    TYPED = (signal.SIGINT, signal.SIGQUIT)
"""Signals from Ctrl-C and Ctrl-\\; on Windows from Ctrl-C and Ctrl-Break."""


class Terminated(MudroomError):
    """A signal told mudroom to end. The exit code is 128 plus the signal's number, as in a shell."""

    def __init__(self, number: int, hint: str = "") -> None:
        from signal import Signals

        super().__init__(f"told to end by {Signals(number).name}", hint)
        self.number = number
        self.exit_code = 128 + number


class CommandSignals:
    """The received signals. Handlers add to them in the main thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.received: list[int] = []

    def handle(self, number: int, _frame: object) -> None:
        session = self._session
        self.received.append(number)
        told = _SIGKILL if len(self.received) > 1 else _TOLD[number]
        if self._send(told):
            _alarm(GRACE)
        elif not session.sandboxes.has_run:
            if number != signal.SIGINT:
                raise Terminated(number)
            if not session.approval.is_asking:
                raise KeyboardInterrupt

    def kill(self, _number: int, _frame: object) -> None:
        self._send(_SIGKILL)

    def _send(self, number: int) -> bool:
        try:
            return self._session.interrupt(number)
        except MudroomError:
            return True  # the launcher is gone, which ends the wait for the command

    def ended_by(self, result: Result) -> int | None:
        """Return the signal that ends mudroom, or None. If the command exited by itself after SIGINT or SIGQUIT, it has
        handled the signal, and mudroom goes on."""
        ending = (number for number in self.received if result.signal or number not in TYPED)
        return next(ending, None)

    def exit_code(self, result: Result) -> int:
        number = self.ended_by(result)
        if number is not None:
            return 128 + number
        return result.exit_code


def _alarm(seconds: int) -> None:
    """Schedule ``CommandSignals.kill``; 0 cancels it. Not needed on Windows: a job ends at the first signal, and the
    only signal that it can handle, Ctrl-C in its own console, may be typed again."""
    if sys.platform != "win32":
        signal.alarm(seconds)


@contextmanager
def command_signals(session: Session) -> Iterator[CommandSignals]:
    """Handle signals by the table above within the block. After SIGHUP the terminal's descriptors lead to /dev/null."""
    signals = CommandSignals(session)
    terminals = [number for number in (0, 1, 2) if is_terminal(number)]
    handlers: dict[int, Handler] = dict.fromkeys(_TOLD, signals.handle)
    if sys.platform != "win32":
        handlers[signal.SIGALRM] = signals.kill
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # also where it was ignored
    try:
        with handling(handlers):
            try:
                with wake_for_signals():
                    yield signals
            finally:
                _alarm(0)  # while it is still handled: by default SIGALRM ends the process
    finally:
        if _SIGHUP in signals.received:
            replace_by_null(terminals)
