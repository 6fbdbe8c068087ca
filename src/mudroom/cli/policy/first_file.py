"""``mudroom policy init`` and ``schema``: write a first policy file; print the JSON Schema for editors."""

from __future__ import annotations

import argparse
import json
import os
import time

from mudroom.cli.policy.trust import note_change
from mudroom.cli.project_session import project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.combine import PROJECT, read, roles_of
from mudroom.policy.config import MACHINE, places, user_config
from mudroom.policy.first_policy import first_policy
from mudroom.policy.schema import schema
from mudroom.policy.trust import begin
from mudroom.stage import disk

SCHEMA_FILE = b"policy.schema.json"


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.what == "schema":
        context.terminal.out(json.dumps(schema(), indent=2))
        return 0
    project = project_of(context)
    directory = project + b"/.mudroom"
    if os.path.islink(directory):
        raise UsageError(f"{show(directory)} is a symbolic link", "replace the link by a real file or directory")
    os.makedirs(directory, exist_ok=True)
    path = directory + b"/policy.yaml"
    if not _create(path, first_policy()):
        raise UsageError(
            f"{show(path)} is there already", "mudroom policy check reads it, mudroom policy show tells it"
        )
    _create(directory + b"/" + SCHEMA_FILE, json.dumps(schema(), indent=2) + "\n")
    state = places(context.environ).state
    layers = read(project, user_config(context.environ), state, MACHINE)
    begin(project, state, layers[PROJECT], roles_of(layers), time.time_ns())
    note_change(context, written="policy.yaml")
    if context.as_json:
        context.terminal.json({"schema": "mudroom.policy-init/1", "path": os.fsdecode(path)})
    else:
        context.terminal.say(f"{show(path)} is written: yours to edit")
    return 0


def _create(path: bytes, content: str) -> bool:
    """Create the file. Return False if the path exists."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
        descriptor = disk.open_path(path, flags, 0o644)
    except FileExistsError:
        return False
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(content)
    return True
