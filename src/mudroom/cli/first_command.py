"""The first commands to try, by the files of a project and the programs of this machine. ``mudroom`` alone and
``mudroom setup`` print them: each works when pasted, in this project."""

from __future__ import annotations

import os

from mudroom.core.command.pattern_text import quote_words
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class FirstCommand(NamedTuple):
    line: str
    about: str


INSTALLS = (
    (b"pnpm-lock.yaml", b"pnpm", "pnpm install"),
    (b"yarn.lock", b"yarn", "yarn install"),
    (b"bun.lock", b"bun", "bun install"),
    (b"package.json", b"npm", "npm install"),
    (b"uv.lock", b"uv", "uv sync"),
    (b"poetry.lock", b"poetry", "poetry install"),
    (b"Cargo.toml", b"cargo", "cargo build"),
    (b"go.mod", b"go", "go build ./..."),
    (b"composer.json", b"composer", "composer install"),
    (b"Gemfile", b"bundle", "bundle install"),
    (b"pyproject.toml", b"pytest", "pytest"),
    (b"CMakeLists.txt", b"cmake", "cmake -B build"),
    (b"Makefile", b"make", "make"),
)
"""A file at the top of the project, the program that must be there, and what installs, builds or tests: the first row
that fits."""
_CODE = (b"src", b"lib", b"app", b"tests", b"test", b"docs")
"""Directories whose loss says the most, by preference."""
CHANGES = "shows what it would change; apply or not"
DAMAGE = "shows the damage, does none"


def install_command(project: bytes, is_there: Callable[[bytes], bool]) -> FirstCommand | None:
    """Return the command that installs or builds here, or None. ``is_there``: whether a program is on the PATH."""
    for name, program, line in INSTALLS:
        if os.path.lexists(project + b"/" + name) and is_there(program):
            return FirstCommand(f"mudroom run -- {line}", CHANGES)
    return None


def harmless_command(project: bytes) -> FirstCommand:
    """Return a command whose damage or change is worth a look: it removes something that is there, or writes a file."""
    try:
        with os.scandir(project) as entries:
            found = sorted((not entry.is_dir(), entry.name) for entry in entries if not entry.name.startswith(b"."))
    except OSError:
        found = []
    directories = {name for is_file, name in found if not is_file}
    for name in (*(name for name in _CODE if name in directories), *(name for _is_file, name in found)):
        words = (b"rm", b"-rf" if name in directories else b"-f", name if name[:1] != b"-" else b"./" + name)
        line = quote_words(words)
        if line is not None:  # else a terminal cannot show the name
            return FirstCommand(f"mudroom run -- {line}", DAMAGE)
    return FirstCommand("mudroom run -- sh -c 'echo hello > hello.txt'", CHANGES)
