"""``mudroom policy init`` and ``schema``: a first policy file, and the JSON Schema for editors."""

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
from mudroom.policy.config import places, user_config
from mudroom.policy.schema import schema
from mudroom.policy.trust import begin

SCHEMA_FILE = b"policy.schema.json"
STARTER = """\
# yaml-language-server: $schema=./policy.schema.json
#
# What commands and agents may do in this project; for everybody who works on it. What is for you alone stands in
# ~/.config/mudroom/policy.yaml, what is for this machine in .mudroom/local/policy.yaml. Commands read this file and
# cannot change it. Lines that loosen need each user's trust: mudroom policy trust. After an edit: mudroom policy check

commands:                    # agents' commands (mudroom exec); try one: mudroom policy why -- rm -rf build
  classes:                   # allow, allow_with_checkpoint, require_approval, deny
    destructive: allow_with_checkpoint
    unknown: allow_with_checkpoint
    host_escape_risk: require_approval
  rules:                     # the first words of a command; a denial wins, then the longest pattern
    - pattern: git push
      action: require_approval
      reason: others get what is pushed
      match: [git push origin main, "make && git push"]
      not_match: [git status]
    - pattern: [[npm, pnpm, yarn], publish]
      action: deny
      reason: releases are made by people
  # background: allow        # what is to go on beside other commands: allow, require_approval, deny
  # approval_timeout: 5m     # after it a question is a denial

# roles:                     # the same for some agents
#   reviewer: {classes: {mutating: deny, destructive: deny}}
# agents: {claude-code: reviewer}

network:
  mode: gate                 # what the rules allow; none: no network at all
  # presets: [npm, pypi, github]
  # allow: [api.example.com, "*.example.org:443"]
  # deny: [gist.github.com]

# secrets:
#   mask: ["*.sqlite"]       # shown empty, beside all that looks like a secret
# limits: {memory: 4 GiB, processes: 500}
# verify: {command: make test}          # has to succeed on a merged result before it is written
# user_commands:                        # of mudroom run
#   auto_apply: trusted                 # without asking; never (default), always
#   trusted: [npm ci, make format]
#   show_diff_threshold: 20             # lines: a smaller diff is shown at once
# include: [network.yaml]               # files beside this one
"""


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.what == "schema":
        context.terminal.out(json.dumps(schema(), indent=2))
        return 0
    project = project_of(context)
    directory = project + b"/.mudroom"
    if os.path.islink(directory):
        raise UsageError(f"{show(directory)} is a symbolic link", "a policy is read from the directory itself")
    os.makedirs(directory, exist_ok=True)
    path = directory + b"/policy.yaml"
    if not _create(path, STARTER):
        raise UsageError(
            f"{show(path)} is there already", "mudroom policy check reads it, mudroom policy show tells it"
        )
    _create(directory + b"/" + SCHEMA_FILE, json.dumps(schema(), indent=2) + "\n")
    layers = read(project, user_config(context.environ))
    begin(project, places(context.environ).state, layers[PROJECT], roles_of(layers), time.time_ns())
    note_change(context, written="policy.yaml")
    if context.as_json:
        context.terminal.out(json.dumps({"schema": "mudroom.policy-init/1", "path": os.fsdecode(path)}))
    else:
        context.terminal.say(f"{show(path)} is written: yours to edit")
    return 0


def _create(path: bytes, content: str) -> bool:
    """Create the file; return False if the path exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(content)
    return True
