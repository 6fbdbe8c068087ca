"""``mudroom net``: which hosts commands may reach, why, and which they have reached."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from mudroom.cli.net.preset import chosen_entry, print_presets, unknown_preset
from mudroom.cli.project_session import open_session, project_of, settings_of
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold, fold_row
from mudroom.core.journal.event import Event, data_of
from mudroom.core.journal.event_text import flow_text, printable
from mudroom.core.network.flow import Flow, flow_from_json
from mudroom.core.network.fork_host import SUFFIX, fork_of, is_fork_host, label_of
from mudroom.core.network.host import Authority, parse_host
from mudroom.core.network.host_entry import UnknownPreset, expand, parse_entry, preset_of
from mudroom.core.network.host_pattern import PRESET
from mudroom.core.network.host_reason import look_at_authority, parse_asked
from mudroom.core.network.host_rules import HostRule, Request, decide, held_request, held_words, show_rule
from mudroom.core.network.loopback import about_rule
from mudroom.core.network.preset import like_preset
from mudroom.core.registry import part, part_or_none
from mudroom.core.settings import Settings
from mudroom.core.tree.path import show
from mudroom.errors import Unsupported, UsageError
from mudroom.policy.config import places, trusts_any
from mudroom.policy.host_answers import drop, keep, load_entries, missing_answers
from mudroom.session import Session
from mudroom.session.confinement.namespace_listener import namespaces_at, show_inside
from mudroom.session.project_session import held_if_possible
from mudroom.typing import Any, Protocol

# --- Open port ---
# ``mudroom net open PORT``: make a server in a sandbox reachable on this machine's loopback, for this user, as long as
# its command runs.


def open_port(args: argparse.Namespace, context: Context) -> int:
    from mudroom.vault.forks.endpoint import ports_of, remember

    inside = _port(args.hosts[0]) if len(args.hosts) == 1 else None
    if inside is None:
        raise UsageError("net open takes one port", "mudroom net open 3000")
    wanted = None if args.as_port is None else _port(args.as_port)
    if args.as_port is not None and wanted is None:
        raise UsageError(f"--as {args.as_port} is no port", "a number from 1 to 65535, or 0 for any that is free")
    with open_session(context) as session:
        name, ended, namespaces = _find_running(session, args.fork)
        fork = session.vault.fork(name)
    remembered = ports_of(fork)
    outside = (wanted,) if wanted is not None else (remembered.opened.get(inside, inside), inside, 0)

    def report(port: int) -> None:
        if wanted is None and port != outside[0]:  # that one is another fork's now: this one is kept for the next time
            remember(fork, remembered._replace(opened={**remembered.opened, inside: port}))
        url = f"http://127.0.0.1:{port}"
        if context.as_json:
            context.terminal.json({"schema": "mudroom.net-open/1", "fork": name, "port": port, "url": url})
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


# --- ``mudroom net log``: the hosts that commands have reached, and the refused ones ---


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
        context.terminal.json(row)
        return
    try:
        line = _line(flow_from_json(data))
    except ValueError as error:
        line = f"unreadable: {printable(str(error))}"
    line = f"from fork {printable(caller)}  {line}" if caller else line
    context.terminal.out(f"{event.number:>4}  {printable(fork or event.fork) or '-':<9} {line}")


def _line(flow: Flow) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(flow.started // 10**9)) + "  " + flow_text(flow)


EXAMPLES = """\
examples:
  mudroom net allow @npm @github              presets: the hosts of a package manager or a forge (mudroom net presets)
  mudroom net allow api.example.com           on the ports 80 and 443, for this project on this machine
  mudroom net allow github.com:22 '*.corp.example:443,8443'
  mudroom net allow --private db.corp.example:5432   it may be in a private network, or on this machine
  mudroom net allow localhost:11434           a server on this machine: commands reach it at 127.0.0.1:11434, too
  mudroom net hold github.com                 to be read; a push or publish waits for the apply
  mudroom net hold api.example.com PUT DELETE POST=Idempotency-Key   these requests wait, too; all other are refused
  mudroom net deny gist.github.com            on every port; a deny beats every allow
  mudroom net rm github.com:22 @npm           remove what allow and deny have written
  mudroom net ls                              every rule, and where it stands
  mudroom net presets                         all presets with their hosts, and which are on; @npm: that one
  mudroom net why example.com:22              the decision, with its rule; exit code 0: allowed
  mudroom net log --denied                    only hosts that were refused
  mudroom net log --follow --fork agent-1     as it happens
  mudroom net credential GITHUB_TOKEN api.github.com   commands see a placeholder; the gate sends the value
  mudroom net open 3000                       the dev server that a command runs, on this machine's loopback
  mudroom net show 8000 --fork coder          forks that may reach coder reach its port 8000
  mudroom net reach coder:8000 --fork planner   planner may reach it: http://coder.mudroom.internal:8000/
  mudroom net why coder.mudroom.internal:8000 --fork planner   which of the two calls is missing
  mudroom net rm coder:8000 --fork planner    take it back

A host is a name, *.NAME (all below it), **.NAME (and itself), an address or a network (10.0.0.0/8); @NAME is a preset.
Rules for everybody who works on the project stand in .mudroom/policy.yaml, in its section network."""


class ForkActions(Protocol):
    """Actions about connections between forks."""

    def show_ports(self, args: argparse.Namespace, context: Context, /) -> int: ...

    def reach_forks(self, args: argparse.Namespace, context: Context, /) -> int: ...

    def remove_grants(self, args: argparse.Namespace, context: Context, /) -> int: ...

    def grant_rows(self, session: Session, /) -> list[dict[str, Any]]:
        """Return all forks' grants."""

    def look(
        self, session: Session | None, fork: str, settings: Settings, label: str, port: int, /
    ) -> tuple[bool, str]:
        """Return whether a fork may reach another fork's port, and why. Without a session: whether any fork may."""


def _forks(what: str) -> ForkActions:
    forks: ForkActions = part("agents", "net", f"mudroom {what}")
    return forks


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=_ACTIONS, metavar="|".join(_ACTIONS))
    parser.add_argument("hosts", nargs="*", metavar="HOST[:PORT[,PORT]]|@PRESET")
    parser.add_argument("--private", action="store_true", help="allow: also if it is in a private network, or here")
    parser.add_argument("--follow", action="store_true", help="log: go on until Ctrl-C")
    parser.add_argument(
        "--fork", metavar="NAME", help="log, open: of commands in this fork; show, reach, why, rm: of this fork"
    )
    parser.add_argument("--header", metavar="NAME", help="credential: where it belongs (default: authorization)")
    parser.add_argument(
        "--from", dest="source", metavar="SOURCE", help="credential: env[:NAME], file:PATH, keyring:SERVICE/USER"
    )
    parser.add_argument("--user", metavar="NAME", help="credential: the user name that may be beside it (Basic)")
    parser.add_argument(
        "--foreign",
        choices=("refuse", "strip", "allow"),
        help="credential: requests to its host with credentials of a command's own (default: refuse)",
    )
    parser.add_argument("--remove", metavar="NAME", help="credential: forget it")
    parser.add_argument("--as", dest="as_port", metavar="PORT", help="open: another port here; 0: any that is free")
    parser.add_argument("--all-users", action="store_true", help="open: also for the other users of this machine")
    parser.add_argument("--denied", action="store_true", help="log: only refused connections")
    parser.add_argument("-n", "--last", type=int, default=50, metavar="N", help="log: so many; 0: all (default 50)")


def execute(args: argparse.Namespace, context: Context) -> int:
    wants_hosts = args.what in ("allow", "hold", "deny", "rm", "why", "open", "show", "reach")
    if wants_hosts and not args.hosts:
        needed = "port" if args.what in ("open", "show") else "fork and port" if args.what == "reach" else "host"
        hint = "in PowerShell a preset stands in quotes: '@npm'" if _ON_WINDOWS else "mudroom net --help has examples"
        raise UsageError(f"net {args.what} needs a {needed}", hint)
    if args.hosts and not wants_hosts and args.what not in ("credential", "presets"):
        raise UsageError(f"net {args.what} takes no host", "mudroom net --help has examples")
    for attribute, (option, actions) in _OPTIONS.items():
        if getattr(args, attribute) and args.what not in actions:
            raise UsageError(f"{option} is for net {' and net '.join(actions)}", "mudroom net --help has examples")
    if _ON_WINDOWS and args.what in _UNIX and (args.hosts or args.what != "credential"):
        raise Unsupported(f"mudroom net {args.what}", *_UNIX[args.what])
    code: int = _ACTIONS[args.what](args, context)
    return code


_OPTIONS = {
    "private": ("--private", ("allow",)),
    "follow": ("--follow", ("log",)),
    "fork": ("--fork", ("log", "open", "show", "reach", "why", "rm")),
    "denied": ("--denied", ("log",)),
    "as_port": ("--as", ("open",)),
    "all_users": ("--all-users", ("open",)),
    "header": ("--header", ("credential",)),
    "source": ("--from", ("credential",)),
    "user": ("--user", ("credential",)),
    "foreign": ("--foreign", ("credential",)),
    "remove": ("--remove", ("credential",)),
}
"""Attribute of ``args`` to (option, actions that accept it)."""
_ON_WINDOWS = sys.platform == "win32"
_IN_FORK = (
    "namespaces that others can join",
    "a job",
    "start the server and its client in one: mudroom run -- COMMAND",
)
_UNIX = {
    "open": _IN_FORK,
    "show": _IN_FORK,
    "reach": _IN_FORK,
    "credential": (
        "a gate that looks into TLS",
        "Windows, whose gate does not",
        "mudroom run --env NAME passes it as it is",
    ),
}
"""Actions that are not available on Windows: what they need, what Windows has, and an alternative."""


# --- changing rules ---


def _change(args: argparse.Namespace, context: Context) -> int:
    texts: list[str] = []
    for word in args.hosts:
        if texts and held_request(word):  # of the host before it
            texts[-1] += f" {word}"
        else:
            texts.append(word)
    rules = [_rule(text, args.what, args.private, context) for text in texts]
    if args.what == "hold":
        part("inspection", "net", "mudroom net hold").check_libraries()  # without them no command runs then
    return _store(rules, context)


def _rule(text: str, action: Any, private: bool, context: Context) -> HostRule:
    try:
        rule = parse_entry(chosen_entry(text, action, context), action, private=private)
    except UnknownPreset as error:
        raise unknown_preset(error, f"net {action}") from error
    except ValueError as error:
        raise UsageError(str(error), _international(text)) from error
    if action in ("allow", "hold") and is_fork_host(rule.pattern):
        label = fork_of(rule.pattern) or "FORK"
        raise UsageError(
            f"no host rule opens {rule.pattern}: forks reach each other with the consent of both",
            f"mudroom net reach {label}:{next(iter(rule.ports), 8000)} --fork NAME",
        )
    return rule


def _international(text: str) -> str:
    """Return a hint with a non-ASCII name's ASCII form (IDNA 2003, Python's codec), or "" if it has none."""
    try:
        ascii_name = text.encode("idna").decode()
        parse_entry(ascii_name, "deny")
    except ValueError:
        return ""
    return "" if text.isascii() else f"that would be {ascii_name}"


def _store(rules: list[HostRule], context: Context) -> int:
    rows, today = [], time.strftime("%Y-%m-%d")
    with open_session(context) as session:  # no rule is kept whose change cannot be recorded
        for rule in rules:
            kept = keep(session.project, rule, today, state=places(context.environ).state)
            rows.append(
                rule_to_json(rule) | {"there": kept.there, "replaced": [rule_to_json(old) for old in kept.replaced]}
            )
            if not context.as_json:
                context.terminal.out(_describe_stored(rule, kept.there, kept.replaced))
                for each in expand([rule]):
                    if about := about_rule(each):
                        context.terminal.note(about)
                _warn_if_overridden(rule, session.project, context)
        _journal(rules, rules[0].action, session)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.net/1", "rules": rows})
    return 0


def _journal(rules: list[HostRule], what: str, session: Session) -> None:
    """Record a change to the host rules in the project's journal."""
    said = {what: ", ".join(show_rule(rule) for rule in rules), "private": any(rule.private for rule in rules)}
    session.vault.journal.append("net", "", said, time=time.time_ns())


def _describe_stored(rule: HostRule, there: bool, replaced: tuple[HostRule, ...]) -> str:
    was = f" (was {'; '.join(_action_word(old) for old in replaced)})" if replaced else ""
    before = ", as before" if there else ""
    holds = f"; {held_words(rule)} wait for the apply, all other changes there are refused" if rule.hold else ""
    if preset_of(rule):
        hosts = ", ".join(map(show_rule, expand([rule])))
        return f"{show_rule(rule)} is {_action_word(rule)}{was}{before}: {hosts}{holds}"
    ports = "" if rule.ports else " on every port" if rule.action == "deny" else " on the ports 80 and 443"
    word = _action_word(rule._replace(private=False))
    return f"{show_rule(rule)} is {word}{ports}{_private_words(rule)}{was}{before}{holds}"


def _warn_if_overridden(rule: HostRule, project: bytes, context: Context) -> None:
    """Print a note if other rules override an allow rule."""
    if rule.action != "allow":
        return
    rules = (*settings_of(context, project).hosts, *_machine_answers(project, context))
    for each in expand([rule]):
        if "*" in each.pattern or "/" in each.pattern:
            continue
        where = f"{each.pattern}, " if each is not rule else ""
        for port in each.ports or (443,):
            decision = decide(Request(each.pattern, port), rules)
            if decision.action != "allow":
                context.terminal.note(f"{where}port {port} all the same: {decision.reason}")


def _remove(args: argparse.Namespace, context: Context) -> int:
    if args.fork is not None:
        return _forks("net rm --fork").remove_grants(args, context)
    removed_rules: list[HostRule] = []
    with open_session(context) as session:
        for text in args.hosts:
            try:
                dropped = drop(session.project, text, state=places(context.environ).state)
            except UnknownPreset as error:
                raise unknown_preset(error, "net rm") from error
            except ValueError as error:
                raise UsageError(str(error)) from error
            if not dropped:
                raise UsageError(
                    f"{show(os.fsencode(text))} was neither allowed nor denied here",
                    _other_rule_hint(text, session.project, context),
                )
            removed_rules += dropped
            if not context.as_json:
                context.terminal.out(
                    f"{show_rule(dropped[0])} is no longer "
                    + ", ".join(_action_word(old._replace(private=False)) for old in dropped)
                )
        _journal(removed_rules, "rm", session)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.net/1", "removed": [rule_to_json(rule) for rule in removed_rules]})
    return 0


def _action_word(rule: HostRule) -> str:
    word = {"allow": "allowed", "ask": "asked about", "deny": "denied"}[rule.action]
    return ("held" if rule.hold else word) + _private_words(rule)


def _private_words(rule: HostRule) -> str:
    """Return words about private addresses if the rule opens them; empty if its pattern alone says so."""
    says_so = not rule.private or rule.action != "allow" or parse_entry(show_rule(rule), "hold").private
    return "" if says_so else ", private addresses too"


def _other_rule_hint(text: str, project: bytes, context: Context) -> str:
    """Return the command with the wanted effect, or the place of a rule for that host."""
    pattern = parse_entry(text, "deny").pattern
    answers = load_entries(project, places(context.environ).state, trusts_all=True)
    if any(rule.pattern == PRESET + pattern for rule in answers):
        return f"mudroom net rm {PRESET}{pattern}"
    rules = (*expand(answers), *settings_of(context, project).hosts)
    for rule in rules:
        word = PRESET + preset_of(rule) if preset_of(rule) else ""
        if pattern not in (rule.pattern, word, preset_of(rule)):
            continue
        place, _space, _word = rule.source.rpartition(" ") if word else (rule.source, "", "")
        if word and any(answer.pattern == word for answer in answers):
            return f"{place} has {word}: mudroom net rm {word}"
        return f"{place} has {word or show_rule(rule)}"
    return "mudroom net ls lists all rules"


# --- showing rules ---


def _machine_answers(project: bytes, context: Context) -> tuple[HostRule, ...]:
    """Return the answers given on this machine. Print a note if others are left out."""
    state = places(context.environ).state
    all_answers = load_entries(project, state, trusts_all=True)
    answers = load_entries(project, state, trusts_all=trusts_any(context.environ))
    if len(answers) < len(all_answers):
        vanished = missing_answers(project, state)
        why = f"for it no longer says {vanished[0]}" if vanished else "that nobody has said on this machine"
        context.terminal.note(
            f"not taken from permissions.yaml: {len(all_answers) - len(answers)} {why} "
            "(mudroom policy trust shows all and asks)"
        )
    return tuple(expand(answers))


def _list(_args: argparse.Namespace, context: Context) -> int:
    project = project_of(context)
    settings = settings_of(context, project)
    rules = (*settings.hosts, *_machine_answers(project, context))
    with open_session(context) as session:
        forks: ForkActions | None = part_or_none("agents", "net")
        grants = forks.grant_rows(session) if forks is not None else []
    if context.as_json:
        report = {
            "schema": "mudroom.net/1",
            "mode": settings.network_at(settings.level),
            "rules": [rule_to_json(rule) for rule in rules],
            "agents": [str(link) for link in settings.agent_links],
            "forks": [{rule.side: str(rule)} for rule in settings.fork_rules] + grants,
        }
        context.terminal.json(report)
        return 0
    columns = context.terminal.columns(1)
    for line in _rule_lines(rules, columns):
        context.terminal.out(line)
    for warning in dict.fromkeys(filter(None, map(like_preset, rules))):
        context.terminal.note(warning)
    for link in settings.agent_links:
        context.terminal.out(_row("allow", str(link), ["network.agents"], columns))
    for rule in settings.fork_rules:
        context.terminal.out(_row(rule.side, str(rule), ["network.forks"], columns))
    for row in grants:
        side = "show" if "show" in row else "reach"
        context.terminal.out(_row(side, row[side], [f"net {side} --fork {row['fork']}"], columns))
    if not rules and not settings.agent_links and not settings.fork_rules and not grants:
        context.terminal.say(
            "no rules: nothing is let through (mudroom net allow @npm; mudroom net presets lists more)"
        )
    _print_mode(settings, context)
    return 0


def _row(action: str, what: str, cells: Sequence[str], columns: int) -> str:
    line = f"{action:<5}  {what:<40}  {'  '.join(cells)}"
    return fold_row(line, [f"{action:<5}  {what}", *cells], columns, " " * 7)


def _rule_lines(rules: Sequence[HostRule], columns: int) -> list[str]:
    """Return a row for each rule; a preset with all its hosts has one row."""
    hosts: dict[tuple[str, ...], list[HostRule]] = {}
    for number, rule in enumerate(rules):
        key = (rule.action, rule.source) if preset_of(rule) else (str(number),)
        hosts.setdefault(key, []).append(rule)
    lines = []
    for parts in hosts.values():
        rule, name = parts[0], preset_of(parts[0])
        shown, place = (PRESET + name, rule.source.rpartition(" ")[0]) if name else (show_rule(rule), rule.source)
        of_preset = [", ".join(map(show_rule, parts))] if name else []
        lines.append(_row(rule.action, shown, [place, *of_preset, *_describe_limits(rule)], columns))
    return lines


def _describe_limits(rule: HostRule) -> list[str]:
    words = ["may be private"] if rule.private else []
    if rule.hold:
        words.append(f"held: {held_words(rule)}")
    elif rule.inspect:
        words.append("looked into")
    if rule.methods or rule.paths:
        words.append(f"only {' '.join(rule.methods) or 'every method'} {' '.join(rule.paths)}".rstrip())
    if rule.only:
        words.append("all else denied")
    if rule.foreign:
        words.append(f"foreign credentials: {rule.foreign}")
    return words


def _print_mode(settings: Settings, context: Context) -> None:
    texts = {
        "none": "commands have no network at all",
        "open": "commands have the host's network, whatever rules say",
    }
    mode = settings.network_at(settings.level)
    if mode in texts:
        context.terminal.note(f"network.mode is {mode}: {texts[mode]}")


def _presets(args: argparse.Namespace, context: Context) -> int:
    project = project_of(context)
    rules = (*settings_of(context, project).hosts, *_machine_answers(project, context))
    return print_presets({preset_of(rule) for rule in rules if rule.action == "allow"}, args.hosts, context)


def _why(args: argparse.Namespace, context: Context) -> int:
    project = project_of(context)
    settings = settings_of(context, project)
    rules = (*settings.hosts, *_machine_answers(project, context))
    with open_session(context) if args.fork is not None else nullcontext() as session:
        if session is not None:
            session.vault.fork(args.fork)  # raises UsageError if there is none

        def look_at_fork(label: str, port: int) -> tuple[bool, str]:
            return _forks(f"net why {label}{SUFFIX}").look(session, args.fork, settings, label, port)

        rows = [
            _why_row(text, authority, rules, look_at_fork)
            for text, authority in map(_parse_asked, _hosts_of(args.hosts))
        ]
    if context.as_json:
        report = {"schema": "mudroom.net-why/1", "mode": settings.network_at(settings.level), "answers": rows}
        context.terminal.json(report)
    else:
        for row in rows:
            answer = f"{row['host']}:{row['port']}: {row['action']}: {row['reason']}{_condition(row)}"
            context.terminal.out(fold(answer, context.terminal.columns(1)))
            if row["agents"]:
                answer = f"{row['agents']}; mudroom net allow {row['host']}:{row['port']} lets agents do all"
                context.terminal.out(fold(answer, context.terminal.columns(1)))
        _print_mode(settings, context)
    return 0 if all(row["action"] == "allow" for row in rows) else 1


def _hosts_of(texts: Sequence[str]) -> list[str]:
    """Return the texts, with each preset replaced by its hosts."""
    hosts: list[str] = []
    for text in texts:
        try:
            rules = expand([parse_entry(text, "allow")]) if text.startswith(PRESET) else None
        except UnknownPreset as error:
            raise unknown_preset(error, "net why") from error
        if rules is None:
            hosts.append(text)
        else:
            parts = [rule for rule in rules if "*" not in rule.pattern]
            hosts += [f"{rule.pattern}:{port}" for rule in parts for port in rule.ports or (443,)]
    return hosts


def _parse_asked(text: str) -> tuple[str, Authority]:
    """Return the text with its host and port. Raise UsageError if it is not a host."""
    try:
        return text, parse_asked(os.fsencode(text))
    except ValueError as error:
        raise UsageError(str(error), "mudroom net why HOST[:PORT]") from error


def _condition(row: dict[str, Any]) -> str:
    """Return the condition on which an allow holds, or "". Names are not resolved here, but by the gate when a command
    connects."""
    rule = row["rule"]
    if row["action"] != "allow" or rule is None or rule["private"] or parse_host(row["host"].encode()).kind != "name":
        return ""
    return ", if its address is public"


def _why_row(
    text: str, authority: Authority, rules: Sequence[HostRule], look_at_fork: Callable[[str, int], tuple[bool, str]]
) -> dict[str, Any]:
    decision = look_at_authority(authority, rules, look_at_fork)
    of_agent = look_at_authority(authority, held_if_possible(rules), look_at_fork)
    return {
        "asked": text,
        "host": str(authority)[: -len(str(authority.port)) - 1],
        "port": authority.port,
        "action": decision.action,
        "rule": rule_to_json(decision.rule) if decision.rule else None,
        "reason": decision.reason,
        "agents": "" if of_agent == decision else f"{of_agent.action}: {of_agent.reason}",
    }


def rule_to_json(rule: HostRule) -> dict[str, Any]:
    return {
        "action": rule.action,
        "host": rule.pattern,
        "ports": list(rule.ports),
        "private": rule.private,
        "source": rule.source,
        "preset": preset_of(rule),
    } | ({"hold": True, "requests": list(rule.requests)} if rule.hold else {})


def _credential(args: argparse.Namespace, context: Context) -> int:
    code: int = part("inspection", "net", "mudroom net credential").manage_credentials(args, context)
    return code


_ACTIONS = {
    "allow": _change,
    "hold": _change,
    "deny": _change,
    "rm": _remove,
    "ls": _list,
    "presets": _presets,
    "why": _why,
    "log": print_log,
    "open": open_port,
    "show": lambda args, context: _forks("net show").show_ports(args, context),
    "reach": lambda args, context: _forks("net reach").reach_forks(args, context),
    "credential": _credential,
}
