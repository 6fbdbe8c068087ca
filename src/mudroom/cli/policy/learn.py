"""``mudroom policy learn``: print a policy file with the answers in the journal. The file is not in force.

Rules of this file: only an answer becomes a rule. What was refused without an answer is a comment: a program that asks
for a host decides nothing. An answer that was given both ways is a comment, too. So is a limit that commands reached,
with twice its value, and a request that a rule for some methods or paths leaves out: nothing becomes looser by itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.command.pattern_text import split_bound
from mudroom.core.confinement.limit import NAMES, show_limit
from mudroom.core.journal.event import Event, data_of
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.journal.event_text import printable
from mudroom.core.network.host_rules import (
    ASKED,
    LATER,
    OTHER_REQUESTS,
    SOME_REQUESTS,
    USUAL,
    HostRule,
    holding,
    show_rule,
)
from mudroom.core.text.answer_place import ANSWERED
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.config import places
from mudroom.policy.host_answers import NAME as ANSWERS
from mudroom.policy.host_answers import load
from mudroom.policy.parse import parse
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import argparse

_NAME = "learned.yaml"
_REFUSED = regex(rf"{ASKED}, (and )?refused (by|on) ")
"""A refusal that was answered elsewhere than at the command's terminal (``answer_place.py``)."""
_OF_RUN = {"time": "timeout", "output": "output_limit"}
_HEAD = """\
# What was answered in this project, from its journal. Whoever trusts this file allows it without a question. A pattern
# holds for any further words, and for any content of a script, where the answer was about one."""


class Learned(NamedTuple):
    """A rule, or a subject without one."""

    key: str
    """``network.allow``, ``network.deny``, ``network.hold``, ``commands.rules``; empty: no rule follows."""
    value: str
    """A host entry, or a command's pattern; without a key the subject."""
    action: str
    """``allow``, ``deny`` or ``hold``; without a key the reason."""
    times: int
    """Connections, answers, or commands that reached a limit."""


def learn(events: Iterable[Event], answers: Sequence[HostRule] = ()) -> list[Learned]:
    """Return a rule for each subject that was always answered in the same way, and then the subjects without a rule.
    ``answers``: the rules of this machine, which tell the hosts that are held."""
    seen: dict[tuple[str, str], Counter[str]] = {}
    for event in events:
        for kind, value, outcome in _read(event.kind, data_of(event), answers):
            seen.setdefault((kind, value), Counter())[outcome] += 1
    rows = [_learned(kind, value, outcomes) for (kind, value), outcomes in seen.items()]
    return sorted(rows, key=lambda row: (not row.key, row.key, row.value))


def _learned(kind: str, value: str, outcomes: Counter[str]) -> Learned:
    answers = [action for action in ("allow", "deny", "hold") if outcomes[action]]
    if len(answers) != 1:
        what = "answered both ways" if answers else ", ".join(outcomes)
        return Learned("", value, what, outcomes.total())
    key = f"network.{answers[0]}" if kind == "host" else "commands.rules"
    row = Learned(key, value, answers[0], outcomes[answers[0]])
    return row if _is_valid(row) else row._replace(key="", action="no rule can name it")


def _read(kind: str, data: dict[str, Any], answers: Sequence[HostRule]) -> Iterator[tuple[str, str, str]]:
    """Yield (kind of subject, subject, action or reason)."""
    if kind == "run":
        yield from _of_run(data)
        return
    row = _of_flow(data, answers) if kind == "flow" else _of_approval(data)
    if row is not None:
        yield row


def _of_run(data: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield ("limit", setting with twice the value, effect) for each limit that affected the command."""
    for reached in data.get("limits", ()):
        kind, action, limit = reached["kind"], reached["action"], reached["limit"]
        if kind not in NAMES:
            continue
        if limit is None:
            yield "limit", NAMES[kind], f"{action}, the machine had no more"
            continue
        total = "total_" if reached["whose"] == "project" else ""
        key = f"run: {{{_OF_RUN[kind]}" if kind in _OF_RUN else f"limits: {{{total}{kind}"
        yield "limit", f"{key}: {_shown(kind, limit * 2)}}}", f"{action} at {_shown(kind, limit)}"


def _shown(kind: str, limit: float) -> str:
    return f"{limit:.0f}" if kind == "processes" else show_limit(kind, limit)


def _of_flow(data: dict[str, Any], answers: Sequence[HostRule]) -> tuple[str, str, str] | None:
    """Return ("host", entry, action or reason), or ("request", method and URL, reason); None if a policy file has a
    rule for the host already."""
    host, port, rule, verdict = (data.get(key) for key in ("host", "port", "rule", "verdict"))
    if not isinstance(host, str) or not isinstance(port, int):
        return None
    entry, rule = host if port in USUAL else f"{host}:{port}", str(rule or "")
    if rule.startswith(ANSWERS.decode()):
        held = _held(host, port, answers) if verdict == "allow" else None
        if held is not None:
            return "host", show_rule(held), "hold"
        return "host", rule.rpartition(" ")[2] if " @" in rule else entry, str(verdict)
    if rule == ASKED or (verdict == "deny" and _REFUSED.match(rule)):
        return "host", entry, str(verdict)
    offered = rule.removeprefix(f"{ASKED} ")
    if verdict == "allow":  # of rules, a question offers a preset that is allowed, or a host that is held
        return ("host", offered, "allow" if offered.startswith("@") else "hold") if offered != rule else None
    if rule.startswith(LATER):
        return "host", entry, "refused, to be held from the next command on"
    reason = str(data.get("reason", ""))
    if data.get("method") and (SOME_REQUESTS in reason or OTHER_REQUESTS in reason):
        return "request", f"{data['method']} {entry}{data.get('path', '')}", f"refused, {reason.partition(' than ')[0]}"
    return ("host", entry, "refused, no answer") if not rule or rule.startswith(ASKED) else None


def _held(host: str, port: int, answers: Sequence[HostRule]) -> HostRule | None:
    try:
        return holding(answers, host, port)
    except ValueError:  # the journal has a redacted name, which is no host
        return None


def _of_approval(data: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return ("command", pattern, action or reason)."""
    pattern = data.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        words = data.get("command")
        return ("command", " ".join(map(str, words)), "no pattern holds it") if isinstance(words, list) else None
    pattern = split_bound(pattern)[0].removesuffix(" *")
    if ANSWERED.get(str(data.get("by"))) == "":  # by nobody, or not yet
        return "command", pattern, "asked, no answer"
    return "command", pattern, "allow" if data.get("allow") else "deny"


def _is_valid(row: Learned) -> bool:
    """Return whether the policy's reader takes the rule: the journal can hold what no policy does, such as a host that
    is no name."""
    try:
        parse("\n".join(_rules([row])).encode(), _NAME)
    except (UsageError, ValueError):
        return False
    return True


def _rules(rows: Iterable[Learned]) -> Iterator[str]:
    """Yield the lines of a policy file."""
    before: list[str] = []
    for row in rows:
        path = row.key.split(".")
        for depth, name in enumerate(path):
            if path[: depth + 1] != before[: depth + 1]:
                yield f"{'  ' * depth}{name}:"
                before = path[: depth + 1]
        value = json.dumps(row.value)
        if row.key == "commands.rules":
            yield f"    - pattern: {value}".ljust(44) + f"  # answered {_times(row.times)}"
            yield f"      action: {row.action}"
        else:
            yield f"    - {value}".ljust(44) + f"  # {row.times:,} connection{'s' if row.times > 1 else ''}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def execute(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        where = EventFilter(("flow", "approval", "run"), (args.about,) if args.about is not None else ())
        events = [e for e in session.vault.journal.events(where=where) if e.kind != "run" or '"limits"' in e.data]
        if args.about is not None and not events:
            session.vault.check_name(args.about)
        answers = load(session.project, places(context.environ).state, trusts_all=True)
    rows = learn(events, answers)
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.policy-learn/1", "rows": [row._asdict() for row in rows]}))
        return 0 if rows else 1
    if not rows:
        place = f"in {show(args.about.encode())}" if args.about is not None else "here"
        context.terminal.note(f"nothing was asked {place}: the policy has a rule for each host and command")
        return 1
    rules, others = [row for row in rows if row.key], [row for row in rows if not row.key]
    comments = [
        f"# {printable(row.value)}".ljust(44) + f"  # {printable(row.action)} ({_times(row.times)})" for row in others
    ]
    context.terminal.out("\n".join((_HEAD, *_rules(rules), *comments)))
    if rules:
        context.terminal.note(
            f"to use it: save it as .mudroom/{_NAME}, write include: [{_NAME}] into .mudroom/policy.yaml, and run "
            "mudroom policy trust"
        )
    return 0
