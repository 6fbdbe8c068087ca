"""The table of steps in the launcher's source: each step's arguments by name."""

from __future__ import annotations

import re
from pathlib import Path

_SOURCE = (Path(__file__).parents[1] / "src/native/launcher/step.c").read_text(encoding="utf-8")
STEPS = dict(re.findall(r'^    \{"([a-z_]+)", "([a-z?]*)", step_[a-z_]+\},$', _SOURCE, re.MULTILINE))
"""Shapes by name: a letter for each argument (``has_shape`` in ``value.c``); those after a "?" may be missing."""
