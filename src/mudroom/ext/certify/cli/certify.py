"""``mudroom doctor --certify``: try whether this platform's sandbox holds, and open the parts that held.

On a platform that needs no record, such as Linux, the rows are tried and told, but not stored.
"""

from __future__ import annotations

import json
import os
import sys

from mudroom.cli.host.doctor import screen_size
from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError
from mudroom.ext.certify.cli.certificate import every_row, screen
from mudroom.ext.certify.cli.certification import new_client, tried
from mudroom.ext.certify.identity import tool_of
from mudroom.ext.certify.opening import can_be_tried
from mudroom.ext.certify.record import encode
from mudroom.ext.certify.row import Certificate, opens
from mudroom.ext.certify.table import expected
from mudroom.sandbox.platform import BY_RECORD
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from mudroom.sandbox.client.client import Client


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.file is not None and not context.as_json:
        raise UsageError("a file is written with --json only", f"mudroom doctor --certify --json {args.file}")
    if args.file is not None and os.path.lexists(args.file):
        raise UsageError(f"{args.file} exists already", "name another file")
    platform = str(sys.platform)
    if platform == "linux":
        from mudroom.ext.certify.cli.certification import tried_on_linux

        return tell("linux", tried_on_linux(context), args.file, context, every=args.all)
    if platform not in BY_RECORD or not can_be_tried(platform):
        raise UsageError(f"nothing can be tried on {platform} yet", "mudroom doctor tries what is protected here")
    tool = tool_of(platform)
    return certify_here(
        platform, tool, context.client or new_client(platform, tool), args.file, context, every=args.all
    )


def certify_here(
    platform: str, tool: bytes, client: Client, file: str | None, context: Context, *, every: bool = False
) -> int:
    """Try every row, store the certificate, and print it or write it to a new file. Return the exit code."""
    return tell(platform, tried(platform, tool, client, context), file, context, every=every)


def tell(platform: str, certificate: Certificate, file: str | None, context: Context, *, every: bool = False) -> int:
    """Write a certificate to a new file, or print it, with ``every`` row or as a screen. Return the exit code."""
    if file is not None:
        _write(file, _text(certificate) + "\n")
    elif context.as_json:
        context.terminal.out(_text(certificate))
    else:
        _print(certificate, every, context)
    return 0 if opens(expected(platform, certificate), certificate) else 1


def _text(certificate: Certificate) -> str:
    return json.dumps({"schema": "mudroom.certificate/1", **encode(certificate)})


def _write(path: str, text: str) -> None:
    try:
        with open(path, "x", encoding="ascii") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists already", "name another file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "name another file") from None


def _print(certificate: Certificate, every: bool, context: Context) -> None:
    def style(text: str, name: str) -> str:
        return context.terminal.style(text, name, 1)

    lines = every_row(certificate, style) if every else screen(certificate, style, *screen_size())
    context.terminal.out("\n".join(lines))
