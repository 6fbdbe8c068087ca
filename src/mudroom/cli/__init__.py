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
    except (KeyboardInterrupt, ImportError) as error:  # while modules load; a module is missing during an upgrade
        import os

        lacks = f"this installation is not complete: {error} (try again; or pip install --force-reinstall mudroom)"
        os.write(2, f"mudroom: {lacks if isinstance(error, ImportError) else 'interrupted'}\n".encode())
        os._exit(125 if isinstance(error, ImportError) else 130)


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
    from mudroom.core.registry import part, part_or_none

    verbs = part_or_none("upgrade", "command")
    if verbs is None:
        import mudroom.cli.main as verbs

    code = verbs.run(sys.argv[1:], os.environb, later=lambda _place, action: action())
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        if keeper:
            part("keeper", "process", "a keeper").start_if_wanted(os.environb, keeper)
    except (OSError, KeyboardInterrupt, SystemExit):
        pass  # a closed pager, Ctrl-C in the wait, an upgrade meanwhile: the command has its exit code already
    os._exit(code)  # skip interpreter teardown
