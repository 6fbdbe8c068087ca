"""Ends of processes on Windows as statuses of wait(2)."""

from __future__ import annotations

from mudroom.core.result import exit_code_of
from mudroom.ext.windows.sandbox.client import status_of


def test_exit_codes_keep_their_last_byte_and_no_failure_becomes_a_success() -> None:
    rows = [(0, 0), (7, 7), (255, 255), (256, 1), (0x1234, 0x34), (0xFFFFFFFF, 255), (0x80070000, 1), (137, 137)]
    for code, shown in rows:
        assert exit_code_of(status_of(code)) == shown, code


def test_ends_by_the_system_are_signals() -> None:
    for code, signal in ((0xC0000005, 11), (0xC000013A, 2), (0xC0000409, 6)):
        assert status_of(code) == signal
        assert exit_code_of(status_of(code)) == 128 + signal


def test_a_signal_of_mudroom_is_told_only_if_it_was_sent() -> None:
    assert status_of(137, 9) == 9
    assert status_of(137) == 137 << 8
    assert status_of(143, 9) == 143 << 8
