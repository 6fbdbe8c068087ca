"""Messages of the verbs of agents on a machine or a terminal where they cannot do their work."""

from __future__ import annotations

import pytest

from conftest import Place
from mudroom.ext.agents.cli import hook_shell
from test_messages_of_machines import Told, terminal_lines, told

__all__ = ["told"]  # a fixture


def test_a_protocol_is_not_for_a_person(place: Place) -> None:
    assert terminal_lines(place, "mcp") == (
        "mudroom: mudroom mcp speaks a protocol on its standard input, and that is a terminal "
        "(claude mcp add mudroom -- mudroom mcp lets a client start it)\n"
    )


def test_inside_a_sandbox(told: Told) -> None:
    assert told("mcp", MUDROOM="1") == (
        "mudroom: mudroom mcp runs inside mudroom, where its forks would be lost with the sandbox "
        "(the client's own commands and edits are staged already: leave the server out)\n"
    )


def test_a_machine_without_a_shell(told: Told, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an image without one."""
    monkeypatch.setattr(hook_shell, "_DIRECTORIES", ("/nowhere/bin", "/nowhere/sbin"))
    assert told(f"hook shell {place.root}/shims") == (
        "mudroom: no shell is installed in /nowhere/bin, /nowhere/sbin (install bash, or dash)\n"
    )
