"""Certify this platform: by ``mudroom certify``, and by itself before the first session."""

from __future__ import annotations

import sys
import tempfile

from mudroom.certify.opening import look, make
from mudroom.certify.row import Certificate
from mudroom.certify.table import TABLES
from mudroom.cli.terminal.context import Context
from mudroom.policy.config import places
from mudroom.stage.private_directory import require_private
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.sandbox.macos.client import DarwinClient


def tried(platform: str, tool: bytes, client: DarwinClient, context: Context) -> Certificate:
    """Try every row and store the certificate. Raise MudroomError if none could be made."""
    from mudroom.certify.macos import mac_trial

    place = places(context.environ)
    require_private(place.state)
    search = [entry for entry in context.environ.get(b"PATH", b"").split(b":") if entry.startswith(b"/")]

    def progress(number: int, count: int, _name: str) -> None:
        context.terminal.progress("trying the sandbox", number, count)

    try:
        with tempfile.TemporaryDirectory(dir=place.state, prefix=b"certify-") as directory:
            trial = mac_trial(client, home=place.home, search=search)
            return make(platform, place.state, tool, trial, directory, progress=progress)
    finally:
        client.close()


def certify_first(context: Context, platform: str = sys.platform, tool: bytes = b"") -> None:
    """Certify a platform that has no certificate before a session is opened, if stdin is a terminal; otherwise opening
    the session says how. ``tool``: another one than the platform's."""
    if platform not in TABLES or not sys.stdin.isatty():
        return
    from mudroom.sandbox.macos.client import SANDBOX_EXEC, DarwinClient

    tool = tool or SANDBOX_EXEC
    opening = look(platform, places(context.environ).state, tool)
    if opening.certificate is None:
        context.terminal.note(f"this system is tried first, in less than a minute (mudroom certify): {opening.why}")
        tried(platform, tool, DarwinClient(tool=tool), context)
