"""``mudroom policy learn``: print a policy file with the answers in the journal. The file is not in force.

Rules of this file: only an answer becomes a rule. What was refused without an answer is a comment: a program that asks
for a host decides nothing. An answer that was given both ways is a comment, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.command.pattern_text import split_bound
from mudroom.core.journal.event import Event, data_of
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.journal.event_text import printable
from mudroom.core.network.host_rules import ASKED, USUAL
from mudroom.core.text.answer_place import ANSWERED
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.host_answers import NAME as ANSWERS
from mudroom.policy.parse import parse
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import argparse

_NAME = "learned.yaml"
_HEAD = """\
# What was answered in this project, from its journal. Whoever trusts this file allows it without a question. A pattern
# holds for any further words, and for any content of a script, where the answer was about one."""


class Learned(NamedTuple):
    """A rule, or a subject without one."""

    key: str
    """``network.allow``, ``network.deny``, ``commands.rules``; empty: no rule follows."""
    value: str
    """A host entry, or a command's pattern; without a key the subject."""
    action: str
    """``allow`` or ``deny``; without a key the reason."""
    times: int
    """Connections, or answers."""


def learn(events: Iterable[Event]) -> list[Learned]:
    """Return a rule for each subject that was always answered in the same way, and then the subjects without a rule."""
    seen: dict[tuple[str, str], Counter[str]] = {}
    for event in events:
        row = _of_flow(data_of(event)) if event.kind == "flow" else _of_approval(data_of(event))
        if row is not None:
            seen.setdefault(row[:2], Counter())[row[2]] += 1
    rows = [_learned(kind, value, outcomes) for (kind, value), outcomes in seen.items()]
    return sorted(rows, key=lambda row: (not row.key, row.key, row.value))


def _learned(kind: str, value: str, outcomes: Counter[str]) -> Learned:
    answers = [action for action in ("allow", "deny") if outcomes[action]]
    if len(answers) != 1:
        what = "answered both ways" if answers else ", ".join(outcomes)
        return Learned("", value, what, outcomes.total())
    key = f"network.{answers[0]}" if kind == "host" else "commands.rules"
    row = Learned(key, value, answers[0], outcomes[answers[0]])
    return row if _is_valid(row) else row._replace(key="", action="no rule can name it")


def _of_flow(data: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return ("host", entry, action or reason); None if a policy file has a rule for the host already."""
    host, port, rule, verdict = (data.get(key) for key in ("host", "port", "rule", "verdict"))
    if not isinstance(host, str) or not isinstance(port, int):
        return None
    entry, rule = host if port in USUAL else f"{host}:{port}", str(rule or "")
    if rule.startswith(ANSWERS.decode()):
        return "host", rule.rpartition(" ")[2] if " @" in rule else entry, str(verdict)
    if rule == ASKED:
        return "host", entry, str(verdict)
    return ("host", entry, "refused, no answer") if verdict == "deny" and (not rule or rule.startswith(ASKED)) else None


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
        where = EventFilter(("flow", "approval"), (args.about,) if args.about is not None else ())
        events = list(session.vault.journal.events(where=where))
        if args.about is not None and not events:
            session.vault.check_name(args.about)
    rows = learn(events)
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.policy-learn/1", "rows": [row._asdict() for row in rows]}))
        return 0 if rows else 1
    if not rows:
        place = f"in {show(args.about.encode())}" if args.about is not None else "here"
        context.terminal.note(f"nothing was asked {place}: the policy has a rule for each host and command")
        return 1
    rules, others = [row for row in rows if row.key], [row for row in rows if not row.key]
    comments = [f"# {printable(row.value)}: {row.action} ({_times(row.times)})" for row in others]
    context.terminal.out("\n".join((_HEAD, *_rules(rules), *comments)))
    if rules:
        context.terminal.note(
            f"to use it: save it as .mudroom/{_NAME}, write include: [{_NAME}] into .mudroom/policy.yaml, and run "
            "mudroom policy trust"
        )
    return 0
