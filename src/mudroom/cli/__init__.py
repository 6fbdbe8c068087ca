"""The command line. It translates words into calls of the session, and values into text. Decisions are made in the
session."""

from __future__ import annotations

COLLECTED = 20_000
"""New objects between two looks for garbage in circles. Loading modules makes 60,000 that stay, and the interpreter's
700 make it look through them 80 times: a third of its own start."""


def main() -> None:
    """Run the console script. End the process with the exit code that docs/FORMAT.md promises."""
    import gc
    import os
    import sys

    gc.set_threshold(COLLECTED, 10, 10)
    if sys.platform == "win32":
        from mudroom.cli.windows import main as main_on_windows

        sys.exit(main_on_windows())

    from mudroom.importer import install

    install()
    from mudroom.cli.main import run

    code = run(sys.argv[1:], os.environb)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        os._exit(code)  # the reader is gone, e.g. a pager that was closed: there is no place left to report to
    os._exit(code)  # all streams are flushed: skip the teardown of the interpreter
