"""The fleet's messages on a terminal, or in a place where it cannot do its work."""

from __future__ import annotations

import pytest

from conftest import Place
from mudroom.errors import MudroomError
from mudroom.ext.fleet.cli.fleet_run import write_raw
from test_messages_of_machines import Told, terminal_lines, told
from whole_text import whole

__all__ = ["told"]  # a fixture


def test_a_protocol_is_not_for_a_person(place: Place) -> None:
    assert terminal_lines(place, "worker --stdio") == (
        "mudroom: mudroom worker speaks a protocol on its standard input, and that is a terminal "
        "(an origin starts it: mudroom fleet add NAME -- ssh HOST mudroom worker --stdio)\n"
    )


def test_inside_a_sandbox(told: Told) -> None:
    assert told("worker --stdio", MUDROOM="1") == (
        "mudroom: mudroom worker runs inside mudroom, where its forks would be lost with the sandbox "
        "(start it outside of any sandbox)\n"
    )


def test_an_output_that_is_full() -> None:
    with open("/dev/full", "wb", buffering=0) as stream:
        told = "the output cannot be written: No space left on device"
        with pytest.raises(MudroomError, match=whole(told)):
            write_raw(stream.fileno(), b"output of an errand\n")
