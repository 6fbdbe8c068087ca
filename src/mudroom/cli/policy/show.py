"""``mudroom policy show``: the settings in force, each with its file and line."""

from __future__ import annotations

import argparse
import json
import os

from mudroom.cli.project_session import left_out, project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.command.policy import BY_CLASS
from mudroom.core.tree.path import show
from mudroom.policy.config import load_policy, user_config
from mudroom.policy.trust import said


def execute(_args: argparse.Namespace, context: Context) -> int:
    project = project_of(context)
    loaded = load_policy(project, context.environ, items=True)
    set_here = {setting.value.name for setting in loaded.given if setting.key.startswith("commands.classes.")}
    rows = [(said(setting), setting.at) for setting in loaded.given]
    rows += [(f"commands.classes.{name}: {act}", "") for name, act in BY_CLASS.items() if name not in set_here]
    left = list(loaded.left_out)
    if context.as_json:
        row = {
            "schema": "mudroom.policy/1",
            "settings": [_row(text, at) for text, at in rows],
            "left_out": [_row(text, at) for text, at in left],
            "why": loaded.why,
        }
        context.terminal.out(json.dumps(row))
        return 0
    home = os.path.dirname(os.path.dirname(user_config(context.environ)))
    width = min(60, max(len(text) for text, _at in rows))
    for text, at in rows:
        context.terminal.out(f"{text:<{width}}  {_short_place(at, project, home)}".rstrip())
    for text, at in left:
        context.terminal.out(f"not taken: {text}  {_short_place(at, project, home)}")
    if left:
        context.terminal.note(left_out(loaded))
    return 0


def _row(text: str, at: str) -> dict[str, str]:
    key, _colon, value = text.partition(": ")
    return {"key": key, "value": value, "source": at or "default"}


def _short_place(at: str, project: bytes, home: bytes) -> str:
    if not at:
        return "default"
    at = at.removeprefix(show(project) + "/")
    return "~" + at.removeprefix(show(home)) if at.startswith(show(home) + "/") else at
