"""``mudroom net credential``: credentials that the gate puts into requests, so that commands never have them."""

from __future__ import annotations

import argparse
import shlex

from mudroom.cli.net.preset import unknown_preset
from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.network.host_entry import UnknownPreset, expand, parse_entry
from mudroom.core.network.host_pattern import LOCALHOST, LOCALHOST_ADDRESSES, PRESET
from mudroom.core.network.host_rules import HostRule, concerns
from mudroom.core.network.inspection import Foreign
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.inspection.authority import check_libraries
from mudroom.ext.inspection.credentials import load_credentials, read_credentials, save_credentials
from mudroom.ext.inspection.placeholder import CredentialRule, parse_credential
from mudroom.policy.config import places


def manage_credentials(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        vault = session.vault.path
        known = load_credentials(vault)
        if args.remove:
            known = _without(known, args.remove)
            save_credentials(vault, known)
        elif len(args.hosts) == 1 and (args.foreign or args.user is not None) and not (args.header or args.source):
            known = _changed(known, args.hosts[0], args.foreign, args.user)
            save_credentials(vault, known)
        elif args.hosts:
            if len(args.hosts) != 2:
                raise UsageError("net credential takes a name and a host", "mudroom net credential TOKEN api.example")
            name, host = args.hosts
            _check_host(name, host)
            check_libraries()  # with a credential, no command runs without them
            try:
                rule = parse_credential(
                    name,
                    host,
                    args.header or "authorization",
                    args.source or "env",
                    foreign=args.foreign or "refuse",
                    user=args.user or "",
                )
            except ValueError as error:
                raise UsageError(str(error)) from error
            known = (*(other for other in known if other.name != rule.name), rule)
            save_credentials(vault, known)
            _warn_if_missing(rule, context)
            _warn_if_excluded(rule, session.actor.settings.never_inspect, context)
    _print_rules(known, context)
    return 0


def _check_host(name: str, host: str) -> None:
    """Raise UsageError for a host that a credential cannot be for; its hint is a command for a possible host."""
    bare, colon, port = host.lower().partition(":")
    if host.startswith(PRESET):
        hosts = [rule.pattern for rule in expand([_preset_rule(host)]) if "*" not in rule.pattern]
        raise UsageError(
            f"a credential is for one host, and {host} has several: {', '.join(hosts)}"
            if len(hosts) > 1
            else f"a credential is for a host, and {host} is a preset",
            f"mudroom net credential {shlex.quote(name)} {hosts[0]}" if hosts else "mudroom net presets lists hosts",
        )
    if bare.removesuffix(".") == LOCALHOST:
        address = LOCALHOST_ADDRESSES[0]
        raise UsageError(
            f"a credential for {LOCALHOST} would never be put in: commands reach this machine by its address",
            f"mudroom net credential {shlex.quote(name)} {address}{colon}{port}; commands ask https://{address}{colon}{port}"
            f" then, and the server's certificate names {address}",
        )


def _preset_rule(word: str) -> HostRule:
    try:
        return parse_entry(word, "allow")
    except UnknownPreset as error:
        raise unknown_preset(error, "net presets") from error


def _warn_if_missing(rule: CredentialRule, context: Context) -> None:
    """Print a note if the credential cannot be read now. It is stored anyway: its source may exist by the time a
    command runs."""
    try:
        read_credentials((rule,), context.environ, places(context.environ).home)
    except MudroomError as error:
        context.terminal.note(f"no command runs as long as this is so: {error}")


def _warn_if_excluded(rule: CredentialRule, never: tuple[HostRule, ...], context: Context) -> None:
    """Print a note if the policy excludes the host from the inspection that the credential needs."""
    if any(concerns(excluded, rule.host, rule.port) for excluded in never):
        context.terminal.note(
            f"{rule.host} is not reached: network.never_inspect excludes it, and this needs inspection"
        )


def _changed(
    known: tuple[CredentialRule, ...], name: str, foreign: Foreign | None, user: str | None
) -> tuple[CredentialRule, ...]:
    if all(rule.name != name for rule in known):
        raise UsageError(f"there is no credential {name}", "mudroom net credential lists them")
    return tuple(
        rule._replace(foreign=foreign or rule.foreign, user=rule.user if user is None else user)
        if rule.name == name
        else rule
        for rule in known
    )


def _without(known: tuple[CredentialRule, ...], name: str) -> tuple[CredentialRule, ...]:
    left = tuple(other for other in known if other.name != name)
    if left == known:
        raise UsageError(f"there is no credential {name}", "mudroom net credential lists them")
    return left


def _print_rules(known: tuple[CredentialRule, ...], context: Context) -> None:
    if context.as_json:
        rows = [rule._asdict() for rule in known]
        context.terminal.json({"schema": "mudroom.net-credentials/1", "credentials": rows})
        return
    for rule in known:
        user = f" of the user {show(rule.user.encode('utf-8', 'surrogateescape'))}" if rule.user else ""
        context.terminal.out(
            f"{rule.name}{user}: in {rule.header} for {rule.host}:{rule.port}, from {rule.origin} {rule.where}; "
            f"inside it is a placeholder; other credentials there: {rule.foreign}"
        )
    if not known:
        context.terminal.say(
            "no credentials: mudroom net credential NAME HOST [--header H] [--from SOURCE] [--foreign strip]"
        )
