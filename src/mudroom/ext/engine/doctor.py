"""Examine whether an engine of containers can run beside a command here. Nothing is started."""

from __future__ import annotations

import os

from mudroom.cli.doctor.probe import BESIDE
from mudroom.core.confinement.protection import Finding
from mudroom.ext.engine.numbers import lacking


def examine_engine() -> Finding:
    if os.geteuid() == 0:
        return Finding(BESIDE, "not probed", "--engine is not for root", "run mudroom doctor as an ordinary user")
    if missing := lacking():
        found = "not here: " + ", ".join(name for name, _fix in missing)
        return Finding(BESIDE, "missing", found, "; ".join(dict.fromkeys(fix for _name, fix in missing)))
    return Finding(BESIDE, "strict", "by Podman, without root: mudroom run --engine")
