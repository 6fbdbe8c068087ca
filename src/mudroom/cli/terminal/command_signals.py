"""Signals to mudroom while it runs a command: whatever ends mudroom short of SIGKILL, the command ends first, and its
changes are collected and journalled.

    signal             sent to the command      mudroom then
    SIGINT, SIGQUIT    SIGTERM, SIGQUIT         ends with 128 + N if the command ends by a signal, too; else goes on
    SIGTERM, SIGHUP    SIGTERM                  ends with 128 + N
    the second one     SIGKILL                  as for the first
    none in ``GRACE``  SIGKILL

Where the command has a terminal or a pipe of mudroom's in its place, SIGINT and SIGQUIT are keys, and go to the command
alone (``sandbox/client/terminal.py``). A signal that mudroom was started to ignore (nohup, a shell's ``&``) stays
ignored. Before there is a command, a signal ends mudroom; SIGINT does not while a
question is open, which handles it. The launcher is in a session of its own: signals to mudroom's process group do not
reach it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.cli.terminal.signals import wake_for_signals
from mudroom.cli.terminal.terminal import is_terminal, replace_by_null
from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal

    from mudroom.core.result import Result
    from mudroom.session import Session
else:
    import _signal as signal  # signal itself makes enumerations of the numbers

GRACE = 5
"""Seconds between the first signal and SIGKILL for the command."""
_SIGHUP, _SIGKILL = 1, 9
_TOLD: dict[int, int]
"""Signal to mudroom → first signal to the command."""
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
"""Sent by Ctrl-C and Ctrl-\\; on Windows by Ctrl-C and Ctrl-Break."""


class Terminated(MudroomError):
    """mudroom was told to end by a signal. The exit code is 128 plus its number, as in a shell."""

    def __init__(self, number: int, hint: str = "") -> None:
        from signal import Signals

        super().__init__(f"told to end by {Signals(number).name}", hint)
        self.number = number
        self.exit_code = 128 + number


class CommandSignals:
    """The signals received. Written by handlers, in the main thread."""

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
        """Return the signal that ended mudroom, or None. A command that ended by itself after SIGINT or SIGQUIT has
        handled the signal, and mudroom goes on."""
        ending = (number for number in self.received if result.signal or number not in TYPED)
        return next(ending, None)

    def exit_code(self, result: Result) -> int:
        """Return the exit code of mudroom after a command."""
        number = self.ended_by(result)
        if number is not None:
            return 128 + number
        return result.exit_code


def _alarm(seconds: int) -> None:
    """Have ``CommandSignals.kill`` called after this time; 0: not any more. On Windows a job ends at the first signal,
    and the only one that can be handled, Ctrl-C in a console of its own, may be typed again."""
    if sys.platform != "win32":
        signal.alarm(seconds)


@contextmanager
def command_signals(session: Session) -> Iterator[CommandSignals]:
    """Handle signals as above for the block. After SIGHUP the terminal's descriptors lead to /dev/null."""
    signals = CommandSignals(session)
    terminals = [number for number in (0, 1, 2) if is_terminal(number)]
    heeded = [number for number in _TOLD if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, signals.handle) for number in heeded}
    if sys.platform != "win32":
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, signals.kill)
    try:
        with wake_for_signals():
            yield signals
    finally:
        _alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)
        if _SIGHUP in signals.received:
            replace_by_null(terminals)
