"""docs/evidence/AGENTS.md and the agents that are installed: the same ones, in the same versions."""

from __future__ import annotations

import json
import re

from agents_document import DOCUMENT, document, read

from mudroom.ext.agents.catalog import Catalog

PINNED = dict(
    re.findall(r"^(\S+) +(?:npm|pypi) +\S+ +(\S+)$", (DOCUMENT.parents[2] / "dev/agents").read_text(), re.MULTILINE)
)


def test_the_document_is_of_the_pinned_versions() -> None:
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| level 1 \| 25 of 25 \| none \| untouched \| right \| a row \|$",
        DOCUMENT.read_text(),
        re.MULTILINE,
    )
    assert {**dict(rows), "aider": PINNED["aider"]} == PINNED, "dev/agents --table"  # aider has no tools
    assert len(PINNED) == 14


def test_profiles_were_tried_with_these_versions() -> None:
    for name, version in PINNED.items():
        assert version.startswith(Catalog().profile(name).tested + "."), name


def row(how: str, user: str, **figures: object) -> str:
    return json.dumps(
        {"agent": "claude", "version": "2.1.3", "how": how, "user": user, "played": 25, "leaks": [], **figures}
    )


def test_a_table_of_a_run() -> None:
    inside = {"untouched": True, "applied": True}
    costs = {"bare_seconds": 1.0, "inside_seconds": 1.5, "ratio": 1.5, "bare_call": 0.01, "inside_call": 0.02}
    text = document(
        read(
            [
                row("bare", "user", leaks=["exfil", "key"]),
                row("level 1", "user", **inside),
                row("level 1, planted", "user", row=True),
                row("level 0", "user", **inside | {"applied": False, "leaks": ["exfil"]}),
                row("start", "user", **costs),
                row("level 1", "root", **inside | {"played": 9}),
                row("level 0", "root", **inside | {"applied": False, "leaks": ["exfil"]}),
            ]
        )
    )
    assert "| claude | 2.1.3 | bare | 25 of 25 | exfil, key | | | |\n" in text
    assert "| claude | 2.1.3 | level 1 | 25 of 25 | none | untouched | right | a row |\n" in text
    assert "| claude | 2.1.3 | level 0 | 25 of 25 | exfil | untouched | **wrong** |  |\n" in text
    assert "| claude | 1.00 | 1.50 | 1.50 | 0.010 | 0.020 |\n" in text
    assert "As root 1 of 2 runs ended the same; it differs in claude level 1." in text


def test_only_the_last_run_counts() -> None:
    rows = read([row("bare", "user", played=3), row("bare", "user")])
    assert rows["user"]["claude", "bare"]["played"] == 25


def test_rows_that_a_run_does_not_have_stay() -> None:
    inside = {"untouched": True, "applied": True}
    costs = {"bare_seconds": 1.0, "inside_seconds": 1.5, "ratio": 1.5, "bare_call": 0.01, "inside_call": 0.02}
    first = document(read([row("bare", "user"), row("level 1", "user", **inside), row("start", "user", **costs)]))
    first = document(read([row("learned", "user", questions=4, again=0)]), first)
    text = document(read([row("level 1", "user", agent="kilo", **inside), row("bare", "user", played=3)]), first)
    assert "| claude | 4 | 0 |\n" in text
    assert "| claude | 2.1.3 | bare | 3 of 25 | none | | | |\n| claude | 2.1.3 | level 1 | 25 of 25 |" in text
    assert "| kilo | 2.1.3 | level 1 | 25 of 25 | none | untouched | right |  |\n" in text
    assert "| claude | 1.00 | 1.50 | 1.50 | 0.010 | 0.020 |\n" in text
    assert "The last run\nhas rows of kilo, claude;\nthe other rows are of earlier runs, each of mudroom as it" in text
