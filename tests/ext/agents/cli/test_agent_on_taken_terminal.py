"""A host that an agent's profile denies is asked about on no terminal."""

from __future__ import annotations

import os
import sys

from screen import Screen
from test_approve_verb import Approving
from test_taken_terminal import BELL, FULL_SCREEN, PUSH, cli

__all__ = ["cli"]  # a fixture


def test_an_agents_denied_host_never_asks(cli: Approving) -> None:
    """By its profile: telemetry."""
    place = cli.place
    programs = place.home / "bin"
    programs.mkdir()
    (programs / "claude").write_text(f"#!{sys.executable}\n{FULL_SCREEN}")
    (programs / "claude").chmod(0o755)
    words = [sys.executable, "-m", "mudroom", "agent", "run", "--", "claude", "statsig.anthropic.com:443"]
    path = f"{programs}:{os.environ['PATH']}"
    screen = Screen(place, "env", f"PATH={path}", *words, columns=300)
    seen = screen.expect("told HTTP/1.1 403.*changed nothing").string.decode()
    assert "Allow" not in seen and PUSH not in seen and BELL not in seen
    assert screen.exit_code() == 0
    assert cli.queue.rows() == []
