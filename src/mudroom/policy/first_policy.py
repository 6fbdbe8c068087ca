"""A project's first policy file: a few rules that apply, and every other setting as a comment with an example.

The comments are made from the settings table.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.policy.setting_row import SettingRow
from mudroom.policy.settings_table import SECTIONS

_TOP = """\
# yaml-language-server: $schema=./policy.schema.json
#
# What commands and agents may do in this project, for everybody who works on it. Your own settings for all projects are
# in ~/.config/mudroom/policy.yaml, those for this machine in .mudroom/local/policy.yaml. Commands can read this file
# and cannot change it. Lines that loosen need each user's trust: mudroom policy trust. After an edit: mudroom policy
# check
"""
_COMMANDS = """\
commands:                    # agents' commands (mudroom exec); try one: mudroom policy why -- rm -rf build
  classes:                   # allow, allow_with_checkpoint, require_approval, deny
    destructive: allow_with_checkpoint
    unknown: allow_with_checkpoint
    # host_escape_risk: require_approval    # default; written here, it asks about what the sandbox holds, too
  rules:                     # the first words of a command; a denial wins, then the longest pattern
    - pattern: git push
      action: require_approval
      reason: others get what is pushed
      match: [git push origin main, "make && git push"]
      not_match: [git status]
    - pattern: [[npm, pnpm, yarn], publish]
      action: deny
      reason: releases are made by people
"""
_ROLES = """\
# roles:                     # verdicts for some agents
#   reviewer: {classes: {mutating: deny, destructive: deny}}
# agents: {claude-code: reviewer}
"""
_NETWORK = """\
network:
  mode: gate                 # allowed hosts only; none: no network; open: the host's network
"""
_INCLUDE = "# include: [network.yaml]    # files in the same directory\n"
_WRITTEN = ("commands.classes", "commands.rules", "network.mode")
"""Keys that the file sets."""
_COMMENT = 45
"""Column at which the help starts."""


def first_policy() -> str:
    """Return the file as text."""
    parts = [_TOP, _COMMANDS + _examples("commands"), _ROLES, _NETWORK + _examples("network")]
    others = [f"# {section}:\n{_examples(section)}" for section in SECTIONS if section not in ("commands", "network")]
    return "\n".join([*parts, "".join(others) + _INCLUDE])


def _examples(section: str) -> str:
    return "".join(f"{line}\n" for row in SECTIONS[section].values() for line in _example(row))


def _example(row: SettingRow) -> Iterator[str]:
    if row.key not in _WRITTEN and not row.alias:
        prefix = "  # " if row.key.startswith(("commands.", "network.")) else "#   "
        default = "" if row.default == "none" else f" (default: {row.default})"
        yield f"{prefix + row.name}: {row.example}".ljust(_COMMENT) + f"  # {row.help}{default}"
