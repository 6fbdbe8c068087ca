"""``mudroom policy learn``: print a policy file with the answers in the journal. The file is not in force.

Rules of this file: only an answer becomes a rule. What was refused without an answer is a comment: a program that asks
for a host decides nothing. An answer that was given both ways is a comment, too. So is a limit that commands reached,
with twice its value, and a request that a rule for some methods or paths leaves out: nothing becomes looser by itself.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.command.pattern_text import split_bound
from mudroom.core.confinement.limit import NAMES, LimitReached, show_limit
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
from mudroom.core.text.linediff import unified_diff
from mudroom.core.text.plural import counted
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.combine import read_beside, read_project
from mudroom.policy.config import places
from mudroom.policy.edit_yaml import CannotEdit, insert_text
from mudroom.policy.host_answers import NAME as ANSWERS
from mudroom.policy.host_answers import load
from mudroom.policy.parse import parse
from mudroom.typing import Any, NamedTuple

_NAME = "learned.yaml"
_MOST_FORKS = 4
"""Most forks whose counts are shown."""
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
    by_fork: dict[str, int]
    """``times`` of each fork."""


def learn(events: Iterable[Event], answers: Sequence[HostRule] = ()) -> list[Learned]:
    """Return a rule for each subject that was always answered in the same way, and then the subjects without a rule.
    ``answers``: the rules of this machine, which tell the hosts that are held."""
    seen: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    timeouts: dict[str, float] = {}
    for event in events:
        for kind, value, outcome in _read(event.kind, data_of(event), answers, timeouts):
            seen.setdefault((kind, value), Counter())[outcome, event.fork] += 1
    rows = [_learned(kind, value, outcomes) for (kind, value), outcomes in seen.items()]
    return sorted(rows, key=lambda row: (not row.key, row.key, row.value))


def _learned(kind: str, value: str, counts: Counter[tuple[str, str]]) -> Learned:
    outcomes = dict.fromkeys(outcome for outcome, _fork in counts)
    answers = [action for action in ("allow", "deny", "hold") if action in outcomes]
    if len(answers) != 1:
        what = "answered both ways" if answers else ", ".join(outcomes)
        return Learned("", value, what, counts.total(), _by_fork(counts))
    key = f"network.{answers[0]}" if kind == "host" else "commands.rules"
    forks = _by_fork(Counter({each: count for each, count in counts.items() if each[0] == answers[0]}))
    row = Learned(key, value, answers[0], sum(forks.values()), forks)
    return row if _is_valid(row) else row._replace(key="", action="no rule can name it")


def _by_fork(counts: Counter[tuple[str, str]]) -> dict[str, int]:
    forks = Counter[str]()
    for (_outcome, fork), count in counts.items():
        forks[fork] += count
    return dict(forks)


def _read(
    kind: str, data: dict[str, Any], answers: Sequence[HostRule], timeouts: dict[str, float]
) -> Iterator[tuple[str, str, str]]:
    """Yield (kind of subject, subject, action or reason). ``timeouts``: those of the background commands so far."""
    if kind == "background":
        timeouts[data["id"]] = data.get("timeout") or 0.0
        return
    if kind == "background_end":
        limit = timeouts.pop(data["id"], 0.0) if data["timed_out"] else 0.0
        if limit:
            yield from _of_run({"limits": [LimitReached("time", "killed", limit)._asdict()]})
        return
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
            yield f"    - pattern: {value}".ljust(44) + f"  # answered {_times(row)}"
            yield f"      action: {row.action}"
        else:
            yield f"    - {value}".ljust(44) + f"  # {counted(row.times, 'connection')}{_shares(row)}"


def _times(row: Learned) -> str:
    return ("once" if row.times == 1 else f"{row.times:,} times") + _shares(row)


def _shares(row: Learned) -> str:
    """Return how often it was in each fork, if that was more than one."""
    if len(row.by_fork) < 2:
        return ""
    most = sorted(row.by_fork.items(), key=lambda item: (-item[1], item[0]))
    shares = ", ".join(f"{fork or 'no fork'} {count:,}" for fork, count in most[:_MOST_FORKS])
    return f": {printable(shares)}" + ", …" * (len(most) > _MOST_FORKS)


_KINDS = "flow", "approval", "run", "background", "background_end"


def _asks_or_limits(event: Event) -> bool:
    return event.kind != "run" or '"limits"' in event.data


def execute(args: argparse.Namespace, context: Context) -> int:
    names = tuple(dict.fromkeys(filter(None, (args.about, *args.forks))))
    with open_session(context) as session:
        events = [e for e in session.vault.journal.events(where=EventFilter(_KINDS, names)) if _asks_or_limits(e)]
        for name in names:
            if not any(event.fork == name for event in events):
                session.vault.check_name(name)
        answers = load(session.project, places(context.environ).state, trusts_all=True)
        project = session.project
    rows = learn(events, answers)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.policy-learn/1", "rows": [row._asdict() for row in rows]})
        return 0 if rows else 1
    if not rows:
        place = f"in {', '.join(show(name.encode()) for name in names)}" if names else "here"
        context.terminal.note(f"nothing was asked {place}: the policy has a rule for each host and command")
        return 1
    rules, others = [row for row in rows if row.key], [row for row in rows if not row.key]
    comments = [
        f"# {printable(row.value)}".ljust(44) + f"  # {printable(row.action)} ({_times(row)})" for row in others
    ]
    text = "\n".join((_HEAD, *_rules(rules), *comments))
    if not args.diff:
        context.terminal.out(text)
    elif rules:
        context.terminal.out(b"".join(_patch(project, text.encode() + b"\n")).decode().removesuffix("\n"))
    if rules:
        context.terminal.note(_USE_DIFF if args.diff else _USE)
    elif args.diff:
        context.terminal.note("nothing was answered that a rule could say: mudroom policy learn tells the rest")
    return 0 if rules or not args.diff else 1


_USE_DIFF = "to use it: add | git apply to this command, and run mudroom policy trust"
_USE = (
    f"to use it: save it as .mudroom/{_NAME}, write include: [{_NAME}] into .mudroom/policy.yaml, and run "
    "mudroom policy trust; --diff prints both as a patch"
)


def _patch(project: bytes, text: bytes) -> Iterator[bytes]:
    """Yield a patch that writes the file, and includes it. Raise UsageError if a file cannot be read or edited."""
    directory, name, policy = project + b"/.mudroom", _NAME.encode(), b"policy.yaml"
    included: list[bytes] = []
    read_project(project, included)
    files = {name: text}
    if directory + b"/" + name not in included:
        try:
            files[policy] = insert_text(read_beside(directory, policy) or b"", "policy.yaml", "include", _NAME)
        except CannotEdit as error:
            raise UsageError(f".mudroom/policy.yaml: {error}", f"write include: [{_NAME}] into it") from error
    for path, new in files.items():
        old, at = read_beside(directory, path), b".mudroom/" + path
        label = b"a/" + at if old is not None else b"/dev/null"
        yield from unified_diff(old or b"", new, old_label=label, new_label=b"b/" + at)
