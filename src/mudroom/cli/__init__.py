"""The command line. It translates words into calls of the session, and values into text. Decisions are made in the
session."""

from __future__ import annotations


def main() -> None:
    """Run the console script. End the process with the exit code that docs/FORMAT.md promises."""
    import os
    import sys

    if sys.platform == "win32":
        from mudroom.cli.windows import main as main_on_windows

        sys.exit(main_on_windows())

    from mudroom.cli.main import run

    code = run(sys.argv[1:], os.environb)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        os._exit(code)  # the reader is gone, e.g. a pager that was closed: there is no place left to report to
    os._exit(code)  # all streams are flushed: skip the teardown of the interpreter
