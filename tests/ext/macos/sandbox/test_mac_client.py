"""Requests that a Mac cannot fulfil, refused before any process is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from macbox import SPEC, fake_sandbox_exec

from mudroom.errors import Unsupported
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.seatbelt import compile_seatbelt
from mudroom.sandbox.client.invocation import Invocation, RunOptions

BACKGROUND = (
    "a command in the background needs namespaces that others can join; found: a Mac, where no sandbox lives longer "
    "than its command (run it without --background)"
)
OWN = "a sandbox with a network or control groups of its own needs namespaces; found: macOS"


@pytest.mark.parametrize(
    ("wish", "told"), [(RunOptions(held=True), BACKGROUND), (RunOptions(gate=True), OWN), (RunOptions(after=5), OWN)]
)
def test_what_needs_namespaces(tmp_path: Path, wish: RunOptions, told: str) -> None:
    client = DarwinClient(tool=fake_sandbox_exec(tmp_path))
    with pytest.raises(Unsupported) as raised:
        client.run(compile_seatbelt(SPEC), Invocation([b"true"], {}, (0, 1, 2)), wish)
    assert str(raised.value) == told
    assert not client._open
    client.close()


def test_there_are_no_control_groups() -> None:
    with pytest.raises(Unsupported) as raised:
        DarwinClient().prepare_move()
    assert str(raised.value) == (
        "a control group needs Linux; found: macOS (open_files and file_size hold without one)"
    )
