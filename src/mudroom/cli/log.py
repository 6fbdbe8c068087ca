"""``mudroom log``: what has happened in a project."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from mudroom.cli.main import Context
from mudroom.cli.open import open_session
from mudroom.core.event import Event
from mudroom.core.path import show

EXAMPLES = """\
examples:
  mudroom log             the last 20 events
  mudroom log -n 0        all of them
  mudroom log --json      one JSON object a line
  mudroom log verify      nobody has edited the journal?"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--last", type=int, default=20, metavar="N", help="so many events; 0: all (default 20)")
    parser.add_argument("verify", nargs="?", choices=("verify",), help="check the chain of hashes")


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        if args.verify:
            return _verify(session.vault.journal.verify(), context)
        events = list(session.vault.journal.events(last=args.last or None))
    if not events and not context.as_json:
        context.terminal.say("nothing has happened yet")
    for event in events:
        context.terminal.out(_json(event) if context.as_json else _line(event))
    return 0


def _verify(broken: int | None, context: Context) -> int:
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.verify/1", "intact": broken is None, "broken_at": broken}))
    elif broken is None:
        context.terminal.out("the journal is intact")
    else:
        context.terminal.error(f"event {broken} of the journal was edited, or one before it is missing")
    return 0 if broken is None else 1


def _json(event: Event) -> str:
    row = {
        "number": event.number,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.time // 10**9)),
        "kind": event.kind,
        "fork": event.fork,
        "data": json.loads(event.data),
        "digest": event.digest,
    }
    return json.dumps(row)


def _flow(data: dict[str, Any]) -> str:
    from mudroom.cli.netlog import told
    from mudroom.core.flow import flow_from_json

    try:
        return told(flow_from_json(data))
    except ValueError as error:
        return f"unreadable: {error}"


def _line(event: Event) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time // 10**9))
    data = json.loads(event.data)
    words: list[str] = []
    if event.kind == "flow":
        words, data = [_flow(data)], {}
    for key, value in data.items():
        if key == "command":
            words.insert(0, show(" ".join(value).encode()))
        elif key == "denials":
            words += [f"{len(value)} refused: mudroom policy why"] if value else []
        elif value not in (0, False, [], None):
            words.append(f"{key}={value}")
    return f"{event.number:>4}  {when}  {event.kind:<8} {event.fork or '-':<9} " + "  ".join(words)
