"""docs/evidence/KNOWN.md, made from ``published.toml`` by ``python -m tests.conformance.published``. No test is here.

A row is evidence only if it names a test that runs: ``tests/session/test_published.py`` checks each.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs/evidence/KNOWN.md"

_HEAD = """# Published holes, and what holds them here

Made from `tests/conformance/published.toml` by `python -m tests.conformance.published`; a test compares them and checks
that each test, attempt, line and path that a row names is there and holds.

Each row is a published hole of an agent sandbox, allowlist, trust dialog, hook or proxy that has a mechanism, found in
another product. The list is of what was published up to November 2026 and could be looked up; holes whose mechanism was
not published are not in it. *Held*: **yes** by the named part; **partly**: the sentence says what is left; **other**:
mudroom has no such part. An identifier is a CVE or GHSA number, an issue of the product, or the name under which the
hole was published.

The tests are the attempts of [ESCAPES.md](ESCAPES.md) and [BYPASSES.md](BYPASSES.md), lines of shell with their class
([COMMANDS.md](../COMMANDS.md)), paths that an apply flags ([RUNS_LATER.md](RUNS_LATER.md)), and tests of their own.
"""


class Hole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published hole, and the tests that try it here."""

    id: str
    product: str
    month: str
    mechanism: str
    held: str
    by: str
    escapes: tuple[str, ...] = ()
    bypasses: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    @property
    def evidence(self) -> int:
        return sum(map(len, (self.escapes, self.bypasses, self.lines, self.flagged, self.tests)))


def holes() -> list[Hole]:
    """Return all rows. Raise msgspec.ValidationError if a row has an unknown field, or lacks one."""
    rows = tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))["hole"]
    return msgspec.convert(rows, list[Hole])


def _code(text: str) -> str:
    shown = text.strip().replace("\n", "␤").replace("|", "\\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def _tried(hole: Hole) -> str:
    parts = [f"escapes: {', '.join(hole.escapes)}"] if hole.escapes else []
    parts += [f"bypasses: {', '.join(hole.bypasses)}"] if hole.bypasses else []
    parts += [f"lines: {', '.join(map(_code, hole.lines))}"] if hole.lines else []
    parts += [f"flagged: {', '.join(map(_code, hole.flagged))}"] if hole.flagged else []
    parts += [f"tests: {', '.join(_code(test.rpartition('::')[2]) for test in hole.tests)}"] if hole.tests else []
    return "; ".join(parts)


def document() -> str:
    """Return the text of docs/evidence/KNOWN.md."""
    rows = sorted(holes(), key=lambda hole: hole.month, reverse=True)
    counts = ", ".join(f"{sum(row.held == held for row in rows)} {held}" for held in ("yes", "partly", "no", "other"))
    table = [f"{len(rows)} rows: {counts}.", "", "| published | in | id | mechanism | held | by | tried by |"]
    table.append("| --- | --- | --- | --- | --- | --- | --- |")
    table += [
        f"| {row.month} | {row.product} | {row.id} | {row.mechanism} | **{row.held}** | {row.by} | {_tried(row)} |"
        for row in rows
    ]
    return _HEAD + "\n" + "\n".join(table) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
