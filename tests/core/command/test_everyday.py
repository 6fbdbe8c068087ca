"""Everyday lines: how often an agent is asked about, and gets a checkpoint, without need (tests/core/everyday.txt)."""

from __future__ import annotations

from collections import Counter

from everyday import EverydayLine, Wanted, corpus
from mudroom.core.command.policy import CommandPolicy, decide
from mudroom.core.command.program.aim import at_level
from mudroom.core.command.program.classification import classify_line
from mudroom.core.command.protection import NO_PROTECTIONS, Protections
from mudroom.core.command.verdict import Action

ORDER: tuple[Wanted, ...] = ("allow", "checkpoint", "ask")
OF_ACTION: dict[Action, Wanted] = {
    "allow": "allow",
    "allow_with_checkpoint": "checkpoint",
    "require_approval": "ask",
    "deny": "ask",
}
HOME = b"/home/dev"
PROJECT = HOME + b"/shop"
LEVEL_1 = Protections(
    project=PROJECT,
    home=HOME,
    private=(HOME, b"/tmp", b"/run", b"/var/tmp", b"/dev/shm"),
    shown=(PROJECT, HOME + b"/.cache", HOME + b"/.npm", HOME + b"/.local/bin", HOME + b"/.gitconfig"),
    own_processes=True,
    no_sockets=True,
    own_loopback=True,
    no_accounts=True,
    no_hosts=True,
)
"""As ``session/confinement/protections.py`` finds them for a user whose home has a few toolchains."""
LEAST_SHAPES, LEAST_LINES = 1175, 5000
MOST_ASKED, MOST_NEEDLESSLY_ASKED, MOST_NEEDLESS_CHECKPOINTS = 208, 36, 297
"""Lines of the corpus. These may only fall."""
ASKED_WITHOUT_A_SANDBOX = 500
"""At least."""


def actions(rows: list[EverydayLine], protections: Protections) -> list[Wanted]:
    found = []
    for row in rows:
        classified = classify_line(row.line.replace("␤", "\n").encode(), PROJECT, PROJECT)
        found.append(OF_ACTION[decide(at_level(classified, protections)[0], CommandPolicy()).action])
    return found


def test_everyday_lines_are_seldom_asked_about() -> None:
    rows = corpus()
    assert len({row.line for row in rows}) == len(rows) >= LEAST_LINES
    assert len({row.shape for row in rows}) >= LEAST_SHAPES
    found = actions(rows, LEVEL_1)
    too_mild = [row for row, action in zip(rows, found, strict=True) if ORDER.index(action) < ORDER.index(row.wanted)]
    assert too_mild == []
    asked = [row for row, action in zip(rows, found, strict=True) if action == "ask"]
    needless = [row for row in asked if row.wanted != "ask"]
    checkpoints = [
        row for row, action in zip(rows, found, strict=True) if (action, row.wanted) == ("checkpoint", "allow")
    ]
    figures = f"{len(asked)} of {len(rows)} asked ({len(asked) / len(rows):.1%}), {len(needless)} without need, " + (
        f"{len(checkpoints)} checkpoints without need; the shapes: {Counter(row.shape for row in needless)}"
    )
    assert len(asked) <= MOST_ASKED, figures
    assert len(needless) <= MOST_NEEDLESSLY_ASKED, figures
    assert len(checkpoints) <= MOST_NEEDLESS_CHECKPOINTS, figures


def test_without_a_sandbox_nothing_is_milder() -> None:
    """The protections are the only reason: without them the same lines get the classes of their words."""
    assert actions(corpus(), NO_PROTECTIONS).count("ask") >= ASKED_WITHOUT_A_SANDBOX
