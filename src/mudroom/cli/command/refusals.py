"""Refusals in the summary after a command. ``mudroom policy why`` lists all of them, with reasons.

refused                          told as
a host                           a line, with the command that allows it; the first ``MOST_REFUSED_HOSTS``
a host that a profile denies     counted, one line for each profile
new namespaces                   a line: a nested sandbox, with the switch for it from the agent's profile
other system calls               their names, in one line
metadata of files outside,
a directory that is not renamed  a line; the first ``MOST_REFUSED_PATHS``
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.core.known_agents import known_agents
from mudroom.core.network.allowing import command_to_allow
from mudroom.core.result import Denial, Result
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.policy.config import user_config
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.cli.terminal.context import Context

MOST_REFUSED_HOSTS = 5
"""Most refused hosts that are named after a command."""
MOST_REFUSED_PATHS = 3
_MOST_CALLS = 6
_NAMESPACE_CALLS = (b"clone", b"unshare", b"setns")
_PROFILE, _DENIES = "profile ", " denies it"
"""Start and end of the reason when a profile's rule denies a host (``core/network/host_rules.py``)."""


def refusal_lines(denials: Sequence[Denial], inner: str = "") -> list[str]:
    """Return the lines. ``inner`` describes a nested sandbox and its switch (``KnownAgents``); "" if unknown."""
    if not denials:
        return []
    hosts = [denial for denial in denials if denial.kind == "network"]
    calls = [denial for denial in denials if denial.kind == "system call"]
    return [
        *_host_lines([denial for denial in hosts if not _profile_of(denial)]),
        *_profile_lines(hosts),
        *_namespace_lines([call for call in calls if call.target in _NAMESPACE_CALLS], inner),
        *_call_lines([call for call in calls if call.target not in _NAMESPACE_CALLS]),
        *_path_lines([denial for denial in denials if denial.kind in ("metadata", "rename")]),
    ]


def result_lines(result: Result, argv: Sequence[bytes], context: Context) -> list[str]:
    nested = any(denial.target in _NAMESPACE_CALLS for denial in result.denials if denial.kind == "system call")
    return refusal_lines(result.denials, _inner_sandbox_of(argv, result.level, context) if nested else "")


def _inner_sandbox_of(argv: Sequence[bytes], level: int, context: Context) -> str:
    try:
        return known_agents(user_config(context.environ)).inner_sandbox(os.fsdecode(os.path.basename(argv[0])), level)
    except MudroomError:
        return ""  # a profile written by the user cannot be read


def _times(number: int) -> str:
    return f", {number:,} times" if number > 1 else ""


def _host_lines(hosts: Sequence[Denial]) -> list[str]:
    if not hosts:
        return []

    lines = []
    for denial in hosts[:MOST_REFUSED_HOSTS]:
        command = command_to_allow(show(denial.target), denial.reason)
        meant = "if that is meant: " if "--private" in command else ""
        hint = f" ({meant}{command})" if command else ""
        lines.append(f"refused{_times(denial.times)}: {show(denial.target)}: {denial.reason}{hint}")
    if len(hosts) > MOST_REFUSED_HOSTS:
        lines.append(f"refused: {len(hosts) - MOST_REFUSED_HOSTS} more hosts (mudroom net log --denied)")
    return lines


def _profile_of(denial: Denial) -> str:
    """Return "profile NAME" if a profile's rule denied the host, else ""."""
    source, colon, rest = denial.reason.partition(": ")
    return source if colon and source.startswith(_PROFILE) and rest.endswith(_DENIES) else ""


def _profile_lines(hosts: Sequence[Denial]) -> list[str]:
    lines = []
    for source in dict.fromkeys(filter(None, map(_profile_of, hosts))):
        denied = [denial for denial in hosts if _profile_of(denial) == source]
        names = {denial.target.rpartition(b":")[0] or denial.target for denial in denied}
        requests = counted(sum(denial.times for denial in denied), "request")
        lines.append(f"{source}: {requests} to {counted(len(names), 'host')} of telemetry or updates denied")
    return lines


def _namespace_lines(calls: Sequence[Denial], inner: str) -> list[str]:
    if not calls:
        return []
    names = " and ".join(dict.fromkeys(show(call.target) for call in calls))
    unknown = "a sandbox of the command's own (bwrap, a browser's) cannot run inside mudroom's; switch it off there"
    return [f"refused{_times(sum(call.times for call in calls))}: new namespaces ({names}): {inner or unknown}"]


def _call_lines(calls: Sequence[Denial]) -> list[str]:
    times: dict[str, int] = {}
    for call in calls:
        times[show(call.target)] = times.get(show(call.target), 0) + call.times
    if not times:
        return []
    named = [f"{name} ({number:,} times)" if number > 1 else name for name, number in times.items()]
    more = [f"{len(named) - _MOST_CALLS} more"] if len(named) > _MOST_CALLS else []
    return [f"refused: system calls: {', '.join([*named[:_MOST_CALLS], *more])} (mudroom policy why)"]


def _path_lines(paths: Sequence[Denial]) -> list[str]:
    lines = [
        f"refused{_times(denial.times)}: {show(denial.target)}: {denial.reason}"
        for denial in paths[:MOST_REFUSED_PATHS]
    ]
    if len(paths) > MOST_REFUSED_PATHS:
        lines.append(f"refused: {len(paths) - MOST_REFUSED_PATHS} more paths (mudroom policy why)")
    return lines
