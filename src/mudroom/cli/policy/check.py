"""``mudroom policy check``: all policy files are read, their examples tried, and what makes no sense is said."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence

from mudroom.cli.project_session import left_out, not_above, project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.command.contradiction import RuleProblem, contradictions, locked_out, pointless, unused_roles
from mudroom.core.command.policy import CommandPolicy
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.combine import read, read_alone, watched
from mudroom.policy.config import load_policy, places, user_config
from mudroom.policy.host_answers import NAME
from mudroom.policy.host_answers import load as answered
from mudroom.policy.parse import GivenSetting, put
from mudroom.session import policy_above


def execute(args: argparse.Namespace, context: Context) -> int:
    files, problems = _of_file(args.about) if args.about is not None else _of_project(context)
    wrong = [one for one in problems if one.severity == "error"]
    if context.as_json:
        row = {
            "schema": "mudroom.policy-check/1",
            "files": files,
            "whole": not wrong,
            "problems": [one._asdict() for one in problems],
        }
        context.terminal.out(json.dumps(row))
        return 1 if wrong else 0
    for one in problems:
        where = f"{one.where}: " if one.where else ""
        context.terminal.out(f"{one.severity}: {where}{one.text}" + (f" ({one.hint})" if one.hint else ""))
    if not wrong:
        context.terminal.say(f"read: {', '.join(files)}" if files else "there is no policy: the defaults hold")
    return 1 if wrong else 0


def _of_file(name: str) -> tuple[list[str], list[RuleProblem]]:
    path = os.path.abspath(os.fsencode(name))
    try:
        given = read_alone(path)
        policy = put(given).commands
    except UsageError as error:
        return [show(path)], [RuleProblem("error", "", error.message, error.hint)]
    return [show(path)], [*_in_files([given]), *_together(policy)]


def _of_project(context: Context) -> tuple[list[str], list[RuleProblem]]:
    project = project_of(context)
    config, state = user_config(context.environ), places(context.environ).state
    files = [show(path) for path in watched(project, config, state) if os.path.lexists(path)]
    files = [path for path in files if path.endswith(".yaml")]
    answers = project + b"/.mudroom/local/" + NAME
    files += [show(answers)] if os.path.lexists(answers) else []
    wrong = list(_of_answers(project))
    try:
        layers = read(project, config)
        loaded = load_policy(project, context.environ)
    except UsageError as error:
        return files, [RuleProblem("error", "", error.message, error.hint), *wrong]
    found = [*wrong, *_in_files(list(layers.values())), *_together(loaded.settings.commands)]
    if loaded.left_out:
        found.append(RuleProblem("warning", "", left_out(loaded)))
    above = policy_above(project, places(context.environ).home)
    if above is not None:
        found.append(RuleProblem("warning", "", not_above(project, above)))
    return files, found


def _of_answers(project: bytes) -> Iterator[RuleProblem]:
    """What was answered about hosts: no layer of the policy, and read for connections alone."""
    try:
        answered(project)
    except UsageError as error:
        yield RuleProblem("error", "", error.message, error.hint)


def _in_files(layers: Sequence[Sequence[GivenSetting]]) -> Iterator[RuleProblem]:
    by_file: dict[str, list[GivenSetting]] = {}
    for given in layers:
        for one in given:
            if one.key.endswith(".rules"):
                by_file.setdefault(one.at.rpartition(":")[0], []).append(one)
    for found in by_file.values():
        yield from contradictions([one.value[0] for one in found])


def _together(policy: CommandPolicy) -> Iterator[RuleProblem]:
    yield from pointless(policy.rules)
    yield from locked_out(policy)
    yield from unused_roles(policy)
