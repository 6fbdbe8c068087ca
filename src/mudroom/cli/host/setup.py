"""``mudroom doctor --setup``: one screen for new users. It only prints commands that fix problems."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

from mudroom import __version__
from mudroom.cli.doctor.probe import BESIDE, ENGINE
from mudroom.cli.doctor.report import Fix, fixes
from mudroom.cli.first_command import FirstCommand, harmless_command, install_command
from mudroom.cli.project_session import project_of
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_beside, visible
from mudroom.core.confinement.protection import Finding
from mudroom.core.known_agents import known_agents
from mudroom.core.registry import is_installed
from mudroom.core.system.search_path import find_program
from mudroom.errors import UsageError
from mudroom.policy.config import places, user_config
from mudroom.stage.views.preflight import check_project
from mudroom.typing import NamedTuple

# --- First look ---
# All probe findings, summarised for a newcomer: which levels are available here, and what to do about the others.
# Pure.


_LIMIT, _CONTAINER = "limit: ", "containers: "


class Level(NamedTuple):
    level: int
    about: str
    state: str
    """yes, partly or no."""
    missing: tuple[str, ...]
    """Missing or weaker protections; if ``state`` is no, the reason."""


class FirstLook(NamedTuple):
    levels: tuple[Level, ...]
    limits: tuple[str, ...]
    no_limits: tuple[str, ...]
    fixes: tuple[Fix, ...]
    """Each fix once, in the order of the protections: level 1, limits, level 2."""


def first_look(findings: Sequence[Finding]) -> FirstLook:
    limits = [row for row in findings if row.protection.startswith(_LIMIT)]
    boxes = [row for row in findings if row.protection.startswith(_CONTAINER) or row.protection == ENGINE]
    walls = [row for row in findings if row not in limits and row not in boxes and row.protection != BESIDE]
    levels = (
        Level(0, "a staged view: nothing lands until you apply it", "yes", ()),
        _level(1, "and a sandbox: its own files, network gate, system calls", walls),
        _level(2, "and a container of Docker or Podman around it", boxes),
    )
    return FirstLook(
        levels,
        tuple(row.protection.removeprefix(_LIMIT) for row in limits if row.state == "strict"),
        tuple(row.protection.removeprefix(_LIMIT) for row in limits if row.state != "strict"),
        tuple(fixes([row for row in (*walls, *limits, *boxes) if row.state != "strict"])),
    )


def _level(number: int, about: str, rows: Sequence[Finding]) -> Level:
    weak = [row for row in rows if row.state != "strict"]
    first = rows[0] if rows else None
    if first is None or first.state in ("missing", "not probed"):
        return Level(number, about, "no", (first.found,) if first is not None else ())
    return Level(number, about, "partly" if weak else "yes", tuple(row.protection for row in weak))


_ABOUT = 19
"""Columns before a line's text."""
_STYLES = {"yes": "green", "partly": "yellow", "no": "red"}
_SHOWN_FIXES = 3
_COMPLETIONS = ("bash", "zsh", "fish")


class _Advice(NamedTuple):
    """Advice beside the protections."""

    shell: str
    """The user's shell, or "" if there is no completion for it."""
    agents: tuple[str, ...] | None
    """Installed agents; None if mudroom knows no agents."""
    first: FirstCommand


def show_setup(findings: Sequence[Finding], context: Context, columns: int) -> int:
    """Print the screen. Return the exit code."""
    look, advice = first_look(findings), _advice(context)
    if context.as_json:
        context.terminal.json(_as_json(look, advice))
    else:
        context.terminal.out("\n".join(_screen(look, advice, context, columns)))
    return 0 if look.levels[1].state != "no" else 1


def _advice(context: Context) -> _Advice:
    def is_there(program: str | bytes) -> bool:
        return find_program(os.fsdecode(program), context.environ) is not None

    known = known_agents(user_config(context.environ))
    agents = tuple(known.installed(is_there)) if known.names() else None
    shell = os.fsdecode(os.path.basename(context.environ.get(b"SHELL", b"")))
    shell = shell if shell in _COMPLETIONS and is_installed("completion") else ""
    place, project = places(context.environ), project_of(context)
    try:
        check_project(os.path.realpath(project), os.path.realpath(place.home), os.path.realpath(place.state))
        first = install_command(project, is_there) or harmless_command(project)
    except UsageError:
        first = FirstCommand("cd PROJECT && mudroom", "in a project it names commands that fit it")
    return _Advice(shell, agents, first)


def _screen(look: FirstLook, advice: _Advice, context: Context, columns: int) -> list[str]:
    """Return lines that fit the terminal, except commands to paste, which are not broken."""
    style = context.terminal.style
    lines = [*_indented(f"mudroom {__version__}: what this machine can protect", columns, ""), ""]
    for row in look.levels:
        state = style(f"{row.state:<6}", _STYLES[row.state], 1)
        lines += fold_beside(f"  level {row.level}  {state}  ", row.about, columns).split("\n")
        if row.missing:
            lines += _wrapped(f"{'' if row.state == 'no' else 'weaker: '}{', '.join(row.missing)}", columns)
    lines += _wrapped(", ".join(look.limits) or "none", columns, "limits")
    if look.no_limits:
        lines += _wrapped(f"not here: {', '.join(look.no_limits)}", columns)
    for number, fix in enumerate(look.fixes[:_SHOWN_FIXES]):
        lines += [""] if not number else []
        lines += _indented(f"for {', '.join(fix.helps)}:", columns, "  ")
        lines += _indented(fix.text, columns, "    ")
    if len(look.fixes) > _SHOWN_FIXES:
        lines.append(f"  {len(look.fixes) - _SHOWN_FIXES} more: mudroom doctor")
    lines += [""] if advice.agents is not None or is_installed("completion") else []
    if advice.shell:
        where = "prints it; mudroom completion --help says where it goes"
        lines += _two_lines("completion", f"mudroom completion {advice.shell}", where, columns)
    elif is_installed("completion"):
        lines += _wrapped("mudroom completion bash, zsh or fish prints it", columns, "completion")
    if advice.agents is not None:
        told = ", ".join(advice.agents) or "none is installed; mudroom agent ls names them"
        lines += _wrapped(told, columns, "agents")
    if advice.agents:
        lines += _wrapped(f"mudroom {advice.agents[0]} runs it in a fork of its own", columns)
    return [*lines, "", *_two_lines("try", style(advice.first.line, "bold", 1), advice.first.about, columns)]


def _two_lines(word: str, command: str, about: str, columns: int) -> list[str]:
    """Return an unbroken command to paste after its label, and a remark below it. If the terminal is too narrow, both
    stand below the label."""
    if _ABOUT + visible(command) <= columns:
        return [f"  {word:<{_ABOUT - 2}}{command}", *_wrapped(about, columns)]
    return [f"  {word}", f"    {command}", *_indented(about, columns, "    ")]


def _wrapped(text: str, columns: int, about: str = "") -> list[str]:
    return _indented(text, columns, " " * _ABOUT, f"  {about:<{_ABOUT - 2}}")


def _indented(text: str, columns: int, indent: str, first: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        columns,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _as_json(look: FirstLook, advice: _Advice) -> dict[str, object]:
    return {
        "schema": "mudroom.setup/1",
        "version": __version__,
        "levels": [
            {"level": row.level, "about": row.about, "state": row.state, "missing": [*row.missing]}
            for row in look.levels
        ],
        "limits": [*look.limits],
        "limits_missing": [*look.no_limits],
        "fixes": [{"fix": fix.text, "for": [*fix.helps]} for fix in look.fixes],
        "completion": f"mudroom completion {advice.shell}" if advice.shell else None,
        "agents": [*(advice.agents or ())],
        "first": advice.first.line,
    }
