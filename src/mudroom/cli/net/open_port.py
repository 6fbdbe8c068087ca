"""``mudroom net open PORT``: make a server in a sandbox reachable on this machine's loopback, for this user, as long as
its command runs."""

from __future__ import annotations

import json
import os
import time

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.session.confinement.namespace_listener import namespaces_at, show_inside
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def open_port(args: argparse.Namespace, context: Context) -> int:
    inside = _port(args.hosts[0]) if len(args.hosts) == 1 else None
    if inside is None:
        raise UsageError("net open takes one port", "mudroom net open 3000")
    outside = inside if args.as_port is None else _port(args.as_port)
    if outside is None:
        raise UsageError(f"--as {args.as_port} is no port", "a number from 1 to 65535, or 0 for any that is free")
    with open_session(context) as session:
        name, ended, namespaces = _find_running(session, args.fork)

    def report(port: int) -> None:
        url = f"http://127.0.0.1:{port}"
        if context.as_json:
            context.terminal.out(json.dumps({"schema": "mudroom.net-open/1", "fork": name, "port": port, "url": url}))
        else:
            context.terminal.out(f"{url} is port {inside} of the command in {name}, until it ends (Ctrl-C closes it)")

    strangers: dict[str, int] = {}

    def refused(whose: str) -> None:
        if whose not in strangers:
            context.terminal.note(f"a connection of {whose} was refused (--all-users lets others in)")
        strangers[whose] = strangers.get(whose, 0) + 1

    try:
        show_inside(namespaces, ended, inside, outside, report, None if args.all_users else refused)
        context.terminal.say("the command has ended")
    except KeyboardInterrupt:
        context.terminal.say("closed")
    finally:
        for descriptor in (ended, *namespaces):
            os.close(descriptor)
        if strangers:
            with open_session(context) as session:
                data = {"opened": inside, "refused": sum(strangers.values()), "connections_of": sorted(strangers)}
                session.vault.journal.append("net", name, data, time=time.time_ns())
    return 0


def _find_running(session: Session, fork: str | None) -> tuple[str, int, list[int]]:
    """Return the fork's name, a descriptor that signals its command's end, and its namespaces. Without a name, take the
    only fork in which a command runs. Raise UsageError if there is none, or several."""
    running: list[tuple[str, int, list[int]]] = []
    names = [fork] if fork is not None else [fork.name for fork in session.vault.forks()]
    for name in names:
        try:
            running.append((name, *namespaces_at(session.vault.fork(name).namespace_listener)))
        except OSError:
            continue  # no command runs there
    if len(running) == 1:
        return running[0]
    for _name, ended, namespaces in running:
        for descriptor in (ended, *namespaces):
            os.close(descriptor)
    if running:
        names = sorted(name for name, _gone, _namespaces in running)
        raise UsageError(f"commands are running in several forks: {', '.join(names)}", f"--fork {names[0]} names one")
    where = f" in {fork}" if fork is not None else ""
    raise UsageError(
        f"no command with a network of its own is running{where}",
        "start the server first: mudroom run -- npm run dev (in another terminal)",
    )


def _port(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 and int(text) < 65536 else None
