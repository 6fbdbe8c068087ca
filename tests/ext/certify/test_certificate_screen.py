"""A certificate on a screen: for people who have never seen one, within the terminal."""

from __future__ import annotations

import pytest

from mudroom.ext.certify.cli.certificate import every_row, screen
from mudroom.ext.certify.row import VERDICTS, Certificate, RowResult, Verdict
from mudroom.ext.certify.table import KINDS, TABLES


def plain(text: str, _style: str) -> str:
    return text


def certificate(platform: str, verdict: Verdict, *failed: str) -> Certificate:
    found = "it was refused by EHOSTUNREACH, not by the sandbox"
    rows = tuple(
        RowResult(row.name, verdict if not failed or row.name in failed else "held", found) for row in TABLES[platform]
    )
    return Certificate(platform, "Linux 6.18.44-fc-v657 without namespaces", "x86_64", 0, rows)


@pytest.mark.parametrize("platform", TABLES)
@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12), (200, 50)])
def test_it_fits(platform: str, verdict: Verdict, columns: int, rows: int) -> None:
    lines = screen(certificate(platform, verdict), plain, columns, rows)
    assert len(lines) <= rows - 1 and all(len(line) <= columns for line in lines), "\n".join(lines)


def test_it_begins_with_what_it_is() -> None:
    lines = screen(certificate("linux", "held"), plain)
    assert lines[0].startswith("How mudroom's sandbox holds on this machine.")
    assert lines[lines.index("", 5) + 1].startswith("Linux 6")
    assert sum(" of " in line and line.strip()[0].isdigit() for line in lines) == len(
        {row.kind for row in TABLES["linux"]}
    )


def test_a_row_that_did_not_hold_is_named_with_its_reason_and_what_follows() -> None:
    text = " ".join("\n".join(screen(certificate("linux", "not shown", "clone"), plain)).split())
    assert "clone not shown, it was refused by EHOSTUNREACH" in text and "files are copied whole" in text
    assert "plain_read" not in text


def test_on_linux_nothing_is_said_to_be_closed() -> None:
    text = "\n".join(screen(certificate("linux", "fell", "plain_read", "tcp"), plain))
    assert "plain_read fell" in text and "no command runs" not in text


def test_what_is_closed_is_said_on_a_platform_that_opens_by_a_record() -> None:
    text = "\n".join(screen(certificate("darwin", "fell", "tcp"), plain))
    assert "certified" in text and "closed: commands run with network: open alone: tcp fell" in text


def test_all_has_each_row() -> None:
    lines = every_row(certificate("darwin", "held"), plain)
    assert [line.split()[0] for line in lines][: len(TABLES["darwin"])] == [row.name for row in TABLES["darwin"]]


def test_each_class_has_words() -> None:
    assert {row.kind for table in TABLES.values() for row in table} == set(KINDS)
    assert all(len(words) <= 69 for words in KINDS.values())
