"""Certify this platform: by ``mudroom doctor --certify``, and automatically before the first session."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping

from mudroom.cli.terminal.context import Context
from mudroom.ext.certify.cli.certificate import findings, lines
from mudroom.ext.certify.cli.linux_row import ROWS, protections, try_rows
from mudroom.ext.certify.identity import tool_of
from mudroom.ext.certify.killed_apply import volume_here
from mudroom.ext.certify.opening import can_be_tried, look, make
from mudroom.ext.certify.row import Certificate
from mudroom.ext.certify.table import TABLES
from mudroom.ext.certify.trial import Progress
from mudroom.policy.config import places
from mudroom.sandbox.platform import BY_RECORD
from mudroom.stage.private_directory import require_private
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.cli.doctor.probe import Finding
    from mudroom.ext.certify.trial import Trial
    from mudroom.sandbox.client.client import Client


def certified(environ: Mapping[bytes, bytes], platform: str = sys.platform, tool: bytes = b"") -> list[str]:
    """Return the parts that this machine's record opens and closes, in one line each."""
    return lines(look(platform, places(environ).state, tool or tool_of(platform)))


def findings_here(state: bytes, platform: str = sys.platform, tool: bytes = b"") -> tuple[list[Finding], bool]:
    """Do as ``certified``, in ``mudroom doctor`` rows; return also whether the platform is open."""
    opening = look(platform, state, tool or tool_of(platform))
    return findings(TABLES[platform], opening), opening.is_open


def try_protections(directory: bytes, *, home: bytes, environ: Mapping[bytes, bytes]) -> list[Finding]:
    """Try the Linux rows that show protections, in ``directory``, which is empty."""
    return protections(try_rows(ROWS, directory, home=home, environ=environ))


# Other platforms' satellites may be absent here, and need modules that are not in this Python: each is imported where
# it is tried.


def _client_windows(_tool: bytes) -> Client:
    from mudroom.ext.windows.sandbox.client import WindowsClient

    return WindowsClient(variables=os.environ)


def _trial_windows(client: Client, _home: bytes, _context: Context) -> Trial:
    from mudroom.ext.certify.windows_trial import windows_trial
    from mudroom.ext.windows.win32.api import Library

    return windows_trial(client, Library(), os.environ, volume=volume_here())


def _client_darwin(tool: bytes) -> Client:
    from mudroom.ext.macos.client import DarwinClient

    return DarwinClient(tool=tool)


def _trial_darwin(client: Client, home: bytes, context: Context) -> Trial:
    from mudroom.ext.certify.macos import mac_trial

    search = [entry for entry in context.environ.get(b"PATH", b"").split(b":") if entry.startswith(b"/")]
    return mac_trial(client, home=home, search=search, volume=volume_here())


class TriedPlatform(NamedTuple):
    """A platform that opens by a trial's record on this machine."""

    client: Callable[[bytes], Client]
    """Return its client for a confining program, where it has such a program."""
    trial: Callable[[Client, bytes, Context], Trial]
    """Return its trial by a client. The other arguments are the home directory and the context."""


_TRIALS: Mapping[str, TriedPlatform] = {
    "darwin": TriedPlatform(_client_darwin, _trial_darwin),
    "win32": TriedPlatform(_client_windows, _trial_windows),
}


def new_client(platform: str, tool: bytes) -> Client:
    """Return the client for a platform that is to be certified. ``tool``: its confining program."""
    return _TRIALS[platform].client(tool)


def tried(platform: str, tool: bytes, client: Client, context: Context) -> Certificate:
    """Try every row and store the certificate. Raise MudroomError if none could be made."""
    place = places(context.environ)
    require_private(place.state)
    try:
        with tempfile.TemporaryDirectory(dir=place.state, prefix=b"certify-") as directory:
            trial = _TRIALS[platform].trial(client, place.home, context)
            return make(platform, place.state, tool, trial, directory, progress=_progress(context))
    finally:
        client.close()


def tried_on_linux(context: Context) -> Certificate:
    """Try the Linux rows and return the certificate, which is not stored."""
    place = places(context.environ)
    require_private(place.state)
    with tempfile.TemporaryDirectory(dir=place.state, prefix=b"certify-") as directory:
        return try_rows(
            TABLES["linux"], directory, home=place.home, environ=context.environ, progress=_progress(context)
        )


def _progress(context: Context) -> Progress:
    def progress(number: int, count: int, _name: str) -> None:
        context.terminal.progress("trying the sandbox", number, count)

    return progress


def certify_first(context: Context, platform: str = sys.platform, tool: bytes = b"") -> None:
    """Certify a platform that has no certificate before a session is opened, if stdin is a terminal; otherwise opening
    the session says how. ``tool`` replaces the platform's own."""
    if platform not in BY_RECORD or not sys.stdin.isatty() or not can_be_tried(platform):
        return
    tool = tool or tool_of(platform)
    opening = look(platform, places(context.environ).state, tool)
    if opening.certificate is None:
        context.terminal.note(
            f"this system is tried first, in less than a minute (mudroom doctor --certify): {opening.why}"
        )
        tried(platform, tool, new_client(platform, tool), context)
