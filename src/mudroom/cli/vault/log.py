"""``mudroom log``: a project's events."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from mudroom.cli.listing import open_listing
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import output_error
from mudroom.cli.vault.event_row import line
from mudroom.core.command.verdict import ACTIONS
from mudroom.core.journal.event import ChainCheck, Event, data_of, wall
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.journal.event_text import ROWS
from mudroom.core.system.readiness import is_abandoned
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.typing import Any
from mudroom.vault.store.store import Vault

# --- ``mudroom log export``: the journal as JSON lines for other programs ---


Write = Callable[[str], object]


def export(events: Iterable[Event], path: str | None) -> int:
    """Write the events, one JSON object a line, and return their number. ``path`` None or ``-`` is stdout. A file is
    written completely or not at all."""
    count = 0
    with _open_output(path) as write:
        for event in events:
            write(json.dumps(as_json(event)) + "\n")
            count += 1
    return count


def iso(event: Event) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall(event) // 10**9))


def as_json(event: Event) -> dict[str, Any]:
    """Return an event in the form that ``log --json`` prints."""
    return {
        "number": event.number,
        "time": iso(event),
        "time_ns": event.time,
        "kind": event.kind,
        "fork": event.fork,
        "data": data_of(event),
        "digest": event.digest,
    }


@contextmanager
def _open_output(path: str | None) -> Iterator[Write]:
    if path in (None, "-"):
        try:
            yield sys.stdout.write
            sys.stdout.flush()
        except OSError as error:
            raise output_error(error) from None
        return
    assert path is not None
    path = os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):  # a pipe or a device is written to, not replaced
        with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "w", encoding="utf-8", newline="") as stream:
            yield stream.write
        return
    temporary = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as stream:
            yield stream.write
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


EXAMPLES = """\
examples:
  mudroom log                                  the last 20 events
  mudroom log -n 0                             all of them
  mudroom log --kind run,apply --fork a        of these kinds, of this fork
  mudroom log --since 2h --grep "npm install"  of the last two hours; also 2026-11-21, "2026-11-21 10:00", 09:30
  mudroom log --verdict deny                   refused commands and hosts
  mudroom log --follow                         new events as they come
  mudroom log --json                           one JSON object a line
  mudroom log verify                           is the journal as it was written? (exit code 1 if not)
  mudroom log export -o log.jsonl              the same of all events, in a file for another program"""

_PAUSE = 200
"""Milliseconds between two journal reads."""
_DEFAULT_COUNT = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", choices=("verify", "export"), help="verify: check the chain of hashes; export: write a file"
    )
    parser.add_argument("-n", "--last", type=int, metavar="N", help="so many events; 0: all (default 20)")
    parser.add_argument("--kind", action="append", metavar="KIND", help="run, apply, flow, …; several with commas")
    parser.add_argument("--fork", action="append", metavar="NAME", help="of this fork; may be repeated")
    parser.add_argument("--agent", metavar="NAME", help="of this agent")
    parser.add_argument("--since", metavar="WHEN", help="from then on: 2h, 30m, 2026-11-21, 09:30")
    parser.add_argument("--until", metavar="WHEN", help="before that")
    parser.add_argument("--verdict", choices=ACTIONS, help="where this was decided")
    parser.add_argument("--grep", metavar="TEXT", help="where this text stands, in letters of any case")
    parser.add_argument("--follow", action="store_true", help="go on with new events as they come")
    parser.add_argument("-o", "--output", metavar="FILE", help="export: where to; default: stdout")
    parser.add_argument(
        "--against", metavar="NUMBER:DIGEST", help="verify: this event has to be there, as an earlier verify said it"
    )


def execute(args: argparse.Namespace, context: Context) -> int:
    _check_options(args)
    where = _selection(args, time.time_ns())
    with open_listing(context, reads_policy=False) as listing:
        vault = listing.vault
        if args.what == "verify":
            return _verify(vault, args.against, context)
        if args.what == "export":
            return _export(vault, args, where, context)
        return _show(vault, args, where, context)


_OF_VERIFY = ("against",)
_OF_EXPORT = ("output",)
_OF_LISTS = ("last", "kind", "fork", "agent", "since", "until", "verdict", "grep", "follow")


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for an option that belongs to another form of this verb."""
    excluded = {"verify": (*_OF_EXPORT, *_OF_LISTS), "export": _OF_VERIFY, None: (*_OF_VERIFY, *_OF_EXPORT)}
    verb = f"mudroom log {args.what}" if args.what else "mudroom log"
    for name in excluded[args.what]:
        if getattr(args, name) is not None and getattr(args, name) is not False:
            option = "-n" if name == "last" else f"--{name}"
            other = "verify" if name in _OF_VERIFY else "export" if name in _OF_EXPORT else ""
            raise UsageError(f"{verb} has no {option}", f"it is an option of mudroom log {other}".rstrip())


def _show(vault: Vault, args: argparse.Namespace, where: EventFilter, context: Context) -> int:
    journal = vault.journal
    print_event = _event_printer(context)
    last = journal.head().number if args.follow else 0
    has_events = False
    for event in journal.events(last=_event_count(args), where=where):
        has_events = True
        if event.number <= last or not args.follow:
            print_event(event)
    if args.follow:
        return _follow(vault, last, where, print_event)
    for name in () if has_events else where.forks:
        vault.check_name(name)
    if has_events and not context.as_json:
        _print_more(vault, args, where, context)
    elif not context.as_json:
        context.terminal.say(
            "nothing of that kind has happened" if where != EventFilter() else "nothing has happened yet"
        )
    return 0


def _print_more(vault: Vault, args: argparse.Namespace, where: EventFilter, context: Context) -> None:
    """Print how many events the default limit leaves out."""
    shown = _event_count(args)
    if shown is None or args.last is not None:
        return
    more = "earlier"
    if where == EventFilter():
        count = vault.journal.head().number - shown
        more = f"{count:,} earlier"
    else:  # counting them reads the whole journal
        count = sum(1 for _event in vault.journal.events(last=shown + 1, where=where)) - shown
    if count > 0:
        context.terminal.say(f"{more} event{'' if more == '1 earlier' else 's'} not shown (-n 0 shows all)")


def _event_count(args: argparse.Namespace) -> int | None:
    if args.last is not None and args.last < 0:
        raise UsageError(f"-n {args.last} is not a number of events", "a number from 0 on; 0: all")
    default = None if args.what == "export" or args.since or args.until else _DEFAULT_COUNT
    return default if args.last is None else args.last or None


def _event_printer(context: Context) -> Callable[[Event], None]:
    def print_event(event: Event) -> None:
        if context.as_json:
            context.terminal.json(as_json(event))
        else:
            terminal = context.terminal
            terminal.out(line(event, lambda text, style: terminal.style(text, style, 1), terminal.columns(1)))

    return print_event


def _follow(vault: Vault, number: int, where: EventFilter, print_event: Callable[[Event], None]) -> int:
    """Print new events until Ctrl-C, or until stdout's reader is gone (``is_abandoned``)."""
    try:
        while not is_abandoned(1, _PAUSE / 1000):
            for event in vault.journal.events_since(number):
                number = event.number
                if where.matches(event):
                    print_event(event)
    except KeyboardInterrupt:
        return 130
    return 141


# --- event selection ---


def _selection(args: argparse.Namespace, now: int) -> EventFilter:
    kinds = tuple(kind.strip() for text in args.kind or () for kind in text.split(",") if kind.strip())
    for kind in kinds:
        if kind not in ROWS:
            near = difflib.get_close_matches(kind, ROWS, 1)
            raise UsageError(
                f"there are no events of the kind {show(kind.encode('utf-8', 'surrogateescape'))}",
                f"did you mean {near[0]}?" if near else "kinds: " + ", ".join(ROWS),
            )
    since, until = (moment(text, name, now) for text, name in ((args.since, "--since"), (args.until, "--until")))
    return EventFilter(kinds, tuple(args.fork or ()), args.agent, since, until, args.verdict, args.grep)


_AGE = regex(r"(\d+(?:\.\d+)?)\s*([smhdw])(?:\s+ago)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def moment(text: str | None, name: str, now: int) -> int | None:
    """Return a moment in nanoseconds since 1970. ``text`` is an age (2h, 30m, 7d), a date, a date with a time (both ISO
    8601, local time unless it has an offset), or a time today. Raise UsageError for anything else."""
    if text is None:
        return None
    try:
        nanoseconds = _moment(text, now)
        if not -(1 << 63) <= nanoseconds < 1 << 63:
            raise OverflowError("no event can have that time")
        return nanoseconds
    except (ValueError, OverflowError) as error:
        hint = '2h, 30m, 7d, 2026-11-21, "2026-11-21 10:00", 2026-11-21T10:00Z, 09:30'
        raise UsageError(f"{name} {text!r} is no time", hint) from error


def _moment(text: str, now: int) -> int:
    """Like ``moment``, but raise ValueError or OverflowError."""
    age = _AGE.fullmatch(text.strip())
    if age is not None:
        return now - int(float(age[1]) * _UNITS[age[2]] * 10**9)
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text.strip()):
        today = datetime.fromtimestamp(now / 1e9).date()
        return int(datetime.fromisoformat(f"{today} {text.strip():0>5}").timestamp()) * 10**9
    return int(datetime.fromisoformat(text.strip()).timestamp() * 10**6) * 1000


# --- verify, export ---


def _verify(vault: Vault, against: str | None, context: Context) -> int:
    terminal = context.terminal
    journal = vault.journal
    expected = _parse_against(against)
    check = journal.examine(lambda done, total: terminal.progress("checking the journal", done, total))
    terminal.clear()
    problems = check.problems
    if expected is not None and not _has_event(vault, check, *expected):
        problems.append(f"event {expected[0]} is not there as it was: the journal has been written anew, or cut off")
    if context.as_json:
        row = {
            "schema": "mudroom.verify/1",
            "intact": not problems,
            "broken_at": check.broken.number if check.broken is not None else None,
            "events": check.head.number,
            "head": f"{check.head.number}:{check.head.digest}",
            "problems": problems,
            "unanchored": check.unanchored,
        }
        terminal.json(row)
    elif not problems:
        terminal.out("the journal is intact")
        terminal.say(f"{check.head.number:,} events; verify --against {check.head.number}:{check.head.digest}")
    if not context.as_json:
        for text in problems:
            terminal.error(text)
        if check.unanchored > 1:
            terminal.note(
                f"mudroom was killed right after it wrote the last {check.unanchored} events, or did not write them"
            )
    return 1 if problems else 0


def _parse_against(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,18}):([0-9a-f]{8,64})", text)
    if match is None:
        raise UsageError(
            f"--against {text!r} is not an event with its digest", "NUMBER:DIGEST, as mudroom log verify prints it"
        )
    return int(match[1]), match[2]


def _has_event(vault: Vault, check: ChainCheck, number: int, digest: str) -> bool:
    if number > check.head.number:
        return False
    if number == check.head.number:
        return check.head.digest.startswith(digest)
    event = next(vault.journal.events_since(number - 1), None)
    return event is not None and event.number == number and event.digest.startswith(digest)


def _export(vault: Vault, args: argparse.Namespace, where: EventFilter, context: Context) -> int:
    if args.follow:
        raise UsageError("log export does not follow", "mudroom log --follow --json")
    total = vault.journal.head().number
    events = vault.journal.events(last=_event_count(args), where=where)

    def watched() -> Iterator[Event]:
        for event in events:
            if args.output not in (None, "-") and event.number % 500 == 0:
                context.terminal.progress("exporting", event.number, total)
            yield event

    count = export(watched(), args.output)
    if args.output not in (None, "-"):
        written = "1 event" if count == 1 else f"{count:,} events"
        context.terminal.say(f"exported {written}: {show(args.output.encode('utf-8', 'surrogateescape'))}")
    return 0
