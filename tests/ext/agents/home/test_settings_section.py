"""The section of a review about an agent's settings: it stays short, and no change is left out of it."""

from __future__ import annotations

from typing import Any, cast

from mudroom.ext.agents.core.home_change import HomeChange
from mudroom.ext.agents.settings_review import settings_lines

HOME = cast(Any, None)  # of the copy only the name is asked for, elsewhere


def lines(*changes: HomeChange) -> list[str]:
    return settings_lines("codex", [(HOME, list(changes))])[1:-1]


def new(path: str) -> HomeChange:
    return HomeChange(path.encode(), "new")


def test_few_changes_are_listed() -> None:
    assert lines(new(".codex/config.toml"), new(".codex/hooks/a")) == [
        "  ~/.codex/config.toml  new",
        "  ~/.codex/hooks/a  new",
    ]


def test_a_directory_of_many_is_one_line() -> None:
    skills = [new(f".codex/skills/own/{number}.md") for number in range(40)]
    shown = lines(HomeChange(b".codex/config.toml", "changed"), new(".codex/hooks/a"), *skills)
    assert shown == [
        "  ~/.codex/config.toml  changed",
        "  ~/.codex/hooks/a  new",
        "  ~/.codex/skills/  40 files: new",
    ]


def test_a_directory_says_all_that_was_done_in_it() -> None:
    changes = [new(f".qwen/skills/{number}.md") for number in range(20)]
    changes += [HomeChange(b".qwen/skills/old.md", "removed"), HomeChange(b".qwen/skills/x.md", "changed", True)]
    changes += [new(".qwen/settings.json")]
    assert lines(*changes) == [
        "  ~/.qwen/skills/  22 files: new, removed, changed  (changed on the host, too)",
        "  ~/.qwen/settings.json  new",
    ]


def test_files_beside_each_other_are_all_listed() -> None:
    assert len(lines(*[new(f".codex/{number}") for number in range(30)])) == 30


def test_no_change_has_no_section() -> None:
    assert settings_lines("codex", []) == []
