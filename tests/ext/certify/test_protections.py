"""Protections that rows of certification show: what the doctor says of them, and what the table of protections says."""

from __future__ import annotations

import pytest

from certify.document import certificates
from mudroom.cli.doctor.probe import diagnose
from mudroom.core.confinement.protection import PROTECTIONS, WAYS, Finding
from mudroom.errors import Unsupported
from mudroom.ext.certify.cli.certify import ROWS, protections
from mudroom.ext.certify.row import Certificate, RowResult, opens
from mudroom.ext.certify.table import TABLES
from mudroom.ext.certify.verdict import NOTHING_THERE

HELD = Certificate("linux", "Linux 6", "x86_64", 0, tuple(RowResult(row.name, "held") for row in ROWS))


def with_rows(system: str = "Linux 6", **changes: RowResult) -> dict[str, Finding]:
    """Return the findings with other results of rows."""
    rows = tuple(changes.get(row.name, row) for row in HELD.rows)
    return {finding.protection: finding for finding in protections(HELD._replace(system=system, rows=rows))}


def test_all_rows_held() -> None:
    findings = with_rows()
    assert set(findings) == set(ALL) and {finding.state for finding in findings.values()} == {"strict"}


ALL = {
    "nothing of the host in sight": ("plain_read", "listing", "project_read", "unix", "terminal", "arguments", "kill"),
    "no network": ("tcp", "udp", "ipv6", "lan", "multicast"),
}


@pytest.mark.parametrize("protection", ALL)
def test_a_row_that_fell_or_was_not_shown_is_said(protection: str) -> None:
    """Each row of a protection counts, and no other protection."""
    assert sorted(row.name for row in ROWS) == sorted(name for names in ALL.values() for name in names)
    for name in ALL[protection]:
        for verdict, state in (("fell", "missing"), ("not shown", "not probed")):
            findings = with_rows(**{name: RowResult(name, verdict, "as was found")})  # type: ignore[arg-type]
            assert findings[protection].state == state and name in findings[protection].found
            assert {one.state for other, one in findings.items() if other != protection} == {"strict"}


def test_rows_without_namespaces() -> None:
    """What is known of such a machine is degraded; more than that is missing."""
    system = "Linux 6 without namespaces"
    unix = RowResult("unix", "fell", "it was done")
    assert {with_rows(system, unix=unix)[name].state for name in ALL} == {"degraded"}
    assert all(with_rows(system)[name].fix for name in ALL)
    assert with_rows(system, tcp=RowResult("tcp", "fell"))["no network"].state == "missing"


def test_an_address_that_the_machine_has_not_is_no_gap() -> None:
    absent = RowResult("ipv6", "not shown", NOTHING_THERE)
    assert with_rows(ipv6=absent)["no network"].state == "strict"


def test_a_row_that_was_not_tried_is_not_probed() -> None:
    assert {one.state for one in protections(HELD._replace(rows=()))} == {"not probed"}


def test_a_row_for_which_no_command_ran_says_why() -> None:
    rows = tuple(RowResult(row.name, "not shown", "no command runs: none are permitted") for row in ROWS)
    findings = protections(HELD._replace(rows=rows))
    assert {one.state for one in findings} == {"not probed"}
    assert all("none are permitted" in one.found for one in findings)


NO_ROWS = Certificate("linux", "Linux 6", "x86_64", 0)


def test_the_rows_that_the_doctor_has() -> None:
    def run(*_asked: object) -> None:
        raise Unsupported("a sandbox", "nothing", "nothing")

    names = {found.protection for found in diagnose(run, protections(NO_ROWS), 0)} | {"limit: memory"}  # type: ignore[arg-type]
    assert {one.row for one in PROTECTIONS if one.row} <= names


def test_certified_is_said_of_systems_with_a_certificate_alone() -> None:
    """The rows of macOS and Windows name the systems of docs/certificates, and no other."""
    systems = sorted({one.system for one in certificates() if opens(TABLES[one.platform], one)})
    for way in WAYS.values():
        if way.platform in ("macOS", "Windows"):
            of_it = [system for system in systems if system.startswith(way.platform)]
            assert way.tested.startswith(f"certified on {', '.join(of_it)}" if of_it else "never"), way
            assert "certified" not in way.tested or of_it
