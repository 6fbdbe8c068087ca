"""An errand's bounds, checked before it is written down."""

from __future__ import annotations

import math

from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.tree.path import relpath
from mudroom.errors import UsageError
from mudroom.ext.fleet.wire import settings as wire_settings
from mudroom.ext.fleet.wire.message import DIGEST, Errand
from mudroom.ext.fleet.worker.folder import folder_name

MOST_WORDS = 100_000
LONGEST_TIMEOUT = 30 * 86400.0
"""Seconds."""
_MOST_NUMBER = 1_000_000


def check(errand: Errand, levels: tuple[int, ...]) -> None:
    """Raise UsageError if an errand is out of bounds or its level is not in ``levels``, LinkError if its settings
    cannot be read. No level is ever lowered: an errand without a level has that of its settings."""
    folder_name(errand.errand, errand.attempt)
    if len(errand.base) != DIGEST:
        raise UsageError("the base of the errand is no digest")
    _check_words(errand.argv, "the command")
    if not errand.argv:
        raise UsageError("the errand has no command")
    if errand.judge:
        _check_words(errand.judge, "the judge")
    try:
        if errand.cwd:
            relpath(errand.cwd)
    except ValueError as error:
        raise UsageError(f"the directory of the errand: {error}") from None
    for name, value in errand.variables:
        if not name or b"=" in name or b"\0" in name + value:
            raise UsageError("a variable of the errand has no valid name or value")
    if len(errand.variables) > MOST_WORDS:
        raise UsageError(f"the errand has more than {MOST_WORDS:,} variables")
    if not (math.isfinite(errand.timeout) and 0 <= errand.timeout <= LONGEST_TIMEOUT):
        raise UsageError(f"{errand.timeout} is not a number of seconds")
    if not 0 <= errand.number <= _MOST_NUMBER:
        raise UsageError(f"{errand.number} is not the number of an attempt among several")
    _check_level(errand, levels)


def _check_words(words: tuple[bytes, ...], where: str) -> None:
    if len(words) > MOST_WORDS:
        raise UsageError(f"{where} has more than {MOST_WORDS:,} words")
    if any(b"\0" in word for word in words):
        raise UsageError(f"{where} holds a NUL byte")


def _check_level(errand: Errand, levels: tuple[int, ...]) -> None:
    settings = wire_settings.decode(errand.settings) if errand.settings else None
    level = errand.level if errand.level is not None else (settings.level if settings is not None else 1)
    if type(level) is not int or level not in LEVELS:
        raise UsageError(f"{level!r} is not a level")
    if level not in levels:
        there = ", ".join(map(str, levels)) or "none"
        raise UsageError(
            f"commands cannot run at level {level} on this worker; it has: {there}", "mudroom doctor there"
        )
