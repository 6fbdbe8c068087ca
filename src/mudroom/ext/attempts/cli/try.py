"""``mudroom try``: several attempts at one task, side by side, judged and ranked. It applies no changes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mudroom.cli.command.exec import add_ask_option, open_for_command
from mudroom.cli.command.run import add_confinement_options, is_agent_program, warn_if_bare
from mudroom.cli.project_session import open_session, working_directory
from mudroom.cli.terminal.command_signals import Terminated
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.signals import handling, numbers_of, wake_for_signals
from mudroom.core.registry import part
from mudroom.core.system.shell import shell_words
from mudroom.core.text.json_text import to_json_text
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import is_below
from mudroom.errors import UsageError
from mudroom.ext.attempts import record as records
from mudroom.ext.attempts.candidate import review_try
from mudroom.ext.attempts.candidate_text import comparison, comparison_to_json
from mudroom.ext.attempts.cli.try_table import MOST_ROWS, attempt_lines, ended_line, table
from mudroom.ext.attempts.session.attempts import Attempts, start
from mudroom.ext.attempts.session.discard import discard, forks_of
from mudroom.ext.attempts.session.request import AttemptRequest, checked
from mudroom.ext.attempts.value import SCORES, AttemptRecord, TryRecord, try_to_json
from mudroom.policy.setting_type import seconds
from mudroom.session import Session
from mudroom.stage import disk
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    import signal

    from mudroom.cli.terminal.approver import Ask
else:
    import _signal as signal  # signal builds an enum for the numbers

EXAMPLES = """\
examples:
  mudroom try -n 8 --judge pytest -- ./fix.sh {i}     {i}, and MUDROOM_ATTEMPT: the number of the attempt
  mudroom try -n 4 --until 1 --budget 30m --judge 'make test' -- my-agent
  mudroom try -n 8 --score json --judge ./score -- ./tune  the last line it prints: a number, or {"score": 0.93}
  mudroom try -n 8 --combine --judge pytest -- ./fix  also unions of attempts that merge cleanly
  mudroom try -n 4 --from try-1@green --judge ./check -- ./next
  mudroom try -n 64 --on big --on hpc --judge pytest -- ./fix.sh {i}      on other machines; the forks are judged here
  mudroom try ls
  mudroom try show t1           the table, and what differs; show t1 3: one attempt, with the end of its judge's output
  mudroom try discard t1        the forks of all attempts but the best; --all: the best too, and the record

Each attempt has a fork of its own, t1-1, t1-2 …; the judge runs in a fork of that, with the rights of a verification.
The best: the judge succeeds, then its exit code or score, then the fewest changed lines. Nothing is applied.
Exit codes: 0 an attempt has passed, 1 none has, 124 none has within the budget, 130 interrupted."""

SHELL_CHARACTERS = frozenset("|&;<>()$`*?[]#~!{}\n=")
_HEEDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
_NOT_ON_WORKERS = (
    ("--from", "a worker begins with the project, not with a fork"),
    ("--jobs", "each worker has its own number: mudroom fleet add NAME --replace --jobs N -- …"),
    ("--card", "a card stays on this machine: --agent NAME goes"),
    ("--engine", "an engine runs beside a command of this machine"),
    ("--home", "a home directory stays on this machine"),
)
_DEFAULT = 4
_MOST_WAITED = 2
"""Signals after which mudroom still waits for the attempts to end."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="ls | show TRY [N] | discard TRY", help="look at tries, end them")
    parser.add_argument("-n", type=int, default=_DEFAULT, metavar="N", help=f"attempts; default: {_DEFAULT}")
    parser.add_argument("--jobs", type=int, metavar="N", help="at one time; default: as many as there are processors")
    parser.add_argument("--judge", metavar="CMD", help="its success makes an attempt pass; default: the command's own")
    parser.add_argument(
        "--score",
        choices=SCORES,
        default="exit",
        help="order of those that pass. exit: the judge's exit code (default); json: the number in its last line, the "
        "highest first; -lines: the fewest changed lines first",
    )
    parser.add_argument("--until", type=int, metavar="K", help="as soon as K have passed, end the others")
    parser.add_argument("--budget", metavar="TIME", help="wall time for all attempts: 90s, 30m, 1h")
    parser.add_argument("--from", dest="parent", metavar="FORK[@CHECKPOINT]", help="begin with the state of this fork")
    parser.add_argument(
        "--combine", action="store_true", help="also judge unions of attempts that merge cleanly; at most 16"
    )
    parser.add_argument(
        "--on", action="append", default=[], metavar="NAME", help="on these workers (mudroom fleet ls); judged here"
    )
    parser.add_argument("--retry", type=int, metavar="N", help="with --on: try one that is lost again, at most N times")
    parser.add_argument("--gpus", type=int, metavar="N", help="with --on: GPUs for each")
    parser.add_argument("--all", action="store_true", help="discard: also the best, and the record")
    parser.add_argument("--card", metavar="FILE", help="the agent's card (JSON): the policy decides what it gets")
    parser.add_argument("--agent", metavar="NAME", help="whose command it is, for the rules of the policy")
    add_ask_option(parser)
    add_confinement_options(parser)


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.command is None:
        return _look(args, context)
    if args.words:
        raise UsageError(f"{args.words[0]} stands before the command", "options come before --, the command after it")
    if not args.command:
        raise UsageError("no command was given", "mudroom try -n 8 -- COMMAND")
    return _run(args, context)


# --- a new try ---


def _run(args: argparse.Namespace, context: Context) -> int:
    request = _request(args)
    words = request.shown
    opened = open_for_command(words, args, context, context.client, args.agent, _asked(args, words, context))
    request = request._replace(commands=(tuple(opened.argv),) * len(request.commands))
    with opened.session as session:
        warn_if_bare(session, context)
        here = disk.real_path(working_directory())
        request = request._replace(cwd=here if is_below(here, session.project) else session.project)
        if args.on:
            there = part("fleet", "run", f"--on {args.on[0]}").there(session, args, context)
            request = checked(request._replace(elsewhere=there, jobs=0))
        with _signals() as signals, start(session, request) as running:
            signals.heed(running)
            for count, attempt in enumerate(running, 1):
                if not context.as_json:
                    _tell(attempt, count, args.n, context)
        if not context.as_json:
            for note in running.notes:
                context.terminal.note(note)
    record = running.record
    if context.as_json:
        context.terminal.out(to_json_text(try_to_json(record)))
    else:
        context.terminal.out("\n".join(table(record)))
    if signals.received:
        return 128 + signals.received[0]
    return 0 if record.best else 124 if record.end == "budget" else 1


def _asked(args: argparse.Namespace, command: Sequence[bytes], context: Context) -> Ask | None:
    """Return where an agent's commands ask for approval: not the terminal, which attempts cannot share."""
    if args.ask == "terminal":
        raise UsageError("--ask terminal: attempts run side by side and cannot share the terminal", "--ask queue")
    is_agent = args.agent is not None or args.card is not None or is_agent_program(command, context.environ)
    return args.ask or ("later" if is_agent else None)


def _tell(attempt: AttemptRecord, count: int, of: int, context: Context) -> None:
    """Report an ended attempt: a line for each, or a counter if there are many."""
    if of <= MOST_ROWS:
        context.terminal.say(ended_line(attempt))
    else:
        context.terminal.progress("attempts", count, of)


def _require_here(args: argparse.Namespace) -> None:
    """Raise UsageError for options that cannot go with ``--on``, or only with it."""
    if not args.on:
        for option, value in (("--retry", args.retry), ("--gpus", args.gpus)):
            if value is not None:
                raise UsageError(f"{option} is for workers, and none is named", f"--on NAME, or leave {option} out")
        return
    for option, why in _NOT_ON_WORKERS:
        if getattr(args, "parent" if option == "--from" else option[2:]):
            raise UsageError(f"{option} is not for --on: {why}", f"leave {option} out, or --on")


def _request(args: argparse.Namespace) -> AttemptRequest:
    _require_here(args)
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs}: at least one runs at a time", "leave it out, or --jobs 1")
    if args.until is not None and args.until < 1:
        raise UsageError(f"--until {args.until}: at least one has to pass", "leave it out, or --until 1")
    if args.n < 0:
        raise UsageError(f"-n {args.n} is not a number of attempts", "mudroom try -n 8 -- COMMAND")
    command = tuple(os.fsencode(word) for word in args.command)
    parent, _at, point = (args.parent or "").partition("@")
    budget = None
    if args.budget is not None:
        budget = seconds(args.budget, "--budget")
    return checked(
        AttemptRequest(
            (command,) * min(args.n, 10_000),
            command,
            judge_words(args.judge),
            args.score,
            args.jobs or 0,
            args.until or 0,
            budget,
            parent or None,
            point or None,
            args.combine,
        )
    )


def judge_words(line: str | None) -> tuple[bytes, ...]:
    """Return a judge's words. A plain line is split, so that a missing program is noticed; any other line goes to
    ``sh``, or to cmd.exe on Windows. Raise UsageError if a quote is open."""
    if line is None:
        return ()
    if not line.strip():
        raise UsageError("the judge is empty", "--judge pytest")
    if sys.platform == "win32":
        from mudroom.ext.windows.core.windows_command import needs_shell, split

        is_plain = not needs_shell(line)
    else:
        from shlex import split

        is_plain = SHELL_CHARACTERS.isdisjoint(line.replace("{i}", ""))
    if not is_plain:
        return (*shell_words(), os.fsencode(line))
    try:
        return tuple(os.fsencode(word) for word in split(line))
    except ValueError as error:
        raise UsageError(f"--judge {line}: {error}", "close the quote") from None


class _Signals:
    """Signals to mudroom during a try. The first ends the attempts (SIGTERM, later SIGKILL), the second kills them. The
    third ends mudroom at once, as SIGKILL does, since attempts may be waiting for another process. Before the try
    exists, a signal ends mudroom. ``received`` is written by handlers, in the main thread."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._running: list[Attempts] = []

    def heed(self, running: Attempts) -> None:
        self._running.append(running)

    def handle(self, number: int, _frame: object) -> None:
        self.received.append(number)
        if not self._running:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise Terminated(number)
        if len(self.received) > _MOST_WAITED:
            os._exit(128 + number)
        end, at_once = self._running[0].end, len(self.received) > 1
        # its own thread: the main thread may hold a lock that end() needs
        threading.Thread(target=end, args=("interrupted",), kwargs={"at_once": at_once}, daemon=True).start()


@contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()
    with handling(dict.fromkeys(numbers_of(*_HEEDED), signals.handle)), wake_for_signals():
        yield signals


# --- tries that were made ---


def _look(args: argparse.Namespace, context: Context) -> int:
    action, names = (args.words[0], args.words[1:]) if args.words else ("", [])
    if action not in _ACTIONS:
        if not action:
            raise UsageError("no command was given", "mudroom try -n 8 -- COMMAND; mudroom try ls")
        raise UsageError(f"there is no action {action!r}", "a command stands after --: mudroom try -n 8 -- COMMAND")
    run, least, most = _ACTIONS[action]
    if not least <= len(names) <= most:
        raise UsageError(f"try {action} takes {_names(least, most)}, {len(names)} given", "mudroom try --help")
    with open_session(context) as session:
        return run(session, names, args, context)


def _names(least: int, most: int) -> str:
    if least == most:
        return counted(most, "name") if most else "no name"
    return f"{least} to {most} names"


def _ls(session: Session, _names: list[str], _args: argparse.Namespace, context: Context) -> int:
    found = records.tries(session.vault.path)
    if context.as_json:
        rows = [try_to_json(record) for record in found.records]
        context.terminal.out(to_json_text({"schema": "mudroom.tries/1", "tries": rows, "damaged": list(found.damaged)}))
        return 0
    for record in found.records:
        heading, best = table(record)[0], record.attempt(record.best)
        if best is not None:
            end = f"best {best.fork}" if best.fork else f"the best, attempt {best.number}, has no fork"
        else:
            end = "running" if records.is_running(session.vault.path, record.name) else "no best"
        context.terminal.out(f"{heading}: {end}")
    for name in found.damaged:
        context.terminal.out(f"{name}: its record is damaged (mudroom try discard --all {name} removes it)")
    if not found.records and not found.damaged:
        context.terminal.say("no tries")
    return 0


def _show(session: Session, names: list[str], _args: argparse.Namespace, context: Context) -> int:
    record = records.load(session.vault.path, names[0])
    if len(names) > 1:
        attempt = record.attempt(int(names[1])) if names[1].isdecimal() and len(names[1]) < 9 else None
        if attempt is None:
            raise UsageError(f"{record.name} has no attempt {names[1]}", f"mudroom try show {record.name}")
        if context.as_json:
            context.terminal.out(to_json_text(try_to_json(record._replace(attempts=(attempt,)))))
        else:
            context.terminal.out("\n".join(attempt_lines(attempt)))
        return 0

    review = review_try(session, record.name)
    if context.as_json:
        context.terminal.out(to_json_text(try_to_json(record) | {"comparison": comparison_to_json(review)}))
    else:
        lines = table(record, is_running=review.running)
        context.terminal.out("\n".join([*lines, *comparison(review)]))
    return 0


def _discard(session: Session, names: list[str], args: argparse.Namespace, context: Context) -> int:
    record = _readable(session, names[0], everything=args.all)
    gone = discard(session, record, everything=args.all) if record is not None else []
    kept = list(forks_of(session, record)) if record is not None and not args.all else []
    if context.as_json:
        report = {"schema": "mudroom.discarded/1", "forks": gone, "kept": kept}
        context.terminal.out(to_json_text(report))
    elif gone or args.all:
        forks = ", ".join(gone) if len(gone) <= MOST_ROWS else counted(len(gone), "fork")
        context.terminal.say(f"discarded: {forks or names[0]}{f'; kept: {kept[0]}' if kept else ''}")
    else:
        context.terminal.say(f"nothing to discard{f'; kept: {kept[0]}' if kept else ''}")
    return 0


def _readable(session: Session, name: str, *, everything: bool) -> TryRecord | None:
    """Return a try's record. ``everything``: if it is damaged, remove it and return None."""
    if everything and name in records.tries(session.vault.path).damaged:
        records.remove(session.vault.path, name)
        return None
    return records.load(session.vault.path, name)


_Action = Callable[[Session, list[str], "argparse.Namespace", Context], int]
_ACTIONS: dict[str, tuple[_Action, int, int]] = {
    "ls": (_ls, 0, 0),
    "show": (_show, 1, 2),
    "discard": (_discard, 1, 1),
}
"""For each action: its function, and the least and greatest number of names."""
