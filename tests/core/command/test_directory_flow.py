"""The directory of each command of a line, with bash as the oracle: a line that writes outside the project is judged to
do so, however its commands are joined, grouped and redirected."""

from __future__ import annotations

import itertools
import os
import random
import shlex
import subprocess
from pathlib import Path

import pytest

from mudroom.core.command.program.classification import classify_line
from mudroom.core.command.verdict import CLASSES
from tiers import SEED, each

PROJECT = b"/home/dev/shop"
JOINED = [" ; ", " && ", "\n"]
"""Signs between commands that all succeed: the line means the same with each."""
GROUPED = [
    "{line}", "{{ {line}\n}}", "( {line} )", "if true; then {line}\nfi", "{{ {line}\n}} > out",
    "true && {{ {line}\n}}",
]  # fmt: skip
SEQUENCES = {
    ("cd ETC", "echo x >> passwd"): "host_escape_risk",
    ("cd ETC", "cat <<< x >> passwd"): "host_escape_risk",
    ("cd ~/.ssh", "cat >> authorized_keys < a"): "host_escape_risk",
    ("true", "cd ETC", "true > /dev/null", "echo x >> passwd"): "host_escape_risk",
    ("cd ETC", "true", "echo x >> passwd", "cd -"): "host_escape_risk",
    ("cd ..", "touch x"): "host_escape_risk",
    ("cd mod", "cd ..", "cd ..", "echo x > y"): "host_escape_risk",
    ("pushd mod", "pushd ETC", "echo x >> passwd"): "host_escape_risk",
    ("eval 'cd ETC'", "echo x >> passwd"): "host_escape_risk",
    ("cd mod", "echo y >> b", "cd ..", "git add mod"): "mutating",
    ("cd mod", "echo y >> b", "cd ..", "echo z > c"): "mutating",
    ("pushd mod", "echo y >> b", "popd", "echo z > c"): "mutating",
    ("cd mod", "echo y > ../b"): "mutating",
    ("cd mod/sub", "cat a > ../b", "cd ../..", "touch c"): "mutating",
    ("cd mod", "cat a"): "read_only",
}  # fmt: skip
APART = [
    ("cd mod | echo x > ../y", "host_escape_risk"),
    ("cd mod & echo x > ../y", "host_escape_risk"),
    ("(cd mod); echo x > ../y", "host_escape_risk"),
    ("cd mod || echo x > ../y", "host_escape_risk"),
    ("false && cd mod || echo x > ../y", "host_escape_risk"),
    ("if false; then cd mod; else echo x > ../y; fi", "host_escape_risk"),
    ("case b in a) cd mod;; b) echo x > ../y;; esac", "host_escape_risk"),
    ("for i in 1 2; do echo x > y; cd ..; done", "host_escape_risk"),
    ("cd ETC && cat <<E && echo x >> passwd\nt\nE", "host_escape_risk"),
    ("cd mod && cat <<E | tee -a ../c && cd .. && git add mod\nt\nE", "mutating"),
    ("for i in 1 2; do cd mod; echo x > y; cd ..; done; echo x > z", "mutating"),
    ("if cd mod; then echo x > ../y; fi", "mutating"),
]  # fmt: skip


def strictest(line: str) -> str:
    return classify_line(line.replace("ETC", "/etc").encode(), PROJECT, PROJECT).strictest


@each(("commands", "expected"), SEQUENCES.items())
def test_joined_commands_are_the_same(commands: tuple[str, ...], expected: str) -> None:
    found = {}
    for signs, group in itertools.product(itertools.product(JOINED, repeat=len(commands) - 1), GROUPED):
        line = group.format(line="".join(itertools.chain(*zip(commands, [*signs, ""], strict=True))))
        least = "mutating" if "out" in group and expected == "read_only" else expected
        if (judged := strictest(line)) != least and not (judged == "unknown" and "eval" in line):
            found[line] = judged
    assert found == {}


@each(("line", "expected"), APART)
def test_a_change_of_directory_holds_as_far_as_in_bash(line: str, expected: str) -> None:
    assert strictest(line) == expected


def drawn(draw: random.Random, depth: int) -> str:
    """Return a line that changes directories and writes files, drawn at random."""
    simple = [
        "cd mod", "cd ..", "cd mod/sub", "cd ETC", "pushd mod >p", "popd", "echo x >> f", "touch f", "echo x > ../f",
    ]  # fmt: skip
    simple += ["true", "false", "echo x > mod/f", "cat <<< x >> f", "tee f", "! cd mod", "command cd .."]
    if depth == 0 or draw.random() < 0.3:
        return draw.choice(simple)

    def inner() -> str:
        return drawn(draw, depth - 1)

    shapes = ["{} && {}", "{} || {}", "{} ; {}", "{}\n{}", "{{ {}\n}}", "( {} )", "( {} ) > f", "{{ {}\n}} >> f"]
    shapes += [
        "if {}\nthen {}\nelse {}\nfi",
        "for i in 1 2\ndo {}\n{}\ndone",
        "{} | {}",
        "{} && {} > f",
        "{} && {} && {}",
    ]
    shapes += [
        "cat <<E && {}\nx\nE",
        "case a in b) {}\n;; a) {}\n;; esac",
        "while {}\ndo {}\nbreak\ndone > f",
        "{} &\nwait",
    ]
    shape = draw.choice(shapes)
    texts = [inner() for _hole in range(shape.replace("{{", "").replace("}}", "").count("{}"))]
    if "\nE" in "".join(texts):
        texts = [text if "\nE" not in text else "true" for text in texts]
    return shape.format(*texts)


def written(lines: list[str], place: Path) -> list[set[str]]:
    """Return what each line writes where bash runs it, relative to the project: a name that begins with ``..`` is
    outside."""
    script = []
    for number, line in enumerate(lines):
        (place / f"{number}/home/shop/mod/sub").mkdir(parents=True)
        (place / f"{number}/etc").mkdir()
        text = line.replace("ETC", str(place / f"{number}/etc"))
        script.append(f"( cd {number}/home/shop; eval {shlex.quote(text)} ) 2>{number}/errors\n")
    (place / "lines.sh").write_text("".join(script))
    with open(os.devnull) as null:
        subprocess.run(["bash", "--norc", "lines.sh"], cwd=place, stdin=null, stdout=subprocess.PIPE, check=False)
    found: list[set[str]] = []
    for number in range(len(lines)):
        top = place / str(number)
        names = {
            os.path.relpath(os.path.join(folder, name), top / "home/shop")
            for folder, _folders, names in os.walk(top)
            for name in names
        }
        failed = b": No such file" in (top / "errors").read_bytes()
        found.append(names - {"../../errors"} if not failed else set())
    return found


def disagreements(count: int, seed: str, place: Path) -> list[str]:
    draw = random.Random(seed)
    lines = [drawn(draw, 3) for _line in range(count)]
    found = []
    for line, names in zip(lines, written(lines, place), strict=True):
        classes = classify_line(line.replace("ETC", "/etc").encode(), PROJECT, PROJECT).classes
        judged = max(CLASSES.index(name) for name in classes)
        needed = "host_escape_risk" if any(name.startswith("..") for name in names) else "mutating" if names else ""
        if needed and judged < CLASSES.index(needed) and "unknown" not in classes:
            found.append(f"{line!r}: {classes}, writes {names}")
    return found


def test_bash_writes_no_farther_than_judged(tmp_path: Path) -> None:
    assert disagreements(120, SEED, tmp_path) == []


@pytest.mark.deep
def test_bash_writes_no_farther_than_judged_long(tmp_path: Path) -> None:
    for run in range(10):
        (tmp_path / str(run)).mkdir()
        assert disagreements(500, f"{SEED}-{run}", tmp_path / str(run)) == []
