"""Certify this platform: by ``mudroom certify``, and by itself before the first session."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping

from mudroom.certify.identity import tool_of
from mudroom.certify.opening import can_be_tried, look, make
from mudroom.certify.row import Certificate
from mudroom.certify.table import TABLES
from mudroom.certify.trial import Progress
from mudroom.cli.terminal.context import Context
from mudroom.policy.config import places
from mudroom.sandbox.platform import BY_RECORD
from mudroom.stage.private_directory import require_private
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.sandbox.macos.client import DarwinClient


def certified(environ: Mapping[bytes, bytes], platform: str = sys.platform, tool: bytes = b"") -> list[str]:
    """Return what the record of this machine opens and closes, in one line each."""
    from mudroom.doctor.certificate import lines

    return lines(look(platform, places(environ).state, tool or tool_of(platform)))


def tried(platform: str, tool: bytes, client: DarwinClient, context: Context) -> Certificate:
    """Try every row and store the certificate. Raise MudroomError if none could be made."""
    from mudroom.certify.macos import mac_trial

    place = places(context.environ)
    require_private(place.state)
    search = [entry for entry in context.environ.get(b"PATH", b"").split(b":") if entry.startswith(b"/")]

    try:
        with tempfile.TemporaryDirectory(dir=place.state, prefix=b"certify-") as directory:
            trial = mac_trial(client, home=place.home, search=search)
            return make(platform, place.state, tool, trial, directory, progress=_progress(context))
    finally:
        client.close()


def tried_on_linux(context: Context) -> Certificate:
    """Try the rows of Linux and return what held; nothing is stored. With namespaces where they are permitted, else by
    Landlock, as a session does."""
    from mudroom.certify.linux import linux_trial
    from mudroom.certify.row import opens
    from mudroom.certify.trial import certify
    from mudroom.sandbox.client.client import Client

    place, table = places(context.environ), TABLES["linux"]
    require_private(place.state)
    search = [entry for entry in context.environ.get(b"PATH", b"").split(b":") if entry.startswith(b"/")]
    client = Client()
    client.start()
    try:
        with tempfile.TemporaryDirectory(dir=place.state, prefix=b"certify-") as directory:
            top = os.path.realpath(os.fsdecode(directory))
            kernel = os.uname()
            facts = Certificate("linux", f"{kernel.sysname} {kernel.release}", kernel.machine, int(time.time()))
            trial = linux_trial(client, home=place.home, search=search, namespaces=True)
            first = [row for row in table if row.name == "shell"]
            if not opens(first, certify(first, trial, top + "/first", facts)):
                facts = facts._replace(system=facts.system + " without namespaces")
                trial = linux_trial(client, home=place.home, search=search, namespaces=False)
            return certify(table, trial, top, facts, progress=_progress(context))
    finally:
        client.close()


def _progress(context: Context) -> Progress:
    def progress(number: int, count: int, _name: str) -> None:
        context.terminal.progress("trying the sandbox", number, count)

    return progress


def certify_first(context: Context, platform: str = sys.platform, tool: bytes = b"") -> None:
    """Certify a platform that has no certificate before a session is opened, if stdin is a terminal; otherwise opening
    the session says how. ``tool``: another one than the platform's."""
    if platform not in BY_RECORD or not sys.stdin.isatty() or not can_be_tried(platform):
        return
    from mudroom.sandbox.macos.client import DarwinClient

    tool = tool or tool_of(platform)
    opening = look(platform, places(context.environ).state, tool)
    if opening.certificate is None:
        context.terminal.note(f"this system is tried first, in less than a minute (mudroom certify): {opening.why}")
        tried(platform, tool, DarwinClient(tool=tool), context)
