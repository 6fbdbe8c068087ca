"""What the filter of a command refuses, told to init, which answers with the same error and remembers it.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here.

A rule of the filter that would answer with an error asks init instead (SECCOMP_RET_USER_NOTIF, seccomp_unotify(2)).
Only what is refused anyway is asked about, and the answer is an error whatever happens here: if init dies, or nobody
listens, the kernel answers ENOSYS. Calls that are said not to exist (ENOSYS: ``clone3``, ``io_uring_setup``) are not
asked about: every program tries them, and does without.
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
"""Different refusals that are remembered: the report of a run is one small write."""


class Refusals:
    """``rows``: by system call number, the rules in order: (number of the rule, error, its conditions as (argument,
    whether it has to be the value, value, mask))."""

    def __init__(self, listener: int, rows: dict[int, tuple[Row, ...]]) -> None:
        self.listener, self._rows = listener, rows
        self.counts: dict[int, int] = {}
        """How often each rule has refused something."""

    def answer(self) -> None:
        """One call that waits. Nothing if its caller was killed meanwhile."""
        request = ctypes.create_string_buffer(80)
        if libc.ioctl(self.listener, ctypes.c_ulong(NOTIF_RECV), request) < 0:
            return
        raw = request.raw
        number = int.from_bytes(raw[16:20], "little", signed=True)
        arguments = [int.from_bytes(raw[at : at + 4], "little") for at in range(32, 80, 8)]
        rule, error = self._decide(number, arguments)
        if rule in self.counts or len(self.counts) < MOST:
            self.counts[rule] = self.counts.get(rule, 0) + 1
        reply = raw[:8] + bytes(8) + (-error).to_bytes(4, "little", signed=True) + bytes(4)
        while libc.ioctl(self.listener, ctypes.c_ulong(NOTIF_SEND), ctypes.c_char_p(reply)) < 0:
            if ctypes.get_errno() != EINTR:  # a signal: who is not answered waits for ever
                break  # the caller was killed meanwhile

    def _decide(self, number: int, arguments: list[int]) -> tuple[int, int]:
        """The first rule that applies, as the filter has found it, and its error."""
        for rule, error, conditions in self._rows.get(number, ()):
            if all((arguments[at] & mask == value) == equal for at, equal, value, mask in conditions):
                return rule, error
        return -1, EPERM

    def told(self) -> list[bytes]:
        return [b"call %d %d" % (rule, count) for rule, count in self.counts.items()]


def reap_and_answer(command: int, wake: int, refusals: Refusals | None) -> tuple[int, Any]:
    """Wait for the command, reaping every orphan and answering every refused call meanwhile. ``wake`` is readable when
    a signal has come, that of a child's end among them. Returns the command's wait status and its resource use."""
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    if refusals is not None:
        poller.register(refusals.listener, select.POLLIN)
    while True:
        while True:  # first: it may have ended before anybody was told of children
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == command:
                return status, usage
            if not pid:
                break
        for descriptor, events in poller.poll():
            if descriptor == wake:
                os.read(wake, 4096)
            elif refusals is not None and events & select.POLLIN:
                refusals.answer()
            else:
                poller.unregister(descriptor)
