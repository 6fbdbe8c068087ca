"""``mudroom net log``: the hosts that commands have reached, and the refused ones."""

from __future__ import annotations

import json
import time

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.journal.event import Event, data_of
from mudroom.core.journal.event_text import flow_text, printable
from mudroom.core.network.flow import Flow, flow_from_json
from mudroom.core.network.fork_host import label_of
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

_PAUSE = 0.2
"""Seconds between two journal reads."""


def print_log(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        last = 0
        events = session.vault.journal.events_after(0, "flow")
        if events:
            last = events[-1].number
        chosen = [event for event in events if _is_wanted(event, args)]
        for event in chosen[-args.last :] if args.last > 0 else chosen:
            _print_event(event, args.fork, context)
        if not events and not args.follow and not context.as_json:
            context.terminal.say("no command has wanted anything of the network yet")
        while args.follow:
            time.sleep(_PAUSE)
            last = _print_new(session, last, args, context)
    return 0


def _print_new(session: Session, last: int, args: argparse.Namespace, context: Context) -> int:
    for event in session.vault.journal.events_after(last, "flow"):
        last = event.number
        if _is_wanted(event, args):
            _print_event(event, args.fork, context)
    return last


def _is_wanted(event: Event, args: argparse.Namespace) -> bool:
    if args.fork not in (None, event.fork) and not _leads_to(event, args.fork):
        return False
    return not args.denied or data_of(event).get("verdict") != "allow"


def _leads_to(event: Event, fork: str) -> bool:
    """Return whether another fork's flow is a connection to ``fork``."""
    return bool(label_of(fork)) and data_of(event).get("address") == f"fork {label_of(fork)}"


def _print_event(event: Event, fork: str | None, context: Context) -> None:
    """Print a flow. If only ``fork`` is shown, another fork's flow is a connection to it."""
    data = data_of(event)
    caller = event.fork if fork not in (None, event.fork) else ""
    if context.as_json:
        row = {"number": event.number, "fork": event.fork} | data
        if caller:
            row["from"] = caller
        try:
            row |= flow_from_json(data)._asdict()
        except ValueError as error:
            row["error"] = str(error)
        context.terminal.out(json.dumps(row))
        return
    try:
        line = _line(flow_from_json(data))
    except ValueError as error:
        line = f"unreadable: {printable(str(error))}"
    line = f"from fork {printable(caller)}  {line}" if caller else line
    context.terminal.out(f"{event.number:>4}  {printable(fork or event.fork) or '-':<9} {line}")


def _line(flow: Flow) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(flow.started // 10**9)) + "  " + flow_text(flow)
