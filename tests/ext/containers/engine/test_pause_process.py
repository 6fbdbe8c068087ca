"""A look at rootless Podman leaves no process of it behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom.ext.containers.cli.engine import left_as_found

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rootless Podman is for Linux")


def orphan(program: Path, kept: Path) -> int:
    """Start the program as an orphan, as Podman does, and return its pid."""
    running = f'while [ "$(cat /proc/$!/comm)" != "{program.name}" ]; do :; done'  # until execve(2) has named it
    script = f'"{program}" 1000 >/dev/null 2>&1 & echo $! > "{kept}"; {running}'
    subprocess.run(["sh", "-c", script], check=True)
    return int(kept.read_text())


@pytest.fixture
def pause(tmp_path: Path) -> Path:
    return Path(shutil.copy(shutil.which("sleep") or "", tmp_path / "podman pause"))


def test_a_pause_process_that_a_look_has_started_is_ended(tmp_path: Path, pause: Path) -> None:
    other = Path(shutil.copy(pause, tmp_path / "another"))
    before = orphan(pause, tmp_path / "before")
    try:
        with left_as_found():
            started, unnamed = orphan(pause, tmp_path / "started"), orphan(other, tmp_path / "unnamed")
        with pytest.raises(ProcessLookupError):
            os.kill(started, 0)
        os.kill(before, 0)  # the user's own stays
        os.kill(unnamed, signal.SIGKILL)  # and so does every other process
        os.waitpid(unnamed, 0)
    finally:
        os.kill(before, signal.SIGKILL)


def test_a_look_that_fails_leaves_nothing_either(tmp_path: Path, pause: Path) -> None:
    started = 0
    with pytest.raises(ValueError, match="hangs"), left_as_found():
        started = orphan(pause, tmp_path / "started")
        raise ValueError("hangs")
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)
