"""The doctor's findings follow what its probes saw; and what it says of this machine is so."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from mudroom.cli.doctor.probe import ShellTrial, _by_rows, _crashes, certified, diagnose, examine
from mudroom.core import registry
from mudroom.core.confinement.protection import Finding
from mudroom.core.registry import is_installed
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported
from mudroom.sandbox.linux.forbidden import _read, why_forbidden
from tiers import each

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def _listening(*ports: int) -> bytes:
    """As /proc/net/tcp6 has it: number, local address, remote address, state (0A: listening)."""
    rows = b"".join(b"   0: %s:%04X %s:0000 0A 0 0 0\n" % (b"0" * 32, port, b"0" * 32) for port in ports)
    return b"  sl  local_address remote_address st\n" + rows + b"\nnet:[1]\n"


GOOD = {
    "ns/user": ShellTrial(b"user:[1]\n"),
    "rm -r d": ShellTrial(b"new\n", changed=2),
    "cat /proc/net/tcp": ShellTrial(_listening(3128, 53, 1)),
    "grep -E": ShellTrial(
        b"".join(b"Cap%s:\t0\n" % name for name in (b"Prm", b"Eff", b"Inh", b"Amb", b"Bnd")) + b"NoNewPrivs:\t1\n"
    ),
    "cd /proc/": ShellTrial(b"end\n"),
    'import socket; socket.socket(40, 1)" 2>&1': ShellTrial(b"Seccomp:\t2\n"),
    'import socket; socket.socket(40, 1)" 2>/dev': ShellTrial(b"end\n", denials=(b"socket",)),
}


BY_ROWS = [Finding("no network", "strict", "no address of the host can be reached")]


OWN = b"".join(os.readlink(f"/proc/self/ns/{kind}").encode() + b"\n" for kind in ("mnt", "pid", "net"))


def found(landlock: int = 7, **changes: ShellTrial) -> dict[str, Finding]:
    answers = {**GOOD, **{key.replace("__", " "): value for key, value in changes.items()}}

    def run(_settings: Settings, script: str) -> ShellTrial:
        return next(answer for part, answer in answers.items() if part in script)

    return {finding.protection: finding for finding in diagnose(run, BY_ROWS, landlock)}


def test_all_is_well() -> None:
    findings = found()
    assert {finding.state for finding in findings.values()} == {"strict"}
    assert not any(finding.fix for finding in findings.values())
    assert len(findings) == 9


@each(
    ("protection", "part", "saw", "state"),
    [
        ("a sandbox", "ns/user", ShellTrial(os.readlink("/proc/self/ns/user").encode() + b"\n"), "degraded"),
        ("the overlay view", "rm -r d", ShellTrial(b"new\n", changed=1), "missing"),
        ("the overlay view", "rm -r d", ShellTrial(error="no overlay"), "degraded"),
        ("the gate", "cat /proc/net/tcp", ShellTrial(_listening(3128, 53, 80, 443)), "degraded"),
        (
            "the gate",
            "cat /proc/net/tcp",
            ShellTrial(_listening(3128)),
            "degraded",
        ),  # a container without namespaces in it
        ("the gate", "cat /proc/net/tcp", ShellTrial(_listening()), "missing"),
        ("the gate", "cat /proc/net/tcp", ShellTrial(_listening(1) + b"http://127.0.0.1:4000\n" + OWN), "degraded"),
        ("the gate", "cat /proc/net/tcp", ShellTrial(_listening(1) + b"\n" + OWN), "missing"),
        ("the gate", "cat /proc/net/tcp", ShellTrial(error="no sandbox"), "not probed"),
        ("no privileges", "grep -E", ShellTrial(b"CapEff:\t1\n"), "missing"),
        ("no privileges", "grep -E", ShellTrial(b"CapEff:\t0\nCapBnd:\tff\nNoNewPrivs:\t1\n"), "degraded"),
        ("a first process that is nobody's to read", "cd /proc/", ShellTrial(b"/\nend\n"), "missing"),
        ("a first process that is nobody's to read", "cd /proc/", ShellTrial(error="no sandbox"), "not probed"),
        ("a system call filter", 'socket(40, 1)" 2>&1', ShellTrial(b"Seccomp:\t0\n"), "missing"),
        ("refusals are told", 'socket(40, 1)" 2>/dev', ShellTrial(b"end\n"), "degraded"),
        ("refusals are told", 'socket(40, 1)" 2>/dev', ShellTrial(b""), "not probed"),
    ],
)
def test_what_a_probe_saw_is_what_is_said(protection: str, part: str, saw: ShellTrial, state: str) -> None:
    def run(_settings: Settings, script: str) -> ShellTrial:
        return saw if part in script else next(answer for key, answer in GOOD.items() if key in script)

    findings = {finding.protection: finding for finding in diagnose(run, BY_ROWS, 7)}
    assert findings[protection].state == state
    assert {finding.state for name, finding in findings.items() if name != protection} == {"strict"}


def test_what_cannot_be_started_is_missing_and_says_why() -> None:
    def run(_settings: Settings, _script: str) -> ShellTrial:
        raise Unsupported("a sandbox", "namespaces", "none are permitted", "permit them")

    findings = diagnose(run, [], 0)
    assert all(finding.state != "strict" for finding in findings)
    assert "none are permitted" in findings[0].found
    assert {finding.state for finding in findings[2:-1]} == {"not probed"}
    assert all("none are permitted" in finding.found for finding in findings[:-1])


@pytest.mark.parametrize(("abi", "state"), [(0, "missing"), (5, "degraded"), (6, "strict"), (9, "strict")])
def test_landlock(abi: int, state: str) -> None:
    assert found(landlock=abi)["Landlock"].state == state


@pytest.mark.parametrize(
    ("settings", "marks", "why", "fix"),
    [
        ({"apparmor_restrict_unprivileged_userns": "1"}, (), "AppArmor", "profile mudroom /usr/bin/python3.11 flags="),
        ({"unprivileged_userns_clone": "0"}, (), "to users", "sysctl kernel.unprivileged_userns_clone=1"),
        ({"max_user_namespaces": "0"}, (), "permits none", "sysctl user.max_user_namespaces="),
        ({"max_user_namespaces": "15000"}, ("/.dockerenv",), "container's own filter", "--security-opt seccomp="),
        (
            {"current": "python3 (enforce)"},
            (),
            "the AppArmor profile python3 forbids them",
            "add the rule `userns,` to",
        ),
        (
            {"current": "docker-default (enforce)"},
            ("/.dockerenv",),
            "container's own filter",
            "--security-opt seccomp=",
        ),
        ({"current": "python3 (complain)"}, (), "this kernel", "CONFIG_USER_NS"),
        ({"current": "unconfined"}, (), "this kernel", "CONFIG_USER_NS"),
        ({}, (), "this kernel", "CONFIG_USER_NS"),
    ],
)
def test_the_exact_fix_is_named(settings: dict[str, str], marks: tuple[str, ...], why: str, fix: str) -> None:
    found, told = why_forbidden(
        "/usr/bin/python3.11", lambda path: settings.get(path.rpartition("/")[2], ""), lambda path: path in marks
    )
    assert why in found and fix in told


def test_the_profile_of_a_long_path_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "current").write_text(f"/opt/{'d' * 90}/python3 (enforce)\n")
    told, _fix = why_forbidden(
        "python3",
        lambda path: _read(str(tmp_path / "current")) if path.endswith("current") else "",
        lambda _path: False,
    )
    assert told == f"the AppArmor profile /opt/{'d' * 90}/python3 forbids them"


@pytest.mark.parametrize(
    ("pattern", "most", "state"),
    [
        ("core", -1, "strict"),
        ("core", 0, "strict"),
        ("|/usr/lib/systemd/systemd-coredump %P", -1, "strict"),
        ("|/usr/lib/systemd/systemd-coredump %P", 0, "degraded"),
        ("@/run/crash.socket", -1, "degraded"),
    ],
)
def test_where_crashes_go(pattern: str, most: int, state: str) -> None:
    found = _crashes(pattern, most)
    assert found.state == state and bool(found.fix) is (state != "strict")


def test_this_machine(tmp_path: Path) -> None:
    """Every protection is probed for real; the same must be found twice."""
    for name in ("a", "b", "home"):
        (tmp_path / name).mkdir()
    home = os.fsencode(tmp_path / "home")
    first, second = (
        examine(os.fsencode(tmp_path / name), home=home, environ={b"PATH": os.environb[b"PATH"]}) for name in "ab"
    )
    assert [one._replace(found=re.sub(r"/a([ /])", r"/b\1", one.found)) for one in first] == second
    rows = (2 if is_installed("certify") else 1) + (4 if is_installed("containers") else 0) + is_installed("engine")
    assert len(first) == 16 + rows
    assert all(finding.fix for finding in first if finding.state != "strict")


def test_what_certification_would_show_is_not_probed_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "is_installed", lambda satellite: satellite != "certify")
    (row,) = _by_rows(b"/nowhere", b"/nowhere", {})
    assert (row.state, row.found) == (
        "not probed",
        "mudroom doctor --certify is not part of this installation: it lacks mudroom/ext/certify",
    )
    (record,), is_open = certified(b"/nowhere")
    assert record.state == "missing" and record.fix and not is_open
