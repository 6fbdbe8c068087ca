"""The system call filter of a container, as engines read it: evaluated as libseccomp does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mudroom.ext.containers.engine.profile import LAUNCHER, profile

_HOLDS: dict[str, Callable[[int, int, int], bool]] = {
    "SCMP_CMP_EQ": lambda value, argument, _two: argument == value,
    "SCMP_CMP_NE": lambda value, argument, _two: argument != value,
    "SCMP_CMP_GT": lambda value, argument, _two: argument > value,
    "SCMP_CMP_GE": lambda value, argument, _two: argument >= value,
    "SCMP_CMP_MASKED_EQ": lambda mask, argument, value: argument & mask == value,
}


def refuses(found: dict[str, Any], name: str, *arguments: int) -> bool:
    """Whether a call gets an error: conditions about different arguments hold together, those about one are
    alternatives (runc, libcontainer/seccomp/seccomp_linux.go)."""
    for entry in found["syscalls"]:
        if name not in entry["names"]:
            continue
        held: dict[int, bool] = {}
        for one in entry["args"]:
            given = arguments[one["index"]] if one["index"] < len(arguments) else 0
            holds = _HOLDS[one["op"]](one["value"], given, one.get("valueTwo", 0))
            held[one["index"]] = held.get(one["index"], False) or holds
        if all(held.values()):
            return True
    return False


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("nested", [True, False])
def test_what_no_container_does(machine: str, nested: bool) -> None:
    found = json.loads(profile(machine, nested=nested))
    for name in (
        "bpf",
        "io_uring_setup",
        "keyctl",
        "add_key",
        "perf_event_open",
        "kexec_load",
        "init_module",
        "ptrace",
    ):
        assert refuses(found, name), name
    for family in (3, 17, 38, 40):  # AX25, PACKET, ALG, VSOCK
        assert refuses(found, "socket", family, 1, 0), family
    for family in (1, 2, 10):
        assert not refuses(found, "socket", family, 1, 0), family


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_namespaces_are_the_launchers_where_commands_get_them(machine: str) -> None:
    nested, plain = (json.loads(profile(machine, nested=one)) for one in (True, False))
    for name in LAUNCHER:
        assert not refuses(nested, name, 0x10000000), name
    assert refuses(plain, "mount")
    for kind in (0x10000000, 0x20000, 0x40000000, 0x7E020000):  # CLONE_NEW*
        assert refuses(plain, "unshare", kind), kind
        assert refuses(plain, "clone", kind | 17), kind
    assert refuses(plain, "setns")
    assert not refuses(plain, "clone", 0x3D0F00)  # a thread
    assert not refuses(plain, "unshare", 0x400)  # CLONE_FILES


def test_of_netlink_only_what_a_commands_network_is_made_of() -> None:
    """Otherwise connections to unusual ports would be refused in containers, without a visible reason."""
    nested, plain = (json.loads(profile("x86_64", nested=one)) for one in (True, False))
    allowed = {number for number in range(64) if not refuses(nested, "socket", 16, 3, number)}
    assert allowed == {0, 12}
    assert {number for number in range(64) if not refuses(plain, "socket", 16, 3, number)} == {0}
