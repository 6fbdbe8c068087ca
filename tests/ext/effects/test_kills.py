"""Applies that are killed while they send held effects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.both_users, pytest.mark.limit(900)]


def test_kills_inside_a_send_double_nothing_and_lose_nothing() -> None:
    program = Path(__file__).with_name("kills.py")
    done = subprocess.run([sys.executable, program, "27"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 18
