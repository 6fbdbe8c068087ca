"""``mudroom certify``: try what the sandbox of this platform holds, and open what held."""

from __future__ import annotations

import json
import sys

from mudroom.certify.record import encode
from mudroom.certify.row import Certificate, closed, opens, sentence
from mudroom.certify.table import TABLES
from mudroom.cli.certification import tried
from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from mudroom.sandbox.macos.client import DarwinClient

EXAMPLES = """\
examples:
  mudroom certify
  mudroom certify --json certificate.json     to send to us: no path and no name is in it

A platform without a kernel's promise, such as macOS, is opened by what held on this machine. Each row is a deed that
works outside of the sandbox; only rows that held inside open something.

Exit code 0 if commands can be confined here, 1 if not."""
_STYLES = {"held": "green", "fell": "red", "not shown": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="with --json: a new file to write the certificate to")


def execute(args: argparse.Namespace, context: Context) -> int:
    if sys.platform not in TABLES:
        raise UsageError(f"{sys.platform} needs no certificate", "mudroom doctor tries what is protected here")
    if args.file is not None and not context.as_json:
        raise UsageError("a file is written with --json only", f"mudroom certify --json {args.file}")
    from mudroom.sandbox.macos.client import SANDBOX_EXEC, DarwinClient

    return certify_here(sys.platform, SANDBOX_EXEC, DarwinClient(), args.file, context)


def certify_here(platform: str, tool: bytes, client: DarwinClient, to: str | None, context: Context) -> int:
    """Try every row, store the certificate, and print it. Return the exit code."""
    certificate = tried(platform, tool, client, context)
    if to is not None:
        _write(to, certificate)
    elif context.as_json:
        context.terminal.out(_text(certificate))
    else:
        _print(platform, certificate, context)
    return 0 if opens(TABLES[platform], certificate) else 1


def _text(certificate: Certificate) -> str:
    return json.dumps({"schema": "mudroom.certificate/1", **encode(certificate)})


def _write(path: str, certificate: Certificate) -> None:
    try:
        with open(path, "x", encoding="ascii") as stream:
            stream.write(_text(certificate) + "\n")
    except FileExistsError:
        raise UsageError(f"{path} exists already", "name another file") from None


def _print(platform: str, certificate: Certificate, context: Context) -> None:
    terminal, table = context.terminal, TABLES[platform]
    width = max(len(row.name) for row in table)
    for row in certificate.rows:
        verdict = terminal.style(f"{row.verdict:<9}", _STYLES[row.verdict], 1)
        terminal.out(f"{row.name:<{width}}  {verdict}  {row.found}")
    parts = closed(table, certificate)
    terminal.out(f"{certificate.system}: {'certified' if opens(table, certificate) else 'closed'}")
    for part, closing in parts.items():
        terminal.out(f"closed: {sentence(part, closing)}")
