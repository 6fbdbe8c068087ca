"""Verbs, options that all of them share, and how errors become one line and an exit code.

A verb is a module of this package with ``configure(parser)`` and ``execute(args, context) -> int``; only the one that
is asked for is imported.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from mudroom import __version__
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.errors import MudroomError, UsageError

VERBS = {
    "run": "run a command on a staged view of the project, see what it would change, then apply or cancel",
    "exec": "run an agent's command in a fork; nothing is applied",
    "proxy": "around exec, for an agent's runtime: prepare a fork, inspect it, roll it back",
    "ps": "what runs in forks, in the background and else; --end ends it, --output shows what it has printed",
    "fork": "lines of work side by side: new, ls, rename, rm",
    "checkpoint": "freeze what a fork holds under a name",
    "rollback": "drop what a fork has changed since a checkpoint; can itself be undone",
    "shell": "a shell in a fork",
    "mount": "a fork as a real directory, for an editor or any other tool outside",
    "unmount": "a mounted fork comes back, with all that was done in it",
    "ls": "forks of this project and what they hold",
    "status": "the same, for the eye: forks, unfinished applies, the last apply",
    "diff": "what a fork would change, as a unified diff",
    "review": "look at what a fork would change, choose, decide and apply it, in the terminal",
    "apply": "bring a fork's changes into the project",
    "resolve": "decide conflicts between a fork and the project, for the next apply",
    "discard": "throw a fork away",
    "undo": "take an apply back",
    "redo": "apply again what was undone",
    "recover": "finish or take back what a killed mudroom left in the middle",
    "log": "what has happened in this project; log verify checks that nobody edited the journal",
    "vault": "what mudroom keeps: ls, init, gc, check; export and import carry a fork elsewhere",
    "agent": "run an agent by its card, from start to end; check: what it would get here; card: its A2A card",
    "approve": "what waits for somebody to allow it: list, answer, --follow",
    "policy": "what commands may do here: init, check, show, schema, trust, distrust; why something is refused",
    "net": "which hosts commands may reach: allow, deny, rm, ls, presets; why; log",
    "serve": "the page in a browser: review, decide, watch; and agents' cards for other agents; on this machine only",
    "image": "what containers of level 2 are made from: build, ls, rm",
    "doctor": "what this machine can protect, by trying it",
}


_SHELVES = {
    verb: shelf
    for shelf, verbs in {
        "command": ("run", "exec", "shell", "agent", "proxy", "ps"),
        "fork": ("fork", "ls", "status", "checkpoint", "rollback", "mount", "unmount", "discard"),
        "change": ("diff", "review", "apply", "resolve", "undo", "redo", "recover"),
        "policy": ("policy", "approve"),
        "net": ("net",),
        "vault": ("log", "vault"),
        "host": ("serve", "image", "doctor"),
    }.items()
    for verb in verbs
}
"""Verb → the folder of its module."""


class _Parser(argparse.ArgumentParser):
    """Exits with 125, mudroom's own failure code, where argparse would with 2."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help")


def _format(prog: str) -> argparse.HelpFormatter:
    # A width of its own: asking for the terminal's imports shutil, and argparse makes a formatter for every option.
    return argparse.RawDescriptionHelpFormatter(prog, width=100)


def run(argv: Sequence[str], environ: Mapping[bytes, bytes]) -> int:
    terminal = Terminal(environ)
    try:
        return _run(list(argv), environ, terminal)
    except MudroomError as error:
        terminal.error(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        terminal.error("interrupted")
        return 130
    except BrokenPipeError:
        return 141
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        terminal.error(f"{where}{error.strerror or error}", _ADVICE.get(error.errno or 0, ""))
        return 125


_ADVICE = {
    28: "make room there: mudroom ls shows the forks, mudroom discard FORK gives back what one holds",
    30: "that file system is read-only",
    122: "your disk quota is used up: mudroom ls shows the forks, mudroom discard FORK gives back what one holds",
}


def _run(argv: list[str], environ: Mapping[bytes, bytes], terminal: Terminal) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        terminal.out(overview())
        return 0 if argv else 125
    if argv[0] in ("-V", "--version"):
        terminal.out(version())
        return 0
    verb = argv[0]
    if verb not in VERBS:
        raise UsageError(f"there is no verb {verb!r}", _near(verb))
    module: Any = importlib.import_module(f"mudroom.cli.{_SHELVES[verb]}.{verb}")
    parser = _Parser(
        prog=f"mudroom {verb}",
        description=VERBS[verb][0].upper() + VERBS[verb][1:] + ".",
        formatter_class=_format,
        epilog=getattr(module, "EXAMPLES", None),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--project", metavar="DIR", help="the project; default: the one the current directory is in")
    module.configure(parser)
    command = None
    takes_command = getattr(module, "TAKES_COMMAND", False)
    if takes_command and "--" in argv:
        command = argv[argv.index("--") + 1 :]
        argv = argv[: argv.index("--")]
    # run takes all that follows as the command; elsewhere options and names may come in any order
    args = parser.parse_args(argv[1:]) if verb in _IN_ORDER else parser.parse_intermixed_args(argv[1:])
    if takes_command:
        args.command = command
    context = Context(environ, terminal, args.json, os.fsencode(args.project) if args.project else None)
    code: int = module.execute(args, context)
    return code


_IN_ORDER = ("run", "exec", "agent")
"""Verbs whose options come before the command, or belong to a verb of their own."""


def _near(verb: str) -> str:
    import difflib

    near = difflib.get_close_matches(verb, VERBS, 1)
    return f"did you mean mudroom {near[0]}?" if near else "mudroom --help lists them"


def version() -> str:
    return f"mudroom {__version__}"


def overview() -> str:
    rows = "\n".join(f"  {verb:<10} {text}" for verb, text in VERBS.items())
    return f"""\
mudroom {__version__}: commands and agents work on a staged view of your project; nothing lands until you apply it.

{rows}

  mudroom run -- npm install       stage, run, preview, then [a]pply [c]ancel [d]iff
  mudroom run -- rm -rf .          shows the damage, does none
  mudroom exec --fork a -- CMD     an agent's command, in a fork of its own
  mudroom undo                     takes the last apply back
  mudroom VERB --help              options and examples

Exit codes: the command's own; 124 out of time, 125 mudroom failed, 126 not executable or refused, 127 not found;
apply: 0 applied, 3 conflicts are left (the rest is applied, nothing is lost), 4 the fork is not what was reviewed,
5 the policy's verify command failed (nothing is applied)."""
