"""Options that hide what a line does (tests/core/options.txt), and ordinary options that must not cost a question."""

from __future__ import annotations

from command_files import rows
from mudroom.core.command.program.classification import classify_line
from mudroom.core.command.verdict import CLASSES

CHECKPOINTED = ("destructive", "unknown", "host_escape_risk")
"""Classes with which a checkpoint is taken or a question is asked, unless a policy says otherwise."""


def test_no_option_hides_what_a_line_does() -> None:
    milder = []
    for (effect,), line in rows("options.txt"):
        strictest = classify_line(line).strictest
        if strictest == "read_only" or (effect != "writes" and strictest not in CHECKPOINTED):
            milder.append((strictest, line.decode()))
    assert not milder, "\n".join(f"{strictest}: {line}" for strictest, line in milder)


def test_each_effect_is_a_known_word() -> None:
    assert {effect for (effect,), _line in rows("options.txt")} == {"runs", "loses", "writes"}
    assert set(CHECKPOINTED) < set(CLASSES)
