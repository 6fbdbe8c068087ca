"""The command line. It translates: words into calls of the session, values into text. It decides nothing."""

from __future__ import annotations


def main() -> None:
    """The console script. Ends the process with the exit code that docs/FORMAT.md promises."""
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
        os._exit(code)  # the reader is gone (a pager that was closed): nothing to say, nowhere to say it
    os._exit(code)  # everything is flushed and closed: spare the interpreter's teardown
