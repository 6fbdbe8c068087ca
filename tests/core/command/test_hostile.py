"""The corpus of hostile lines: none is classed below the least class that it has been seen to need."""

from __future__ import annotations

from collections import Counter

from command_files import HOSTILE, KNOWN_DISAGREEMENTS
from conformance.classes.comparison import admits, effects, least, missing, observed
from conformance.classes.generation import Program, drawn_calls, first_calls, quoted, wrapped
from conformance.classes.option import Option, options_of, variables_of
from mudroom.core.command.program.classification import classify_line
from mudroom.core.command.verdict import CommandClass

WHERE = b"/tmp/w/project"
"""Where the lines were run: ``tests/conformance/classes/world.py``."""


def test_no_hostile_line_is_classed_too_mildly() -> None:
    below: dict[bytes, str] = {}
    for least_classes, line in HOSTILE:
        found = classify_line(line, project=WHERE, cwd=WHERE).classes
        if not all(admits(found, name) for name in least_classes):
            below[line] = f"{line.decode()!r}: {','.join(found)}, not {','.join(least_classes)}"
    rate = f"{len(below)} of {len(HOSTILE)} hostile lines are classed too mildly ({len(below) / len(HOSTILE):.2%})"
    new = [told for line, told in below.items() if line not in set(KNOWN_DISAGREEMENTS)]
    assert not new, "\n".join([rate, f"{len(new)} of them are not in hostile_known.txt:", *new[:40]])
    closed = [line.decode() for line in KNOWN_DISAGREEMENTS if line not in below]
    assert not closed, "\n".join(
        [rate, "closed; python -m tests.conformance.classes --prune removes them from hostile_known.txt:", *closed]
    )


def test_the_corpus_is_large_and_without_doubles() -> None:
    names: set[str] = {"mutating", "networked", "destructive", "unknown", "host_escape_risk"}
    lines = Counter(line for _classes, line in HOSTILE)
    assert len(HOSTILE) >= 5000
    assert [line for line, times in lines.items() if times > 1] == []
    assert {name for classes, _line in HOSTILE for name in classes} <= names
    assert set(KNOWN_DISAGREEMENTS) <= set(lines)


def test_effects_demand_classes() -> None:
    def demanded(line: str, **told: object) -> tuple[CommandClass, ...]:
        return least(effects(observed(told), line))

    assert demanded("ls") == ("read_only",)
    assert demanded("x", changed=["new.out"]) == ("mutating",)
    assert demanded("ruff check", changed=[".ruff_cache/x"]) == ("read_only",)
    assert demanded("x", changed=["a"], dialled=True) == ("mutating", "networked")
    assert demanded("x", changed=["notes.txt"], removed=["notes.txt"]) == ("destructive",)
    assert demanded("cc -o notes.txt", changed=["notes.txt"], removed=["notes.txt"]) == ("mutating",)
    assert demanded("x notes.txt", changed=["notes.txt"], reverted=["notes.txt"]) == ("mutating",)
    assert demanded("git checkout-index -fa", changed=["notes.txt"], reverted=["notes.txt"]) == ("destructive",)
    assert demanded("x", changed=["notes.txt"], replaced=["notes.txt"]) == ("mutating",)
    assert demanded("git branch -D b", changed=[".git/packed-refs"], commits=True) == ("destructive",)
    assert demanded("x", changed=["a"], ran=["evil"], dialled=True) == ("unknown",)
    assert demanded("x", outside=[".bashrc"]) == ("unknown",)
    assert demanded("x", secret=True) == ("read_only",)


def test_a_milder_class_is_a_disagreement() -> None:
    assert missing(("changed", "ran"), ("mutating",)) == ("ran",)
    assert missing(("changed", "lost"), ("mutating", "networked")) == ("lost",)
    assert missing(("dialled",), ("destructive",)) == ("dialled",)
    assert missing(("changed", "dialled", "lost", "ran", "outside"), ("unknown",)) == ()
    assert missing(("changed", "dialled", "lost", "ran", "outside"), ("read_only", "host_escape_risk")) == ()


def test_options_are_read_from_help_and_from_manual_pages() -> None:
    help_text = "  -o, --output=FILE   write\n  -v  verbose\n  --color[=WHEN]\n  --jobs N\n  see x-y and /--no"
    assert options_of(help_text) == (
        Option("--color", True), Option("--jobs", True), Option("--output", True), Option("-o", False),
        Option("-v", False),
    )  # fmt: skip
    page = ".TP\n\\fB\\-\\-dry\\-run\\fR\nnothing\n.IP \\fB\\-f\\fP\n\\fBGIT_PAGER\\fR is heeded"
    assert [option.name for option in options_of(page)] == ["--dry-run", "-f"]
    assert variables_of(page) == ("GIT_PAGER",)


def test_generation_is_pure_and_writes_an_option_in_many_ways() -> None:
    import itertools
    import random

    program = Program(("git", "clean"), options_of("-n -f -q --exclude=X --dry-run --force"), (("-f",),))
    texts = [call.text() for call in first_calls(program)]
    assert "git clean --exclude=./evil -f" in texts
    assert "git clean -n./evil -f" in texts
    assert "git clean --force README.md -f" in texts

    def drawn(seed: int) -> list[str]:
        return [call.text() for call in itertools.islice(drawn_calls(program, random.Random(seed)), 3000)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert any(text.startswith(("git clean --exc -n", "git clean --exclude -n")) for text in drawn(1))
    assert any("=" in text.split()[0] for text in drawn(1)), "a variable in front"
    assert any(" -- -" in text for text in drawn(1)), "behind the end of the options"
    around = list(wrapped("git clean -f", random.Random(3), 40))
    assert "bash -c 'git clean -f'" in around
    assert quoted("git clean -f", random.Random(3)) != "git clean -f"
