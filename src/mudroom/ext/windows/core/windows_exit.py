"""The end of a process on Windows as a status of wait(2), which results, journals and exit codes are made of. Pure.

Windows knows no signals: a process ends with a number of 32 bits, its own or one of ``NTSTATUS`` (ntstatus.h) if it was
ended by the system or by Ctrl-C.
"""

from __future__ import annotations

_SIGNALS = {
    0xC0000005: 11,  # STATUS_ACCESS_VIOLATION
    0xC00000FD: 11,  # STATUS_STACK_OVERFLOW
    0xC000001D: 4,  # STATUS_ILLEGAL_INSTRUCTION
    0xC0000094: 8,  # STATUS_INTEGER_DIVIDE_BY_ZERO
    0xC0000374: 6,  # STATUS_HEAP_CORRUPTION
    0xC0000409: 6,  # STATUS_STACK_BUFFER_OVERRUN: abort() ends so, too
    0xC000013A: 2,  # STATUS_CONTROL_C_EXIT
}
"""The signal that ends a process for the same reason on Linux."""


def status_of(code: int, sent: int = 0) -> int:
    """Return the status of wait(2) for an exit code. ``sent``: the last signal with which mudroom ended the processes,
    by the exit code 128 + ``sent``. An exit code above 255 is never taken for success: its last byte, or 1."""
    if sent and code == 128 + sent:
        return sent
    if code in _SIGNALS:
        return _SIGNALS[code]
    return (code & 0xFF or (1 if code else 0)) << 8
