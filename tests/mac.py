"""Run programs as on a Mac: in an interpreter that has only what macOS has (``mac_prelude.py``). No test is here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PRELUDE = Path(__file__).parent / "mac_prelude.py"
PRETEND = f"""
MAC_PRELUDE = {str(_PRELUDE)!r}
exec(compile(open(MAC_PRELUDE).read(), MAC_PRELUDE, "exec"))
import importlib, pkgutil
"""


def on_a_mac(program: str) -> str:
    """Return what a program prints, its errors last."""
    whole = f"{PRETEND}\nsys.path[:0] = {sys.path!r}\n{program}"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
