"""Lines of tests/core/*.txt: what each is, options and evasions that hide it, and everyday lines without a question."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from command_files import COMMANDS, EVASIONS, rows
from everyday import EverydayLine, Wanted, corpus
from mudroom.core.command.policy import CommandPolicy, decide
from mudroom.core.command.program.aim import at_level
from mudroom.core.command.program.classification import TABLES, classify_line, classify_words
from mudroom.core.command.protection import NO_PROTECTIONS, Protections
from mudroom.core.command.verdict import CLASSES, Action
from tiers import each

ROOT = Path(__file__).parents[3]


@each(("expected", "line"), COMMANDS)
def test_a_command_is_what_the_table_says(expected: tuple[str, ...], line: bytes) -> None:
    found = classify_line(line)
    assert (tuple(name for name in found.classes if name != "read_only") or ("read_only",)) == expected, found.parts


@each(("expected", "line"), COMMANDS)
def test_it_is_the_same_inside_a_shell(expected: tuple[str, ...], line: bytes) -> None:
    found = classify_words([b"bash", b"-c", line])
    assert (tuple(name for name in found.classes if name != "read_only") or ("read_only",)) == expected


@each(("hidden", "line"), EVASIONS)
def test_what_hides_a_command_is_as_strict_or_unknown(hidden: tuple[str, ...], line: bytes) -> None:
    strictest = classify_line(line).strictest
    assert strictest != "read_only"
    assert strictest == "unknown" or CLASSES.index(strictest) >= max(
        CLASSES.index(name) for name in CLASSES if name in hidden
    )


def test_the_table_is_large_and_has_every_class() -> None:
    assert len(COMMANDS) >= 450
    assert len(EVASIONS) >= 250
    assert len({line for _classes, line in COMMANDS}) == len(COMMANDS)
    counted = Counter(classes[-1] for classes, _line in COMMANDS)
    assert min(counted[name] for name in CLASSES) >= 14


def test_no_program_is_in_two_tables() -> None:
    counted = Counter(name for table in TABLES for name in table)
    assert [name for name, times in counted.items() if times > 1] == []


def test_the_examples_of_the_document_are_true() -> None:
    """Each row of the table of classes in docs/COMMANDS.md."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", (ROOT / "docs/COMMANDS.md").read_text(), re.MULTILINE)
    assert [name for name, _examples in rows] == list(CLASSES)
    for name, examples in rows:
        for line in re.findall(r"`([^`]+)`", examples):
            assert classify_line(line.encode()).strictest == name, line


def test_reasons_say_the_effect() -> None:
    expected = {
        "gh pr list": "asks the code host",
        "npm view x": "asks the registry",
        "env": "prints the environment",
        "env -0": "prints the environment",
        "env A=1 ls": "runs another command",
        "git fetch": "fetches from another repository",
        "git pull": "fetches from another repository and merges",
        "frobnicate x": "mudroom does not know this program",
        "npm frobnicate": "mudroom does not know this subcommand",
        "git frobnicate": "mudroom does not know this subcommand: it may be an alias",
        "git stash frobnicate": "mudroom does not know this subcommand",
        "ls --frobnicate": "mudroom does not know this option",
        "bash -Z -c ls": "mudroom does not know this option of the shell",
    }
    assert {line: classify_line(line.encode()).parts[0].reason for line in expected} == expected


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
