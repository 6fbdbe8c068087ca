"""What the page of ``serve`` cannot start, and says so."""

from __future__ import annotations

import sys

import pytest

from conftest import Place
from mudroom.cli.host import page_server
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.errors import MudroomError


def test_a_command_of_the_page_on_windows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context({}, Terminal({}), False, None)
    with monkeypatch.context() as patch, pytest.raises(MudroomError) as raised:
        patch.setattr(sys, "platform", "win32")
        page_server._start(context, bytes(place.project), "f", [b"make"], None)
    assert str(raised.value) == "no command runs in the background on Windows (mudroom exec --fork f -- COMMAND)"
    assert not place.state.exists()
