"""System calls that a command's filter refuses: init is notified, answers with the same error and counts the refusal.

Launcher code: the rules in ``launcher.py`` hold here.

A filter rule that would answer with an error notifies init instead (SECCOMP_RET_USER_NOTIF, seccomp_unotify(2)). This
is done only for calls that are refused in any case, and the answer is an error whatever happens here: if init dies, or
no process listens, the kernel answers ENOSYS. Calls that are reported as missing (ENOSYS: ``clone3``,
``io_uring_setup``) cause no notification: every program tries them and has a fallback.
"""

from __future__ import annotations

import ctypes
import os
import select

from mudroom.sandbox.launcher.kernel import EINTR, EPERM, libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = tuple[int, int, tuple[tuple[int, bool, int, int], ...]]

# include/uapi/linux/seccomp.h: struct seccomp_notif is 80 bytes, struct seccomp_notif_resp 24.
NOTIF_RECV, NOTIF_SEND = 0xC0502100, 0xC0182101
MOST = 100
"""Different refusals that are counted. The limit keeps a run's report to one small write."""


class Refusals:
    """A command filter's listener, and the refusals counted so far. ``rows`` has the rules by system call number, in
    order: (rule number, error, conditions); a condition is (argument, whether it has to equal the value, value,
    mask)."""

    def __init__(self, listener: int, rows: dict[int, tuple[Row, ...]]) -> None:
        self.listener, self._rows = listener, rows
        self.counts: dict[int, int] = {}
        """How many calls each rule has refused."""

    def answer(self) -> None:
        """Answer one waiting call. Return without an answer if its caller was killed meanwhile."""
        request = ctypes.create_string_buffer(80)
        if libc.ioctl(self.listener, ctypes.c_ulong(NOTIF_RECV), request) < 0:
            return
        raw = request.raw
        number = int.from_bytes(raw[16:20], "little", signed=True)
        arguments = [int.from_bytes(raw[offset : offset + 4], "little") for offset in range(32, 80, 8)]
        rule, error = self._decide(number, arguments)
        if rule in self.counts or len(self.counts) < MOST:
            self.counts[rule] = self.counts.get(rule, 0) + 1
        reply = raw[:8] + bytes(8) + (-error).to_bytes(4, "little", signed=True) + bytes(4)
        while libc.ioctl(self.listener, ctypes.c_ulong(NOTIF_SEND), ctypes.c_char_p(reply)) < 0:
            if ctypes.get_errno() != EINTR:  # EINTR is a signal: a caller without an answer waits for ever
                break  # the caller was killed meanwhile

    def _decide(self, number: int, arguments: list[int]) -> tuple[int, int]:
        """Return the first rule that matches, as the filter found it, and its error."""
        for rule, error, conditions in self._rows.get(number, ()):
            if all((arguments[argument] & mask == value) == equal for argument, equal, value, mask in conditions):
                return rule, error
        return -1, EPERM

    def records(self) -> list[bytes]:
        return [b"call %d %d" % (rule, count) for rule, count in self.counts.items()]


def reap_and_answer(command: int, wake: int, refusals: Refusals | None) -> tuple[int, Any]:
    """Wait for the command, and meanwhile reap every orphan and answer every refused call. ``wake`` is readable when a
    signal has arrived, including SIGCHLD. Return the command's wait status and its resource use."""
    waited = [wake] if refusals is None else [wake, refusals.listener]
    while True:
        while True:  # before the first wait: the command may have ended before the SIGCHLD handler was installed
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == command:
                return status, usage
            if not pid:
                break
        # Not poll(2), which fails if RLIMIT_NOFILE is below the number of descriptors: a command may set init's limits
        # (prlimit(2)). The listener reaches no end of file while init itself is under the filter.
        for descriptor in select.select(waited, (), ())[0]:
            if refusals is not None and descriptor == refusals.listener:
                refusals.answer()
            else:
                os.read(wake, 4096)
