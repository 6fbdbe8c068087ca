"""The command line on Windows. The verbs in ``PORTED`` run there as elsewhere, once a certificate has opened the
platform (``ext/certify/opening.py``); other verbs print one line that says so. docs/WINDOWS.md lists the missing
parts."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from mudroom.cli.main import VERBS, overview, run, version
from mudroom.cli.terminal.terminal import Terminal
from mudroom.errors import MudroomError
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Client

PORTED = frozenset((
    "run", "exec", "diff", "status", "log", "ls", "apply", "undo", "redo", "discard", "fork", "checkpoint", "rollback",
    "recover", "resolve", "doctor", "serve", "shell", "mcp", "vault", "policy", "approve", "completion", "net", "try",
    "agent", "review",
))  # fmt: skip
NOT_YET = "does not run on Windows yet"
HINT = "use it in WSL 2; mudroom doctor says what the sandbox could do here"


def start(argv: Sequence[str], client: Client | None = None) -> int:
    """Run a verb and return the exit code. A part that is known to be missing never ends in a traceback."""
    terminal = Terminal({})
    if not argv or argv[0] in ("-h", "--help") or list(argv) in (["help"], ["help", "--all"]):
        terminal.out(overview(every="--all" in argv))
        return 0
    if argv[0] in ("-V", "--version"):
        terminal.out(version())
        return 0
    if argv[0] == "help":
        argv = [argv[1], "--help"]
    if argv[0] not in VERBS:
        terminal.error(f"there is no verb {argv[0]!r}", "mudroom --help lists them")
        return 125
    if argv[0] not in PORTED:
        terminal.error(f"mudroom {argv[0]} {NOT_YET}", HINT)
        return 125
    from mudroom.policy.config import environment

    try:
        environ = environment()
    except MudroomError as error:
        terminal.error(error.message, error.hint)
        return error.exit_code
    return run(argv, environ, client)


def main() -> int:
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # into a pipe Python writes the system's code page, which no reader expects
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return start(sys.argv[1:])
