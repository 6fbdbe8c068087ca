"""The words of a command line that switch an agent's own sandbox on: they are replaced or left out inside."""

from __future__ import annotations

import pytest

from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.core.profile import InnerSandbox, switched_off

CODEX = Catalog().profile("codex").sandbox
GEMINI = Catalog().profile("gemini").sandbox
OFF = ["-c", 'sandbox_mode="danger-full-access"']


@pytest.mark.parametrize(
    ("given", "words", "replaced"),
    [
        (["exec", "x"], ["exec", "x"], []),
        (["--sandbox", "workspace-write", "x"], ["--sandbox", "danger-full-access", "x"], ["workspace-write"]),
        (["exec", "--sandbox=read-only", "x"], ["exec", "--sandbox=danger-full-access", "x"], ["read-only"]),
        (["-s", "workspace-write"], ["-s", "danger-full-access"], ["workspace-write"]),
        (["-sworkspace-write"], ["-sdanger-full-access"], ["workspace-write"]),
        (["-s=workspace-write"], ["-s=danger-full-access"], ["workspace-write"]),
        (["-s", "danger-full-access"], ["-s", "danger-full-access"], []),
        (["exec", "--", "--sandbox", "x"], ["exec", "--", "--sandbox", "x"], []),
        (["--search", "-sandboxed-text"], ["--search", "-sdanger-full-access"], ["andboxed-text"]),
        (["--sandbox"], ["--sandbox"], []),
    ],
)  # fmt: skip
def test_codex(given: list[str], words: list[str], replaced: list[str]) -> None:
    now, switches = switched_off(given, CODEX)
    assert now == [*OFF, *words]
    assert len(switches) == 1 + len(replaced)
    assert switches[0] == " ".join(OFF)
    assert all(
        word in switch and "danger-full-access" in switch for word, switch in zip(replaced, switches[1:], strict=True)
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--sandbox", "-p", "x"], ["-p", "x"]),
        (["-s", "-p", "x"], ["-p", "x"]),
        (["--sandbox=docker", "-p", "x"], ["-p", "x"]),
        (["-p", "about --sandbox"], ["-p", "about --sandbox"]),
        (["-snapshot"], ["-snapshot"]),
    ],
)
def test_gemini(given: list[str], words: list[str]) -> None:
    now, switches = switched_off(given, GEMINI)
    assert now == words
    assert switches == ([] if now == given else [f"without {given[0]}"])


def test_an_agent_without_a_sandbox_keeps_its_words() -> None:
    assert switched_off(["--sandbox", "x"], InnerSandbox()) == (["--sandbox", "x"], [])
