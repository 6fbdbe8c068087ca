"""Verdicts, certificates, and what they close."""

from __future__ import annotations

from mudroom.ext.certify import volume
from mudroom.ext.certify.deed import DEEDS
from mudroom.ext.certify.row import (
    CLOSED,
    VERDICTS,
    Certificate,
    RowResult,
    TrialRow,
    Verdict,
    closed,
    opens,
    results,
    sentence,
)
from mudroom.ext.certify.table import LINUX, MACOS, TABLES, WINDOWS
from mudroom.sandbox.platform import BY_RECORD

TABLE = (
    TrialRow("a", "files", "", "plain_write", "tree"),
    TrialRow("b", "network", "", "connect_tcp", "connection", "network"),
    TrialRow("c", "processes", "", "daemon", "process", "leftovers"),
)
ALL_HELD = Certificate("darwin", "macOS 1 A", "arm64", 0, tuple(RowResult(row.name, "held") for row in TABLE))


def with_verdict(name: str, verdict: Verdict) -> Certificate:
    rows = tuple(row._replace(verdict=verdict) if row.name == name else row for row in ALL_HELD.rows)
    return ALL_HELD._replace(rows=rows)


def test_only_held_opens() -> None:
    assert opens(TABLE, ALL_HELD) and closed(TABLE, ALL_HELD) == {}
    for verdict in VERDICTS:
        assert opens(TABLE, with_verdict("a", verdict)) is (verdict == "held")


def test_without_a_certificate_all_is_closed() -> None:
    assert not opens(TABLE, None)
    assert set(closed(TABLE, None)) == {"platform", "network", "leftovers"}
    assert all(result.verdict == "not shown" for result in results(TABLE, None))


def test_a_row_closes_what_it_declares_and_no_more() -> None:
    fallen = with_verdict("b", "fell")
    assert opens(TABLE, fallen)
    assert list(closed(TABLE, fallen)) == ["network"]
    assert sentence("network", closed(TABLE, fallen)["network"]) == f"{CLOSED['network']}: b fell"


def test_a_row_that_is_missing_is_not_shown() -> None:
    assert not opens(TABLE, ALL_HELD._replace(rows=ALL_HELD.rows[1:]))


def test_each_row_closes_what_it_declares() -> None:
    held = ALL_HELD._replace(rows=tuple(RowResult(row.name, "held") for row in MACOS))
    assert opens(MACOS, held)
    for row in MACOS:
        for verdict in VERDICTS[1:]:
            rows = tuple(one._replace(verdict=verdict) if one.name == row.name else one for one in held.rows)
            assert list(closed(MACOS, held._replace(rows=rows))) == [row.closes], row.name


def test_an_empty_table_opens_nothing() -> None:
    assert not opens((), ALL_HELD)


def test_the_table_is_complete() -> None:
    assert len({row.name for row in MACOS}) == len(MACOS)
    assert {name for row in MACOS if row.way != "vault" for name in (row.deed, row.twin) if name} <= set(DEEDS)
    of_the_vault = {row.deed for row in (*MACOS, *WINDOWS) if row.way == "vault"}
    assert of_the_vault == set(volume.DEEDS)
    assert {row.closes for row in (*MACOS, *WINDOWS)} == set(CLOSED)
    assert all(row.tries for row in MACOS)
    assert set(BY_RECORD) <= set(TABLES)
    assert {row.name for row in LINUX} <= {row.name for row in MACOS}, "one table"
