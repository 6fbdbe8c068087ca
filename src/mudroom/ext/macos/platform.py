"""macOS: its row among the platforms (``sandbox/platform.py``), and the probes of ``mudroom doctor``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from mudroom.core.confinement.protection import Finding
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.host import look_around_mac, survey_mac, true_path
from mudroom.ext.macos.seatbelt import compile_seatbelt
from mudroom.ext.macos.trial import try_seatbelt
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.platform import Platform

PLATFORM = Platform(
    "darwin",
    "seatbelt",
    lambda spec, _machine: compile_seatbelt(spec),
    lambda _environ: DarwinClient(),
    survey_mac,
    look_around_mac,
    true_path,
    has_groups=False,
)


def examine(
    directory: bytes, *, home: bytes, environ: Mapping[bytes, bytes], client: Client | None = None
) -> list[Finding]:
    """Return this Mac's protections, tried in ``directory``, which is empty. Close ``client``."""
    client = client or DarwinClient()
    search = [entry for entry in environ.get(b"PATH", b"/usr/bin:/bin").split(b":") if entry.startswith(b"/")]
    with closing(client):
        return try_seatbelt(client, directory, home=home, search=search)
