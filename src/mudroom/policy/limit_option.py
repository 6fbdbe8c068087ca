"""Limits by name, for command-line options and the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mudroom.core.settings import Settings
from mudroom.policy.setting_row import with_setting
from mudroom.policy.setting_type import count, least, or_off, processors, size
from mudroom.typing import Any

CONVERTERS: Mapping[str, Callable[[Any, str], Any]] = {
    "memory": or_off(least(4 << 20)),
    "processes": or_off(count),
    "cpus": processors,
    "io": least(4096),
    "open_files": count,
    "tmp": or_off(least(1 << 20)),
    "inotify": or_off(count),
    "file_size": size,
}
"""Name of a limit, as in a policy file's ``limits.NAME`` → function that checks and converts its value."""


def with_limit(settings: Settings, name: str, value: object, where: str) -> Settings:
    """Return the settings with a limit. ``where`` names the value's origin in an error. Raise UsageError if the value
    is invalid."""
    return with_setting(settings, f"limits.{name}", CONVERTERS[name](value, where))
