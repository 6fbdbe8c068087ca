"""Output of a command on its way to the user's terminal, and the display after it."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from mudroom.sandbox.client import terminal as terminal_module
from mudroom.sandbox.client.terminal import RESTORED, TerminalFlow


@pytest.fixture
def ends() -> tuple[int, int, int, int]:
    return (*os.pipe(), *os.pipe())


def flow_of(ends: tuple[int, int, int, int], output: bytes) -> TerminalFlow:
    flow = TerminalFlow(ends[0], ends[3], is_input=False)
    os.write(ends[1], output)
    flow.take()
    return flow


@pytest.mark.parametrize("output", [b"\x1b]0;", b"\x0e", "\x9b8m".encode(), b"\x9b8m"])
def test_a_question_is_displayed_as_it_is_written(ends: tuple[int, int, int, int], output: bytes) -> None:
    flow = flow_of(ends, output)
    flow.give()
    flow.restore()
    flow.restore()
    assert os.read(ends[2], 4096) == output + RESTORED


def test_output_that_waits_during_a_question_is_restored_after(ends: tuple[int, int, int, int]) -> None:
    flow = flow_of(ends, b"\x1b[8m")
    flow.restore()
    os.close(ends[1])
    flow.take()
    flow.give()
    assert os.read(ends[2], 4096) == RESTORED + b"\x1b[8m" + RESTORED
    assert flow.done


def test_plain_output_is_not_followed_by_anything(ends: tuple[int, int, int, int]) -> None:
    flow = flow_of(ends, b"plain\r\n\ttext\a")
    flow.restore()
    os.close(ends[1])
    flow.take()
    flow.give()
    assert os.read(ends[2], 4096) == b"plain\r\n\ttext\a"


def test_a_terminal_that_shows_escape_sequences_gets_none(ends: tuple[int, int, int, int]) -> None:
    flow = TerminalFlow(ends[0], ends[3], is_input=False, acts=False)
    output = "caf\u00c9 \x1b[1m".encode()
    os.write(ends[1], output)
    flow.take()
    flow.restore()
    os.close(ends[1])
    flow.take()
    flow.give()
    assert os.read(ends[2], 4096) == output


def test_a_question_waits_for_a_terminal_that_is_full(
    ends: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.set_blocking(ends[3], False)
    flow = flow_of(ends, b"\x1b[8m")
    filled = 0
    try:
        while True:
            filled += os.write(ends[3], b"x" * 4096)
    except BlockingIOError:
        pass
    shown: list[bytes] = []

    def drain(wanted: Mapping[int, int], _deadline: float) -> Mapping[int, int]:
        shown.append(os.read(ends[2], filled))
        return wanted

    monkeypatch.setattr(terminal_module, "wait_ready", drain, raising=False)
    flow.restore()
    os.close(ends[3])
    shown.append(os.read(ends[2], 4096))
    assert b"".join(shown) == b"x" * filled + RESTORED
