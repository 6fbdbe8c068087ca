"""The launcher's program, from ``src/native/launcher``. A wheel has it beside the client of the sandbox."""

from __future__ import annotations

import os

PROTOCOL = "mudroom-launcher-2"
"""The version of the launcher's start and messages, as in ``launcher.h``. It is also the program's file name, so a
program built from an older tree is not found."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAUNCHER = os.fsencode(f"{_PACKAGE}/sandbox/client/{PROTOCOL}")
