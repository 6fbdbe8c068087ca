"""A container's system call filter, as a seccomp profile for engines: the list in ``sandbox/linux/syscall.py``. Pure.

The profile applies to every process in the container, including the launcher, which makes namespaces and mounts for
commands and redirects their connections. The calls needed for that are left out where commands get their own namespaces
(``nested``); the filter that each command has in addition refuses them to commands.

An engine treats several conditions on the same argument as alternatives (runc, libcontainer/seccomp), so a rule that
needs two at once cannot be expressed. Socket families are therefore listed by number, and the remaining rules are left
to the commands' own filter.

Source: the runtime specification, config-linux.md, Seccomp.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from mudroom.sandbox.linux.syscall import (
    AF_INET,
    AF_INET6,
    AF_NETLINK,
    AF_UNIX,
    DENY,
    EAFNOSUPPORT,
    MACHINES,
    NUMBERS,
    Cond,
    SyscallRule,
)
from mudroom.typing import Any

LAUNCHER = frozenset(
    (
        "clone", "unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig",
        "fsmount", "mount_setattr",
    )
)  # fmt: skip
"""Calls that make a command's namespaces and view."""
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_NETFILTER, _MOST_NETLINK = 12, 32  # NETLINK_NETFILTER, MAX_LINKS
_FAMILIES = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)


def profile(machine: str, *, nested: bool) -> str:
    """Return the profile as JSON. Raise ValueError for an unknown machine."""
    if machine not in MACHINES:
        raise ValueError(f"no system call filter for machine {machine!r}, only for {', '.join(MACHINES)}")
    column = MACHINES[machine].column
    available = (rule for rule in DENY if NUMBERS[rule.syscall][column] is not None)
    rules = (rule for rule in available if not (nested and (rule.syscall in LAUNCHER or _is_of_netlink(rule))))
    document = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [_ARCHITECTURES[machine]],
        "syscalls": [*_entries(rules), *_families(), *(_netlinks() if nested else ())],
    }
    return json.dumps(document, indent=1)


def _entries(rules: Iterable[SyscallRule]) -> Iterator[dict[str, Any]]:
    for rule in rules:
        arguments = [condition.arg for condition in rule.conditions]
        whole = all(condition.op == "==" or condition.mask == 0xFFFFFFFF for condition in rule.conditions)
        if len(rule.conditions) == 1 and _is_any_of(rule.conditions[0]):
            for bit in _bits(rule.conditions[0].mask):
                yield _entry(rule.syscall, rule.action, [_argument(Cond(rule.conditions[0].arg, "==", bit, bit))])
        elif whole and len(set(arguments)) == len(arguments):
            yield _entry(rule.syscall, rule.action, [_argument(condition) for condition in rule.conditions])


def _is_any_of(condition: Cond) -> bool:
    """Return whether the condition tests for any bit among several: each bit then needs its own entry."""
    return condition.op == "!=" and condition.value == 0 and condition.mask != 0xFFFFFFFF


def _bits(mask: int) -> Iterator[int]:
    return (1 << number for number in range(32) if mask >> number & 1)


def _entry(name: str, error: int, arguments: list[dict[str, Any]]) -> dict[str, Any]:
    return {"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": error, "args": arguments}


def _argument(condition: Cond) -> dict[str, Any]:
    if condition.op == "==":
        return {
            "index": condition.arg,
            "value": condition.mask,
            "valueTwo": condition.value,
            "op": "SCMP_CMP_MASKED_EQ",
        }
    return {"index": condition.arg, "value": condition.value, "op": "SCMP_CMP_NE"}  # for the whole mask: see _entries


def _is_of_netlink(rule: SyscallRule) -> bool:
    return any(
        condition.op == "==" and (condition.arg, condition.value) == (0, AF_NETLINK) for condition in rule.conditions
    )


def _netlinks() -> Iterator[dict[str, Any]]:
    """Yield entries that permit only two netlink protocols, routes and netfilter (linux/netlink.h). Netfilter redirects
    a command's connections to the gate, in its own network namespace."""
    family = {"index": 0, "value": AF_NETLINK, "op": "SCMP_CMP_EQ"}
    for number in range(1, _MOST_NETLINK):
        if number != _NETFILTER:
            yield _entry("socket", EAFNOSUPPORT, [family, {"index": 2, "value": number, "op": "SCMP_CMP_EQ"}])
    yield _entry("socket", EAFNOSUPPORT, [family, {"index": 2, "value": _MOST_NETLINK, "op": "SCMP_CMP_GE"}])


def _families() -> Iterator[dict[str, Any]]:
    for name in ("socket", "socketpair"):
        last = max(_FAMILIES)
        for family in range(last):
            if family not in _FAMILIES:
                yield _entry(name, EAFNOSUPPORT, [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"}])
        yield _entry(name, EAFNOSUPPORT, [{"index": 0, "value": last, "op": "SCMP_CMP_GT"}])
