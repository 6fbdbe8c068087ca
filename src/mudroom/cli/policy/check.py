"""``mudroom policy check``: read all policy files, try their examples, and report contradictions."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence

from mudroom.cli.project_session import project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.command.contradiction import RuleProblem, contradictions, locked_out, unreachable_rules, unused_roles
from mudroom.core.command.policy import CommandPolicy
from mudroom.core.network.preset import like_preset
from mudroom.core.tree.path import show
from mudroom.core.tree.pattern import matches
from mudroom.errors import UsageError
from mudroom.policy.combine import read, read_single, watched_files
from mudroom.policy.config import MACHINE, left_out, load_policy, not_above, places, user_config
from mudroom.policy.host_answers import NAME
from mudroom.policy.host_answers import load as answered
from mudroom.policy.parse import GivenSetting, settings_from
from mudroom.stage.private_directory import answer_files
from mudroom.stage.views.preflight import policy_above

PATTERNS = frozenset(("secrets_mask", "secrets_show", "copy_exclude"))
"""Fields of the settings that are patterns of gitignore(5)."""
MOST_PATHS = 200_000
"""Paths of a project with which patterns are compared."""


def execute(args: argparse.Namespace, context: Context) -> int:
    files, problems = _check_file(args.about) if args.about is not None else _check_project(context)
    errors = [problem for problem in problems if problem.severity == "error"]
    if context.as_json:
        report = {
            "schema": "mudroom.policy-check/1",
            "files": files,
            "whole": not errors,
            "problems": [problem._asdict() for problem in problems],
        }
        context.terminal.json(report)
        return 1 if errors else 0
    for problem in problems:
        where = f"{problem.where}: " if problem.where else ""
        context.terminal.out(
            f"{problem.severity}: {where}{problem.text}" + (f" ({problem.hint})" if problem.hint else "")
        )
    if not errors:
        context.terminal.say(f"read: {', '.join(files)}" if files else "there is no policy: the defaults hold")
    return 1 if errors else 0


def _check_file(name: str) -> tuple[list[str], list[RuleProblem]]:
    path = os.path.abspath(os.fsencode(name))
    if not os.path.lexists(path):
        raise UsageError(f"there is no file {show(path)}", "mudroom policy check reads those of the project")
    try:
        layer = read_single(path)
        policy = settings_from(layer).commands
    except UsageError as error:
        return [show(path)], [RuleProblem("error", "", error.message, error.hint)]
    return [show(path)], [*_check_files([layer]), *_check_commands(policy)]


def _check_project(context: Context) -> tuple[list[str], list[RuleProblem]]:
    project = project_of(context)
    config, state = user_config(context.environ), places(context.environ).state
    files = [show(path) for path in watched_files(project, config, state, MACHINE) if os.path.lexists(path)]
    files = [path for path in files if path.endswith(".yaml")]
    files += [show(path) for path in answer_files(project, state, NAME) if os.path.lexists(path)]
    answer_problems = list(_check_answers(project, state))
    try:
        layers = read(project, config, state, MACHINE)
        loaded = load_policy(project, context.environ)
    except UsageError as error:
        return files, [RuleProblem("error", "", error.message, error.hint), *answer_problems]
    problems = [*answer_problems, *_check_files(list(layers.values())), *_check_commands(loaded.settings.commands)]
    problems += _check_patterns(project, [setting for layer in layers.values() for setting in layer])
    if loaded.left_out:
        problems.append(RuleProblem("warning", "", left_out(loaded)))
    above = policy_above(project, places(context.environ).home)
    if above is not None:
        problems.append(RuleProblem("warning", "", not_above(project, above)))
    return files, problems


def _check_patterns(project: bytes, given: Sequence[GivenSetting]) -> Iterator[RuleProblem]:
    """Yield the patterns that match no path of the project now: a word may be mistaken."""
    patterns = [(item, item.value[0].removeprefix(b"!")) for item in given if item.setting.field in PATTERNS]
    if not patterns:
        return
    missing = dict(enumerate(patterns))
    for looked, path in enumerate(_paths(project)):
        for number in [number for number, (_item, pattern) in missing.items() if matches(path, (pattern,))]:
            del missing[number]
        if looked == MOST_PATHS or not missing:
            return  # a pattern may match one of the others
    for item, pattern in missing.values():
        text = f"{item.key}: {show(pattern)!r} matches no file of this project now"
        yield RuleProblem("warning", item.at, text, "patterns are those of gitignore(5)")


def _paths(project: bytes) -> Iterator[bytes]:
    """Yield the project's files, and its directories with a slash."""
    for directory, below, files in os.walk(project):
        prefix = os.path.relpath(directory, project) + b"/" if directory != project else b""
        yield from (prefix + name for name in files)
        yield from (prefix + name + b"/" for name in below)


def _check_answers(project: bytes, state: bytes) -> Iterator[RuleProblem]:
    """Yield problems in the answers about hosts, which are not a policy layer and are read only for connections."""
    try:
        answered(project, state)
    except UsageError as error:
        yield RuleProblem("error", "", error.message, error.hint)


def _check_hosts(layers: Sequence[Sequence[GivenSetting]]) -> Iterator[RuleProblem]:
    for setting in (setting for layer in layers for setting in layer if setting.setting.field == "hosts"):
        for rule in setting.value:
            if warning := like_preset(rule):
                yield RuleProblem("warning", rule.source, warning)


def _check_files(layers: Sequence[Sequence[GivenSetting]]) -> Iterator[RuleProblem]:
    yield from _check_hosts(layers)
    by_file: dict[str, list[GivenSetting]] = {}
    for layer in layers:
        for setting in layer:
            if setting.key.endswith(".rules"):
                by_file.setdefault(setting.at.rpartition(":")[0], []).append(setting)
    for settings in by_file.values():
        yield from contradictions([setting.value[0] for setting in settings])


def _check_commands(policy: CommandPolicy) -> Iterator[RuleProblem]:
    yield from unreachable_rules(policy.rules)
    yield from locked_out(policy)
    yield from unused_roles(policy)
