"""The isolation levels that errands can have on this machine. A command is run at each, at an origin's path.

The answer is kept while this machine runs this kernel and this mudroom, since a trial costs as much as a command, and a
link should be up at once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from mudroom import __version__
from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.session import Session

_BOOT = "/proc/sys/kernel/random/boot_id"
_ENGINES = ("docker", "podman")
_HOME, _ELSEWHERE = b"/home/mudroom-trial", b"/home/mudroom-trial/project"
"""An origin's paths, which this machine need not have. A level that cannot show them is none for errands."""


def tried_levels(place: bytes, environ: Mapping[bytes, bytes]) -> tuple[int, ...]:
    """Return the levels at which a shell has run. ``place``: a directory for the trial and its answer."""
    key = machine_key()
    answer = place + b"/levels"
    try:
        with open(answer, encoding="utf-8") as stream:
            known, _newline, levels = stream.read(4096).partition("\n")
        if known == key and all(word.isdigit() for word in levels.split()):
            return tuple(map(int, levels.split()))
    except FileNotFoundError:
        pass
    levels_here = tuple(level for level in LEVELS if _runs_at(level, place, environ))
    beside = answer + b".%d" % os.getpid()
    with open(beside, "w", encoding="utf-8") as stream:
        stream.write(f"{key}\n{' '.join(map(str, levels_here))}")
    os.rename(beside, answer)
    return levels_here


def machine_key() -> str:
    """Return a line that changes with what levels depend on."""
    engines = " ".join(str(shutil.which(engine)) for engine in _ENGINES)
    return f"{_boot()} {os.uname().release} {__version__} {os.geteuid()} {engines}"


def _runs_at(level: int, place: bytes, environ: Mapping[bytes, bytes]) -> bool:
    if level == 2 and not any(map(shutil.which, _ENGINES)):
        return False
    trial = place + b"/trial-%d" % os.getpid()
    project = trial + b"/project"
    os.makedirs(project, 0o700)
    os.mkdir(trial + b"/state", 0o700)
    settings = Settings(level=level, network="open" if level == 0 else "none")
    try:
        with Session.open(
            project,
            appears_at=_ELSEWHERE,
            state=trial + b"/state",
            home=_HOME,
            environ=environ,
            settings=settings,
        ) as session:
            result = session.run([b"/bin/sh", b"-c", b":"])
            return result.exit_code == 0 and result.level == level
    except (MudroomError, OSError):
        return False
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _boot() -> str:
    try:
        with open(_BOOT, encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""
