"""The keeper's process: it loads the verbs, rehearses the usual commands, and calls the function that runs a command.

Its interpreter starts without the command's variables, such as HOME, which locates the user's own packages. It may
therefore find another mudroom than the command that started it; then it ends.

A rehearsal is a command in a project, home and state directory of its own, which are removed. It leaves in the
interpreter what a first use creates: modules, compiled patterns and filters. None of that depends on a command or on
the machine's state: anything that does is kept in a session, which ends with its command.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from mudroom.cli import COLLECTED
from mudroom.cli.main import verb_parser
from mudroom.core.system.launcher import LAUNCHER
from mudroom.core.text.table import table_files
from mudroom.ext.keeper.code import Code
from mudroom.ext.keeper.server import Place, keep, load
from mudroom.ext.keeper.start import is_wanted, own_root, start
from mudroom.ext.upgrade.command import run
from mudroom.stage.layers.layer import remove_tree

PROGRAM = "from mudroom.ext.keeper.cli.keeper_process import main; main()"

VERBS = (
    "apply", "checkpoint", "diff", "discard", "exec", "fork", "hook", "log", "ls", "policy", "ps", "recover", "redo",
    "resolve", "rollback", "run", "status", "undo",
)  # fmt: skip
"""Verbs that a client hands over (``src/native/eligible.c``)."""
REHEARSED = (
    ("run", "--no", "--", "sh", "-c", "echo made > made"),
    ("exec", "--json", "--", "true"),
    ("status",),
)
"""None applies: an apply waits for the disk, for seconds where others write to it."""
APPLYING = (
    "mudroom.cli.command.auto_apply", "mudroom.stage.views.released", "mudroom.vault.apply.landing",
    "mudroom.vault.apply.remainder", "mudroom.vault.forks.apart",
)  # fmt: skip
"""Modules that an apply loads when it begins."""


def start_if_wanted(environ: Mapping[bytes, bytes], wanted: bytes) -> None:
    """Start a keeper after a command that found none. ``wanted``: as ``start`` has it."""
    if is_wanted(environ):
        start(PROGRAM, environ, wanted)


def main() -> None:
    """Run as a keeper. The arguments are the fields of ``Place``, then those that ``start`` adds."""
    began = time.time_ns()
    directory, name, idle, look, root, *before = sys.argv[1:]

    if own_root() != root:
        return

    os.chdir("/")
    gc.set_threshold(COLLECTED, 10, 10)
    for verb in VERBS:
        verb_parser(verb)
    load(APPLYING)
    place = Place(os.fsencode(directory), name, float(idle), float(look))
    keep(place, Code(began, before, (os.fsdecode(LAUNCHER), *table_files())), run, lambda path: _rehearse(path, run))


def _rehearse(path: bytes, run: Callable[[Sequence[str], Mapping[bytes, bytes]], int]) -> None:
    """Rehearse in ``path``, which is created and removed. A machine on which commands fail gets a keeper all the
    same."""
    remove_tree(path)  # left by a killed keeper
    project, home, state = (path + name for name in (b"/project", b"/home", b"/state"))
    for made in (path, project, home):
        os.mkdir(made, 0o700)
    environ = {b"PATH": os.fsencode(os.defpath), b"HOME": home, b"MUDROOM_STATE": state}
    os.chdir(project)
    try:
        for words in REHEARSED:
            run(words, environ)
    finally:
        os.chdir("/")
        remove_tree(path)
