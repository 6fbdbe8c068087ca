"""Where a program is found, and what has to be shown for it to start."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mudroom.ext.agents.session.host_program import find_program, needed_places

SYSTEM = [b"/usr", b"/bin", b"/lib", b"/etc"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = Path(os.path.realpath(tmp_path)) / "home"
    (home / ".claude").mkdir(parents=True)
    return home


def program(path: Path, first: str = "#!/bin/sh") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(first + "\n")
    path.chmod(0o755)
    return path


def link(path: Path, target: Path | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def places(home: Path, word: str, *search: Path, shown: tuple[Path, ...] = ()) -> list[str]:
    directories = [bytes(path) for path in search]
    found = find_program(word.encode(), directories, bytes(home))
    assert found is not None
    needed = needed_places(found, directories, bytes(home), [*SYSTEM, *map(bytes, shown)])
    return [os.fsdecode(path).removeprefix(str(home)) for path in needed]


def test_a_program_of_the_system_needs_nothing(home: Path) -> None:
    assert places(home, "sh", Path("/usr/bin")) == []


def test_a_link_to_a_version(home: Path) -> None:
    versions = home / ".local/share/claude/versions"
    program(versions / "2.1.7")
    link(home / ".local/bin/claude", versions / "2.1.7")
    found = find_program(b"claude", [bytes(home / ".local/bin")], b"/")
    assert found is not None
    assert (found.path, found.version) == (bytes(home / ".local/bin/claude"), "2.1.7")
    shown = (home / ".local/bin",)
    assert places(home, "claude", home / ".local/bin", shown=shown) == ["/.local/share/claude/versions"]
    assert places(home, "claude", home / ".local/bin") == ["/.local/bin", "/.local/share/claude/versions"]


def test_a_package_of_npm_with_its_interpreter(home: Path) -> None:
    modules = home / ".npm-global/lib/node_modules"
    program(modules / "@openai/codex/bin/codex.js", "#!/usr/bin/env -S -i A=1 node --x")
    (modules / "@openai/codex/package.json").write_text(json.dumps({"version": "0.169.0"}))
    link(home / ".npm-global/bin/codex", "../lib/node_modules/@openai/codex/bin/codex.js")
    program(home / "tools/node/node", "\x7fELF")
    link(home / "tools/bin/node", "../node/node")
    search = (home / ".npm-global/bin", home / "tools/bin")
    assert places(home, "codex", *search, shown=search) == ["/.npm-global/lib/node_modules", "/tools/node"]
    found = find_program(b"codex", [bytes(path) for path in search], b"/")
    assert found is not None
    assert found.version == "0.169.0"


def test_modules_inside_modules_are_shown_from_the_outermost(home: Path) -> None:
    program(home / "p/node_modules/a/node_modules/b/cli.js")
    link(home / "p/node_modules/.bin/b", "../a/node_modules/b/cli.js")
    assert places(home, str(home / "p/node_modules/.bin/b")) == ["/p/node_modules"]


def test_a_virtual_environment_is_shown_as_a_whole(home: Path) -> None:
    (home / "venv/bin").mkdir(parents=True)
    (home / "venv/pyvenv.cfg").touch()
    link(home / "venv/bin/python", "/usr/bin/python3")
    program(home / "venv/bin/mini", f"#!{home}/venv/bin/python")
    link(home / "links/mini", home / "venv/bin/mini")
    assert places(home, "mini", home / "links", shown=(home / "links",)) == ["/venv"]


def test_neither_the_home_nor_a_store_is_shown_as_a_whole(home: Path) -> None:
    program(home / "claude")
    assert places(home, "claude", home) == ["/claude"]
    program(home / ".claude/local/claude")
    link(home / "bin/claude", home / ".claude/local/claude")
    assert places(home, "claude", home / "bin") == ["/bin", "/.claude/local/claude"]
    program(home.parent / "outside")
    assert places(home, str(home.parent / "outside")) == [str(home.parent / "outside")]


def test_what_is_no_program(home: Path) -> None:
    (home / "text").write_text("")
    (home / "directory").mkdir()
    link(home / "loop", home / "loop")
    link(home / "gone", home / "nothing")
    for word in ("text", "directory", "loop", "gone", "nonesuch"):
        assert find_program(word.encode(), [bytes(home), b"relative", b""], b"/") is None
        assert find_program(bytes(home / word), [], b"/") is None


def test_interpreters_that_name_each_other_end(home: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        program(home / name / name, f"#!/usr/bin/env {other}")
    assert sorted(places(home, "a", home / "a", home / "b")) == ["/a", "/b"]


@pytest.mark.parametrize("text", ["[]", "{", '{"version": 1}', '{"version": "1\\u001b"}'])
def test_a_manifest_that_says_no_version(home: Path, text: str) -> None:
    program(home / "node_modules/x/x.js")
    (home / "node_modules/x/package.json").write_text(text)
    found = find_program(bytes(home / "node_modules/x/x.js"), [], b"/")
    assert found is not None
    assert found.version == ""
