"""The table of protections: whole, as the document has it, and true where the code can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from certify.document import certificates
from mudroom.cli.doctor.probe import diagnose
from mudroom.core.confinement.protection import PROTECTIONS, WAYS, Protection, document, rows
from mudroom.errors import Unsupported
from mudroom.ext.certify.row import Certificate, opens
from mudroom.ext.certify.table import TABLES

ROOT = Path(__file__).parents[3]


def test_the_document_is_made_from_it() -> None:
    text = (ROOT / "docs/PROTECTIONS.md").read_text()
    assert text == document(), "python -m mudroom doctor --table >docs/PROTECTIONS.md"


@pytest.mark.parametrize("one", PROTECTIONS, ids=lambda one: one.name)
def test_every_way_says_what_it_does(one: Protection) -> None:
    assert set(one.by) == set(WAYS)
    assert set(one.tested) <= set(WAYS)
    assert all(text and "|" not in text and "\n" not in text for text in (*one.by.values(), *one.tested.values()))


NO_ROWS = Certificate("linux", "Linux 6", "x86_64", 0)


def test_the_rows_that_the_doctor_has() -> None:
    def run(*_asked: object) -> None:
        raise Unsupported("a sandbox", "nothing", "nothing")

    names = {found.protection for found in diagnose(run, NO_ROWS, 0)} | {"limit: memory"}  # type: ignore[arg-type]
    assert {one.row for one in PROTECTIONS if one.row} <= names


def test_nothing_is_said_to_be_tried_where_it_was_not() -> None:
    for name, level, platform, _by, tested in rows():
        if platform in ("macOS", "Windows", "an engine in a virtual machine"):
            assert tested.startswith("never"), (name, level, platform)
    assert len(list(rows())) == len(PROTECTIONS) * len(WAYS)


def test_certified_is_said_of_systems_with_a_certificate_alone() -> None:
    """The rows of macOS and Windows name the systems of docs/certificates, and no other."""
    systems = sorted({one.system for one in certificates() if opens(TABLES[one.platform], one)})
    for way in WAYS.values():
        if way.platform in ("macOS", "Windows"):
            of_it = [system for system in systems if system.startswith(way.platform)]
            assert way.tested.startswith(f"certified on {', '.join(of_it)}" if of_it else "never"), way
            assert "certified" not in way.tested or of_it
