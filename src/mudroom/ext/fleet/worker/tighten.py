"""The origin's settings, tightened by the worker's own policy file.

A protecting setting takes the stricter value, as between a project's policy and its user's
(``policy/settings_table.py``). A list also takes the worker's elements that do not loosen: denials, questions, names of
secrets. Every other setting is the origin's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.core.command.policy import STRICTNESS, ClassRule, class_actions
from mudroom.core.network.host_entry import expand
from mudroom.core.settings import Settings
from mudroom.policy.config import load_policy
from mudroom.policy.parse import GivenSetting
from mudroom.policy.setting_row import with_setting
from mudroom.typing import Any

_PLAIN = (bool, int, float, str)
"""Value types that ``SettingRow.stricter`` compares. Levels by agent belong to cards, which do not travel."""


def own_policy(nowhere: bytes, environ: Mapping[bytes, bytes]) -> tuple[GivenSetting, ...]:
    """Return the items in this user's policy for all projects. ``nowhere``: a directory that is no project. Raise
    UsageError naming file, line and key."""
    return load_policy(nowhere, environ, items=True).given


def tightened(settings: Settings, own: Sequence[GivenSetting]) -> Settings:
    """Return the origin's settings, each at least as strict as in this user's policy (``own``)."""
    for item in own:
        row, value = item.setting, item.value
        if row.adds:
            if row.tightens and not any(map(row.loosens, value)):
                settings = _with_elements(settings, row.field, value)
        elif isinstance(value, ClassRule):
            settings = _with_class(settings, value)
        elif row.stricter is not None and (isinstance(value, _PLAIN) or row.field == "levels.allow"):
            settings = with_setting(settings, row.field, _stricter(item, _field(settings, row.field)))
    return settings


def _with_elements(settings: Settings, field: str, elements: tuple[Any, ...]) -> Settings:
    if field == "commands":
        rules = (*settings.commands.rules, *(rule._replace(floor=True) for rule in elements))
        return settings._replace(commands=settings.commands._replace(rules=rules))
    if field == "hosts":
        elements = tuple(expand(elements))
    return with_setting(settings, field, (*_field(settings, field), *elements))


def _with_class(settings: Settings, rule: ClassRule) -> Settings:
    if STRICTNESS[class_actions(settings.commands)[rule.name].action] >= STRICTNESS[rule.action]:
        return settings
    others = tuple(other for other in settings.commands.by_class if other.name != rule.name)
    return settings._replace(commands=settings.commands._replace(by_class=(*others, rule)))


def _stricter(item: GivenSetting, before: Any) -> Any:
    if before is None:
        return item.value
    if before == "auto":  # through the gate, or at level 0 the host's network
        return before if item.value == "open" else item.value
    assert item.setting.stricter is not None
    return item.setting.stricter(before, item.value)


def _field(settings: Settings, field: str) -> Any:
    name, _dot, inner = field.partition(".")
    value = getattr(settings, name)
    return getattr(value, inner) if inner else value
