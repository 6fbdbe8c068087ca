"""Output of terminals: what is kept of it, and for how long."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mudroom.ext.agents.acp import terminal
from mudroom.ext.agents.acp.question import Questions
from mudroom.ext.agents.acp.terminal import ForkTerminal, ForkTerminals, RetainedOutput, TerminalEnd


def test_the_last_bytes_begin_with_a_whole_character() -> None:
    output = RetainedOutput(10)
    output.write("aäö€".encode())
    assert (output.text, output.truncated, len(output)) == ("aäö€", False, 8)
    assert [output.last(most) for most in range(9)] == [
        "", "", "", "€", "€", "ö€", "ö€", "äö€", "aäö€",
    ]  # fmt: skip
    output.write(b"0123456789")
    assert (output.text, output.last(3), output.truncated) == ("0123456789", "789", True)


def test_terminals_that_have_ended_hold_so_many_bytes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "MOST_ENDED_BYTES", 1000)
    terminals = ForkTerminals(cast("Any", None), "f", cast("Questions", None), lambda _changed: None)

    def ran(number: int, size: int) -> None:
        made = ForkTerminal(f"t{number}", (b"true",), "true", 10_000)
        made.write(b"x" * size)
        made.finish(TerminalEnd(0, None))
        terminals._terminals[made.id] = made
        terminals._release_old()

    def kept() -> list[str]:
        return list(terminals._terminals)

    for number in range(3):
        ran(number, 400)
    assert kept() == ["t1", "t2"]
    ran(3, 0)
    assert kept() == ["t1", "t2", "t3"]
    ran(4, 2000)
    assert kept() == []
    for number in range(5, 80):
        ran(number, 0)
    assert len(kept()) == terminal.MOST_ENDED
    assert terminals.text("t1") is not None, "a tool call goes on showing it"
