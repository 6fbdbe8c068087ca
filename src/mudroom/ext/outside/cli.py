"""``mudroom keep``: files that a command wrote outside the project, listed and copied out."""

from __future__ import annotations

import argparse
import os

from mudroom.cli.listing import open_listing
from mudroom.cli.terminal.context import Context
from mudroom.core.result import path_fields, text
from mudroom.core.text.plural import amount
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import UsageError
from mudroom.ext.outside.store import StoredFile, copy_out, stored
from mudroom.stage import disk

EXAMPLES = """\
examples:
  mudroom keep                               all files that commands wrote outside the project in the last day
  mudroom keep run-7f3a                      those of one fork's commands
  mudroom keep run-7f3a ~/report.txt         copies one to the same place on this machine
  mudroom keep ~/report.txt                  the same, as the last command has written it
  mudroom keep run-7f3a ~/report.txt --to .  copies it elsewhere

No file is replaced, and none with secrets is stored. mudroom run --keep is another thing: it keeps the changes in a
fork."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", nargs="?", metavar="FORK", help="whose commands; the note after a command names it")
    parser.add_argument("path", nargs="?", metavar="PATH", help="the file, as the command saw it")
    parser.add_argument("--to", metavar="DEST", help="another path, or a directory")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_listing(context, reads_policy=False) as listing:
        files = stored(listing.vault)
        if args.path is None and args.fork is not None and "/" in args.fork:  # a path: the last command's that wrote it
            args.path, wanted = args.fork, disk.absolute_path(os.fsencode(args.fork))
            newest = max((file for file in files if file.path == wanted), key=lambda file: file.time, default=None)
            args.fork = newest.fork if newest is not None else args.fork
        of_fork = [file for file in files if args.fork in (None, file.fork)]
        if args.fork is not None and not of_fork:
            raise UsageError(f"no files of {args.fork} are kept", "mudroom keep lists those that are, for a day")
        if args.path is None:
            if args.to is not None:
                raise UsageError("--to needs the file to copy", "mudroom keep FORK PATH --to DEST")
            return _list(of_fork, context)
        return _copy(args, of_fork, context)


def _list(files: list[StoredFile], context: Context) -> int:
    if context.as_json:
        rows = [{"fork": file.fork, **path_fields(file.path), "bytes": file.size, "time": file.time} for file in files]
        context.terminal.json({"schema": "mudroom.outside/1", "files": rows})
        return 0
    for file in files:
        context.terminal.out(f"{amount(file.size):>9}  {file.fork}  {show(_short(file.path, context))}")
    if not files:
        context.terminal.say("no files are kept: commands wrote nothing outside the project in the last day")
    return 0


def _short(path: bytes, context: Context) -> bytes:
    home = context.environ.get(b"HOME", b"")
    return b"~" + path[len(home) :] if home and path.startswith(home + b"/") else path


def _copy(args: argparse.Namespace, files: list[StoredFile], context: Context) -> int:
    wanted = disk.absolute_path(os.fsencode(args.path))
    file = next((file for file in files if file.path == wanted), None)
    if file is None:
        raise UsageError(f"{args.fork} has no file {show(wanted)}", f"mudroom keep {args.fork} lists its files")
    to = disk.absolute_path(os.fsencode(args.to)) if args.to is not None else file.path
    if args.to is not None and os.path.isdir(to):
        to += b"/" + os.path.basename(file.path)
    try:
        copy_out(file, to)
    except FileExistsError:
        command = show_words((b"mudroom", b"keep", os.fsencode(args.fork), os.fsencode(args.path), b"--to"))
        raise UsageError(f"{show(to)} exists, and is not replaced", f"{command} DEST copies it elsewhere") from None
    except FileNotFoundError:
        above = os.path.dirname(to)
        raise UsageError(f"{show(above)} does not exist", show_words((b"mkdir", b"-p", above))) from None
    if context.as_json:
        context.terminal.json({"schema": "mudroom.kept/1", "path": text(file.path), "to": text(to)})
    else:
        context.terminal.say(f"copied: {show(to)}, {amount(file.size)}")
    return 0
