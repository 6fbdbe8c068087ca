"""The section of a review about an agent's settings: it stays short, and no change is left out of it."""

from __future__ import annotations

from typing import Any, cast

from mudroom.ext.agents.core.home_change import HomeChange
from mudroom.ext.agents.settings_review import settings_lines


class Home:
    """A copy whose files have the content that a test gives."""

    name = "codex"
    places = (b".codex", b".qwen")

    def __init__(self) -> None:
        self.here: dict[bytes, bytes] = {}
        self.there: dict[bytes, bytes] = {}

    def content(self, path: bytes) -> bytes | None:
        return self.there.get(path)

    def host_content(self, path: bytes) -> bytes | None:
        return self.here.get(path)


HOME = cast(Any, Home())


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
        "  ~/.codex/skills/own/  40 files: new",
    ]


def test_a_directory_says_all_that_was_done_in_it() -> None:
    changes = [new(f".qwen/skills/{number}.md") for number in range(20)]
    changes += [HomeChange(b".qwen/skills/old.md", "removed"), HomeChange(b".qwen/skills/x.md", "changed", True)]
    changes += [new(".qwen/settings.json")]
    assert lines(*changes) == [
        "  ~/.qwen/settings.json  new",
        "  ~/.qwen/skills/  22 files: new, removed, changed  (changed on the host, too)",
    ]


def test_files_beside_each_other_are_all_listed() -> None:
    assert len(lines(*[new(f".codex/{number}") for number in range(30)])) == 30


def test_no_change_has_no_section() -> None:
    assert settings_lines("codex", []) == []


def test_what_no_program_obeys_is_a_number() -> None:
    records = [
        new(f".codex/{name}") for name in ("state.db", "state.db-wal", "a.lock", "x/b.log", "history", "logs/1/a")
    ]
    assert lines(new(".codex/hooks/a"), *records) == [
        "  ~/.codex/hooks/a  new",
        "  and 6 files of codex's logs, databases, locks and histories",
    ]


def test_a_file_that_could_run_is_no_record_by_its_name() -> None:
    paths = (".codex/history.sh", ".codex/log", ".codex/plugins/cache/a.js", ".codex/db.json", ".codex/lockfile.toml")
    runs = HomeChange(b".codex/a.log", "new", mode=0o755)
    link = HomeChange(b".codex/b.log", "new", digest="link:/tmp/x")
    assert [line.split()[0] for line in lines(*map(new, paths), runs, link)] == [
        *(f"~/{path}" for path in paths), "~/.codex/a.log", "~/.codex/b.log",
    ]  # fmt: skip


def test_a_file_of_settings_names_the_members_that_differ() -> None:
    home = Home()
    home.here = {b".codex/s.json": b'{"model": "a", "theme": 1}', b".codex/config.toml": b"model = 'a'"}
    home.there = {
        b".codex/s.json": b'{"model": "a", "hooks": {"x": 1}, "env\\u001b": {}}',
        b".codex/config.toml": b"model = 'a'\n[mcp_servers.x]\ncommand = 'sh'",
        b".codex/broken.json": b"{",
    }
    changes = [HomeChange(path, "changed") for path in sorted(home.there)]
    assert settings_lines("codex", [(cast(Any, home), changes)])[1:-1] == [
        "  ~/.codex/broken.json  changed",
        "  ~/.codex/config.toml  changed: mcp_servers",
        "  ~/.codex/s.json  changed: env\\x1b, hooks, theme",
    ]
