"""``mudroom net``: which hosts commands may reach, why, and what they have reached."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from mudroom.cli.net.credential import credential
from mudroom.cli.net.log import log
from mudroom.cli.net.open_port import open_port
from mudroom.cli.project_session import open_session, project_of, settings_of
from mudroom.cli.terminal.context import Context
from mudroom.core.network.host import Authority, parse_authority, parse_host
from mudroom.core.network.host_rules import HostDecision, HostRule, Request, decide, parse_rule, show_rule
from mudroom.core.network.preset import PRESETS
from mudroom.core.settings import Settings
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.config import places, trusts_any
from mudroom.policy.host_answers import drop, keep, load, missing

EXAMPLES = """\
examples:
  mudroom net allow registry.npmjs.org        on the ports 80 and 443, for this project on this machine
  mudroom net allow github.com:22 '*.corp.example:443,8443'
  mudroom net allow --private db.corp.example:5432   it may be in a private network, or on this machine
  mudroom net deny gist.github.com            on every port; a deny beats every allow
  mudroom net rm github.com:22                what allow and deny have written
  mudroom net ls                              every rule, and where it stands
  mudroom net presets                         names for the hosts of package managers and forges
  mudroom net why example.com:22              would it be let through? 0 yes, 1 no
  mudroom net log --denied                    what commands wanted to reach and could not
  mudroom net log --follow --fork agent-1     as it happens
  mudroom net log --har flows.har             inspected exchanges, for a browser's network panel
  mudroom net credential GITHUB_TOKEN api.github.com   inside a placeholder; the gate puts the real one in
  mudroom net open 3000                       the dev server that a command runs, on this machine's loopback

A host is a name, *.NAME (all below it), **.NAME (and itself), an address or a network (10.0.0.0/8). Rules for everybody
who works on the project stand in .mudroom/policy.yaml, in its section network."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=_ACTIONS, metavar="|".join(_ACTIONS))
    parser.add_argument("hosts", nargs="*", metavar="HOST[:PORT[,PORT]]")
    parser.add_argument("--private", action="store_true", help="allow: also if it is in a private network, or here")
    parser.add_argument("--follow", action="store_true", help="log: go on until Ctrl-C")
    parser.add_argument("--fork", metavar="NAME", help="log, open: of commands in this fork")
    parser.add_argument("--har", metavar="FILE", help="log: inspected exchanges as an HTTP archive; - is stdout")
    parser.add_argument("--header", metavar="NAME", help="credential: where it belongs (default: authorization)")
    parser.add_argument(
        "--from", dest="source", metavar="SOURCE", help="credential: env[:NAME], file:PATH, keyring:SERVICE/USER"
    )
    parser.add_argument("--remove", metavar="NAME", help="credential: forget it")
    parser.add_argument("--as", dest="as_port", metavar="PORT", help="open: another port here; 0: any that is free")
    parser.add_argument("--denied", action="store_true", help="log: only what was not let through")
    parser.add_argument("-n", "--last", type=int, default=50, metavar="N", help="log: so many; 0: all (default 50)")


def execute(args: argparse.Namespace, context: Context) -> int:
    wants_hosts = args.what in ("allow", "deny", "rm", "why", "open")
    if wants_hosts and not args.hosts:
        needed = "port" if args.what == "open" else "host"
        raise UsageError(f"net {args.what} needs a {needed}", "mudroom net --help has examples")
    if args.hosts and not wants_hosts and args.what != "credential":
        raise UsageError(f"net {args.what} takes no host")
    for option, verbs in _ONLY.items():
        if getattr(args, option) and args.what not in verbs:
            raise UsageError(f"--{_SPELLED.get(option, option)} is for net {' and net '.join(verbs)}")
    code: int = _ACTIONS[args.what](args, context)
    return code


_ONLY = {
    "private": ("allow",),
    "follow": ("log",),
    "fork": ("log", "open"),
    "denied": ("log",),
    "as_port": ("open",),
    "header": ("credential",),
    "source": ("credential",),
    "remove": ("credential",),
    "har": ("log",),
}


_SPELLED = {"as_port": "as", "source": "from"}


# --- changing ---


def _allow(args: argparse.Namespace, context: Context) -> int:
    return _keep([_rule(text, "allow", args.private) for text in args.hosts], context)


def _deny(args: argparse.Namespace, context: Context) -> int:
    return _keep([_rule(text, "deny", False) for text in args.hosts], context)


def _rule(text: str, action: Any, private: bool) -> HostRule:
    try:
        return parse_rule(text, action, private=private)
    except ValueError as error:
        raise UsageError(str(error), _international(text)) from error


def _international(text: str) -> str:
    """How a name that is not ASCII is written for computers (IDNA 2003, as Python has it); empty: not at all."""
    try:
        found = text.encode("idna").decode()
        parse_rule(found, "deny")
    except ValueError:
        return ""
    return "" if text.isascii() else f"that would be {found}"


def _keep(rules: list[HostRule], context: Context) -> int:
    project = project_of(context)
    rows, today = [], time.strftime("%Y-%m-%d")
    for rule in rules:
        kept = keep(project, rule, today, state=places(context.environ).state)
        rows.append(_row(rule) | {"there": kept.there, "replaced": [_row(one) for one in kept.replaced]})
        if not context.as_json:
            context.terminal.out(_told(rule, kept.there, kept.replaced))
            _mention_others(rule, project, context)
    _journal(rules, rules[0].action, context)
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.net/1", "rules": rows}))
    return 0


def _journal(rules: list[HostRule], what: str, context: Context) -> None:
    """A change of what may be reached belongs to what has happened in the project."""
    with open_session(context) as session:
        said = {what: ", ".join(show_rule(rule) for rule in rules), "private": any(rule.private for rule in rules)}
        session.vault.journal.append("net", "", said, time=time.time_ns())


def _told(rule: HostRule, there: bool, replaced: tuple[HostRule, ...]) -> str:
    ports = "" if rule.ports else " on every port" if rule.action == "deny" else " on the ports 80 and 443"
    before = f" (was {', '.join(_done(one) for one in replaced)})" if replaced else ""
    return f"{show_rule(rule)} is {_done(rule)}{ports}{before}{', as before' if there else ''}"


def _mention_others(rule: HostRule, project: bytes, context: Context) -> None:
    """An allow that something else overrides is no help; better said at once."""
    if rule.action != "allow" or "*" in rule.pattern or "/" in rule.pattern:
        return
    rules = (*settings_of(context, project).hosts, *_answers(project, context))
    for port in rule.ports or (443,):
        found = decide(Request(rule.pattern, port), rules)
        if found.action != "allow":
            context.terminal.note(f"port {port} all the same: {found.reason}")


def _remove(args: argparse.Namespace, context: Context) -> int:
    project = project_of(context)
    gone: list[HostRule] = []
    for text in args.hosts:
        try:
            found = drop(project, text, state=places(context.environ).state)
        except ValueError as error:
            raise UsageError(str(error)) from error
        if not found:
            raise UsageError(
                f"{show(os.fsencode(text))} was neither allowed nor denied here", _elsewhere(text, project, context)
            )
        gone += found
        if not context.as_json:
            context.terminal.out(f"{show_rule(found[0])} is no longer {', '.join(_done(one) for one in found)}")
    _journal(gone, "rm", context)
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.net/1", "removed": [_row(rule) for rule in gone]}))
    return 0


def _done(rule: HostRule) -> str:
    return {"allow": "allowed", "ask": "asked about", "deny": "denied"}[rule.action]


def _elsewhere(text: str, project: bytes, context: Context) -> str:
    """Where a rule for that host stands, or one for other ports."""
    pattern = parse_rule(text, "deny").pattern
    found = [rule for rule in (*load(project), *settings_of(context, project).hosts) if rule.pattern == pattern]
    return f"{found[0].source} has {show_rule(found[0])}" if found else "mudroom net ls lists all rules"


# --- looking ---


def _answers(project: bytes, context: Context) -> tuple[HostRule, ...]:
    """Those of this machine; that there are others is said."""
    every = load(project)
    found = load(project, places(context.environ).state, trusts_all=trusts_any(context.environ))
    if len(found) < len(every):
        gone = missing(project, places(context.environ).state)
        why = f"for it no longer says {gone[0]}" if gone else "that nobody has said on this machine"
        context.terminal.note(
            f"not taken from .mudroom/local/permissions.yaml: {len(every) - len(found)} {why} "
            "(mudroom policy trust shows all and asks)"
        )
    return found


def _list(_args: argparse.Namespace, context: Context) -> int:
    project = project_of(context)
    settings = settings_of(context, project)
    rules = (*settings.hosts, *_answers(project, context))
    if context.as_json:
        row = {
            "schema": "mudroom.net/1",
            "mode": settings.network_at(settings.level),
            "rules": [_row(rule) for rule in rules],
        }
        context.terminal.out(json.dumps(row))
        return 0
    for rule in rules:
        context.terminal.out(f"{rule.action:<5}  {show_rule(rule):<40}  {rule.source}{_more(rule)}")
    if not rules:
        context.terminal.say("no rules: nothing is let through (mudroom net allow HOST, mudroom net presets)")
    _mention_mode(settings, context)
    return 0


def _more(rule: HostRule) -> str:
    words = ["may be private"] if rule.private else []
    if rule.inspect:
        words.append("looked into")
    if rule.methods or rule.paths:
        words.append(f"only {' '.join(rule.methods) or 'every method'} {' '.join(rule.paths)}".rstrip())
    return "".join(f"  {word}" for word in words)


def _mention_mode(settings: Settings, context: Context) -> None:
    said = {
        "none": "commands have no network at all",
        "open": "commands have the host's network, whatever rules say",
    }
    mode = settings.network_at(settings.level)
    if mode in said:
        context.terminal.note(f"network.mode is {mode}: {said[mode]}")


def _presets(_args: argparse.Namespace, context: Context) -> int:
    active = {rule.source for rule in settings_of(context, project_of(context)).hosts}
    if context.as_json:
        rows = [
            {"name": name, "about": one.about, "hosts": one.hosts, "takes": one.takes, "on": f"preset {name}" in active}
            for name, one in PRESETS.items()
        ]
        context.terminal.out(json.dumps({"schema": "mudroom.net-presets/1", "presets": rows}))
        return 0
    for name, one in PRESETS.items():
        mark = "on " if f"preset {name}" in active else "   "
        takes = "; takes what is sent, too" if one.takes else ""
        context.terminal.out(f"{mark}{name:<12} {one.about}{takes}: {', '.join(one.hosts)}")
    context.terminal.say("network: {presets: [npm, pypi]} in .mudroom/policy.yaml turns them on")
    return 0


def _why(args: argparse.Namespace, context: Context) -> int:
    project = project_of(context)
    settings = settings_of(context, project)
    rules = (*settings.hosts, *_answers(project, context))
    rows = [_answer(text, rules) for text in args.hosts]
    if context.as_json:
        found = {"schema": "mudroom.net-why/1", "mode": settings.network_at(settings.level), "answers": rows}
        context.terminal.out(json.dumps(found))
    else:
        for row in rows:
            where = f"{row['host']}:{row['port']}" if row["host"] else show(os.fsencode(row["asked"]))
            context.terminal.out(f"{where}: {row['action']}: {row['reason']}")
        _mention_mode(settings, context)
    return 0 if all(row["action"] == "allow" for row in rows) else 1


def _answer(text: str, rules: tuple[HostRule, ...]) -> dict[str, Any]:
    raw = os.fsencode(text)
    try:
        found = _authority(raw)
    except ValueError as error:
        reason = f"this is a URL; ask about {_host_of(raw)}" if b"://" in raw else str(error)
        decision, host, port = HostDecision("deny", None, f"no host: {reason}"), None, None
    else:
        decision = decide(Request(found.host.text, found.port), rules)
        host, port = str(found)[: -len(str(found.port)) - 1], found.port
    return {
        "asked": text,
        "host": host,
        "port": port,
        "action": decision.action,
        "rule": _row(decision.rule) if decision.rule else None,
        "reason": decision.reason,
    }


def _authority(raw: bytes) -> Authority:
    """``host[:port]``; a bare IPv6 address, too: on a command line it can be nothing else."""
    if raw.count(b":") > 1 and not raw.startswith(b"["):
        return Authority(parse_host(raw), 443)
    return parse_authority(raw, 443)


def _host_of(url: bytes) -> str:
    return show(url.partition(b"://")[2].partition(b"/")[0].rpartition(b"@")[2])


def _row(rule: HostRule) -> dict[str, Any]:
    return {
        "action": rule.action,
        "host": rule.pattern,
        "ports": list(rule.ports),
        "private": rule.private,
        "source": rule.source,
    }


_ACTIONS = {
    "allow": _allow,
    "deny": _deny,
    "rm": _remove,
    "ls": _list,
    "presets": _presets,
    "why": _why,
    "log": log,
    "open": open_port,
    "credential": credential,
}
