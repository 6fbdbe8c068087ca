"""``mudroom policy show``: the settings in force, each with its file and line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence

from mudroom.cli.project_session import project_of
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_row
from mudroom.core.command.policy import BY_CLASS
from mudroom.core.tree.path import show
from mudroom.policy.config import left_out, load_policy, user_config
from mudroom.policy.parse import GivenSetting
from mudroom.policy.settings_table import ROWS
from mudroom.policy.trust import describe


def execute(_args: argparse.Namespace, context: Context) -> int:
    project = project_of(context)
    loaded = load_policy(project, context.environ, items=True)
    rows = [(describe(item), item.at) for item in loaded.given]
    rows += [(text, "") for text in _defaults(loaded.given)]
    left = list(loaded.left_out)
    if context.as_json:
        row = {
            "schema": "mudroom.policy/1",
            "settings": [_row(text, at) for text, at in rows],
            "left_out": [_row(text, at) for text, at in left],
            "why": loaded.why,
        }
        context.terminal.json(row)
        return 0
    home = os.path.dirname(os.path.dirname(user_config(context.environ)))
    width, columns = min(60, max(len(text) for text, _at in rows)), context.terminal.columns(1)
    for text, at in rows:
        place = _short_place(at, project, home)
        context.terminal.out(fold_row(f"{text:<{width}}  {place}".rstrip(), [text, place], columns))
    for text, at in left:
        cells = [f"not taken: {text}", _short_place(at, project, home)]
        context.terminal.out(fold_row("  ".join(cells), cells, columns))
    if left:
        context.terminal.note(left_out(loaded))
    return 0


def _defaults(given: Sequence[GivenSetting]) -> Iterator[str]:
    """Yield the defaults for settings that no file sets. Command classes are yielded one by one."""
    classes = {item.value.name for item in given if item.key.startswith("commands.classes.")}
    yield from (f"commands.classes.{name}: {action}" for name, action in BY_CLASS.items() if name not in classes)
    # roles.NAME.rules shares the row of commands.rules without setting commands.rules
    keys = {item.setting.alias or item.setting.key for item in given if item.key.startswith(item.setting.key)}
    yield from (
        f"{row.key}: {row.default}"
        for row in ROWS
        if row.key not in keys and not row.alias and row.key != "commands.classes"
    )


def _row(text: str, at: str) -> dict[str, str]:
    key, _colon, value = text.partition(": ")
    return {"key": key, "value": value, "source": at or "default"}


def _short_place(at: str, project: bytes, home: bytes) -> str:
    if not at:
        return "default"
    at = at.removeprefix(show(project) + "/")
    return "~" + at.removeprefix(show(home)) if at.startswith(show(home) + "/") else at
