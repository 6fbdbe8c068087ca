"""Commands of every kind and what they are: tests/core/commands.txt, and what hides them: tests/core/evasions.txt."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from command_files import COMMANDS, EVASIONS
from mudroom.core.command.program.classification import TABLES, classify_line, classify_words
from mudroom.core.command.verdict import CLASSES
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
