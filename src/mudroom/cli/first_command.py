"""First commands to try, chosen by the project's files and this machine's programs. ``mudroom`` alone and ``mudroom
doctor --setup`` print them. Each works when pasted in this project."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from mudroom.core.command.pattern_text import quote_words
from mudroom.core.known_agents import known_agents
from mudroom.core.system.search_path import find_program
from mudroom.policy.config import user_config
from mudroom.typing import NamedTuple


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
"""Rows: a file at the top of the project, a program that must be installed, and a command that installs, builds or
tests. The first row that fits is used."""
_CODE = (b"src", b"lib", b"app", b"tests", b"test", b"docs")
"""Directories to remove in the example, by preference: the ones whose loss is most striking."""
CHANGES = "shows what it would change; apply or not"
DAMAGE = "shows the damage, does none"


def install_command(project: bytes, is_there: Callable[[bytes], bool]) -> FirstCommand | None:
    """Return a command that installs or builds here, or None. ``is_there`` says whether a program is on the PATH."""
    for name, program, line in INSTALLS:
        if os.path.lexists(project + b"/" + name) and is_there(program):
            return FirstCommand(f"mudroom run -- {line}", CHANGES)
    return None


def harmless_command(project: bytes) -> FirstCommand:
    """Return a command with a visible change: it removes an existing directory or file, or writes a file."""
    try:
        with os.scandir(project) as entries:
            found = sorted((not entry.is_dir(), entry.name) for entry in entries if not entry.name.startswith(b"."))
    except OSError:
        found = []
    directories = {name for is_file, name in found if not is_file}
    for name in (*(name for name in _CODE if name in directories), *(name for _is_file, name in found)):
        words = (b"rm", b"-rf" if name in directories else b"-f", name if name[:1] != b"-" else b"./" + name)
        line = quote_words(words)
        if line is not None:  # None: a terminal cannot show the name
            return FirstCommand(f"mudroom run -- {line}", DAMAGE)
    return FirstCommand("mudroom run -- sh -c 'echo hello > hello.txt'", CHANGES)


def first_commands(project: bytes, environ: Mapping[bytes, bytes]) -> list[tuple[str, str]]:
    """Return first commands that fit the project's files and this machine's programs, with their effects."""

    def is_there(program: str | bytes) -> bool:
        return find_program(os.fsdecode(program), environ) is not None

    install = install_command(project, is_there)
    known = known_agents(user_config(environ))
    agents = known.installed(is_there)
    agent = [("mudroom agent ls", "agents that mudroom knows; none is installed")] if known.names() else []
    if agents:
        agent = [(f"mudroom {agents[0]}", "an agent in a fork of its own; mudroom agent ls: the others")]
    return [*([install] if install else []), harmless_command(project), *agent]
