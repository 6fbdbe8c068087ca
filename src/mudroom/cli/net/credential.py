"""``mudroom net credential``: credentials that the gate puts into requests, so that commands never have them."""

from __future__ import annotations

import json

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.network.host_rules import HostRule, concerns
from mudroom.core.network.placeholder import CredentialRule, parse_credential
from mudroom.errors import UsageError
from mudroom.policy.config import places
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from mudroom.core.network.placeholder import Foreign


def manage_credentials(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        known = session.machine.credentials()
        if args.remove:
            known = _without(known, args.remove)
            session.machine.keep_credentials(known)
        elif len(args.hosts) == 1 and args.foreign and not (args.header or args.source):
            known = _with_foreign(known, args.hosts[0], args.foreign)
            session.machine.keep_credentials(known)
        elif args.hosts:
            if len(args.hosts) != 2:
                raise UsageError("net credential takes a name and a host", "mudroom net credential TOKEN api.example")
            name, host = args.hosts
            try:
                rule = parse_credential(
                    name, host, args.header or "authorization", args.source or "env", foreign=args.foreign or "refuse"
                )
            except ValueError as error:
                raise UsageError(str(error)) from error
            known = (*(other for other in known if other.name != rule.name), rule)
            session.machine.keep_credentials(known)
            _warn_if_missing(rule, context)
            _warn_if_excluded(rule, session.actor.settings.never_inspect, context)
    _print_rules(known, context)
    return 0


def _warn_if_missing(rule: CredentialRule, context: Context) -> None:
    """Print a note if the credential cannot be read now. It is stored anyway: its source may exist by the time a
    command runs."""
    from mudroom.session.confinement.gateway import missing_credential

    missing = missing_credential(rule, context.environ, places(context.environ).home)
    if missing:
        context.terminal.note(f"no command runs as long as this is so: {missing}")


def _warn_if_excluded(rule: CredentialRule, never: tuple[HostRule, ...], context: Context) -> None:
    """Print a note if the policy excludes the host from the inspection that the credential needs."""
    if any(concerns(excluded, rule.host, rule.port) for excluded in never):
        context.terminal.note(
            f"{rule.host} is not reached: network.never_inspect excludes it, and this needs inspection"
        )


def _with_foreign(known: tuple[CredentialRule, ...], name: str, foreign: Foreign) -> tuple[CredentialRule, ...]:
    if all(rule.name != name for rule in known):
        raise UsageError(f"there is no credential {name}", "mudroom net credential lists them")
    return tuple(rule._replace(foreign=foreign) if rule.name == name else rule for rule in known)


def _without(known: tuple[CredentialRule, ...], name: str) -> tuple[CredentialRule, ...]:
    left = tuple(other for other in known if other.name != name)
    if left == known:
        raise UsageError(f"there is no credential {name}", "mudroom net credential lists them")
    return left


def _print_rules(known: tuple[CredentialRule, ...], context: Context) -> None:
    if context.as_json:
        rows = [rule._asdict() for rule in known]
        context.terminal.out(json.dumps({"schema": "mudroom.net-credentials/1", "credentials": rows}))
        return
    for rule in known:
        context.terminal.out(
            f"{rule.name}: in {rule.header} for {rule.host}:{rule.port}, from {rule.origin} {rule.where}; "
            f"inside it is a placeholder; other credentials there: {rule.foreign}"
        )
    if not known:
        context.terminal.say(
            "no credentials: mudroom net credential NAME HOST [--header H] [--from SOURCE] [--foreign strip]"
        )
