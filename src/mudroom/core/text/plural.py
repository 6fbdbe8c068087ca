"""Numbers with their nouns, sizes, ages, and a line that shows progress."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return ``1 file``, ``2 files``, ``1,000 files``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def amount(number: int) -> str:
    """Return a size in bytes. Units are powers of ten, as for disks and in package managers."""
    value, unit = float(number), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def age_words(seconds: int) -> str:
    """Return an age as ``3 min``; ``0 s`` if it is negative."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(0, seconds)} s"


def progress_line(label: str, done: int, total: int) -> str:
    """Return ``applying: 3 of 60``, or ``copying: 1,024`` if the total is unknown (0), or ``comparing …`` if nothing is
    counted."""
    if not total and not done:
        return f"{label} …"
    return f"{label}: {done:,} of {total:,}" if total else f"{label}: {done:,}"
