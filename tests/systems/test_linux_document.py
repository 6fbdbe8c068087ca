"""docs/evidence/LINUX.md is what its stored rows give; a rerun replaces a row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from linux_document import DOCUMENT, OPTIONS, STEPS, STORED, WSL, document, lacking, merged, row_of

ROW: dict[str, Any] = {
    "system": "s", "distribution": "D", "kernel": "6.1.0", "machine": "x86_64", "python": "3.11.2", "user": "u",
    "date": "2026-12-01", "commit": "0", "held": list(STEPS), "protections": 20, "weaker": {"Landlock": "ABI 2 | old"},
}  # fmt: skip


def test_the_document_is_what_the_rows_give() -> None:
    assert DOCUMENT.read_text() == document(json.loads(STORED.read_text()))


def test_every_stored_row_held_its_first_minute_and_let_nothing_out_unexplained() -> None:
    for row in json.loads(STORED.read_text()):
        assert row["held"] == list(STEPS), row["system"]
        assert row.get("out", {}) == {} or row["weaker"], row["system"]


def test_a_rerun_replaces_the_row_and_rows_are_by_kernel() -> None:
    rows = merged([{**ROW, "kernel": "6.12.1", "system": "t"}, {**ROW, "date": "2026-01-01"}], ROW)
    assert [(row["system"], row["date"]) for row in rows] == [("s", "2026-12-01"), ("t", "2026-12-01")]


def test_a_step_that_did_not_hold_is_told() -> None:
    told = document([{**ROW, "held": ["run"], "tried": 402, "answered": 400, "out": {"watch": "seen"}}])
    assert "| only run | 19 of 20 | 1 | 400 of 402 |" in told
    assert "| s | Landlock | ABI 2 \\| old |" in told
    assert "| watch | s | seen |" in told


def test_the_last_row_of_a_run_counts() -> None:
    lines = ["booting", json.dumps({"linux": {"a": 1}}), "noise", json.dumps({"linux": {"a": 2}})]
    assert row_of(lines) == {"a": 2}
    assert row_of(["nothing"]) is None


@pytest.mark.parametrize(
    ("configuration", "missing"),
    [
        ("\n".join(f"CONFIG_{option}=y" for option in OPTIONS), []),
        ("\n".join(f"CONFIG_{option}=m" for option in OPTIONS if option != "NFT_REDIR"), ["NFT_REDIR"]),
        ("# CONFIG_USER_NS is not set", list(OPTIONS)),
    ],
)
def test_what_a_configuration_lacks(configuration: str, missing: list[str]) -> None:
    assert lacking(configuration) == missing


def test_what_wsl_lacks() -> None:
    """Every option is in the stored excerpt, set or not: none is taken for missing because it was not copied."""
    text = WSL.read_text()
    assert [
        option for option in OPTIONS if f"CONFIG_{option}=" not in text and f"CONFIG_{option} is not set" not in text
    ] == []
    assert lacking(text) == ["BLK_DEV_THROTTLING"]
