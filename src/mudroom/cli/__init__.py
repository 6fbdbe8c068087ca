"""The command line: it translates arguments into session calls, and results into text. The session decides."""

COLLECTED = 50_000
"""Allocations between two runs of the cyclic garbage collector. Loading modules makes 180,000 objects that stay. With
20,000 here, the collector's visits cost half an interpreter's start."""

NO_KEEPER = b"MUDROOM_NO_KEEPER"
"""The variable in which the program ``mudroom`` (``src/native``) tells its script that a keeper would have run the
command, and under which name this process is to start one."""


def main() -> None:
    """Run the console script, and end the process with the exit code that docs/FORMAT.md promises."""
    try:
        _run_words()
    except KeyboardInterrupt:  # while modules load
        import os

        os.write(2, b"mudroom: interrupted\n")
        os._exit(130)


def _run_words() -> None:
    import sys

    if sys.platform == "win32":
        from mudroom.core.registry import NotInstalled, twin

        try:
            main_on_windows = twin("main").main
        except NotInstalled as error:
            print(f"mudroom: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        sys.exit(main_on_windows())

    import gc
    import os

    keeper = os.environb.pop(NO_KEEPER, b"")
    gc.set_threshold(COLLECTED, 10, 10)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from mudroom.cli.terminal.closed_stream import replace_closed

        replace_closed()
    from mudroom.cli.main import run

    code = run(sys.argv[1:], os.environb, later=lambda _place, action: action())
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        if keeper:
            from mudroom.core.registry import part

            part("keeper", "process", "a keeper").start_if_wanted(os.environb, keeper)
    except (OSError, KeyboardInterrupt):
        pass  # the reader is gone, e.g. a closed pager, or Ctrl-C ends the wait: the command has its exit code already
    os._exit(code)  # skip interpreter teardown
