"""The command line. It translates words into calls of the session, and values into text. Decisions are made in the
session."""

COLLECTED = 20_000
"""New objects between two looks for garbage in circles. Loading modules makes 60,000 that stay, and the interpreter's
700 make it look through them 80 times: a third of its own start."""

KEEPER = "mudroom.ext.keeper.client"
"""The row ``keeper client`` of ``core/registry.py``. A command that a keeper runs does not load that module."""


def main() -> None:
    """Run the console script. End the process with the exit code that docs/FORMAT.md promises."""
    try:
        _run_words()
    except KeyboardInterrupt:  # while modules are loaded, or passed on by a keeper that has not run the command
        import os

        os.write(2, b"mudroom: interrupted\n")
        os._exit(130)


def _run_words() -> None:
    """A keeper runs the command, if there is one that can. Until that is known, nothing else is imported."""
    import sys

    wants_keeper = False
    if sys.platform == "linux":
        try:
            __import__(KEEPER)
        except ModuleNotFoundError as error:
            if not KEEPER.startswith(error.name or " "):
                raise
        else:
            client = sys.modules[KEEPER]
            wants_keeper = client.hand_over() == client.NO_KEEPER
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

    from mudroom.cli.importer import install

    gc.set_threshold(COLLECTED, 10, 10)
    install()
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from mudroom.cli.terminal.closed_stream import replace_closed

        replace_closed()
    from mudroom.cli.main import run

    code = run(sys.argv[1:], os.environb, later=lambda _place, action: action())
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        if wants_keeper:
            from mudroom.core.registry import part

            part("keeper", "process", "a keeper").start_if_wanted(os.environb)
    except (OSError, KeyboardInterrupt):
        pass  # the reader is gone, e.g. a pager that was closed, or is not waited for: the command has its exit code
    os._exit(code)  # skip the teardown of the interpreter
