"""Sandbox limits for the rows about limits. Data only."""

from __future__ import annotations

from collections.abc import Mapping

LIMITS: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "open_files": ((7, 40, 40),),
    "file_size": ((1, 1 << 14, 1 << 14),),
}
"""(resource, soft, hard) as in a spec, by the row's name: below what its deed asks for (``deed.MANY``, ``deed.LONG``).
"""
