"""The settings reference in ``docs/POLICY.md``, from the settings table. ``dev/policy`` writes it. No test is here."""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.policy.settings_table import ROWS

HEADING = "| key | default | several files | loosens | meaning |"


def reference_table() -> str:
    """Return the table in Markdown, one row for each key."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEADING
    yield "| --- | --- | --- | --- | --- |"
    for row in ROWS:
        cells = (f"`{row.key}`", row.default, row.merge, row.loosening.text, row.help)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
