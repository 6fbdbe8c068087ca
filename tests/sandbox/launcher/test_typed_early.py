"""Terminal signals for the process group that a sandbox's init has just left do not reach its command."""

from __future__ import annotations

import fcntl
import os
import signal
import termios

from mudroom.sandbox.launcher.init import GROUP_SIGNALS, discard_terminal_signals, fork_with_signals_blocked


def child() -> int:
    """Returns its exit code."""
    os.setsid()
    master, side = os.openpty()
    fcntl.ioctl(side, termios.TIOCSCTTY, 0)
    os.tcsetpgrp(side, os.getpgrp())
    for number, key in zip(GROUP_SIGNALS, (b"\x03", b"\x1c"), strict=True):
        os.write(master, key)
        while number not in signal.sigpending():
            pass  # the line discipline looks at it in its own time
    discard_terminal_signals()
    left = set(signal.sigpending())
    os.kill(os.getpid(), signal.SIGINT)
    discard_terminal_signals()
    told = set(signal.sigpending())
    return 0 if (left, told) == (set(), {signal.SIGINT}) else 1


def test_only_what_a_process_has_sent_stays() -> None:
    pid = fork_with_signals_blocked(os.fork)
    if pid == 0:
        code = 2
        try:
            code = child()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not set(GROUP_SIGNALS) & signal.pthread_sigmask(signal.SIG_BLOCK, ())
