"""The door of a standing template (``sandbox/launcher/template.py``)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mudroom.sandbox.launcher import launcher
from mudroom.sandbox.launcher.template import Spare


def test_no_request_is_taken_after_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may take a while to go. Its session has the fork's lock by then, and must not send it a command."""
    monkeypatch.setattr(launcher, "end_children", lambda _spared: None)  # those of this process
    ours, theirs = socket.socketpair()
    asking, spare = socket.socket(socket.AF_UNIX), Spare((), (), 0)
    spare.failed, spare.door = True, socket.socket(socket.AF_UNIX)
    with ours, theirs, asking, spare.door:
        spare.door.bind(str(tmp_path / "door"))
        spare.door.listen()
        asking.connect(str(tmp_path / "door"))
        launcher.Loop(theirs, spare).run()
        ours.setblocking(False)
        assert asking.recv(1) == b"g"
        assert ours.recv(1) == b""
