"""macOS: its row among the platforms (``sandbox/platform.py``)."""

from __future__ import annotations

from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.host import look_around_mac, survey_mac, true_path
from mudroom.ext.macos.seatbelt import compile_seatbelt
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
