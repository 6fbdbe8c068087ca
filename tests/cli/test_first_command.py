"""Commands that ``mudroom`` and ``mudroom doctor --setup`` suggest: they fit the project and the programs here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import Place
from mudroom.cli.first_command import INSTALLS, harmless_command, install_command
from mudroom.core.registry import is_installed
from test_vault_verb import MUDROOM, Cli


def project(root: Path, *names: str) -> bytes:
    root.mkdir()
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_text("")
    return os.fsencode(root)


@pytest.mark.parametrize(
    ("files", "programs", "line"),
    [
        (["package.json"], {b"npm"}, "npm install"),
        (["package.json"], set(), None),
        (["package.json", "pnpm-lock.yaml"], {b"npm", b"pnpm"}, "pnpm install"),
        (["package.json", "pnpm-lock.yaml"], {b"npm"}, "npm install"),
        (["uv.lock", "Makefile"], {b"uv", b"make"}, "uv sync"),
        (["Makefile"], {b"make"}, "make"),
        (["README.md"], {program for _name, program, _line in INSTALLS}, None),
    ],
)
def test_what_installs_or_builds(tmp_path: Path, files: list[str], programs: set[bytes], line: str | None) -> None:
    command = install_command(project(tmp_path / "p", *files), programs.__contains__)
    assert (command and command.line) == (line and f"mudroom run -- {line}")


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (["src/", "assets/", "README.md"], "rm -rf src"),
        (["zebra/", "assets/", "tests/"], "rm -rf tests"),
        (["zebra/", "assets/", ".git/"], "rm -rf assets"),
        (["notes.txt", ".env"], "rm -f notes.txt"),
        (["my notes/"], "rm -rf 'my notes'"),
        (["-x"], "rm -f ./-x"),
        (["a\nb", "c"], "rm -f c"),
        ([".git/"], "sh -c 'echo hello > hello.txt'"),
        ([], "sh -c 'echo hello > hello.txt'"),
    ],
)
def test_what_shows_a_change(tmp_path: Path, files: list[str], line: str) -> None:
    assert harmless_command(project(tmp_path / "p", *files)).line == f"mudroom run -- {line}"


def test_each_suggestion_works_when_pasted(place: Place) -> None:
    cli = Cli(place)
    (place.home / "bin").mkdir()
    for name in ("codex", "npm"):
        (place.home / f"bin/{name}").write_text("#!/bin/sh\n")
        (place.home / f"bin/{name}").chmod(0o755)
    cli.environment["PATH"] = f"{place.home}/bin:/usr/bin:/bin"
    place.write("package.json", "{}")
    place.write("lib/a", "1\n")
    rows = [line.split("  ")[1] for line in cli().stdout.splitlines() if line.startswith("  mudroom ")]
    assert rows[:2] == ["mudroom run -- npm install", "mudroom run -- rm -rf lib"]
    assert ("mudroom codex" in rows) == is_installed("agents")
    words = rows[1].replace("mudroom run", "run --keep", 1).split()
    assert cli(*words).returncode == 0
    assert "lib/a" in cli("diff").stdout


OUTPUTS = ("--help", "ls --json", "diff", "log export", "")


def test_a_full_disk_of_the_output_is_not_the_vaults(place: Place) -> None:
    """Of /dev/full (full(4))."""
    cli = Cli(place)
    place.write("a", "1\n")
    assert cli("run", "--keep", "--", "rm", "a").returncode == 0
    for line in OUTPUTS:
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*MUDROOM, *line.split()], cwd=place.project, env=cli.environment, stdout=full,
                stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert (done.returncode, done.stderr) == (
            125,
            "mudroom: the output could not be written to standard output: No space left on device "
            "(make room where it goes to, or send it elsewhere)\n",
        ), line
