"""Unified diffs for people: the user's pager, colours, and no control characters on a terminal."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress

from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import output_error
from mudroom.core.system.search_path import find_program
from mudroom.core.text.invisible_characters import escaped

_STYLES = (
    (b"+++", "bold"),
    (b"---", "bold"),
    (b"diff ", "bold"),
    (b"commit ", "yellow"),
    (b"@@", "cyan"),
    (b"+", "green"),
    (b"-", "red"),
)


def page(lines: Iterator[bytes], context: Context) -> None:
    """Write lines to the user's pager if stdout is a terminal, else unchanged to stdout."""
    if not os.isatty(1):
        try:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except OSError as error:
            raise output_error(error) from None
        return
    import subprocess

    from mudroom.cli.terminal.command_signals import TYPED
    from mudroom.cli.terminal.foreground_program import ignore_signal, signal_handlers

    command = pager_words(context)
    context.terminal.clear()
    environment = {**os.environ, "LESS": os.environ.get("LESS", "FRX"), "LESSSECURE": "1"}
    with (
        signal_handlers(dict.fromkeys(TYPED, ignore_signal)),  # less(1) stops a search on Ctrl-C
        subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as pager,
    ):
        assert pager.stdin is not None
        with suppress(BrokenPipeError):  # the reader has quit the pager
            for line in lines:
                pager.stdin.write(coloured(line, context))
        with suppress(BrokenPipeError):
            pager.stdin.close()


def pager_words(context: Context) -> list[str]:
    """Return the command line for the user's pager, or else for cat(1), with the program's path."""
    try:
        words = shlex.split(os.fsdecode(context.environ.get(b"PAGER", b"less")))
    except ValueError:  # an unclosed quote
        words = []
    program = find_program(words[0], context.environ) if words else None
    return [program, *words[1:]] if program is not None else [find_program("cat", context.environ) or "/bin/cat"]


def coloured(line: bytes, context: Context, stream: int = 1) -> bytes:
    """Return the line coloured, with control characters made visible, because the text is not trusted."""
    safe = escaped(line.rstrip(b"\n").decode("utf-8", "surrogateescape"), keep="\t")
    style = next((style for prefix, style in _STYLES if line.startswith(prefix)), "")
    return ((context.terminal.style(safe, style, stream) if style else safe) + "\n").encode("utf-8", "replace")
