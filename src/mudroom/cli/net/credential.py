"""``mudroom net credential``: what the gate puts into requests, so that commands never have it."""

from __future__ import annotations

import argparse
import json

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.network.placeholder import CredentialRule, parse_wanted
from mudroom.errors import UsageError
from mudroom.policy.config import places


def credential(args: argparse.Namespace, context: Context) -> int:
    with open_session(context) as session:
        known = session.machine.credentials()
        if args.remove:
            known = _without(known, args.remove)
            session.machine.keep_credentials(known)
        elif args.hosts:
            if len(args.hosts) != 2:
                raise UsageError("net credential takes a name and a host", "mudroom net credential TOKEN api.example")
            name, host = args.hosts
            try:
                wanted = parse_wanted(name, host, args.header or "authorization", args.source or "env")
            except ValueError as error:
                raise UsageError(str(error)) from error
            known = (*(one for one in known if one.name != wanted.name), wanted)
            session.machine.keep_credentials(known)
            _try(wanted, context)
    _tell(known, context)
    return 0


def _try(wanted: CredentialRule, context: Context) -> None:
    """It is kept all the same: what it is read from may be there by the time a command runs."""
    from mudroom.session.confinement.gateway import missing_credential

    missing = missing_credential(wanted, context.environ, places(context.environ).home)
    if missing:
        context.terminal.note(f"no command runs as long as this is so: {missing}")


def _without(known: tuple[CredentialRule, ...], name: str) -> tuple[CredentialRule, ...]:
    left = tuple(one for one in known if one.name != name)
    if left == known:
        raise UsageError(f"there is no credential {name}", "mudroom net credential lists them")
    return left


def _tell(known: tuple[CredentialRule, ...], context: Context) -> None:
    if context.as_json:
        rows = [one._asdict() for one in known]
        context.terminal.out(json.dumps({"schema": "mudroom.net-credentials/1", "credentials": rows}))
        return
    for one in known:
        context.terminal.out(
            f"{one.name}: in {one.header} for {one.host}:{one.port}, from {one.origin} {one.where}; "
            "inside it is a placeholder"
        )
    if not known:
        context.terminal.say("no credentials: mudroom net credential NAME HOST [--header H] [--from SOURCE]")
