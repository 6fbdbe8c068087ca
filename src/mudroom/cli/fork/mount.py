"""``mudroom mount``: a fork as a real directory, for an editor or any other tool outside the sandbox."""

from __future__ import annotations

import argparse
import os
import time

from mudroom.cli.project_session import open_session, working_directory
from mudroom.cli.terminal.context import Context
from mudroom.core.result import text
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.session.forks import mounting
from mudroom.typing import Any

EXAMPLES = """\
examples:
  mudroom fork new try-1             make the fork; a command in it does, too
  mudroom mount try-1                a directory of mudroom's own, the same each time; its path is printed
  mudroom mount try-1 ~/look -r      read-only, there
  mudroom mount                      list the mounted forks
  mudroom unmount try-1              back into the fork, with all that was done in it

While a fork is mounted, its commands, file tools and background servers work in that directory, too. Again, it prints
the same path. Apply and rollback unmount it for a moment, unless it is in use or a copy; discard wants it unmounted.
Kinds: overlay (needs root), fuse (fuse-overlayfs), copy (brought back at unmount); the first that works is taken.
Changes of the project meanwhile may or may not be visible in the directory."""

_KINDS = {
    "overlay": "a kernel overlay",
    "fuse": "fuse-overlayfs",
    "copy": "a copy; its changes are brought into the fork at unmount",
}


_STATES = {
    "ended": "has ended",
    "lost": "the directory is not there",
    "elsewhere": "unmounted, but still in use",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fork", nargs="?", help="the fork; without one, mounted forks are listed")
    parser.add_argument("directory", nargs="?", metavar="DIR", help="where: an empty directory, or none yet")
    parser.add_argument("--read-only", "-r", action="store_true", help="to look at only")
    parser.add_argument("--kind", choices=tuple(_KINDS), help="this kind or none")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        if args.fork is None:
            _list_mounts(session, context)
            return 0
        if session.vault.find(args.fork) is None:
            raise UsageError(f"there is no fork named {args.fork}", f"mudroom fork new {args.fork}")
        place = None
        if args.directory is not None:
            place = os.path.join(working_directory(), os.fsencode(args.directory))
        mount = session.forks.mount(args.fork, place, writable=not args.read_only, kind=args.kind)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.mount/1"} | row(args.fork, mount))
    else:
        context.terminal.out(show(mount.place))
        mode = "" if mount.writable else ", read-only"
        context.terminal.say(f"{args.fork} is there ({_KINDS[mount.kind]}{mode}); mudroom unmount {args.fork}")
    return 0


def row(fork: str, mount: Any) -> dict[str, Any]:
    return {"fork": fork, "kind": mount.kind, "writable": mount.writable, "path": text(mount.place)}


def _list_mounts(session: Session, context: Context) -> None:
    mounts = session.forks.mounts()
    states = {name: mounting(session.forks).state(name) for name in mounts}
    if context.as_json:
        rows = [row(name, mount) | {"state": states[name]} for name, mount in mounts.items()]
        context.terminal.json({"schema": "mudroom.mounts/1", "mounts": rows})
        return
    for name, mount in mounts.items():
        since = time.strftime("%H:%M:%S", time.localtime(mount.since.time / 1e9))
        mode = "rw" if mount.writable else "ro"
        state = "" if states[name] == "mounted" else f", {_STATES[states[name]]}"
        context.terminal.out(f"{name}  {show(mount.place)}  {mount.kind}, {mode}, since {since}{state}")
    if not mounts:
        context.terminal.say("nothing is mounted")
