"""``mudroom approve``: list the waiting questions, and answer them."""

from __future__ import annotations

import os
import select

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.approver import remember_command
from mudroom.cli.terminal.asking import NoAnswer, answers_to, describe_decision
from mudroom.cli.terminal.command_approver import (
    HOUR,
    KEYS,
    Keys,
    ask_here,
    choices,
    describe_question,
    keys_of,
    terms,
)
from mudroom.cli.terminal.context import Context
from mudroom.core.approval.approval import CommandAnswer, HostQuestion, hour_of, offers_of, rule_of
from mudroom.core.approval_queue import VALIDITY, QueueDecision, QueueRow, row_to_json
from mudroom.core.network.host_entry import offered_rule
from mudroom.core.network.host_rules import ASKED, HostRule
from mudroom.core.network.upload_host import upload_note
from mudroom.core.text.plural import age_words
from mudroom.core.tree.path import show_text
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.policy.host_answers import keep
from mudroom.session import Session
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from mudroom.core.network.preset import Offer
    from mudroom.session.upkeep import Queue

EXAMPLES = """\
examples:
  mudroom approve                         list the waiting questions
  mudroom approve 3fa9c1                  allow it, this once
  mudroom approve 3fa9c1 --hour           and again in its fork, for an hour; --deny takes that back
  mudroom approve 3fa9c1 --always         and write the rule that is shown, for this machine
  mudroom approve 3fa9c1 --preset         of a host: allow all hosts of the preset that the question offers
  mudroom approve 3fa9c1 --hold           of a forge or registry: pushes and publishes wait for the apply
  mudroom approve 3fa9c1 --hold --deny    from the next command on; this one does not reach it
  mudroom approve 3fa9c1 --deny --reason "use the test database"
  mudroom approve --follow                asks on this terminal, as questions come"""

_LOOK = 2.0
"""Seconds after which the queue is read even without a wake-up."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="a question; without one, waiting questions are listed")
    parser.add_argument("--deny", action="store_true", help="the answer is no")
    parser.add_argument("--always", action="store_true", help="write a rule, too: for this project on this machine")
    parser.add_argument("--hour", action="store_true", help="also if it is asked again in its fork within an hour")
    parser.add_argument("--preset", action="store_true", help="of a host: allow its preset, for this machine")
    parser.add_argument("--hold", action="store_true", help="of a host: hold its pushes and publishes")
    parser.add_argument("--reason", metavar="TEXT", default="", help="told to the agent")
    parser.add_argument("--follow", "-f", action="store_true", help="ask here, as questions come, until Ctrl-C")
    parser.add_argument("--all", action="store_true", help="list decided questions, too")


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.follow and (args.ids or context.as_json or not context.terminal.interactive):
        raise UsageError("--follow asks on a terminal, about all that comes", "mudroom approve --follow")
    if (args.deny or args.always or args.hour or args.preset or args.hold or args.reason) and not args.ids:
        raise UsageError("which question is answered?", "mudroom approve lists them")
    if args.hour and (args.deny or args.always or args.preset or args.hold):
        raise UsageError("--hour allows for an hour, and writes no rule", "mudroom approve ID --hour")
    if args.deny and args.preset:
        raise UsageError("--preset allows, and --deny does not", "mudroom net deny @NAME denies a preset")
    lists = not (args.follow or args.ids)
    with open_session(context, needs_policy=not lists) as session:
        queue = session.vault.approvals
        if args.follow:
            return _follow(queue, session, context)
        if not args.ids:
            queue.tidy()
            return _list([row for row in queue.rows() if args.all or row.state == "waiting"], queue, context)
        option = "--hold" if args.hold else "--preset" if args.preset else ""
        answer = CommandAnswer(not args.deny, args.always or bool(option), "mudroom approve", args.reason)
        answer = answer._replace(hour=args.hour)
        return max([_answer(name, answer, queue, session, context, option) for name in args.ids])


# --- waiting questions ---


def _list(rows: list[QueueRow], queue: Queue, context: Context) -> int:
    now = queue.moment()
    if context.as_json:
        listed = [row_to_json(row, now) for row in rows]
        context.terminal.json({"schema": "mudroom.approvals/1", "approvals": listed})
        return 0
    for row in rows:
        asked = row.asked
        age = age_words(row_to_json(row, now)["age_s"])
        state = "" if row.waiter else "nobody waits any more"
        state = state if row.decision is None else describe_decision(row.decision)
        who = [show_text(asked.question.agent) or "-", show_text(asked.question.fork) or "-"]
        words = [row.name, age, *who, _describe_request(row), _describe_verdict(row), f"[{state}]" if state else ""]
        context.terminal.out("  ".join(filter(None, words)))
    if not rows:
        context.terminal.say("nothing waits for an approval")
    elif any(row.decision is None for row in rows):
        context.terminal.say("mudroom approve ID allows it once; --always, --deny: mudroom approve --help")
    return 0


def _describe_request(row: QueueRow) -> str:
    if row.asked.host is not None:
        offered = offers_of(row.asked.host) if row.state == "waiting" else []
        shown = "; ".join(f"{offer.label}: mudroom approve {row.name} {_option(offer)}" for offer in offered)
        return f"to reach {show_text(row.asked.host.host)}:{row.asked.host.port}" + (f" ({shown})" if shown else "")
    return show_words(row.asked.command.command, 200) if row.asked.command is not None else ""


def _option(offer: Offer) -> str:
    return "--preset" if offer.key == "p" else "--hold" if offer.allows else "--hold --deny"


def _describe_verdict(row: QueueRow) -> str:
    if row.asked.command is None:
        note = upload_note(row.asked.host.host) if row.asked.host is not None else ""
        return f"(no rule; {note})" if note else "(no rule)"
    verdict = row.asked.command.verdict
    return f"({', '.join(verdict.classes)}: {show_text(verdict.reason)})  {terms(row.asked.command)}".rstrip()


# --- answering ---


def _answer(
    name: str, answer: CommandAnswer, queue: Queue, session: Session, context: Context, option: str = ""
) -> int:
    """``option``: that of an offered rule."""
    row = queue.row(name)
    if option:
        wanted = option + ("" if answer.allow else " --deny")
        rule = next((offer.rule for offer in offers_of(row.asked.question) if _option(offer) == wanted), "")
        if not rule:
            what = "preset" if option == "--preset" else "hold" if answer.allow else "hold for later commands alone"
            raise UsageError(
                f"{name} offers no {what}", f"mudroom approve {name} --always writes the rule that is shown"
            )
        answer = answer._replace(rule=rule)
    if answer.hour and not hour_of(row.asked.question):
        raise UsageError(f"{name} is not of an agent in a fork that stays", f"mudroom approve {name}")
    if not context.as_json:
        for line in question_lines(row):
            context.terminal.say(line)
    if answer.keep:
        _require_rule(row)
    return _decide(row, answer, queue, session, context)


def _require_rule(row: QueueRow) -> None:
    """Raise UsageError if no rule can be written. A long rule is allowed here, because it is printed first."""
    if row.asked.command is not None and not (row.asked.command.pattern and row.asked.command.pattern.isprintable()):
        raise UsageError(f"no rule can be written for {row.name}", "a part of it is not known before it runs")


def _decide(row: QueueRow, answer: CommandAnswer, queue: Queue, session: Session, context: Context) -> int:
    """``answer``: a refusal takes back what was allowed for an hour."""
    is_far = row.asked.host is not None and row.asked.host.is_far
    if answer.keep and not context.as_json:
        rule = answer.rule or rule_of(row.asked.question, answer.allow)
        context.terminal.say(f"{'for all errands of this run' if is_far else 'rule'}: {rule}")
    decision, is_first = queue.decide(
        row.name,
        allow=answer.allow,
        by=answer.by,
        reason=answer.reason,
        keep=answer.keep,
        rule=answer.rule,
        hour=answer.hour,
    )
    is_taken_back = is_first and row.decision is not None
    writes = is_first and answer.keep and not is_far and not is_taken_back
    problem = write_rule(row, answer, session) if writes else None
    rule_written = writes and problem is None
    if problem is not None:
        context.terminal.error(f"the answer holds, but its rule is not written: {problem.message}", problem.hint)
    if context.as_json:
        now = row._replace(decision=decision) if is_taken_back else queue.row(row.name)
        report = {"schema": "mudroom.approval/1", "ours": is_first, "rule_written": rule_written}
        context.terminal.json(report | row_to_json(now, queue.moment()))
    elif not is_first:
        context.terminal.error(f"{row.name} has ended already: {describe_decision(decision)}")
    elif is_taken_back:
        context.terminal.say(f"{row.name} is taken back: it is asked again")
    elif answer.hour:
        context.terminal.say(f"{row.name} is {decision.state} for an hour: {hour_of(row.asked.question)}")
    else:
        kept = "" if row.waiter else f"; nobody waits: it holds once, if that is asked again in {VALIDITY / 60:g} min"
        context.terminal.say(f"{row.name} is {decision.state}{kept}")
    return 0 if is_first and rule_written == writes else 1


def write_rule(row: QueueRow, answer: CommandAnswer, session: Session) -> MudroomError | None:
    """Write the answer's rule, and return why that failed. The answer holds in both cases."""
    try:
        if row.asked.host is not None:
            keep_host(session, row.asked.host, answer.allow, answer.rule)
        elif row.asked.command is not None:
            remember_command(session, row.asked.command.rule(answer.allow), answer.allow)
    except MudroomError as error:
        return error
    return None


def keep_host(session: Session, host: HostQuestion, allow: bool, offered: str = "") -> None:
    """Write the rule for an answer about a host, for this machine. ``offered``: the rule, if the question offered it.
    No rule is written for a worker's question. Raise MudroomError if writing fails."""
    if host.is_far:
        return
    import time

    rule = HostRule("allow" if allow else "deny", host.host, (host.port,), source=ASKED)
    if offered:
        rule = offered_rule(offered)
    state = os.path.dirname(os.path.dirname(session.vault.path))
    keep(session.project, rule, time.strftime("asked %Y-%m-%d"), state=state)


# --- following ---


class _WatchedQuestion:
    """A question that is watched without using up its answer, which is left to the waiter."""

    def __init__(self, queue: Queue, name: str, bell: int) -> None:
        self._queue, self._name, self._bell = queue, name, bell

    def fileno(self) -> int:
        return self._bell

    def look(self) -> QueueDecision | None:
        return self._queue.row(self._name).decision


def _follow(queue: Queue, session: Session, context: Context) -> int:
    context.terminal.say("waiting for questions; Ctrl-C to end")
    bell, asked_names = queue.listen("follow"), set[str]()
    poller = select.poll()
    if bell.fileno() >= 0:
        poller.register(bell.fileno(), select.POLLIN)
    try:
        while True:
            bell.clear()
            for row in queue.rows():
                if row.state == "waiting" and row.name not in asked_names:
                    asked_names.add(row.name)
                    if not _ask_about(row, queue, bell.fileno(), session, context):
                        return 0
            poller.poll(_LOOK * 1000)
    except KeyboardInterrupt:
        return 0
    finally:
        bell.close()


def _ask_about(row: QueueRow, queue: Queue, bell: int, session: Session, context: Context) -> bool:
    """Ask a question. Return False if the terminal is gone."""
    choice, keys = _choices(row)
    try:
        watched = _WatchedQuestion(queue, row.name, bell)
        pressed = ask_here(context.terminal, ["", *question_lines(row)], choice, keys, 24 * 3600.0, watched)
        if isinstance(pressed, CommandAnswer):
            _decide(row, pressed, queue, session, context)
        elif isinstance(pressed, QueueDecision):
            context.terminal.say(f"{row.name}: {describe_decision(pressed)}")
        return not isinstance(pressed, NoAnswer) or pressed.state == "waiting"
    except UsageError as error:  # the question is gone
        context.terminal.note(str(error))
        return True


def question_lines(row: QueueRow) -> list[str]:
    """Return a question for people: who asks for what, and why."""
    host = row.asked.host
    if host is not None:
        agent = f"{show_text(host.agent)} wants" if host.agent else "A command wants"
        place = f", from the fork {show_text(host.fork)}" if host.fork else ""
        note = upload_note(host.host)
        lines = [f"{agent} to reach {show_text(host.host)}:{host.port}{place} ({show_text(host.way)})"]
        return [*lines, f"{show_text(host.host)}: {note}"] if note else lines
    assert row.asked.command is not None
    return describe_question(row.asked.command, row.asked)


def _choices(row: QueueRow) -> tuple[str, Keys]:
    skip: Keys = {"s": NoAnswer("waiting", "left"), "": NoAnswer("waiting", "left")}
    host = row.asked.host
    if host is not None:
        offered: Keys = {
            key: CommandAnswer(offer.allows, keep=True, by="terminal", rule=offer.rule)
            for offer in offers_of(host)
            for key in (offer.key, offer.label.split()[0])
        }
        return f"{answers_to(host)[1]}  [s]kip", {**KEYS, **(HOUR if hour_of(host) else {}), **offered, **skip}
    assert row.asked.command is not None
    keys = keys_of(row.asked.command, in_queue=True)
    return f"{choices(row.asked.command, in_queue=True)}  [s]kip", {**keys, **skip}
