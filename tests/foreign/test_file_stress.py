"""fsx and fsstress in a fork: what they leave is what they leave outside with the same seed, and what lands.

They are given as programs (MUDROOM_FSX, MUDROOM_FSSTRESS). fsx checks each of its reads itself, and ends with an exit
status.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import pytest

import suite
from conftest import Place, listing
from mudroom.session import Session
from suite import MODES

pytestmark = [pytest.mark.both_users]


class Tool(NamedTuple):
    name: str
    line: str
    """For a shell, with the program and the seed; it writes below ``t`` alone."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)


TOOLS = {
    "fsx": Tool("fsx", "{program} -q -N 4000 -S {seed} t/file && rm -f t/file.fsx*"),
    "fsstress": Tool("fsstress", "{program} -d t -n 400 -p 1 -s {seed} -f mknod=0 -f chown=0"),
}
"""Device nodes and owners are not a command's to make; docs/evidence/METADATA.md tells of both."""
STAND_IN = """#!/bin/sh
for word; do case $word in -S|-s) next=1;; *) [ -z "$next" ] || seed=$word; next=;; esac; last=$word; done
[ -d "$last" ] || last=t
mkdir -p "$last/d$seed" && echo $seed >"$last/d$seed/f" && ln -s d$seed/f "$last/l" && cp "$last/l" "$last/file"
"""
"""It is a program as both are, for the way from a program to outcomes."""

Trees = dict[str, tuple[str, int, bytes]]


def natively(tool: Tool, program: Path, seed: int, directory: Path) -> Trees:
    (directory / "t").mkdir(parents=True)
    subprocess.run(
        ["sh", "-c", "umask 022; " + tool.line.format(program=quote(str(program)), seed=seed)],
        cwd=directory,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return as_landed(listing(directory / "t"))


def as_landed(tree: Trees) -> Trees:
    """Without write permission for others, which does not land (docs/evidence/METADATA.md): fsstress sets umask 0."""
    return {name: (kind, mode & ~0o022, content) for name, (kind, mode, content) in tree.items()}


def holds(session: Session, place: Place, tool: Tool, program: Path, mode: str, seed: int) -> None:
    """The exit status inside is 0; the project has afterwards what a run outside leaves."""
    line = "umask 022; mkdir t; " + tool.line.format(program=quote(str(program)), seed=seed)
    result = suite.run_in(session, place, line, mode)
    assert result.exit_code == 0, (result.stdout + result.stderr)[-2000:].decode(errors="replace")
    assert not (place.project / "t").exists()
    session.changes.apply("f")
    expected = natively(tool, program, seed, place.root / f"native{seed}")
    found = listing(place.project / "t")
    names = {name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)}
    assert not names, {name: (brief(expected.get(name)), brief(found.get(name))) for name in sorted(names)}
    session.changes.undo()
    assert not (place.project / "t").exists()
    session.forks.discard("f")
    shutil.rmtree(place.root / f"native{seed}")


def brief(entry: tuple[str, int, bytes] | None) -> tuple[str, str, int] | None:
    return entry and (entry[0], oct(entry[1]), len(entry[2]))


@pytest.mark.parametrize("name", TOOLS)
def test_a_stand_in(place: Place, name: str) -> None:
    """The way from a program to outcomes; the program itself is not here."""
    program = place.root / "program"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    holds(suite.open_mode(place, "overlay", program), place, TOOLS[name], program, "overlay", 7)


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.limit(600)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TOOLS)
def test_each_seed(place: Place, name: str, mode: str) -> None:
    program = suite.source(name)
    session = suite.open_mode(place, mode, program)
    for seed in TOOLS[name].seeds:
        holds(session, place, TOOLS[name], program, mode, seed)
    suite.tell(name, mode, len(TOOLS[name].seeds), 0, 0)
