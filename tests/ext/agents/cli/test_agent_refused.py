"""What is said of an agent after it was refused something: its own sandbox, and its telemetry."""

from __future__ import annotations

import os
import sys

import pytest

from conftest import Place
from mudroom.cli.command.refusals import refusal_lines
from mudroom.core.result import Denial
from mudroom.ext.agents.catalog import Catalog
from test_asking import ASK, NOBODY
from test_refused import said_of_nested
from test_vault_verb import Cli
from tiers import each


@each(
    ("name", "level", "clause"),
    [
        ("codex", 1, """; this switches it off: codex -c 'sandbox_mode="danger-full-access"'"""),
        ("codex", 0, "; at level 1 mudroom confines it: --level 1"),
        ("gemini", 1, "; mudroom agent run -- gemini switches it off (GEMINI_SANDBOX=false)"),
        ("claude", 1, "claude: Its sandbox for shell commands (/sandbox) cannot run inside mudroom's."),
        ("aider", 1, ""),
    ],
)
def test_an_agents_own_sandbox_has_a_switch(name: str, level: int, clause: str) -> None:
    inner = Catalog(b"/nowhere").inner_sandbox(name, level)
    assert clause in inner and bool(inner) == bool(clause)
    refused = [Denial("system call", b"clone", "why", 2), Denial("system call", b"unshare", "why")]
    (line,) = refusal_lines(refused, inner)
    assert line.startswith("refused, 3 times: new namespaces (clone and unshare): ")
    assert line.endswith(inner or "cannot run inside mudroom's; switch it off there")


@pytest.mark.both_users
def test_telemetry_is_counted_after_an_agent(place: Place) -> None:
    cli = Cli(place)
    programs = place.home / "bin"
    programs.mkdir()
    (programs / "claude").write_text(f"#!{sys.executable}\n{ASK}")
    (programs / "claude").chmod(0o755)
    cli.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    host = "statsig.anthropic.com:443"
    said = cli("agent", "run", "--", "claude", host, host, "x1.sentry.io:443", f"{NOBODY}:443").stderr
    assert "note: profile claude: 3 requests to 2 hosts of telemetry or updates denied\n" in said
    assert f"refused: {NOBODY}:443: " in said and f"(mudroom net allow {NOBODY})" in said
    assert [line.count("statsig") for line in said.splitlines() if line.startswith("note: refused")] == [0]


@pytest.mark.both_users
@pytest.mark.parametrize("verb", [("run",), ("exec", "--fork", "a"), ("agent", "run")], ids=lambda verb: verb[0])
def test_an_inner_sandbox_that_fails_is_told(place: Place, verb: tuple[str, ...]) -> None:
    told = "codex's own sandbox cannot run inside mudroom's; this switches it off: codex -c"
    assert told in said_of_nested(place, "codex", verb)
